"""The parts of a server that answer, without a protocol."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from proxy.engine.engine import Engine
from proxy.process.watchdog import Watchdog
from proxy.query.executor import Statements
from proxy.tail.housekeeping import Keeper
from proxy.tail.tails import Tails


@dataclass(frozen=True, slots=True)
class Parts:
    """Started parts. Who started them stops them."""

    statements: Statements
    pins: PinCache
    tails: Tails
    keeper: Keeper
    watchdog: Watchdog
    store: IcebergStore
    engine: Engine

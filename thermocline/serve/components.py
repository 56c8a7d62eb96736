"""The parts of a server that answer, without a protocol; its tails are made from settings here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from connectors.cuts import cut_tables
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from connectors.kafka.admin import DeleteRetention, RetentionReader
from connectors.registry.decoders import Decoders
from connectors.registry.registries import SchemaRegistries
from planner.names import TableName
from planner.ports import Log
from proxy.engine.engine import Engine
from proxy.process.watchdog import Watchdog
from proxy.query.executor import Statements
from proxy.tail.budget import TailLimits, TailSpace
from proxy.tail.followed_table import FollowSettings
from proxy.tail.housekeeping import Keeper
from proxy.tail.pacing import IN_PROCESS
from proxy.tail.reader.child import Ingestion
from proxy.tail.reader.readers import local_readers, remote_readers
from proxy.tail.tails import Tails
from thermocline.config.settings import Settings


@contextlib.contextmanager
def running_tails(
    settings: Settings,
    log: Log,
    pins: PinCache,
    engine: Engine,
    ingestion: Ingestion | None,
    decoders: Decoders,
) -> Iterator[tuple[Tails, Keeper]]:
    """Follow the tables in use, by ``ingestion`` or else in this process; stop at the end.

    Raises:
        BadConfig: a configured table's name is invalid.
    """
    server, tail = settings.server, settings.tail
    tables = tuple(TableName.parse(name) for name in tail.follow)
    limits = TailLimits(server.max_tail_rows, server.max_tail_bytes, server.fetch_timeout_s)
    following = FollowSettings(tables=tables, idle_s=tail.idle_s, max_tables=tail.max_tables)
    with contextlib.ExitStack() as stack:
        space = TailSpace(tail.max_memory_bytes, tail.max_disk_bytes)
        readers = local_readers(log, decoders, pacing=IN_PROCESS)
        if ingestion is not None:
            readers = remote_readers(ingestion, readers, decoders)
        tails = Tails(
            *(readers, engine.segments, limits),
            check_schemas=decoders.check,
            heritages=decoders.heritage,
            delete_retention=DeleteRetention(lambda: RetentionReader(settings.clusters)),
            following=following,
            space=space,
            is_serving=lambda: engine.watch.idle_s < IN_PROCESS.serving_s,
        )
        stack.callback(tails.close)
        keeper = Keeper(
            tails,
            tables=tables,
            pins=lambda: [status.pin for status in pins.status() if status.pin is not None],
            cut=lambda table: cut_tables(pins, log, [table])[table],
        )
        keeper.start()
        stack.callback(keeper.stop)
        yield tails, keeper


@dataclass(frozen=True, slots=True)
class Components:
    """Started parts. Who started them stops them."""

    statements: Statements
    pins: PinCache
    tails: Tails
    keeper: Keeper
    watchdog: Watchdog
    store: IcebergStore
    engine: Engine
    registries: SchemaRegistries
    decoders: Decoders

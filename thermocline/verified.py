"""Verifies tables one after the other in the process that ``thermocline.verifying`` starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from connectors.kafka.admin import is_compacted
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.decoders import Decoders
from connectors.registry.registries import SchemaRegistries
from connectors.verification.comparing import Extent
from connectors.verification.run import Verification
from planner.errors import FederationError
from planner.names import TableName
from planner.seam.cut import Pin
from planner.verification.findings import Report
from thermocline.cold_rows import EngineColdRows, cold_engine
from thermocline.verifying import VerifyRequest

Send = Callable[[object], None]


def verify_each(request: VerifyRequest, send: Send, spill: Path) -> None:
    """Send the tables, then for each its progress and its report, its error, or None where it is passed over.

    Raises:
        FederationError: what concerns all tables.
    """
    settings, steps = request.settings, _Steps(send)
    with (
        cold_engine(settings, spill) as (store, auditor, engine),
        KafkaClusters(settings.require_clusters()) as log,
        SchemaRegistries(settings.registries) as registries,
    ):
        decoders = Decoders(registries.of)

        def verified(name: TableName) -> Report | None:
            audit = auditor.audit(name)
            pin = audit.pin
            if request.bound_only and isinstance(pin, Pin) and pin.binding is None:
                return None
            compacted = (
                isinstance(pin, Pin)
                and pin.watermark is not None
                and is_compacted(settings.clusters, pin.watermark.address)
            )
            return Verification(
                audit,
                log,
                EngineColdRows(engine, store, audit),
                decoders,
                Extent(request.with_values, request.since_ms, compacted),
                steps,
            ).run()

        names = request.names or store.tables()
        send(list(names))
        for name in names:
            try:
                send(verified(name))
            except FederationError as error:
                send(error)


class _Steps:
    """Sends progress as (step, offsets)."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def start(self, total: int) -> None:
        self._send(("start", total))

    def advance(self, offsets: int) -> None:
        self._send(("advance", offsets))

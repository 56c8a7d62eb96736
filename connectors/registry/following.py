"""Brings writers' schemas into tables, for the process that tiers: those that tasks met, and newly registered ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from connectors.registry.decoders import TIMEOUT_S
from connectors.registry.shipping import SchemaShipping, Shipment
from connectors.registry.subjects import lacking
from connectors.registry.table_schemas import Commit, take_up
from planner.errors import SchemasNeeded
from planner.evolution.changes import Evolving
from planner.evolution.ledger import NO_SCHEMA
from planner.names import TableName
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry

#: How often a subject is asked for new versions, all tables together.
LOOK_S = 10.0


class SchemaFollower:
    """The schemas of the writers of this process's tables. Thread-safe.

    ``registry_of`` is ``connectors.registry.registries.SchemaRegistries.of``; ``commit`` is
    ``connectors.iceberg.evolve.evolve_table`` of its catalogs.
    """

    def __init__(
        self,
        registry_of: Callable[[str, str], SchemaRegistry],
        commit: Commit,
        *,
        timeout_s: float = TIMEOUT_S,
        look_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shipping = SchemaShipping(registry_of, timeout_s=timeout_s, clock=clock)
        self._commit = commit
        self._clock = clock
        self._look_s = look_s
        self._lock = threading.Lock()
        self._look_at_s: dict[TableName, float] = {}

    def shipment(self, table: TableName, binding: Binding) -> Shipment:
        """See ``SchemaShipping.of_ledger``."""
        return self._shipping.of_ledger(table, binding)

    def take_up(
        self, table: TableName, binding: Binding, ids: Collection[int]
    ) -> SchemasNeeded:
        """Bring the schemas that tasks met into the table; return why the round is to be planned again.

        Raises:
            As ``connectors.registry.table_schemas.take_up``.
        """
        done = take_up(table, binding, ids, self._shipping.decoders, self._commit)
        changes = [] if done is None else list(map(str, done.changes))
        what = f" ({', '.join(changes)})" if changes else ""
        numbers = ", ".join(map(str, sorted(ids)[:5])) + (", …" if len(ids) > 5 else "")
        return SchemasNeeded(
            f"{table}: records have schemas that were new (ids {numbers}); the table has taken them up{what}, so its round is "
            f"planned again.",
            table=str(table),
            ids=" ".join(map(str, sorted(ids))),
        )

    def follow(self, table: TableName, binding: Binding) -> tuple[Evolving, ...] | None:
        """Bring versions of the topic's subjects into the table that its ledger lacks; every ``look_s``; None: not now.

        Raises:
            BadConfig: as ``connectors.registry.subjects.lacking``.
            As ``connectors.registry.table_schemas.take_up``.
        """
        form = binding.format
        if not isinstance(form, AvroFormat) or form.fixed or form.evolution == "none":
            return None
        with self._lock:
            now_s = self._clock()
            if now_s < self._look_at_s.get(table, 0.0) or self._shipping.is_silent(form):
                return None
            self._look_at_s[table] = now_s + self._look_s
        versions = self._shipping.versions(table, binding, self._look_s)
        ids = self._shipping.of_versions(
            table, binding, {each.id for each in lacking(versions, binding, form)}
        )
        decoders, noted = self._shipping.decoders, form.ledger.fingerprints
        fingerprints = decoders.writers(str(table), binding).fingerprints
        ids -= {each for each in ids & noted.keys() if fingerprints[each] in NO_SCHEMA}
        done = take_up(table, binding, ids, decoders, self._commit)
        return () if done is None else (done,)

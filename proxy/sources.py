"""The rows a statement reads: which relations stand for its tables at their cuts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import pyarrow as pa

from planner.cut import Pin, TableCut
from planner.errors import UnknownTable
from planner.ports import ArrowRelation, ColdStore, SqlRelation
from planner.pruning import EVERYTHING, Wanted
from planner.schema import TableSchema
from planner.seam import SEAM_SCHEMA, seam_rows
from planner.statement.references import CutKey, ResolvedTable, Virtual, quoted
from proxy import information_schema
from proxy.cuts import Pins
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.flightsql.backend import Browsing, Session
from proxy.grants import Grants, Seen
from proxy.narrowing import narrowed
from proxy.once import Once
from proxy.reading import Read, listing_name, relation_name
from proxy.tail import Tails
from proxy.wanted import Asking, wanted


class Sources:
    """Relations of cuts. Thread-safe."""

    def __init__(
        self,
        *,
        pins: Pins,
        store: ColdStore,
        tails: Tails,
        engine: Engine,
        browsing: Browsing,
        grants: Grants,
    ) -> None:
        self._pins = pins
        self._store = store
        self._tails = tails
        self._engine = engine
        self._browsing = browsing
        self._grants = grants
        self._once = Once()

    def empty(
        self,
        session: Session,
        read: Read,
        known: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> list[Relation]:
        """Relations without rows, of the types a statement over ``known`` reads.

        Raises:
            PermissionsMismatch, NotAllowed: as ``proxy.grants.Grants.seen``.
        """
        return [
            Relation(relation_name(found), self._empty(session, found, known[found.key]))
            for found in read.tables
        ] + [
            Relation(listing_name(name), information_schema.SCHEMAS[name])
            for name in read.browsed
        ]

    def relations(
        self,
        session: Session,
        read: Read,
        cuts: Mapping[CutKey, TableCut],
        asking: Asking,
        check: Callable[[], None],
        stack: contextlib.ExitStack,
    ) -> list[Relation]:
        """Name the rows of every side the statement reads; ``stack`` gives the tails back.

        Waits for the tails. ``check`` is called meanwhile: it raises when the statement is no longer wanted.
        """
        tails: dict[CutKey, tuple[SqlRelation, ...]] = {}
        for found in read.tables:
            cut = cuts[found.key]
            if (
                found.virtual in (None, "tail")
                and cut.hot is not None
                and cut.new_hot
                and found.key not in tails
            ):
                tail = stack.enter_context(self._tails.read(cut, check))
                tails[found.key] = tail.relations
        return [
            self._relation(
                found,
                cuts[found.key],
                tails.get(found.key, ()),
                self.wanted(session, found, cuts[found.key], read, asking),
                self.seen(session, found, cuts[found.key]),
            )
            for found in read.tables
        ] + [self._listing(name, session) for name in read.browsed]

    def seen(self, session: Session, found: ResolvedTable, known: Pin | TableCut) -> Seen:
        """Return what a session sees of a table.

        Raises:
            PermissionsMismatch, NotAllowed: as ``proxy.grants.Grants.seen``.
        """
        return self._grants.seen(session, found, _columns(known))

    def wanted(
        self,
        session: Session,
        found: ResolvedTable,
        cut: TableCut,
        read: Read,
        asking: Asking,
    ) -> Wanted:
        """Return which cold rows can matter; of a side without files, nothing is worked out.

        What is asked of a masked column is asked of its mask, of which the files know nothing.
        """
        if found.virtual in ("tail", "seam") or cut.cold.snapshot_id is None:
            return EVERYTHING
        places, schema = read.asked[found], self.seen(session, found, cut).plain
        if not all(conjunct.is_fixed for place in places for conjunct in place):
            return wanted(self._engine, asking, places, schema)
        return self._once.get(
            (
                *("wanted", places, cut.table_uuid, schema.schema_id, schema.names),
                asking.time_zone,
            ),
            lambda: wanted(self._engine, asking, places, schema),
            chars=read.chars,
        )

    def _relation(
        self,
        found: ResolvedTable,
        cut: TableCut,
        tail: tuple[SqlRelation, ...],
        rows: Wanted,
        seen: Seen,
    ) -> Relation:
        parts: list[SqlRelation | ArrowRelation] = []
        if found.virtual == "seam":
            parts.append(
                ArrowRelation(
                    pa.Table.from_pylist(
                        seam_rows(cut, self._pins.facts(cut.table)), schema=SEAM_SCHEMA
                    )
                )
            )
        side = _side(found, cut)
        if side in (None, "cold"):
            if cut.is_cold_whole:
                parts.append(self._store.scan(cut.cold, rows))
            elif cut.new_cold:
                scan = self._store.scan(cut.cold, rows)
                parts.append(narrowed(scan, cut.new_cold, cut.news))
        if side in (None, "tail"):
            if cut.news is not None and not cut.news.is_everything:
                parts.extend(narrowed(part, cut.new_hot, cut.news) for part in tail)
            else:
                parts.extend(tail)
        return Relation(relation_name(found), _schema(found, cut), tuple(parts), seen.shown)

    def _empty(
        self, session: Session, found: ResolvedTable, known: Pin | TableCut
    ) -> TableSchema | pa.Schema:
        schema, seen = _schema(found, known), self.seen(session, found, known)
        return seen.schema if isinstance(schema, TableSchema) else schema

    def _listing(self, name: str, session: Session) -> Relation:
        rows = information_schema.rows(name, self._browsing, session)
        return Relation(listing_name(name), rows.schema, (ArrowRelation(rows),))


def _side(found: ResolvedTable, known: Pin | TableCut) -> Virtual | None:
    """The side that is read: a table without a topic has but one, whatever a contract says."""
    return None if found.by_contract and known.binding is None else found.virtual


def _schema(found: ResolvedTable, known: Pin | TableCut) -> TableSchema | pa.Schema:
    if _side(found, known) in ("tail", "seam") and known.binding is None:
        raise UnknownTable(
            f"{found.table} is not bound to a topic, so there is no "
            f"{quoted(f'{found.table.name}${found.virtual}')}.",
            table=str(found.table),
        )
    if found.virtual == "seam":
        return SEAM_SCHEMA
    return _columns(known)


def _columns(known: Pin | TableCut) -> TableSchema:
    return known.schema if isinstance(known, Pin) else known.cold.schema

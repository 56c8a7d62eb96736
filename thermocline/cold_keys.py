"""Joins the keys of a log's changes with those of cold, for ``verify``, in the engine that serves cold.

A part of all keys at a time, by their hash. Only numbers are aggregated: such aggregates go to disk where memory is short, and
those of other types do not (DuckDB 1.5.5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from connectors.verification.keyed import CODE, ChangeCount
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from planner.sql_text import identifier
from planner.verification.keys import KeyChange, KeyState
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation

#: Above every offset, so that partition and offset, or code, fit into one number.
_BASE = 1 << 64
#: Rows and changes that are joined at once.
BUCKET_ENTRIES = 2_000_000
_COLD, _CHANGES = "cold", "changes"


@dataclass(frozen=True, slots=True)
class EngineChanges:
    """``connectors.verification.keyed.KeyedChanges`` in a table of the engine, which the caller drops.

    ``schema`` is what it has of a change, with the names of ours for the columns ``key`` of ``cold``, which is named so.
    """

    engine: Engine
    segment: str
    schema: pa.Schema
    cold: Relation
    key: Sequence[str]

    @contextlib.contextmanager
    def adding(self) -> Iterator[Callable[[pa.RecordBatch], None]]:
        with self.engine.segments.appending(self.segment, self.schema) as add:
            yield add

    def count(self, compared: Sequence[OffsetRange]) -> ChangeCount:
        total = ChangeCount(0, 0, 0)
        for bucket in self._buckets():
            newest = (
                f"SELECT {self._names}, max({CODE}) AS code FROM ({self._inside(compared, bucket)}) "  # noqa: S608
                f"GROUP BY {self._names}, p"
            )
            by_key = f"SELECT count(*) AS n, count_if(code % 2 = 0) AS u FROM ({newest}) GROUP BY {self._names}"  # noqa: S608
            sql = f"SELECT sum(u), sum(n) - sum(u), count_if(n > 1) FROM ({by_key})"  # noqa: S608
            [numbers] = self._run(sql)
            total += ChangeCount(*(int(number or 0) for number in numbers))
        return total

    def suspects(self, compared: Sequence[OffsetRange]) -> Iterator[KeyState]:
        for bucket in self._buckets():
            yield from self._suspects(compared, bucket)

    def _suspects(self, compared: Sequence[OffsetRange], bucket: str) -> Iterator[KeyState]:
        rows = f"SELECT {self._keys}, {KAFKA_PARTITION} AS p, {KAFKA_OFFSET} AS row_offset FROM {_COLD}"  # noqa: S608
        cold = f"SELECT *, NULL::BIGINT AS code, 1 AS n FROM ({rows}) WHERE {bucket}"  # noqa: S608
        changes = (
            f"SELECT {self._names}, p, NULL::BIGINT AS row_offset, {CODE} AS code, 0 AS n "  # noqa: S608
            f"FROM ({self._inside(compared, bucket)})"
        )
        by_partition = (
            f"SELECT {self._names}, p, sum(n)::BIGINT AS n, max(row_offset) AS row_offset, max(code) AS code "  # noqa: S608
            f"FROM ({cold} UNION ALL {changes}) GROUP BY {self._names}, p"
        )
        by_key = (
            f"SELECT sum(n)::BIGINT AS n, max({_BASE}::HUGEINT * p + row_offset) AS place, "  # noqa: S608
            f"max(code) FILTER (n > 0) AS own, max({_BASE}::HUGEINT * p + code) AS newest, max(code % 2) AS has_delete "
            f"FROM ({by_partition}) GROUP BY {self._names}"
        )
        numbers = (
            f"SELECT n, (place // {_BASE})::INTEGER AS p, (place % {_BASE})::BIGINT AS row_offset, own, "  # noqa: S608
            f"(newest // {_BASE})::INTEGER AS newest_p, (newest % {_BASE})::BIGINT AS newest, has_delete FROM ({by_key})"
        )
        sql = (
            f"SELECT n, p, row_offset, {_is_inside('row_offset', compared)}, own, newest_p, newest, has_delete FROM ({numbers}) "  # noqa: S608
            f"WHERE NOT coalesce(n = 1 AND own = 2 * row_offset, false) AND NOT coalesce(n = 0 AND has_delete = 1, false) "
            f"AND NOT coalesce(n = 1 AND newest IS NULL AND NOT {_is_inside('row_offset', compared)}, false) "
            f"ORDER BY p, row_offset, newest_p, newest"
        )
        for n, p, at, is_retained, own, newest_p, newest, has_delete in self._run(sql):
            yield KeyState(
                rows=n,
                row=None if at is None else OffsetRange(p, at, at + 1),
                is_retained=bool(is_retained),
                own=None if own is None or p is None else KeyChange(p, own),
                any=None if newest is None else KeyChange(newest_p, newest),
                has_delete=has_delete == 1,
            )

    @property
    def _names(self) -> str:
        return ", ".join(self.schema.names[:-2])

    @property
    def _keys(self) -> str:
        """The key's columns of cold under names of ours: theirs may be any."""
        names = zip(self.key, self.schema.names, strict=False)
        return ", ".join(f"{identifier(theirs)} AS {ours}" for theirs, ours in names)

    def _buckets(self) -> Iterator[str]:
        """Yield conditions on a key, each for the keys that are joined at once."""
        [(entries,)] = self._run(
            f"SELECT (SELECT count(*) FROM {_COLD}) + (SELECT count(*) FROM {_CHANGES})"  # noqa: S608
        )
        count = 1 + entries // BUCKET_ENTRIES
        for bucket in range(count):
            yield f"hash({self._names}) % {count} = {bucket}"

    def _inside(self, compared: Sequence[OffsetRange], bucket: str) -> str:
        """Return the SELECT of the changes that count: retention may have removed newer ones than others since they were read."""
        where = _is_inside(f"{CODE} // 2", compared)
        rows = f"SELECT {self._names}, {KAFKA_PARTITION} AS p, {CODE} FROM {_CHANGES}"  # noqa: S608
        return f"SELECT * FROM ({rows}) WHERE {where} AND {bucket}"  # noqa: S608

    def _run(self, sql: str) -> Iterator[tuple[int, ...]]:
        document = self.engine.parse(sql)
        rows = SqlRelation(f"SELECT * FROM {self.segment}", is_native=True)  # noqa: S608
        relations = [self.cold, Relation(_CHANGES, self.schema, (rows,))]
        with self.engine.run(document, relations) as result:
            for batch in result:
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _is_inside(offset: str, compared: Sequence[OffsetRange]) -> str:
    """Return SQL that tells whether an offset of partition ``p`` is in one of the ranges, one a partition."""
    cases = " ".join(
        f"WHEN {span.partition} THEN {offset} >= {span.start} AND {offset} < {span.stop}"
        for span in compared
    )
    return f"(CASE p {cases} ELSE false END)" if cases else "false"

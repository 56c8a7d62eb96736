"""The interfaces that carry out the planner's plans. Implementations live in ``connectors``.

Each port has a real implementation and one in memory (``tests.doubles``); both pass the tests in ``tests/contract``.
For failures of the outside world, implementations raise errors of ``planner.errors`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from planner.evolution.writer_types import WriterIds
from planner.names import KAFKA_HEADERS, KAFKA_KEY, TableName
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.reading.filters import (
    EVERY_FILE,
    EVERYTHING,
    Bounds,
    FileSpan,
    ScanFilter,
    in_ranges,
    rows_within,
)
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import ColdSlice, LogBounds, Pin, PinReference
from planner.seam.snapshots import Retained
from planner.seam.watermark import Outcomes, Watermark
from planner.tiering.plan import TieringPlan
from planner.tiering.triggers import ColdSurvey


@dataclass(frozen=True, slots=True)
class TopicSource:
    """What to read of a topic: its records' values, and their keys and headers where a decoder reads them.

    ``topic_id`` is the id that offsets were measured on; None: the topic that has the name now.
    """

    topic: str
    topic_id: str | None = None
    with_key: bool = False
    with_headers: bool = False

    @classmethod
    def of(cls, decoder: Decoder, topic: str, topic_id: str | None = None) -> TopicSource:
        """Name what ``decoder`` reads of a topic."""
        return cls(topic, topic_id, KAFKA_KEY in decoder.reads, KAFKA_HEADERS in decoder.reads)


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One step along a log.

    ``batch`` (``RAW_SCHEMA``, maybe without rows) has every committed record of ``ranges``, and no other, once
    confirmed. A partition's range begins where its previous one ended. ``epochs``: of the last record of each partition
    that has one, the leader epoch it was written under.
    """

    batch: pa.RecordBatch
    ranges: tuple[OffsetRange, ...]
    epochs: Mapping[int, int] = field(default_factory=dict)


class LogSubscription(Protocol):
    """A reader that goes on along one topic. Not thread-safe; the caller closes it."""

    def take(self, timeout_s: float) -> LogBatch | None:
        """Return the next step; None if nothing came within ``timeout_s``.

        Raises:
            OffsetsExpired, LogTruncated, TopicRecreated, UnknownTopic, LogUnavailable: as ``Log.fetch``.
        """

    def begin_confirm(self) -> Callable[[], None]:
        """Send the check that all steps since the last call were complete, and of the right topic.

        The result waits for the answer; call it once, on any thread, also while a step is taken. If it raises (as
        ``take``), throw those steps away.
        """

    def close(self) -> None:
        """Stop reading."""


class Log(Protocol):
    """A Kafka cluster, read by committed readers. Thread-safe."""

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        """Measure all partitions of all topics in one round: ends are last stable offsets.

        Raises:
            UnknownTopic: a topic does not exist.
            LogUnavailable: a broker, or the leader of any partition, did not answer in time.
        """

    def fetch(
        self,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        *,
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield every committed record of ``ranges`` once, as batches of ``RAW_SCHEMA``.

        At most one range per partition (``planner.offsets.joined``). ``epochs``: where the caller has the records below a
        start, a leader epoch under which the log held them; the brokers prove that it still does (KIP-320).

        Batches mix partitions; offsets rise within a partition. A normal end means every range was read to
        its stop; anything less raises; then throw away what was yielded. The iterator may be closed early, which
        frees its consumer.

        Raises:
            OffsetsExpired: an offset of the ranges is below the log start (before, while or after reading).
            LogTruncated: a stop lies above the log end, its partition is gone, or the log lost records below a start.
            TopicRecreated: the topic is not the one of ``source.topic_id``, or was replaced while it was read.
            UnknownTopic: the topic is gone.
            LogUnavailable: no broker, or a range's end was not reached within ``timeout_s``.
        """

    def follow(
        self,
        source: TopicSource,
        starts: Mapping[int, int],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> LogSubscription:
        """Read on from an offset per partition, for as long as the reader is open. ``epochs`` as for ``fetch``.

        Raises:
            As ``fetch``; most come from the reader's own calls.
        """

    def check_history(
        self, source: TopicSource, offsets: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None:
        """Check that the log still has what it held below an offset of each partition under a leader epoch.

        Raises:
            LogTruncated: it lost some of it, and may have other records there now.
            OffsetsExpired, TopicRecreated, UnknownTopic, LogUnavailable: as ``fetch``.
        """


@dataclass(frozen=True, slots=True)
class SqlRelation:
    """A relation the engine can name: a SELECT, columns in schema order and types.

    ``is_native``: over values or the engine's own tables, whose types and statistics are exact; else over files. ``without_nan`` are
    columns in which no file has NaN, as its writer counted. ``without_zero``: subset of ``without_nan`` whose files hold no
    zero of either sign.
    """

    sql: str
    is_native: bool = False
    without_nan: frozenset[str] = frozenset()
    without_zero: frozenset[str] = frozenset()

    def within(self, ranges: Sequence[OffsetRange], since_us: int | None = None) -> SqlRelation:
        """Return the rows in ``ranges`` (one a partition, at least one), of that time or later (microseconds since 1970)."""
        return replace(self, sql=rows_within(self.sql, ranges, since_us))


@dataclass(frozen=True, slots=True)
class ArrowRelation:
    """A relation in memory. Never a reader: a statement may read it twice."""

    table: pa.Table

    def within(
        self, ranges: Sequence[OffsetRange], since_us: int | None = None
    ) -> ArrowRelation:
        """Return the rows in ``ranges``, as ``SqlRelation.within``."""
        # The one kind that stores have is without rows: one condition for each partition would be for nothing.
        if not self.table.num_rows:
            return self
        return ArrowRelation(self.table.filter(in_ranges(ranges, since_us)))


@dataclass(frozen=True, slots=True)
class ColdTotals:
    """Totals of a snapshot by its summary; None where it does not tell. ``bytes`` are of its files."""

    records: int | None = None
    files: int | None = None
    bytes: int | None = None


class ColdStore(Protocol):
    """Iceberg catalogs. Thread-safe."""

    def catalogs(self) -> tuple[str, ...]:
        """Name the catalogs, sorted, without contacting them."""

    def tables(self, catalog: str | None = None) -> tuple[TableName, ...]:
        """List the tables of one catalog, or of all, sorted. Raises CatalogUnavailable: no answer."""

    def pin(self, table: TableName) -> Pin:
        """Read the table's newest metadata and resolve the watermark from its own ancestry.

        Raises:
            UnknownTable, CatalogUnavailable, ColdStoreUnavailable, BadBinding, UnsupportedType,
            WatermarkMissing, WatermarkUnreadable, ForeignCommit.
        """

    def pin_at(self, reference: PinReference) -> Pin:
        """Rebuild a pin of ``pin`` or ``pin_version``, also another replica's.

        Raises:
            SnapshotExpired: the table is another one now, or no longer lists that metadata file.
            As ``pin`` otherwise.
        """

    def pin_version(self, pin: Pin, snapshot_id: int) -> Pin:
        """Pin another snapshot that the metadata file of ``pin`` retains, in the schema it was written with.

        Contacts no catalog.

        Raises:
            CutExpired: it does not retain that snapshot.
            SnapshotExpired: the metadata file itself is gone.
            As ``pin`` otherwise: the watermark is that of the snapshot's own ancestry.
        """

    def retained(self, pin: Pin) -> Retained:
        """Return the snapshots that the metadata file of ``pin`` retains. Contacts no catalog.

        Raises:
            SnapshotExpired, ColdStoreUnavailable: as ``scan``.
        """

    def scan(
        self,
        cold: ColdSlice,
        rows: ScanFilter = EVERYTHING,
        names: Collection[str] | None = None,
        span: FileSpan = EVERY_FILE,
    ) -> SqlRelation | ArrowRelation:
        """Name the rows of a slice, projected to its schema by field id.

        Rows that ``rows`` leaves out may be left out, none need be; the same for columns that are not in ``names``. Of
        ``span`` no other files' rows are named.

        Raises:
            SnapshotExpired: the snapshot or one of its files is gone.
            ColdStoreUnavailable: a file of it is damaged, or cannot be read now.
            StalePlan: its files are not to be told apart, and ``span`` is not all of them.
        """

    def file_positions(
        self, cold: ColdSlice, rows: ScanFilter = EVERYTHING
    ) -> Sequence[tuple[int, int]] | None:
        """Return position (``planner.reading.filters``) and bytes of the files that ``scan`` would name; None: not to be told apart.

        Raises:
            As ``scan``.
        """

    def totals(self, cold: ColdSlice) -> ColdTotals:
        """Return the totals of a slice, for people; reads no data. Raises as ``scan``."""

    def count_rows(self, cold: ColdSlice) -> int | None:
        """Count the rows of a slice as its writers did, without opening data files; None where only reading tells.

        Raises:
            As ``scan``.
        """

    def bounds(self, cold: ColdSlice, name: str) -> Bounds | None:
        """Return the statistics of a column in every file of a slice, as its writers gave them; None where rows may be deleted.

        Raises:
            As ``scan``.
        """

    def count_files(self, cold: ColdSlice, rows: ScanFilter = EVERYTHING) -> int | None:
        """Count the files ``scan`` would name; None where it names none and lets the engine choose.

        Raises:
            As ``scan``.
        """


def all_ids(first: WriterIds, second: WriterIds) -> WriterIds:
    """Return the ids of the records of both."""
    return None if first is None or second is None else first | second


@dataclass(frozen=True, slots=True)
class Decoded:
    """One raw batch after decoding.

    ``rows`` has the table's schema, metadata columns included. ``outcomes`` counts every record of the batch. With
    ``needs`` both are to be thrown away: a decoder that was given what these ids name must decode the batch again.
    ``writer_ids`` are the schemas that its records were written with, by which alone they were read; None: not known.
    """

    rows: pa.RecordBatch
    outcomes: Outcomes
    needs: frozenset[int] = frozenset()
    writer_ids: WriterIds = None


class Decoder(Protocol):
    """Turns raw batches into rows of one (schema, binding). The same code on both sides of the seam."""

    @property
    def reads(self) -> frozenset[str]:
        """The columns of ``RAW_SCHEMA`` that it reads; a batch may have NULL in the other optional ones."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode one batch of ``RAW_SCHEMA``; never dies of a payload.

        Raises:
            UndecodableRecord: policy ``fail`` and a record does not decode.
        """


#: Builds the decoder of a table by its name; raises as ``connectors.decoding.registry.decoder_for``.
DecoderFactory = Callable[[str, TableSchema, Binding], Decoder]


@dataclass(frozen=True, slots=True)
class Staged:
    """Files that are written but not visible until ``publish`` adds them to the table.

    ``log_bytes`` is the size of the records' values in the log. ``schemas`` are the fingerprints, by id, of the writers'
    schemas that tasks were given. No record was decoded by another one. ``base``: of a keyed table, the snapshot in which
    the rows that its changes replace were looked up.
    """

    plan: TieringPlan
    reference: str
    outcomes: Outcomes
    log_bytes: int = 0
    schemas: Mapping[int, str] = field(default_factory=dict)
    base: int | None = None


class TieringTarget(Protocol):
    """One bound table, seen by a tierer. Not thread-safe; one process may hold several."""

    def pin(self) -> Pin:
        """Read the newest state, as ``ColdStore.pin``."""

    def survey(self) -> ColdSurvey:
        """Read how the table wants to be tiered and how large its files are.

        Raises:
            BadBinding: as ``planner.tiering.triggers.parse_options``.
            UnknownTable, CatalogUnavailable, ColdStoreUnavailable: as ``pin``.
        """

    def stage(self, plan: TieringPlan) -> Staged:
        """Read the plan's splits from the log, decode, write data files that no reader sees.

        Raises:
            SchemasNeeded: records had schemas that the table has only now taken up. Plan again.
        """

    def publish(self, staged: Staged) -> Watermark:
        """Make the staged rows, the new watermark, its mirror and its tag visible in one transaction.

        Raises:
            TieringConflict: the table's watermark is not the plan's start any more, or its ledger lacks a schema that tasks
                were given. Nothing changed; plan again.
            SchemaRegistryChanged: its ledger has another schema under an id of theirs. Nothing changed.
            ForeignCommit: another writer added rows above the watermark. Nothing changed.
        """

    def discard(self, staged: Staged) -> None:
        """Forget staged files (best effort; their branch keeps them until then)."""

    def cancel(self) -> None:
        """Make a running ``stage`` fail soon. Called from another thread; publishing is left alone."""

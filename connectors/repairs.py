"""Carries out a person's decision about a table that refuses to answer (``planner.repairs``), over any table and log.

Each is shown to the person first and commits on what was shown. No Spark: a decision is a commit without rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from connectors.table_facts import Evidence, TableFacts, decide_pin, with_statistics
from planner.covering import RowsOfHead, cover
from planner.errors import (
    BadBinding,
    BadParameter,
    TieringConflict,
    UndecodableRecord,
    WatermarkMissing,
    not_for_keyed,
)
from planner.evolution.ledger import SCHEMAS, SchemaLedger
from planner.names import KAFKA_VALUE, TableName, shell_word
from planner.offsets import OffsetRange
from planner.ports import DecoderFactory, Log, TopicSource
from planner.repairs import (
    MAX_REASON_CHARACTERS,
    AddedRows,
    accept_foreign,
    accept_gap,
    accept_schemas,
    accept_shape,
    lost_ranges,
    skip_record,
)
from planner.seam.binding import Binding, parse_binding
from planner.seam.cut import LogBounds, Pin
from planner.seam.watermark import Skip, Watermark

FETCH_TIMEOUT_S = 30.0
#: Each is a decision of a person.
_MAX_ERAS = 100


class RepairEvidence(Evidence, Protocol):
    """The facts of a table that the resolver needs, and the rows of other writers."""

    def rows(self, snapshot_id: int) -> AddedRows | None:
        """Describe the rows that a snapshot added; None when they cannot be read."""


#: Takes the newest metadata and returns the watermark to commit on it; raises to refuse.
Decide = Callable[[TableFacts, RepairEvidence], Watermark]


class RepairCommitter(Protocol):
    """Commits decisions: a watermark, its mirror and its tag, without rows, in one transaction."""

    def amend(
        self,
        table: TableName,
        decide: Decide,
        properties: Callable[[], Mapping[str, str]] = dict,
    ) -> Watermark:
        """Commit the result of ``decide`` on the head it got, with the table properties of then, or nothing.

        When another commit comes first, calls ``decide`` again.

        Raises:
            As ``decide``.
            UnknownTable, CatalogUnavailable, ColdStoreUnavailable.
        """

    def look(self, table: TableName, decide: Decide) -> Watermark:
        """Return the result of ``decide`` for the newest metadata, and commit nothing."""


@dataclass(frozen=True, slots=True)
class Repairs:
    """The decisions that need the log, over one committer and one log."""

    amender: RepairCommitter
    log: Log

    def gap(self, pin: Pin) -> tuple[OffsetRange, ...]:
        """Return the offsets that retention took of a pinned table before they were tiered."""
        return lost_ranges(_mark(pin), self._bounds(_mark(pin)))

    def _bounds(self, mark: Watermark) -> LogBounds:
        return self.log.measure([mark.address])[mark.address]

    def accept_gap(self, table: TableName, expected: Sequence[OffsetRange]) -> Watermark:
        """Give up the gap that the person saw and move the watermark to the log start.

        Raises as ``planner.repairs.accept_gap``, ``decide_pin`` and ``RepairCommitter.amend``.
        """

        def decide(facts: TableFacts, evidence: RepairEvidence) -> Watermark:
            pin = decide_pin(facts, evidence)
            return accept_gap(pin, self._bounds(_mark(pin)), expected, run=_run())

        return self.amender.amend(table, decide)

    def skip(
        self,
        table: TableName,
        skips: Sequence[Skip],
        decoder_for: DecoderFactory,
        *,
        force: bool = False,
    ) -> Watermark:
        """Give up records that do not decode; with ``force``, any.

        Raises:
            BadParameter: a record decodes and ``force`` is not set.
            As ``planner.repairs.skip_record``, ``decide_pin`` and ``RepairCommitter.amend``.
        """
        for skip in skips:
            if len(skip.reason) > MAX_REASON_CHARACTERS:
                raise BadParameter(
                    f"the reason has {len(skip.reason)} characters, at most {MAX_REASON_CHARACTERS} are kept."
                )

        def decide(facts: TableFacts, evidence: RepairEvidence) -> Watermark:
            pin = decide_pin(facts, evidence)
            after = skip_record(pin, self._bounds(_mark(pin)), skips, run=_run())
            if not force:
                for skip in skips:
                    self._check_undecodable(pin, skip, decoder_for)
            return after

        return self.amender.amend(table, decide)

    def _check_undecodable(self, pin: Pin, skip: Skip, decoder_for: DecoderFactory) -> None:
        mark, binding = _mark(pin), pin.binding
        if binding is None:
            raise ValueError(f"{pin.table} is not bound to a topic")
        decoder = decoder_for(str(pin.table), pin.schema, binding)
        batches = self.log.fetch(
            TopicSource.of(decoder, mark.address, mark.topic_id),
            [OffsetRange(skip.partition, skip.offset, skip.offset + 1)],
            timeout_s=FETCH_TIMEOUT_S,
        )
        what = "there is no record: a transaction marker, an aborted or a compacted one"
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                decoder.decode(batch)
            except UndecodableRecord:
                return
            what = f"the record decodes under error policy {binding.on_error}"
            if batch.column(KAFKA_VALUE).null_count:
                what = "the record is a tombstone"
        raise BadParameter(
            f"{pin.table}: partition {skip.partition}, offset {skip.offset}: {what}, so it stops nobody; say "
            f"--force to leave it out all the same.",
            table=str(pin.table),
            partition=skip.partition,
            offset=skip.offset,
        )


def moving_shape(expected: Pin) -> Decide:
    """Go on with another shape (``planner.repairs.accept_shape``): that of the pin that the person looked at. Needs no log.

    It raises ``NotForKeyedTables``: the key may be another one, and rows of before are one for each key of then.
    """

    def decide(facts: TableFacts, evidence: RepairEvidence) -> Watermark:
        after = accept_shape(decide_pin(facts, evidence), expected, run=_run())
        way = f"read it all again, with `thermocline rebuild {shell_word(facts.table)}`"
        _check_appends(facts.table, after, "to go on with another shape", way)
        return after

    return decide


class AcceptingSchemas:
    """Goes on with what the registry says today (``planner.repairs.accept_schemas``). Needs no log.

    A property that is no ledger counts as an empty one, unless a newer program wrote it.
    """

    def __init__(self, fingerprints: Callable[[Binding], Mapping[int, str]]) -> None:
        """``fingerprints`` asks the registry for the ids of a binding's ledger."""
        self._fingerprints = fingerprints
        self._texts: set[str | None] = set()
        self.ledger = SchemaLedger()

    def properties(self) -> dict[str, str]:
        """Return the table properties to commit with the last decision."""
        return {SCHEMAS: self.ledger.text}

    def __call__(self, facts: TableFacts, evidence: RepairEvidence) -> Watermark:
        self._texts.add(facts.properties.get(SCHEMAS))
        if len(self._texts) > 1:
            raise TieringConflict(
                f"{facts.table}: the ledger is not the one that was shown any more; nothing was changed, look again.",
                table=str(facts.table),
            )
        pin = _pin_of_ledger(facts, evidence)
        today = {} if pin.binding is None else self._fingerprints(pin.binding)
        mark, self.ledger = accept_schemas(pin, today, run=_run())
        return mark


def _pin_of_ledger(facts: TableFacts, evidence: RepairEvidence) -> Pin:
    """Decide the pin, also where property ``thermocline.schemas`` is no ledger: an empty one, of the era of the rows."""
    try:
        SchemaLedger.parse(facts.table, facts.properties.get(SCHEMAS))
    except BadBinding as bad:
        if "rule" in bad.facts:
            raise
        others = {key: text for key, text in facts.properties.items() if key != SCHEMAS}
        for era in range(_MAX_ERAS):
            properties = {**others, SCHEMAS: SchemaLedger({}, era).text}
            pin = decide_pin(replace(facts, properties=properties), evidence)
            mark, binding = pin.watermark, pin.binding
            if mark is None or binding is None or binding.gives_rows_of(mark.shape, pin.schema):
                return pin
        return decide_pin(replace(facts, properties=others), evidence)
    return decide_pin(facts, evidence)


def accepting(
    table: TableName, snapshot_ids: Sequence[int], counts: dict[int, AddedRows]
) -> Decide:
    """Let the rows of other writers' snapshots stay (``planner.repairs.accept_foreign``). Needs no log.

    Enters in ``counts`` the rows that each of them added. It raises ``NotForKeyedTables``: there may be a row of their keys.
    """

    def decide(facts: TableFacts, evidence: RepairEvidence) -> Watermark:
        head, retained = _head(facts), facts.history.snapshots
        history = with_statistics(facts.history, head, evidence)
        rows = {
            each: evidence.rows(each) if each in retained else None for each in snapshot_ids
        }
        after = accept_foreign(table, history, head, snapshot_ids, rows, run=_run())
        way = "roll the table back to the snapshot before it, and write such rows to the topic"
        _check_appends(table, after, "to let rows of another writer stay", way)
        counts.update({key: count for key, count in rows.items() if count is not None})
        return after

    return decide


def covering(table: TableName, rows: RowsOfHead, named: Mapping[int, int]) -> Decide:
    """Say that the table covers everything below a watermark (``planner.repairs.cover``). Needs no log.

    It raises ``TieringConflict`` when ``rows`` are not those of the newest snapshot any more, and ``NotForKeyedTables``: of the
    rows that expired snapshots changed nothing says which are the newest of their keys.
    """

    def decide(facts: TableFacts, evidence: RepairEvidence) -> Watermark:
        if parse_binding(table, facts.properties) is None:
            raise BadParameter(f"{table}: the table is not bound to a topic.", table=str(table))
        head = _head(facts)
        if head != rows.head:
            raise TieringConflict(
                f"{table}: somebody committed since its rows were read; nothing was changed, look again.",
                table=str(table),
            )
        history = with_statistics(facts.history, head, evidence)
        after = cover(table, history, head, rows, named, run=_run())
        _check_appends(table, after, "to say what it covers", "create it again from its topic")
        return after

    return decide


def _check_appends(table: TableName, mark: Watermark, what: str, way: str) -> None:
    if mark.mode == "upsert":
        raise not_for_keyed(table, what, way)


def _head(facts: TableFacts) -> int:
    if facts.head is None:
        name = str(facts.table)
        raise WatermarkMissing(f"{name}: the table has no snapshot.", table=name)
    return facts.head


def _mark(pin: Pin) -> Watermark:
    if pin.watermark is None:
        name = str(pin.table)
        raise BadParameter(f"{name}: the table is not bound to a topic.", table=name)
    return pin.watermark


def _run() -> str:
    return str(uuid.uuid4())

"""``"table$schemas"``: the schemas of a table's writers, one row per id, subject and version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from planner.evolution.ledger import NO_SCHEMA, SchemaLedger
from planner.offsets import OffsetRange
from planner.seam.binding import Binding
from planner.seam.cut import HotSlice
from planner.seam.formats import AvroFormat


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """What a registry says of one id: ``mark`` is a fingerprint, or one of ``NO_SCHEMA``; None: it was not asked."""

    id: int
    mark: str | None = None
    record: str | None = None
    subjects: tuple[tuple[str, int], ...] = ()


#: By schema id, the offsets between which a tail may have rows of it; None: where it may have those of any id.
RangesOfIds = Mapping[int | None, Sequence[OffsetRange]]
NO_RANGES: RangesOfIds = MappingProxyType({})

#: ``tail`` are the first and the last offset of a partition, both included, between which rows with the id are; NULL where this
#: server has read none. ``record`` is the full name, or the kind of a schema that is no record.
SCHEMAS_SCHEMA = pa.schema(
    [
        pa.field("schema_id", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("version", pa.int32()),
        pa.field("record", pa.string()),
        pa.field("state", pa.string()),
        pa.field(
            "tail",
            pa.list_(
                pa.struct(
                    [
                        pa.field("partition", pa.int32()),
                        pa.field("first_offset", pa.int64()),
                        pa.field("last_offset", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)


def state_of(entry: str | None, mark: str | None) -> str:
    """Compare an id's entry in a ledger with what the registry says of it."""
    if entry is None:
        return "unknown" if mark in NO_SCHEMA else "new"
    if entry in NO_SCHEMA:
        return "unknown"
    if mark is None:
        return "not asked"
    return "same" if mark == entry else "changed"


def ledger_of(binding: Binding | None) -> SchemaLedger:
    """Return a table's ledger: without entries where its records are not Avro."""
    form = None if binding is None else binding.format
    return form.ledger if isinstance(form, AvroFormat) else SchemaLedger()


def schema_rows(
    binding: Binding | None,
    facts: Iterable[SchemaFacts],
    hot: HotSlice | None = None,
    ranges: RangesOfIds = NO_RANGES,
) -> list[dict[str, object]]:
    """Describe the schemas of a cut's ledger, and others that ``facts`` has, sorted by id; ``ranges`` are of its tail."""
    entries = ledger_of(binding).fingerprints
    by_id = {number: SchemaFacts(number) for number in entries}
    by_id |= {each.id: each for each in facts}
    return [
        {
            "schema_id": number,
            "subject": subject,
            "version": version,
            "record": each.record,
            "state": state_of(entries.get(number), each.mark),
            "tail": _within(hot, (*ranges.get(number, ()), *ranges.get(None, ()))) or None,
        }
        for number, each in sorted(by_id.items())
        for subject, version in each.subjects or ((None, None),)
    ]


def _within(hot: HotSlice | None, ranges: Sequence[OffsetRange]) -> list[dict[str, int]]:
    """Put together what is within a cut's tail, one range of each partition."""
    spans = []
    for item in () if hot is None else hot.ranges:
        own = [
            (max(item.start, each.start), min(item.stop, each.stop))
            for each in ranges
            if each.partition == item.partition
        ]
        within = [(start, stop) for start, stop in own if start < stop]
        if within:
            first, last = min(within)[0], max(stop for _, stop in within) - 1
            span = {"partition": item.partition, "first_offset": first, "last_offset": last}
            spans.append(span)
    return spans

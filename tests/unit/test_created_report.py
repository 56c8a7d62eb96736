"""What ``create`` says of the samples that it read, below the columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.decoding.json.samples import read_samples
from connectors.decoding.json.wishes import Wishes
from planner.errors import BadBinding
from planner.names import first_of
from planner.seam.binding import Binding
from thermocline.inferring import Newest, inferred_columns, report


def said(*values: Any, tombstones: int = 0) -> list[str]:
    """The report over samples, of which those that are no JSON object are skipped."""
    samples = read_samples(
        (f"offset {at}", value if isinstance(value, bytes) else json.dumps(value).encode())
        for at, value in enumerate(values)
    )
    newest = Newest(samples, tombstones, None)
    inferred = inferred_columns(newest, Wishes(), Binding("t", on_error="skip"))
    return report(newest, inferred, {}, "t")


def test_a_long_list_ends_with_how_many_are_left() -> None:
    names = [f"n{at}" for at in range(51)]
    assert first_of(names[:50]) == names[:50]
    assert first_of(names) == [*names[:50], "and 1 more"]


def test_fields_that_a_report_lists_are_bounded() -> None:
    fields = [f"n{at}" for at in range(360)]
    record: dict[str, Any] = dict.fromkeys(fields, 1)
    record |= {f"e{name}": {} for name in fields}
    record |= {f"p{name}": "__debezium_unavailable_value" for name in fields}
    nothing, whole, missing = said(record)
    first = fields[:50]
    assert nothing == (
        "no columns, for want of a type: "
        + ", ".join(f"e{name} (always {{}})" for name in first)
        + ", and 310 more"
    )
    assert whole == (
        "long, since whole in all samples: "
        + ", ".join(f"{name} (1)" for name in first)
        + ", and 310 more; for one that can have a fraction: --column n0:double"
    )
    assert missing.startswith(", ".join(f"p{name}" for name in first) + ", and 310 more: ")


def test_columns_that_a_refusal_lists_are_bounded() -> None:
    samples = read_samples([("", json.dumps({f"n{at}": 1.5 for at in range(360)}).encode())])
    for wishes in (
        Wishes(floors=(("zzz",),)),
        Wishes(epochs=((("zzz",), "ms"),)),
    ):
        with pytest.raises(BadBinding, match=r"n48, n49, and 310 more$"):
            inferred_columns(Newest(samples, 0, None), wishes, Binding("t"))


def test_names_that_vary_are_named_as_those_of_an_object_are() -> None:
    records = [{f"n{at}-{field}": 1.5 for field in range(3)} for at in range(100)]
    hint = (
        "300 different fields in 100 samples, of which each has few: if their names are data, the table does not read the "
        "next one; give its columns with --column, without --infer"
    )
    assert said(*records) == [hint]
    # As many fields, but each record has all of them; or too few to tell.
    assert said(*[{name: 1.5 for record in records for name in record}] * 2) == []
    assert said(*records[:60]) == []


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"id": "a", "__deleted": "true"}, "__deleted"),
        ({"id": "a", "__op": "d"}, "__op"),
        ({"id": "a", "__deleted": "true", "__op": "d"}, "__op, __deleted"),
        ({"source": "a", "op": "c", "after": {"x": "y"}}, "after, op"),
        ({"payload": {"source": "a", "op": "d", "before": {"x": "y"}}}, "before, op"),
    ],
)
def test_change_events_are_named_by_the_fields_that_they_have(
    record: dict[str, Any], form: str
) -> None:
    assert said(record, {"id": "b"}) == [
        f"1 of 2 samples are Debezium's change events ({form}): each event becomes a row, and an update or a delete is "
        f"one more row"
    ]


def test_tombstones_and_empty_values_are_told_apart() -> None:
    assert said(b"", b"{", {"a": "x"}, b"", tombstones=4) == [
        "4 of 8 samples are tombstones, which have no value: they become no rows",
        "2 of 4 samples do not decode, the first at offset 0: the value is empty (zero bytes, which is no tombstone)",
        "1 of 4 samples do not decode, the first at offset 1: the value is not JSON (character 1)",
    ]

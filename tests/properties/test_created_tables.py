"""What ``create --infer`` accepts decodes, and what it refuses is accepted with what it says to type."""

from __future__ import annotations

import os
import shlex

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from connectors.json.decoder import JsonDecoder
from connectors.json.infer import Inferred, infer_columns
from connectors.json.samples import read_samples
from planner.binding import Binding
from planner.epoch_units import numbered, units_by_id
from planner.field_path import split_name
from planner.schema import RAW_SCHEMA
from planner.watermark import Outcomes
from tests.harness.inferable import OPTIONS, topics, wishes_of

EXAMPLES = 100
SOAK_EXAMPLES = int(os.environ.get("THERMOCLINE_CREATE_EXAMPLES", "20000"))
#: A field that is left out may leave the one around it without a type, and so on outwards.
MOST_ROUNDS = 12


def inferred(values: list[bytes], options: str) -> Inferred:
    return infer_columns(
        read_samples(("", value) for value in values).records, wishes_of(options)
    )


def check_decoding(values: list[bytes], options: str, result: Inferred) -> None:
    """All records are rows, and a time in a unit that was checked is no NULL."""
    mode = "lenient" if "--json-mode lenient" in options else "strict"
    schema = numbered(result.columns)
    units = units_by_id(result.columns, schema)
    binding = Binding("t", json_mode=mode, epoch_units=units)  # type: ignore[arg-type]
    entries = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_value": value}
        for at, value in enumerate(values)
    ]
    decoded = JsonDecoder("t", schema, binding).decode(
        pa.RecordBatch.from_pylist(entries, RAW_SCHEMA)
    )
    assert decoded.outcomes == Outcomes(rows=len(values))


def check_created(data: st.DataObject) -> None:
    values = data.draw(topics())
    options = data.draw(OPTIONS)
    for _ in range(MOST_ROUNDS):
        result = inferred(values, options)
        if not result.refusals:
            assert [column for column in result.columns if not column.is_metadata]
            return check_decoding(values, options, result)
        refusal = data.draw(st.sampled_from(result.refusals))
        if refusal.ways == ("--column NAME:TYPE",):
            assert not result.columns
            return None
        # A wish that fits no sample has no way out but to take it away.
        assume(refusal.ways)
        way = data.draw(st.sampled_from(refusal.ways))
        replaced = [option for option in ("--epoch", "--column") if way.startswith(option)]
        if replaced:
            options = _without(options, replaced[0], shlex.split(way)[1])
        options = f"{options} {way}"
    raise AssertionError(f"refused for ever: {options}: {result.refusals}")


def _without(options: str, option: str, text: str) -> str:
    """The options without the one that another of its kind, with ``text``, replaces."""
    mark = ":" if option == "--column" else "="
    path, _ = split_name(text, mark)
    words = shlex.split(options)
    return " ".join(
        shlex.join(pair)
        for pair in zip(words[::2], words[1::2], strict=True)
        if not (pair[0] == option and split_name(pair[1], mark)[0] == path)
    )


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_what_is_created_decodes(data: st.DataObject) -> None:
    check_created(data)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(
    max_examples=SOAK_EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.data())
def test_what_is_created_decodes_at_length(data: st.DataObject) -> None:
    check_created(data)

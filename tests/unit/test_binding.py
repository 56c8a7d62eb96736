from typing import Any

import pyarrow as pa
import pytest

from planner.errors import BadBinding
from planner.evolution.ledger import UNKNOWN, SchemaLedger
from planner.schema import TIMESTAMPTZ, Column
from planner.seam.binding import (
    DEFAULT_PIN_GRACE_S,
    MAINTAIN_MODE,
    MAX_TAIL_ROWS,
    MIRROR,
    PIN_GRACE_S,
    Binding,
    decoding_key,
    parse_binding,
    promised_s,
)
from planner.seam.formats import AvroFormat, JsonFormat
from tests.harness.builders import FLOWS, schema


@pytest.mark.parametrize(
    "binding",
    [
        Binding(topic="flows"),
        Binding(
            topic="flows",
            on_error="skip",
            format=JsonFormat("lenient", ((4, "ms"), (17, "ns")), floors=(4, 18)),
            max_tail_rows=5,
            max_tail_bytes=6,
        ),
        Binding(topic="flows", kafka="analytics"),
        Binding("flows", AvroFormat()),
        Binding(
            "flows",
            AvroFormat("main", ("a:b-value", 3), "net.Flow", ((4, "ms"),), (4, 18)),
        ),
    ],
)
def test_properties_read_back_equal(binding: Binding) -> None:
    assert (
        parse_binding(
            FLOWS, binding.properties() | {MIRROR: "…", "write.format.default": "parquet"}
        )
        == binding
    )


def test_a_table_that_names_no_topic_is_unbound() -> None:
    assert parse_binding(FLOWS, {"thermocline.format": "json"}) is None


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("thermocline.format", "csv", "is 'csv'; allowed are json, avro"),
        ("thermocline.registry", "main", "unknown property thermocline.registry"),
        ("thermocline.on_error", "ignore", "allowed are fail, null, skip"),
        ("thermocline.json_mode", "loose", "allowed are strict, lenient"),
        ("thermocline.kafka", "", "must be the name of a section"),
        ("thermocline.kafka", "two/parts", "must be the name of a section"),
        ("thermocline.mode", "replace", "allowed are append, upsert"),
        ("thermocline.max_tail_row", "5", "unknown property thermocline.max_tail_row"),
        (MAX_TAIL_ROWS, "0", "a whole number above 0"),
        (MAX_TAIL_ROWS, "-1", "a whole number above 0"),
        (MAX_TAIL_ROWS, "many", "a whole number above 0"),
        ("thermocline.epoch_unit.x", "ms", "not a field id with a unit"),
        ("thermocline.epoch_unit.4", "min", "not a field id with a unit"),
        ("thermocline.fraction.x", "floor", "not a field id with what to do; that is floor"),
        ("thermocline.fraction.4", "round", "not a field id with what to do; that is floor"),
    ],
)
def test_a_wrong_property_is_named(key: str, value: str, text: str) -> None:
    with pytest.raises(BadBinding, match=text) as caught:
        parse_binding(FLOWS, {"thermocline.topic": "flows", key: value})
    assert caught.value.facts["property"] == key


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("thermocline.json_mode", "strict", "unknown property thermocline.json_mode"),
        ("thermocline.registry", "two/parts", "must be the name of a section"),
        ("thermocline.schema.fixed", "flows-value", "a subject and one of its versions"),
        ("thermocline.schema.fixed", "flows-value:latest", "a subject and one of its versions"),
        ("thermocline.schema.fixed", "flows-value:0", "a subject and one of its versions"),
        ("thermocline.schema.fixed", ":3", "a subject and one of its versions"),
        ("thermocline.schema.record", " ", "must be the full name of a record"),
        ("thermocline.epoch_unit.4", "min", "not a field id with a unit"),
        ("thermocline.fraction.4", "round", "not a field id with what to do; that is floor"),
    ],
)
def test_a_wrong_property_of_avro_is_named(key: str, value: str, text: str) -> None:
    properties = {"thermocline.topic": "flows", "thermocline.format": "avro", key: value}
    with pytest.raises(BadBinding, match=text) as caught:
        parse_binding(FLOWS, properties)
    assert caught.value.facts["property"] == key


def test_the_shape_of_avro_follows_what_decides_values_and_nothing_else() -> None:
    plain = Binding("flows", AvroFormat())
    assert plain.shape == Binding("flows", AvroFormat("main")).shape
    assert plain.gives_rows_of(plain.shape, LONG)
    others = {
        plain.shape,
        Binding("flows").shape,
        Binding("flows", AvroFormat(fixed=("a", 1))).shape,
        Binding("flows", AvroFormat(fixed=("a", 2))).shape,
        Binding("flows", AvroFormat(record="a")).shape,
        Binding("flows", AvroFormat(epoch_units=((4, "ms"),))).shape,
    }
    assert len(others) == 6
    for policy in ("fail", "null", "skip"):
        one, other = (
            Binding("flows", AvroFormat(floors=floors), on_error=policy)
            for floors in ((), (4,))
        )
        assert (one.shape == other.shape) == (policy == "fail")
        assert decoding_key(LONG, one) != decoding_key(LONG, other)


def test_the_shape_follows_what_decides_values_and_nothing_else() -> None:
    shape = Binding(topic="flows").shape
    assert shape == Binding(topic="other", max_tail_rows=5).shape
    others = {
        Binding(topic="flows", on_error="skip").shape,
        Binding("flows", JsonFormat("lenient")).shape,
        Binding("flows", JsonFormat(epoch_units=((4, "ms"),))).shape,
        Binding("flows", JsonFormat(epoch_units=((4, "s"),))).shape,
        shape,
    }
    assert len(others) == 5


#: The shapes that e9728f6, whose strict JSON took fewer forms of times, gave these.
EARLIER = {
    ("fail", "strict"): "ae369d189892d514",
    ("null", "strict"): "75da13e3b13b9c31",
    ("skip", "strict"): "d99655086756a1ed",
    ("fail", "lenient"): "3921dc93b1fce84c",
    ("null", "lenient"): "9910ccd333ee1eb0",
    ("skip", "lenient"): "99083934bcebbd9c",
}
NESTED = pa.map_(pa.string(), pa.list_(pa.struct([pa.field("t", pa.timestamp("us"))])))
LONG = schema(Column(4, "a", pa.int64()), Column(5, "d", pa.date32()))
TIMES = [schema(Column(4, "a", TIMESTAMPTZ)), schema(Column(4, "a", NESTED))]


@pytest.mark.parametrize(("policy", "mode"), EARLIER)
def test_more_forms_move_the_shape_only_where_a_bad_record_became_something(
    policy: Any, mode: Any
) -> None:
    binding, earlier = (
        Binding("flows", JsonFormat(mode), on_error=policy),
        EARLIER[policy, mode],
    )
    moves = policy != "fail" and mode == "strict"
    assert (binding.shape != earlier) == moves
    assert binding.gives_rows_of(earlier, LONG)
    for times in TIMES:
        assert binding.gives_rows_of(earlier, times) != moves
        assert binding.gives_rows_of(binding.shape, times)
    other = Binding("flows", JsonFormat(mode, ((9, "s"),)), on_error=policy)
    assert not binding.gives_rows_of(other.shape, LONG)


def test_a_number_that_is_a_time_is_no_written_time() -> None:
    epochs = Binding("flows", JsonFormat(epoch_units=((4, "ms"),)), on_error="skip")
    assert epochs.gives_rows_of("91bd72651d5e5e1c", schema(Column(4, "a", TIMESTAMPTZ)))
    assert not epochs.gives_rows_of("91bd72651d5e5e1c", schema(Column(5, "a", TIMESTAMPTZ)))


def test_a_floor_moves_the_shape_only_where_a_bad_record_became_something() -> None:
    for policy in ("fail", "null", "skip"):
        one = Binding("flows", on_error=policy)
        other = Binding("flows", JsonFormat(floors=(4,)), on_error=policy)
        assert (one.shape == other.shape) == (policy == "fail")


def test_another_era_of_schemas_is_another_shape_and_more_schemas_are_not() -> None:
    bindings = [
        Binding("flows", AvroFormat(ledger=ledger))
        for ledger in (SchemaLedger(), SchemaLedger({1: "a"}), SchemaLedger({}, 1))
    ]
    first, grown, era = (binding.shape for binding in bindings)
    assert first == grown != era


def test_rows_read_while_an_id_was_unknown_are_not_those_of_once_it_has_a_schema() -> None:
    met = {7: f"1:{'0' * 32}"}
    ledgers: tuple[dict[int, str], ...] = (
        {},
        met,
        met | {8: UNKNOWN},
        met | {9: UNKNOWN},
        met | {8: UNKNOWN, 9: UNKNOWN},
    )
    bindings = [Binding("flows", AvroFormat(ledger=SchemaLedger(each))) for each in ledgers]
    keys = [decoding_key(LONG, each) for each in bindings]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert len({each.shape for each in bindings}) == 1


def test_servers_promise_what_maintenance_leaves_in_place() -> None:
    assert promised_s({}) == promised_s({PIN_GRACE_S: "soon"}) == DEFAULT_PIN_GRACE_S
    assert promised_s({PIN_GRACE_S: "60"}) == 60
    assert promised_s({MAINTAIN_MODE: "off", PIN_GRACE_S: "60"}) is None

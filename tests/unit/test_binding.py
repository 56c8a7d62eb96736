import pytest

from planner.binding import MAX_TAIL_ROWS, MIRROR, Binding, parse_binding
from planner.errors import BadBinding
from tests.harness.builders import FLOWS


@pytest.mark.parametrize(
    "binding",
    [
        Binding(topic="flows"),
        Binding(
            topic="flows",
            on_error="skip",
            json_mode="lenient",
            epoch_units=((4, "ms"), (17, "ns")),
            max_tail_rows=5,
            max_tail_bytes=6,
        ),
        Binding(topic="flows", kafka="analytics"),
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
        ("thermocline.format", "avro", "is 'avro'; allowed are json"),
        ("thermocline.on_error", "ignore", "allowed are fail, null, skip"),
        ("thermocline.json_mode", "loose", "allowed are strict, lenient"),
        ("thermocline.kafka", "", "must be the name of a section"),
        ("thermocline.kafka", "two/parts", "must be the name of a section"),
        ("thermocline.mode", "upsert", "allowed are append"),
        ("thermocline.max_tail_row", "5", "unknown property thermocline.max_tail_row"),
        (MAX_TAIL_ROWS, "0", "a whole number above 0"),
        (MAX_TAIL_ROWS, "-1", "a whole number above 0"),
        (MAX_TAIL_ROWS, "many", "a whole number above 0"),
        ("thermocline.epoch_unit.x", "ms", "not a field id with a unit"),
        ("thermocline.epoch_unit.4", "min", "not a field id with a unit"),
    ],
)
def test_a_wrong_property_is_named(key: str, value: str, text: str) -> None:
    with pytest.raises(BadBinding, match=text) as caught:
        parse_binding(FLOWS, {"thermocline.topic": "flows", key: value})
    assert caught.value.facts["property"] == key


def test_the_shape_follows_what_decides_values_and_nothing_else() -> None:
    shape = Binding(topic="flows").shape
    assert shape == Binding(topic="other", max_tail_rows=5).shape
    others = {
        Binding(topic="flows", on_error="skip").shape,
        Binding(topic="flows", json_mode="lenient").shape,
        Binding(topic="flows", epoch_units=((4, "ms"),)).shape,
        Binding(topic="flows", epoch_units=((4, "s"),)).shape,
        shape,
    }
    assert len(others) == 5

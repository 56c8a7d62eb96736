"""What a generation is known by: everything its rows depend on, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.decoding.fields import payload_fields
from planner.schema import Column, EpochUnit, TableSchema
from planner.seam import binding as binding_module
from planner.seam.binding import Binding, decoding_key
from planner.seam.formats import JsonFormat
from planner.seam.watermark import Outcomes, era_after
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.publish import advance
from tests.harness.builders import BINDING, bounds, pin, schema, watermark

NAMES = st.sampled_from(["a", "b", "c"])
PRIMITIVES = st.sampled_from(
    [pa.int32(), pa.int64(), pa.string(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")]
)
IDS = st.integers(10, 12)


def nested(name: str, kind: pa.DataType, field_id: int, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(field_id)})


def members(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.builds(nested, NAMES, kinds, IDS, st.booleans())


def deeper(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    by_name = lambda value: value.name  # noqa: E731
    return st.one_of(
        st.lists(members(kinds), min_size=1, max_size=2, unique_by=by_name).map(pa.struct),
        members(kinds).map(pa.list_),
        st.builds(
            lambda key, item: pa.map_(nested("key", pa.string(), key, False), item),
            IDS,
            members(kinds),
        ),
    )


KINDS = st.recursive(PRIMITIVES, deeper, max_leaves=4)


@st.composite
def columns(draw: st.DrawFn) -> Column:
    name, former = draw(NAMES), draw(st.lists(NAMES, max_size=2))
    kind = draw(KINDS)
    units: list[EpochUnit | None] = [None, "s", "ms"]
    unit = draw(st.sampled_from(units)) if pa.types.is_timestamp(kind) else None
    keys = tuple(dict.fromkeys((name, *former)))
    doc = draw(st.sampled_from([None, "a comment"]))
    return Column(draw(IDS), name, kind, draw(st.booleans()), doc, keys, unit)


SCHEMAS = st.builds(lambda column: schema(column), columns())
BINDINGS = st.builds(
    replace,
    st.just(BINDING),
    on_error=st.sampled_from(["fail", "skip"]),
    format=st.builds(JsonFormat, st.sampled_from(["strict", "lenient"])),
    skips=st.sampled_from([(), ((0, 1),)]),
)


def facts(schema: TableSchema, binding: Binding) -> tuple[object, ...]:
    """What the decoders walk, and what is left for them: the columns with their ids, the policies."""
    arrow = schema.arrow.serialize().to_pybytes()
    assert isinstance(binding.format, JsonFormat)
    policies = (binding.on_error, binding.format.mode, binding.skips)
    return payload_fields("t", schema, binding), arrow, policies


@given(SCHEMAS, BINDINGS, SCHEMAS, BINDINGS)
def test_equal_keys_decode_alike_and_other_keys_do_not(
    one: TableSchema, by: Binding, other: TableSchema, other_by: Binding
) -> None:
    is_equal = decoding_key(one, by) == decoding_key(other, other_by)
    assert is_equal == (facts(one, by) == facts(other, other_by))


INNER = pa.struct(
    [nested("x", pa.int64(), 21, True), nested("y", pa.timestamp("us"), 22, True)]
)
NESTED = Column(9, "c", pa.struct([nested("in", INNER, 20, True)]), keys=("c", "old"))


def within(kind: pa.DataType, change: pa.Field) -> pa.DataType:
    """Replace the member ``x`` of the innermost struct, through structs, lists and maps."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(within(kind.value_type, change)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field, kind.item_field.with_type(within(kind.item_type, change))
        )
    inner = list(kind)
    if inner[0].name == "x":
        return pa.struct([change, *inner[1:]])
    return pa.struct([inner[0].with_type(within(inner[0].type, change))])


@pytest.mark.parametrize(
    "kind",
    [
        NESTED.type,
        pa.list_(nested("element", INNER, 20, True)),
        pa.map_(nested("key", pa.string(), 30, False), nested("value", INNER, 20, True)),
    ],
    ids=["struct", "list", "map"],
)
def test_names_types_and_ids_count_at_every_level(kind: pa.DataType) -> None:
    value = replace(NESTED, type=kind)
    inner = nested("x", pa.int64(), 21, True)
    changed = [
        replace(value, keys=("c",)),
        replace(value, keys=("c", "other")),
        replace(value, keys=("c", "old", "older")),
        replace(value, required=True),
        replace(value, field_id=8),
        replace(value, epoch_unit="s"),
        *(
            replace(value, type=within(kind, change))
            for change in (
                inner.with_name("z"),
                inner.with_type(pa.int32()),
                inner.with_nullable(False),
                nested("x", pa.int64(), 99, True),
            )
        ),
    ]
    keys = {decoding_key(schema(one), BINDING) for one in (value, *changed)}
    assert len(keys) == 1 + len(changed)
    # Schema ids and comments decode nothing; a column without keys has its name.
    same = [
        replace(schema(value), schema_id=7),
        schema(replace(value, doc="a comment")),
    ]
    assert {decoding_key(one, BINDING) for one in same} == {
        decoding_key(schema(value), BINDING)
    }
    bare, named = replace(NESTED, keys=()), replace(NESTED, keys=("c",))
    assert schema(bare).fingerprint == schema(named).fingerprint


def test_the_order_of_names_counts() -> None:
    """A record may have two of them: the first counts."""
    one, other = (replace(NESTED, keys=keys) for keys in (("c", "a", "b"), ("c", "b", "a")))
    assert schema(one).fingerprint != schema(other).fingerprint


def test_another_decoder_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = decoding_key(schema(), BINDING)
    monkeypatch.setattr(binding_module, "DECODER_VERSION", 2)
    binding_module.shape_under.cache_clear()
    assert decoding_key(schema(), BINDING) != before
    binding_module.shape_under.cache_clear()


def test_an_era_is_known_by_its_decoding_and_where_it_began() -> None:
    items = {
        era_after(watermark(*offsets), key) for key in ("a", "b") for offsets in ((1, 2), (1,))
    }
    assert len(items) == 4
    # From its first publish on, the era is what the watermark says, wherever that is by now.
    first = era_after(watermark(1), "a")
    assert era_after(watermark(5, decoding="a", era=first), "a") == first
    assert era_after(watermark(5, decoding="a", era=first), "b") not in items


def test_an_era_is_known_by_the_one_whose_rows_lie_below_it() -> None:
    """Of two lines that meet at one offset, one may have been rolled back and tiered anew under other names."""
    marks = [watermark(5, decoding=key, era=era_after(watermark(0), key)) for key in ("a", "b")]
    one, other = (era_after(mark, "c") for mark in marks)
    assert one != other


def test_a_publish_carries_the_era_on_or_begins_one() -> None:
    start = pin(10)
    plan = plan_tiering(start, bounds((0, 20)), TieringBudget())
    key = decoding_key(start.schema, BINDING)
    mark = advance(plan, Outcomes(), run="r", head=1)
    assert (mark.decoding, mark.era) == (key, era_after(watermark(10), key))
    again = advance(replace(plan, start=mark), Outcomes(), run="r", head=1)
    assert (again.decoding, again.era) == (key, mark.era)
    renamed = replace(start, schema=schema(NESTED))
    other = advance(replace(plan, pin=renamed, start=mark), Outcomes(), run="r", head=1)
    assert other.decoding != key
    assert other.era == era_after(mark, other.decoding) != mark.era

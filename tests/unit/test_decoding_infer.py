"""Columns from samples: the rules of docs/json-types.md, "Inferred columns"."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.json.infer import Inferred, infer_columns
from connectors.decoding.json.renames import read_renames
from connectors.decoding.json.samples import read_samples
from connectors.decoding.json.wishes import Refusal, Wishes, declared_columns
from planner.epoch_units import ids_at, numbered, units_by_id
from planner.errors import BadConfig
from planner.schema import RAW_SCHEMA, TIMESTAMPTZ, Column
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.seam.watermark import Outcomes
from planner.sql_text import FieldPath, read_path, spell, split_name
from planner.type_text import parse_type
from tests.harness.json_decoder import json_decoder


def records(*values: Any) -> list[dict[str, Any]]:
    return list(read_samples([("", raw(value)) for value in values]).records)


def raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def inferred(*values: Any, **wishes: Any) -> Inferred:
    """Infer columns, which every value decodes under if nothing is refused."""
    result = infer_columns(records(*values), Wishes(**wishes))
    if not result.refusals:
        mode = "lenient" if wishes.get("lenient") else "strict"
        assert decodes(result.columns, values, mode, wishes.get("floors", ()))
    return result


def columns(*values: Any, **wishes: Any) -> dict[str, pa.DataType]:
    result = inferred(*values, **wishes)
    assert result.refusals == ()
    return {column.name: column.type for column in result.columns}


def decodes(
    columns: Sequence[Column],
    values: Sequence[Any],
    mode: str,
    floors: Sequence[FieldPath] = (),
) -> bool:
    entries = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_value": raw(value)}
        for at, value in enumerate(values)
    ]
    schema = numbered(columns)
    units = units_by_id(columns, schema)
    binding = Binding("t", JsonFormat(mode, units, ids_at(floors, schema)))  # type: ignore[arg-type]
    decoded = json_decoder("t", schema, binding).decode(
        pa.RecordBatch.from_pylist(entries, RAW_SCHEMA)
    )
    return decoded.outcomes == Outcomes(rows=len(entries))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None, False], pa.bool_()),
        ([1, -(2**63), 2**63 - 1], pa.int64()),
        ([1, 1.5], pa.float64()),
        ([1e3], pa.float64()),
        (["2024-01-05T10:00:00Z", "2024-01-05T10:00:00.5+02:00"], TIMESTAMPTZ),
        (["2024-01-05T10:00:00"], pa.timestamp("us")),
        (["2024-02-29"], pa.date32()),
        (["2024-02-30"], pa.string()),
        (["2024-01-05", "2024-01-05T10:00:00Z"], pa.string()),
        (["2024-01-05T10:00:00Z", "2024-01-05T10:00:00"], pa.string()),
        (["2024-01-05T10:01Z", "2024-01-05 10:00:00+00"], TIMESTAMPTZ),
        (["", "7"], pa.string()),
        ([[1], [], [None, 2.5]], pa.list_(pa.field("element", pa.float64()))),
        ([{"x": 1}, {"y": "2024-02-29"}], pa.struct([("x", pa.int64()), ("y", pa.date32())])),
        (
            [[{"x": [1]}], [{"x": [None]}]],
            pa.list_(
                pa.field(
                    "element",
                    pa.struct([("x", pa.list_(pa.field("element", pa.int64())))]),
                )
            ),
        ),
    ],
    ids=str,
)
def test_a_column_takes_all_values_seen(values: list[Any], kind: pa.DataType) -> None:
    (column,) = inferred(*({"a": value} for value in values), {}).columns
    assert (column.name, column.type, column.required) == ("a", kind, False)


def test_columns_come_in_the_order_keys_appear() -> None:
    assert [*columns({"b": 1, "a": 1}, {"c": 1, "a": 2})] == ["b", "a", "c"]


def test_a_field_without_a_type_is_named_with_its_reason() -> None:
    record = {"a": None, "b": [], "c": {}, "d": {"x": None, "y": 1}, "e": [[None]], "f": 1}
    result = inferred(record, {"b": None})
    assert [(column.name, column.type) for column in result.columns] == [
        ("d", pa.struct([("y", pa.int64())])),
        ("f", pa.int64()),
    ]
    assert {spell(path): reason for path, reason in result.left_out} == {
        "a": "always null",
        "b": "always []",
        "c": "always {}",
        "d.x": "always null",
        "e.element.element": "always null",
        "e.element": "nothing in it has a type",
        "e": "nothing in it has a type",
    }


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([{"a": None, "b": {}}], "no field has a type (a: always null; b: always {})"),
        ([{}], "no field has a type"),
    ],
)
def test_a_table_without_a_column_is_refused(values: list[Any], reason: str) -> None:
    assert inferred(*values).refusals == (Refusal(reason, ("--column NAME:TYPE",)),)
    assert columns(*values, columns=((("x",), pa.string()),)) == {"x": pa.string()}


def test_whole_numbers_are_counted() -> None:
    result = inferred({"a": 1, "b": {"c": 2}, "d": 1.5}, {"a": 3})
    assert result.whole == ((("a",), 2), (("b", "c"), 1))


def refusals(*values: Any, **wishes: Any) -> dict[str, tuple[str, ...]]:
    result = inferred(*values, **wishes)
    return {refusal.reason: refusal.ways for refusal in result.refusals}


WIDE = [{"k": {f"n{at}-{member}": at for member in range(3)}} for at in range(100)]
REFUSED: dict[str, tuple[list[Any], str, tuple[str, ...]]] = {
    "mixed": (
        [{"a": {"b": 1}}, {"a": {"b": "x"}}, {"a": {"b": "y"}}],
        "field a.b is a number once and a string 2 times, and no type takes both",
        ("--leave-out a.b", "--json-mode lenient --column a.b:string"),
    ),
    "mixed elements": (
        [{"a": [1, {}]}],
        "field a.element is a number once and an object once, and no type takes both",
        ("--leave-out a.element", "--json-mode lenient --column a.element:string"),
    ),
    "unsigned": (
        [{"a": 2**64 - 1}, {"a": 1}],
        "field a has whole numbers beyond 64 bits",
        ("--column 'a:decimal(20,0)'", "--leave-out a"),
    ),
    "38 digits": (
        [{"a": -(10**37)}],
        "field a has whole numbers beyond 64 bits",
        ("--column 'a:decimal(38,0)'", "--leave-out a"),
    ),
    "large and fraction": (
        [{"a": 2**63}, {"a": 0.5}],
        "field a has whole numbers beyond 64 bits beside numbers with a fraction",
        ("--column a:double", "--leave-out a"),
    ),
    "beyond double": (
        [b'{"a": 1e400}'],
        "field a has numbers beyond every type",
        ("--leave-out a", "--json-mode lenient --column a:string"),
    ),
    "39 digits": (
        [{"a": 10**38}],
        "field a has numbers beyond every type",
        ("--leave-out a", "--json-mode lenient --column a:string"),
    ),
    "surrogate": (
        [b'{"a": "\\ud800"}'],
        "field a has strings with half of a surrogate pair, which lenient decoding reads as NULL",
        ("--leave-out a", "--json-mode lenient --column a:string"),
    ),
    "case": (
        [{"s": {"Id": 1}}, {"s": {"id": 1}}],
        "fields s.Id and s.id differ in case only, which SQL does not tell apart",
        ("--leave-out s.Id", "--leave-out s.id"),
    ),
    "case of columns": (
        [{"Id": 1, "ID_2": 2}, {"id": "x"}],
        "fields Id and id differ in case only, which SQL does not tell apart",
        ("--leave-out Id", "--leave-out id", "--rename id=id_3"),
    ),
    "reserved": (
        [{"_POS": 1}],
        "field _POS has the name of a column that every table has or Iceberg computes",
        ("--leave-out _POS", "--rename _POS=_POS_2"),
    ),
    "no name": (
        [{"": 1}],
        'field "" has no name',
        ("--leave-out '\"\"'", "--rename '\"\"=unnamed_2'"),
    ),
    "no name inside": ([{"a": {"": 1}}], 'field a."" has no name', ("--leave-out 'a.\"\"'",)),
    "any name": (
        [{'a "b".c': {"d:e": 1}}, {'a "b".c': {"d:e": []}}],
        'field "a ""b"".c"."d:e" is a number once and an array once, and no type takes both',
        (
            """--leave-out '"a ""b"".c"."d:e"'""",
            """--json-mode lenient --column '"a ""b"".c"."d:e":string'""",
        ),
    ),
    "names are data": (
        WIDE,
        "field k has 300 different members in 100 objects, so its names are data",
        ("--column 'k:map<string, long>'", "--leave-out k"),
    ),
    "names are data, values differ": (
        [*WIDE, {"k": {"x": "y"}}],
        "field k has 301 different members in 101 objects, so its names are data",
        ("--leave-out k", "--json-mode lenient --column k:string"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_column_takes_is_refused_with_what_to_type(case: str) -> None:
    values, reason, ways = REFUSED[case]
    good = [{"good": 1}]
    wishes = {"reserved": frozenset(["_pos"])}
    assert refusals(*good, *values, **wishes) == {reason: ways}
    for way in ways:
        assert refusals(*good, *values, **wishes, **wish(way)) == {}


def wish(way: str) -> dict[str, Any]:
    """Read options as the command does."""
    words = iter(shlex.split(way))
    wishes: dict[str, Any] = {}
    for option in words:
        text = next(words)
        match option:
            case "--json-mode":
                wishes["lenient"] = text == "lenient"
            case "--rename":
                wishes["renames"] = {**wishes.get("renames", {}), **read_renames([text])}
            case "--floor":
                wishes["floors"] = (*wishes.get("floors", ()), read_path(text))
            case "--leave-out":
                wishes["leave_out"] = (read_path(text),)
            case "--column":
                path, kind = split_name(text, ":")
                wishes["columns"] = (*wishes.get("columns", ()), (path, parse_type(kind or "")))
            case "--epoch":
                path, unit = split_name(text, "=")
                wishes["epochs"] = (*wishes.get("epochs", ()), (path, unit))
    return wishes


def test_all_refusals_come_at_once() -> None:
    mixed = {"a": 1, "b": {"c": "x"}, "_pos": 1}, {"a": "x", "b": {"c": {}}}
    assert [*refusals(*mixed, {"d": 2**63}, reserved=frozenset(["_pos"]))] == [
        "field a is a number once and a string once, and no type takes both",
        "field b.c is a string once and an object once, and no type takes both",
        "field _pos has the name of a column that every table has or Iceberg computes",
        "field d has whole numbers beyond 64 bits",
    ]


def test_lenient_reads_mixed_kinds_as_text() -> None:
    mixed = {"a": {"b": 1}, "c": [1]}, {"a": {"b": {}}, "c": [{}]}
    assert columns(*mixed, lenient=True) == {
        "a": pa.struct([("b", pa.string())]),
        "c": pa.list_(pa.field("element", pa.string())),
    }


def test_declared_columns_are_exceptions() -> None:
    values = {"a": 1, "b.c": 2, "d": {"e": [{"f": "x"}]}}, {"a": 1.5}
    wishes = wish("--column a:decimal(10,2) --column b.c:int --column d.e.element.f:binary")
    assert refusals(*values, **wishes) == {
        "--column d.e.element.f:binary: field d.e[].f: expected a string of hexadecimal pairs for binary, found a "
        "string": (
            "--leave-out d.e.element.f",
            "--json-mode lenient --column d.e.element.f:binary",
        )
    }
    assert columns(
        *values, **wish("--column 'a:decimal(10,2)' --column b.c:int --column new:date")
    ) == {
        "a": pa.decimal128(10, 2),
        "b.c": pa.int32(),
        "d": columns(*values)["d"],
        "new": pa.date32(),
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--leave-out z", "--leave-out z: no sample has such a field; take the option away."),
        ("--leave-out a.bb", "--leave-out a.bb: no sample has such a field; did you mean a.b?"),
        (
            "--leave-out a --column a.b:string",
            "field a.b lies in one that another option decides on",
        ),
        (
            "--column z:timestamptz --epoch z=us --column 'z:decimal(38,2)'",
            "column z is given twice",
        ),
        ("--column n:string --column n:long", "column n is given twice"),
        (
            "--column N:string",
            "column N and field n differ in case only, which SQL does not tell apart",
        ),
        (
            "--epoch z=ms",
            "--epoch z=ms: there is no such column; the columns are a, n, t, s",
        ),
        (
            "--epoch a.b=ms",
            "--epoch a.b=ms: column a.b is boolean, and only date, timestamp and timestamptz can have a unit",
        ),
    ],
)
def test_an_option_that_nothing_fits_is_refused(options: str, reason: str) -> None:
    values = {"a": {"b": True}, "n": 1, "t": 1.5, "s": "x"}
    assert [*refusals(values, **wish(options))] == [reason]


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([{"at": 1767225600000}], "--epoch at=ms"),
        ([b'{"at": 1767225600.309996}'], "--epoch at=s"),
        ([{"at": None}], "--epoch at=s"),
        ([{"at": "2026-01-05T10:00:00Z"}, {"at": 1}], "--json-mode lenient --epoch at=s"),
        ([{"at": 19000}], "--epoch at=s --column at:timestamp"),
    ],
)
def test_numbers_in_a_unit_are_times(values: list[Any], options: str) -> None:
    wishes = wish(options)
    result = inferred(*values, **wishes)
    assert result.refusals == ()
    [column] = result.columns
    assert column.epoch_unit == wishes["epochs"][0][1]
    assert column.type in (TIMESTAMPTZ, pa.timestamp("us"))


def test_numbers_inside_others_are_times_too() -> None:
    values = {"p": {"ts_ms": 1767225600000, "n": 1}, "l": [{"t": 5}, {"t": None}]}
    result = inferred(values, **wish("--epoch p.ts_ms=ms --epoch l.element.t=s"))
    assert result.refusals == ()
    assert {column.name: column.type for column in result.columns} == {
        "p": pa.struct([("ts_ms", TIMESTAMPTZ), ("n", pa.int64())]),
        "l": pa.list_(pa.field("element", pa.struct([("t", TIMESTAMPTZ)]))),
    }
    assert units_by_id(result.columns, numbered(result.columns)) == ((2, "ms"), (6, "s"))


@pytest.mark.parametrize(
    ("value", "options", "reason", "ways"),
    [
        (
            {"at": 1767225600000},
            "--epoch at=s",
            "--epoch at=s: field at: the time is outside the years 0001 to 9999 of timestamptz",
            ("--epoch at=ms",),
        ),
        (
            {"at": 1767225600000},
            "--epoch at=s --floor at",
            "--epoch at=s: field at: the time is outside the years 0001 to 9999 of timestamptz",
            ("--epoch at=ms",),
        ),
        (
            {"at": 1e40},
            "--epoch at=s",
            "--epoch at=s: field at: the number is beyond timestamptz",
            (),
        ),
        (
            b'{"at": 1767225600.3099961}',
            "--epoch at=s",
            "--epoch at=s: field at: the number of time units is not a whole number of microseconds",
            ("--epoch at=s --floor at",),
        ),
        (
            {"at": 1},
            "--column at:long --epoch at=ms",
            "--epoch at=ms: column at is long, and only date, timestamp and timestamptz can have a unit",
            ("--column at:timestamptz",),
        ),
        (
            {"at": "2026-01-05T10:00:00Z"},
            "--epoch at=ms",
            "--epoch at=ms: field at: expected a number of ms since 1970 for timestamptz, found a string",
            ("--json-mode lenient --epoch at=ms",),
        ),
    ],
)
def test_a_unit_that_does_not_fit_is_refused(
    value: Any, options: str, reason: str, ways: tuple[str, ...]
) -> None:
    assert refusals(value, **wish(options)) == {reason: ways}


def test_nesting_has_a_limit() -> None:
    value: Any = 1
    for _ in range(34):
        value = {"a": value}
    assert refusals(value) == {
        "field a is nested more than 32 levels deep": (
            "--leave-out a",
            "--json-mode lenient --column a:string",
        )
    }
    assert columns(value["a"])["a"] is not None


def test_a_renamed_column_reads_its_field() -> None:
    values = {"Id": 1, "id": "a"}, {"Id": 2}
    result = inferred(*values, renames={"Id": "id_2"})
    assert [(column.name, column.type, column.keys) for column in result.columns] == [
        ("id_2", pa.int64(), ("id_2", "Id")),
        ("id", pa.string(), ()),
    ]


@pytest.mark.parametrize(
    ("renames", "reason", "ways"),
    [
        (
            {"Id": "x"},
            "--rename Id=x: records have a field x, too; in place of the option",
            ("--rename Id=Id_2",),
        ),
        (
            {"ID": "y"},
            "--rename ID=y: there is no column y, for want of an outermost field ID",
            (),
        ),
        (
            {"s.Id": "y"},
            """--rename '"s.Id"=y': a field inside another keeps its name; in place of the option""",
            ("--leave-out s.Id", "--json-mode lenient --column s:string"),
        ),
    ],
)
def test_a_rename_that_cannot_be_is_refused(
    renames: dict[str, str], reason: str, ways: tuple[str, ...]
) -> None:
    values = {"Id": 1, "x": 2, "s": {"Id": 3}}
    assert refusals(values, renames=renames) == {reason: ways}
    for way in ways:
        assert refusals(values, **wish(way)) == {}


def test_a_field_in_the_way_of_a_renamed_one_gets_lines_that_work() -> None:
    values = {"ID_2": 1, "Id": "a", "id": True}
    wishes = wish("--rename Id=id_2")
    assert refusals(values, **wishes) == {
        "fields ID_2 and Id (column id_2) differ in case only, which SQL does not tell apart": (
            "--leave-out ID_2",
            "--leave-out id_2",
            "--rename Id=Id_3",
        )
    }
    assert [*columns(values, **wishes, **wish("--leave-out id_2"))] == ["ID_2", "id"]
    assert [*columns(values, **wish("--rename Id=Id_3"))] == ["ID_2", "Id_3", "id"]


def test_a_name_is_offered_that_no_field_has_and_no_option_gives() -> None:
    values = {"id": 1, "Id": 2, "Id_2": 3}
    wishes = wish("--rename Id_2=x --column Id_3:string --column y:string --rename z=Id_4")
    [refusal] = [
        each for each in inferred(values, **wishes).refusals if "fields" in each.reason
    ]
    assert refusal.ways[-1] == "--rename Id=Id_5"


def test_a_field_without_a_type_may_be_renamed_in_vain() -> None:
    assert [*columns({"id": 1, "Id": None}, renames={"Id": "id_2"})] == ["id"]


def test_what_lies_in_a_left_out_field_may_be_left_out_too() -> None:
    assert [*columns({"a": {"b": 1}, "c": 1}, leave_out=(("a", "b"), ("a",)))] == ["c"]


@pytest.mark.parametrize(
    ("options", "reason", "ways"),
    [
        (
            "--column id:long --column Id:string",
            "columns id and Id differ in case only, which SQL does not tell apart; in place of the second",
            ("--column Id_2:string --rename Id=Id_2",),
        ),
        (
            "--column a:long --column x:long --column X:date --rename f=X",
            "columns x and X differ in case only, which SQL does not tell apart; in place of the second",
            ("--column f_2:date --rename f=f_2",),
        ),
        (
            "--column s:struct<Id:long> --rename s.Id=x",
            """--rename '"s.Id"=x': a field inside another keeps its name; in place of the option""",
            ("--json-mode lenient --column s:string",),
        ),
        (
            "--column p:struct<at:long,b:string> --epoch p.at=ms",
            "--epoch p.at=ms: column p.at is long, and only date, timestamp and timestamptz can have a unit",
            ("--column 'p:struct<at: timestamptz, b: string>'",),
        ),
        (
            "--column l:list<string> --floor l.element",
            "--floor l.element: column l.element is string, and only timestamp and timestamptz have fractions of seconds",
            ("--column 'l:list<timestamptz>'",),
        ),
    ],
)
def test_declared_columns_that_cannot_be_are_refused_with_what_to_type(
    options: str, reason: str, ways: tuple[str, ...]
) -> None:
    _, refusals = declared_columns(Wishes(**wish(options)))
    assert refusals == (Refusal(reason, ways),)


def test_the_line_in_place_of_a_declared_column_works() -> None:
    options = "--column id:long --column Id_2:string --rename Id=Id_2"
    declared, refusals = declared_columns(Wishes(**wish(options)))
    assert refusals == ()
    assert [(column.name, column.keys) for column in declared] == [
        ("id", ()),
        ("Id_2", ("Id_2", "Id")),
    ]


def test_declared_columns_that_no_sample_has_differ_in_more_than_case() -> None:
    wishes = wish("--column id:long --column Id:string")
    assert [*refusals({"a": 1}, **wishes).values()] == [
        ("--column Id_2:string --rename Id=Id_2",)
    ]


@pytest.mark.parametrize(
    ("values", "options", "ways"),
    [
        ([{"s": "x"}], "--epoch s=ms", ()),
        ([{"s": True}], "--epoch s=ms", ()),
        ([{"p": {"at": 5}}], "--column p:struct<at:long> --epoch p.at=ms",
         ("--column 'p:struct<at: timestamptz>'",)),
        ([{"p": {"at": "x"}}], "--column p:struct<at:string> --epoch p.at=ms", ()),
        ([{"n": 1}], "--column x:long --epoch x=ms", ("--column x:timestamptz",)),
        ([{"s": "x"}], "--floor s", ()),
        ([{"n": 1}], "--floor n", ()),
        ([{"s": "2024-01-05T10:00:00.5Z"}], "--column s:string --floor s",
         ("--column s:timestamptz",)),
        ([{"s": "2024-01-05"}], "--floor s", ()),
        ([{"s": "2024-01-05"}], "--json-mode lenient --floor s", ("--column s:timestamptz",)),
    ],
)  # fmt: skip
def test_a_time_is_offered_only_where_the_values_are_times(
    values: list[Any], options: str, ways: tuple[str, ...]
) -> None:
    assert [*refusals(*values, **wish(options)).values()] == [ways]


def test_a_rename_names_a_field_and_a_column_once() -> None:
    assert read_renames(["Id=id_2", '"a=b"="c d"', "x.y=z"]) == {
        "Id": "id_2",
        "a=b": "c d",
        "x.y": "z",
    }
    for texts in (["a=b", "a=c"], ["a=b", "c=b"], ["a"], ["a="]):
        with pytest.raises(BadConfig, match="--rename"):
            read_renames(texts)


NANOSECONDS = {
    "at": "2024-01-05T10:00:00.123456789Z",
    "in": {"t": "2024-01-05T10:00:00.1234567"},
}


def test_digits_below_a_microsecond_are_refused_by_name_with_what_to_type() -> None:
    refusals = inferred(NANOSECONDS).refusals
    assert [(refusal.reason, refusal.ways) for refusal in refusals] == [
        (
            "field at is a timestamptz with digits below a microsecond, which no type holds",
            ("--floor at", "--column at:string", "--leave-out at"),
        ),
        (
            "field in.t is a timestamp with digits below a microsecond, which no type holds",
            ("--floor in.t", "--column in.t:string", "--leave-out in.t"),
        ),
    ]


def test_a_floor_makes_them_times() -> None:
    floors = (("at",), ("in", "t"))
    inner = pa.struct([pa.field("t", pa.timestamp("us"))])
    assert columns(NANOSECONDS, floors=floors) == {"at": TIMESTAMPTZ, "in": inner}
    epochs = ((("ns",), "ns"),)
    refusals = inferred({"ns": 1_700_000_000_123_456_789}, epochs=epochs).refusals
    assert [refusal.ways for refusal in refusals] == [("--epoch ns=ns --floor ns",)]
    values = columns({"ns": 1_700_000_000_123_456_789}, epochs=epochs, floors=(("ns",),))
    assert values == {"ns": TIMESTAMPTZ}


def test_a_declared_time_with_more_digits_is_offered_a_floor() -> None:
    declared = ((("at",), TIMESTAMPTZ),)
    (refusal,) = inferred({"at": "2024-01-05T10:00:00.123456789Z"}, columns=declared).refusals
    assert refusal.ways[0] == "--floor at"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("nope",), "--floor nope: there is no such column; the columns are n, at"),
        (("n",), "--floor n: column n is long, and only timestamp and timestamptz have fractions of seconds"),
    ],
)  # fmt: skip
def test_a_floor_of_what_is_no_time_is_refused(path: FieldPath, reason: str) -> None:
    value = {"n": 1, "at": "2024-01-05T10:00:00Z"}
    assert [each.reason for each in inferred(value, floors=(path,)).refusals] == [reason]


def test_a_field_called_like_one_inside_another_is_refused_with_what_works() -> None:
    value = {"a.b": 1, "a": {"b": 2}, "n": 3}
    (refusal,) = inferred(value).refusals
    assert refusal.reason == (
        'field "a.b" has the name of a field inside another, which Iceberg does not tell apart'
    )
    assert refusal.ways == ("--leave-out '\"a.b\"'", '--rename \'"a.b"="a.b_2"\'')
    for way in refusal.ways:
        option, text = shlex.split(way)
        wishes = (
            {"leave_out": (read_path(text),)}
            if option == "--leave-out"
            else {"renames": read_renames([text])}
        )
        assert inferred(value, **wishes).refusals == ()


def test_renames_that_are_offered_together_go_together() -> None:
    value = {"id": "a", "Id": 1, "ID": True}
    offers = [refusal.ways[-1] for refusal in inferred(value).refusals]
    renames = read_renames([shlex.split(offer)[1] for offer in offers])
    assert inferred(value, renames=renames).refusals == ()


def test_numbers_beside_the_names_of_floats_are_doubles() -> None:
    assert columns({"x": "NaN"}, {"x": 1.5}, {"x": "-Infinity"}) == {"x": pa.float64()}


def test_a_declared_field_that_no_sample_has_inside_another_is_refused() -> None:
    value = {"after": {"t": 1}}
    declared = ((("after", "tt"), pa.string()),)
    (refusal,) = inferred(value, columns=declared).refusals
    assert refusal.reason == (
        "--column after.tt:string: no sample has such a field inside after; a column of this name is written in quotes"
    )
    assert refusal.ways == ("--column '\"after.tt\":string'",)
    quoted = ((("after.tt",), pa.string()),)
    assert "after.tt" in columns(value, columns=quoted)

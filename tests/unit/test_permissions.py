"""Who may read what, as a decision: patterns, which grant holds, what it leaves of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import BadConfig, NotAllowed, PermissionsMismatch, UnsupportedStatement
from planner.explain import TableReport, explanation
from planner.names import KAFKA_KEY, KAFKA_VALUE, Side, TableName
from planner.permissions import (
    Grant,
    GrantList,
    Identity,
    RowExpression,
    TablePattern,
    VisibleColumns,
    view,
)
from planner.ports import ColdTotals
from planner.reading.needs import StatementNeeds
from planner.reading.plan import plan_read
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.cut import plan_cut
from planner.statement.references import ResolvedTable
from planner.statement.row_expression import bound_to, columns_of, row_expression, selecting
from tests.harness.builders import FLOWS, bounds, pin
from tests.harness.builders import schema as leading
from tests.harness.sql import parse, unparse

ADA = Identity("ada", frozenset({"analysts", "eu"}))
NOBODY = Identity(None)
SCHEMA = leading(
    Column(4, "host", pa.string(), required=True),
    Column(5, "Secret", pa.string()),
    Column(6, "pos", pa.struct([pa.field("x", pa.int32())])),
    Column(7, KAFKA_KEY, METADATA_TYPES[KAFKA_KEY]),
    Column(8, KAFKA_VALUE, METADATA_TYPES[KAFKA_VALUE]),
)
OPEN = ("kafka_partition", "kafka_offset", "kafka_timestamp", "host", "Secret", "pos")
TABLE = ResolvedTable(FLOWS)


def expression(text: str) -> RowExpression:
    return RowExpression(text, row_expression(parse(f"SELECT {text}")))


def grant(**changes: Any) -> Grant:
    masks = {name: expression(text) for name, text in changes.pop("masks", {}).items()}
    rows = changes.pop("rows", None)
    value = Grant("g", (TablePattern.parse("*"),), users=frozenset({"ada"}), masks=tuple(masks.items()),
                 rows=None if rows is None else expression(rows))  # fmt: skip
    return replace(value, **changes)


def left(grant: Grant, *, who: Identity = ADA, schema: TableSchema = SCHEMA) -> VisibleColumns:
    result = view(grant, who, TABLE, schema)
    assert result is not None
    return result


def printed(node: Any) -> str:
    return unparse(selecting([node])).removeprefix("SELECT ")


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("*", ["a.b.c", "x.y.z.w"], []),
        ("lake.*", ["lake.net.flows", "lake.a.b.c"], ["Lake.net.flows", "other.net.flows"]),
        ("lake.net.*", ["lake.net.flows", "lake.net.deep.flows"], ["lake.network.flows", "lake.a.net.b"]),
        ("lake.net.flows.*", ["lake.net.flows.t"], ["lake.net.flows"]),
        ("lake.net.flows", ["lake.net.flows"], ["lake.net.Flows", "lake.net.flows.t", "lake.net.flows2"]),
        ("lake.a.b.t", ["lake.a.b.t"], ["lake.a.t"]),
    ],
)  # fmt: skip
def test_a_pattern_covers_whole_levels_of_names(
    pattern: str, covered: list[str], not_covered: list[str]
) -> None:
    parsed = TablePattern.parse(pattern)
    assert [
        name for name in covered + not_covered if parsed.covers(TableName.parse(name))
    ] == covered


@pytest.mark.parametrize(
    "text", ["", ".", "lake", "lake.net", "lake..t", "lake.*.t", "*.t.u", "lake.net.f*", "*.*"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match=r"names no tables; write catalog\.namespace\.table"):
        TablePattern.parse(text)


def test_the_first_grant_that_names_user_and_table_holds_alone() -> None:
    net, others = TablePattern.parse("lake.net.*"), TablePattern.parse("lake.*")
    first = grant(tables=(net,), columns=("host",))
    second = grant(tables=(others,), users=frozenset(), groups=frozenset({"eu"}))
    policy = GrantList((first, second))
    other = TableName("lake", ("hr",), "people")
    elsewhere = TableName("pond", ("net",), "flows")
    assert policy.grant(ADA, FLOWS) is first
    assert policy.grant(ADA, other) is second
    assert policy.grant(Identity("bob", frozenset({"eu"})), FLOWS) is second
    assert policy.grant(ADA, elsewhere) is None
    assert policy.grant(Identity("bob"), FLOWS) is None
    assert policy.visible(ADA, [other, elsewhere, FLOWS]) == (other, FLOWS)
    assert policy.visible(Identity("bob"), [other, FLOWS]) == ()


def test_nobody_is_named_by_a_star_alone() -> None:
    assert grant(users=frozenset({"*"})).names(NOBODY)
    assert not grant(users=frozenset({"None", ""})).names(NOBODY)
    assert not grant(users=frozenset(), groups=frozenset({"*"})).names(ADA)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"users": frozenset()}, "names neither users nor groups"),
        ({"tables": ()}, "names no tables"),
        ({"columns": ()}, "opens no column"),
        ({"columns": ("host",), "without": ("Secret",)}, "lists columns and leaves some out"),
        ({"columns": ("*", "Secret"), "without": ("Secret",)}, "both opens and leaves out a column"),
        ({"masks": {"Secret": "NULL"}, "without": ("Secret",)}, "both opens and leaves out a column"),
        ({"masks": {"Secret": "NULL"}, "columns": ("host",)}, "masks a closed column"),
        ({"masks": {"pos.x": "NULL"}, "columns": ("host",)}, "masks a closed column"),
        ({"masks": {"pos.x": "NULL", "pos": "NULL"}}, "masks a column and a field of it"),
    ],
)  # fmt: skip
def test_a_grant_that_contradicts_itself_is_refused(
    changes: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(BadConfig, match=rf"^permissions\.g {wrong}; see docs/security\.md\.$"):
        grant(**changes)


def test_a_grant_without_restrictions_shows_all_of_a_table() -> None:
    assert view(grant(), ADA, TABLE, SCHEMA) is None


def test_any_restriction_closes_the_raw_columns_that_are_not_named() -> None:
    assert left(grant(rows="host = 'a'")).schema.names == OPEN
    assert left(grant(masks={"Secret": "NULL"})).schema.names == OPEN
    assert left(grant(without=("Secret",))).schema.names == tuple(
        n for n in OPEN if n != "Secret"
    )
    assert left(grant(columns=("*", KAFKA_KEY))).schema.names == (*OPEN, KAFKA_KEY)
    assert left(grant(masks={KAFKA_VALUE: "NULL"})).schema.names == (*OPEN, KAFKA_VALUE)
    assert left(grant(columns=("host", KAFKA_VALUE))).schema.names == ("host", KAFKA_VALUE)


def test_a_mask_takes_the_place_of_a_column_and_may_be_null() -> None:
    table = left(grant(masks={"host": "left(host, 1)"}))
    assert {column.name for column in table.schema.columns if column.required} == set()
    assert printed(table.masks["host"]) == '"left"(host, 1)'
    assert "host" not in table.plain.names
    assert "Secret" in table.plain.names
    assert table.rows is None


POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())])
DEEP = leading(
    Column(4, "id", pa.int64(), required=True),
    Column(5, "at", pa.struct([pa.field("point", POINT), pa.field("name", pa.string())]), required=True),
    Column(6, "many", pa.list_(POINT)),
    Column(7, "id.dotted", pa.int64()),
)  # fmt: skip
LEADING = OPEN[:3]


def type_of(columns: VisibleColumns, column: str) -> pa.DataType | None:
    return next((value.type for value in columns.schema.columns if value.name == column), None)


def test_a_field_of_a_struct_is_left_out_with_nothing_else_of_it() -> None:
    result = left(grant(without=("at.point.y", "many")), schema=DEEP)
    expected = pa.struct(
        [pa.field("point", pa.struct([POINT.field(0)])), ("name", pa.string())]
    )
    assert type_of(result, "at") == expected
    assert result.parted == {"at", "at.point"}
    assert result.plain.names == (*LEADING, "id", "id.dotted")
    assert type_of(left(grant(without=("at.point", "at.name")), schema=DEEP), "at") is None
    whole = left(grant(without=("at.point",)), schema=DEEP)
    assert type_of(whole, "at") == pa.struct([("name", pa.string())])


def test_a_masked_field_keeps_its_place_and_may_be_null() -> None:
    table = left(grant(masks={"at.point.x": "id % 10"}), schema=DEEP)
    masked = pa.struct([POINT.field(0).with_nullable(True), POINT.field(1)])
    assert type_of(table, "at") == pa.struct([("point", masked), ("name", pa.string())])
    assert printed(table.masks["at.point.x"]) == "(id % 10)"
    assert table.parted == {"at", "at.point"}
    assert {column.name for column in table.schema.columns if column.required} >= {"at", "id"}
    hidden = left(grant(masks={"at.point.x": "1"}, without=("at.point",)), schema=DEEP)
    assert type_of(hidden, "at") == pa.struct([("name", pa.string())])


def test_fields_that_are_listed_are_all_that_is_opened_of_a_struct() -> None:
    table = left(grant(columns=("id", "at.name")), schema=DEEP)
    assert table.schema.names == ("id", "at")
    assert type_of(table, "at") == pa.struct([("name", pa.string())])
    more = left(grant(columns=("at.point",), masks={"at.point.y": "0"}), schema=DEEP)
    assert type_of(more, "at") == pa.struct([("point", POINT)])
    assert left(grant(columns=("id",)), schema=DEEP).schema.names == ("id",)


def test_a_column_with_a_dot_in_its_name_is_a_column() -> None:
    table = left(grant(without=("id.dotted",)), schema=DEEP)
    assert table.schema.names == (*LEADING, "id", "at", "many")
    assert table.parted == frozenset()


@pytest.mark.parametrize("name", ["many.x", "at.z", "at.point.x.y", "id.x", "at.Name"])
def test_what_is_no_field_of_a_struct_closes_the_table(name: str) -> None:
    with pytest.raises(PermissionsMismatch) as caught:
        view(grant(masks={name: "NULL"}), ADA, TABLE, DEEP)
    why = f"it names column {name}, which the table does not have"
    assert caught.value.facts["why"] == why


def test_a_name_of_two_things_closes_the_table() -> None:
    both = leading(Column(4, "a", pa.struct([("b", pa.int32())])), Column(5, "a.b", pa.int32()))
    with pytest.raises(PermissionsMismatch) as caught:
        view(grant(without=("a.b",)), ADA, TABLE, both)
    assert caught.value.facts["why"] == "it names a.b, both a column and a field of another"


def test_a_filter_is_bound_to_user_and_groups() -> None:
    rows = "HOST = current_user AND list_contains(Current_Groups, secret) AND pos.x > 1"
    result = left(grant(rows=rows)).rows
    assert result is not None
    assert printed(result) == (
        "((host = CAST('ada' AS VARCHAR)) AND list_contains(CAST(main.list_value('analysts', 'eu') AS VARCHAR[]), "
        '"Secret") AND (pos.x > 1))'
    )
    nobody = left(grant(rows="host = current_user OR list_contains(current_groups, host)",
                        users=frozenset({"*"})), who=NOBODY).rows  # fmt: skip
    assert nobody is not None
    assert "CAST(NULL AS VARCHAR)" in printed(nobody)
    assert "CAST(main.list_value() AS VARCHAR[])" in printed(nobody)


def test_a_quote_in_a_users_name_stays_inside_its_literal() -> None:
    value = bound_to(expression("current_user").tree, "a' OR 'b", [], {})
    assert printed(value) == "CAST('a'' OR ''b' AS VARCHAR)"


def test_functions_that_the_engine_bounds_mean_its_own() -> None:
    value = bound_to(
        expression("regexp_replace(host, 'a', 'b')").tree, None, [], {"host": "host"}
    )
    assert printed(value) == "\"system\".main.regexp_replace(host, 'a', 'b')"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"columns": ("host", "gone")}, "it names column gone, which the table does not have"),
        ({"columns": ("host", "secret")}, "it names column secret, which the table does not have"),
        ({"without": ("gone",)}, "it names column gone, which the table does not have"),
        ({"masks": {"gone": "NULL"}}, "it names column gone, which the table does not have"),
        ({"masks": {"host": "gone"}}, "it names column gone, which the table does not have"),
        ({"rows": "flows.host = 'a'"}, "it names column flows, which the table does not have"),
        ({"rows": "session_user = 'a'"}, "it names column session_user, which the table does not have"),
        ({"without": OPEN}, "it opens no column"),
    ],
)  # fmt: skip
def test_a_grant_that_does_not_fit_the_table_closes_it_without_telling_names(
    changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(PermissionsMismatch) as caught:
        view(grant(**changes), ADA, TABLE, SCHEMA)
    assert caught.value.facts == {"table": "lake.net.flows", "grant": "g", "why": why}
    assert caught.value.message == (
        "lake.net.flows: the permissions that hold for you do not fit the table, so nothing of it is told; the "
        "server's log says what its operator must mend."
    )


@pytest.mark.parametrize(
    ("side", "what"),
    [
        (Side.SEAM, "seam counts"),
        (Side.SCHEMAS, "schemas tells of"),
        (Side.SNAPSHOTS, "snapshots tells of"),
    ],
)
def test_facts_of_the_table_are_told_to_those_who_see_every_row(side: Side, what: str) -> None:
    table = ResolvedTable(FLOWS, side)
    assert view(grant(without=("Secret",)), ADA, table, SCHEMA) is None
    with pytest.raises(NotAllowed) as refused:
        view(grant(rows="host = 'a'"), ADA, table, SCHEMA)
    assert refused.value.message == (
        f"lake.net.flows${what} rows that you may not see; read the table itself."
    )


def test_the_sides_of_a_table_are_restricted_as_the_table() -> None:
    value = grant(rows="host = 'a'", without=("Secret",))
    for side in (Side.COLD, Side.TAIL):
        table = view(value, ADA, ResolvedTable(FLOWS, side), SCHEMA)
        assert table is not None
        assert "Secret" not in table.schema.names
        assert table.rows is not None


def test_offsets_that_are_closed_under_a_filter_are_told_by_nothing_else() -> None:
    def reply(value: Grant, *counting: str) -> bool:
        return GrantList((value,)).check_count_disclosure(ADA, [FLOWS], counting)

    assert not reply(grant(), "following")
    assert not reply(grant(without=("kafka_offset",)), "following")
    assert not reply(grant(rows="host = 'a'"), "following")
    assert not GrantList(()).check_count_disclosure(ADA, [FLOWS], ["following"])
    for value in (
        grant(rows="host = 'a'", without=("kafka_offset",)),
        grant(rows="host = 'a'", columns=("host",)),
    ):
        assert reply(value)
        with pytest.raises(NotAllowed) as caught:
            reply(value, "following", "thermocline_cut()")
        assert caught.value.message == (
            "lake.net.flows: following would tell how many records there are, also of rows that you may not see; "
            "leave it out."
        )


def test_explain_tells_no_counts_to_those_who_see_some_rows() -> None:
    cut = plan_cut(pin(10, 20), bounds((3, 15), (5, 20)))
    facts = TableReport(1.5, {0: 3, 1: 5}, ColdTotals(25, 2, 4096), 0, is_counted=False)
    read = plan_read(StatementNeeds(), TABLE, cut, is_open=False)
    cold, tail = explanation({TABLE: read}, {TABLE: facts}).to_pylist()
    reply = {name for row in (cold, tail) for name, value in row.items() if value is not None}
    assert reply == {"table", "side", "why", "snapshot_id", "schema_id", "metadata_age_s"}
    assert (
        cold["why"]
        == tail["why"]
        == ("a row filter holds for you: how much there is to read is not told")
    )


def test_a_fingerprint_changes_with_what_is_seen() -> None:
    other = TableName("lake", ("net",), "other")
    policies = [
        GrantList(()),
        GrantList((grant(),)),
        GrantList((grant(without=("host",)),)),
        GrantList((grant(columns=("host",)),)),
        GrantList((grant(rows="host = 'a'"),)),
        GrantList((grant(rows="host = 'b'"),)),
        GrantList((grant(masks={"host": "NULL"}),)),
        GrantList((grant(masks={"host": "'x'"}),)),
    ]
    marks = [policy.fingerprint(ADA, [FLOWS]) for policy in policies]
    assert len(set(marks)) == len(marks)
    assert {len(mark) for mark in marks} == {32}
    assert policies[1].fingerprint(ADA, [FLOWS, other]) not in marks
    assert policies[1].fingerprint(ADA, [other, FLOWS]) == policies[1].fingerprint(
        ADA, [FLOWS, other]
    )
    renamed = GrantList((replace(grant(), name="h"), grant(without=("host",))))
    assert renamed.fingerprint(ADA, [FLOWS]) == marks[1]


def test_groups_count_where_an_expression_may_look_at_them() -> None:
    fewer = Identity("ada", frozenset({"eu"}))
    plain, ruled = GrantList((grant(without=("host",)),)), GrantList((grant(rows="true"),))
    assert plain.fingerprint(ADA, [FLOWS]) == plain.fingerprint(fewer, [FLOWS])
    assert ruled.fingerprint(ADA, [FLOWS]) != ruled.fingerprint(fewer, [FLOWS])


def test_columns_are_named_once_and_without_fields() -> None:
    assert columns_of(expression("pos.x + pos.x > len(host) AND current_user = host").tree) == (
        "pos",
        "host",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a, b", "one expression over the columns of a row is expected"),
        ("a FROM t", "one expression over"),
        ("a WHERE b", "one expression over"),
        ("a ORDER BY 1", "one expression over"),
        ("a LIMIT 1", "one expression over"),
        ("a GROUP BY a", "one expression over"),
        ("a HAVING b", "one expression over"),
        ("a QUALIFY b", "one expression over"),
        ("a USING SAMPLE 10%", "one expression over"),
        ("DISTINCT a", "one expression over"),
        ("a UNION SELECT b", "one expression over"),
        ("a; SELECT b", "one statement is expected"),
        ("a AS b", "has no name of its own"),
        ("*", r"\* are not supported in permissions"),
        ("COLUMNS('a')", r"\* are not supported in permissions"),
        ("a = ?", "parameters are not supported in permissions"),
        ("#1", "positions of columns are not supported"),
        ("(SELECT 1)", "subqueries are not supported in permissions"),
        ("a IN (SELECT 1)", "subqueries are not supported in permissions"),
        ("list_filter(a, x -> x > 1)", "lambdas are not supported in permissions"),
        ("row_number() OVER ()", "window functions are not supported in permissions"),
        ("sum(a)", "function sum is not supported in permissions: it does not make"),
        ("unnest(a)", "function unnest is not supported in permissions: it does not make"),
        ("random() < 0.5", "function random is not supported in permissions: they depend on"),
        ("a > now()", "function now is not supported in permissions"),
        ("error(a)", "function error is not supported in permissions"),
        ("read_text('/etc/passwd')", "function read_text is not supported"),
        ("getvariable('a')", "function getvariable is not supported"),
    ],
)  # fmt: skip
def test_only_one_expression_over_a_row_passes(text: str, why: str) -> None:
    with pytest.raises(UnsupportedStatement, match=why):
        expression(text)


def test_functions_that_are_scalars_too_pass() -> None:
    assert columns_of(expression("greatest(a, list_sum(b), [c][1], try(d))").tree) == tuple(
        "abcd"
    )


def test_a_catalog_opens_where_a_grant_names_tables_of_it() -> None:
    grants = GrantList((grant(tables=(TablePattern.parse("lake.*"),)),))
    assert grants.opens(ADA, FLOWS.catalog)
    assert not grants.opens(ADA, "other")
    assert not GrantList(()).opens(ADA, FLOWS.catalog)

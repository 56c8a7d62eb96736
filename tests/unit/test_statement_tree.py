"""What the parser leaves of a statement: one tree, rewritten when all that it needs is known."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectors.iceberg.pin_cache import PinCache
from planner.errors import UnsupportedStatement
from planner.reading.parsed_statement import ParsedStatement
from planner.schema import Column
from planner.statement.ast import Node
from proxy.access.policy import AccessPolicy
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.query.parsing import StatementParser
from proxy.session import Session
from tests.doubles.cold import MemoryColdStore
from tests.harness.builders import FLOWS, schema

PATH, SESSION = ("lake", "net"), Session("s", catalog="lake", schema="net")
HOST = Column(1, "host", pa.string())
COUNT = "SELECT count(*) FROM flows WHERE host LIKE '_%_%_'"
NAMED = "SELECT net.flows.host FROM flows WHERE date_trunc(day, now()) > now()"


def test_a_tree_is_rewritten_once(engine: Engine) -> None:
    store = MemoryColdStore()
    store.create(FLOWS, (HOST,))
    with PinCache(store, refresh_s=1e9) as pins:
        parser = StatementParser(engine, pins, AccessPolicy(engine))
        counted, named = (parser.read(sql, PATH, SESSION) for sql in (COUNT, NAMED))
    (name,) = named.relations.values()
    relation = Relation(name, schema(HOST))
    assert counted.over([relation]) is counted.document
    # It waits for the columns, and is kept for them.
    assert named.document is None
    tree = named.over([relation])
    assert named.over([relation]) is tree
    assert engine.unparse(tree) == (
        f"""SELECT flows.host FROM "{name}" AS flows WHERE (date_trunc('day', now()) > now())"""
    )
    without = named.over([Relation(name, schema(Column(2, "id", pa.int32())))])
    assert engine.unparse(without).startswith("SELECT net.flows.host FROM")


def test_a_shape_is_analysed_once_and_each_text_has_its_own_constants(engine: Engine) -> None:
    store = MemoryColdStore()
    store.create(FLOWS, (HOST,))
    with PinCache(store, refresh_s=1e9) as pins:
        parser = StatementParser(engine, pins, AccessPolicy(engine))

        def read(sql: str) -> ParsedStatement:
            return parser.read(sql, PATH, SESSION)

        first, other = (read(f"SELECT host FROM flows WHERE host = '{n}x'") for n in (1, 2))
        again = read("SELECT host FROM flows WHERE host = '2x'")
        # The gate writes in the tree, of the parser's proof too.
        days = [
            read(f"SELECT date_trunc(day, now()) FROM flows WHERE host = '{n}x'")
            for n in (1, 2)
        ]
        assert days[1].first is days[0]
        # A count that the gate bounds is judged each time.
        sampled = "SELECT host FROM flows WHERE host = 'a' USING SAMPLE {} ROWS"
        few, fewer = (read(sampled.format(rows)) for rows in (5, 4))
        assert fewer.first is fewer is not few
        with pytest.raises(UnsupportedStatement, match="sample"):
            read(sampled.format(100_001))
    assert first.first is first
    assert other.first is first
    assert again is other
    (name,) = first.relations.values()
    relation = Relation(name, schema(HOST))
    text = f"""SELECT host FROM "{name}" AS flows WHERE (host = '2x')"""
    assert other.printed([relation], engine.unparse).sql == text
    assert engine.unparse(other.over([relation])) == text
    assert "2x" in str(other.positions_of)
    assert "1x" in str(first.positions_of)


def test_a_text_whose_constants_print_twice_is_printed_by_itself(engine: Engine) -> None:
    store = MemoryColdStore()
    store.create(FLOWS, (HOST,))
    with PinCache(store, refresh_s=1e9) as pins:
        parser = StatementParser(engine, pins, AccessPolicy(engine))
        texts = (f"SELECT host FROM flows WHERE host = '{n}x'" for n in (1, 2))
        first, other = (parser.read(text, PATH, SESSION) for text in texts)
    (name,) = first.relations.values()
    relation = Relation(name, schema(HOST))

    def twice(tree: Node) -> str:
        return engine.unparse(tree) * 2

    assert other.first is first
    assert other.printed([relation], twice).sql == twice(other.over([relation]))


def test_one_side_of_a_table_is_named_as_users_do(engine: Engine) -> None:
    store = MemoryColdStore()
    store.create(FLOWS, (HOST,))
    with PinCache(store, refresh_s=1e9) as pins:
        parser = StatementParser(engine, pins, AccessPolicy(engine))
        of = {
            sql: parser.read(f"SELECT host FROM {sql}", PATH, SESSION).sides
            for sql in ("flows", '"flows$cold"')
        }
    assert of == {"flows": frozenset(), '"flows$cold"': frozenset({f"{FLOWS}$cold"})}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT host FROM flows WHERE host = '{}x' AND 7{} < n",
        "SELECT host FROM flows AS f WHERE f.host IN ('{}x', 'b') OR host = '{}y'",
        "SELECT f.n FROM flows f JOIN flows g USING (n) WHERE g.n BETWEEN 4{} AND 7{} AND f.n > 1 + 1",
        "SELECT n FROM flows WHERE host LIKE 'w%' AND n >= 3{} AND d >= DATE '2026-01-01' AND n = 0",
    ],
)
def test_a_filled_statement_has_the_conditions_that_are_read_of_its_text(
    sql: str, engine: Engine
) -> None:
    store = MemoryColdStore()
    store.create(FLOWS, (HOST, Column(2, "n", pa.int64()), Column(3, "d", pa.date32())))
    texts = [sql.replace("{}", number) for number in ("1", "2")]

    def conditions_of(parsed: ParsedStatement) -> list[object]:
        return [
            (each.column, each.operator, each.clocks, without_places(each.operands))
            for positions in parsed.positions_of.values()
            for position in positions
            for each in position
        ]

    with PinCache(store, refresh_s=1e9) as pins:
        parsers = [StatementParser(engine, pins, AccessPolicy(engine)) for _ in range(2)]
        filled = [parsers[0].read(text, PATH, SESSION) for text in texts][-1]
        alone = parsers[1].read(texts[-1], PATH, SESSION)
    assert filled.first is not filled
    assert alone.first is alone
    assert conditions_of(filled) == conditions_of(alone)


def without_places(node: object) -> object:
    if isinstance(node, dict):
        return {k: without_places(v) for k, v in node.items() if k != "query_location"}
    return [without_places(each) for each in node] if isinstance(node, list | tuple) else node

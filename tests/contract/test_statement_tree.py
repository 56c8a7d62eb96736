"""What the parser leaves of a statement: one tree, rewritten when all that it needs is known."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectors.iceberg.pin_cache import PinCache
from planner.errors import UnsupportedStatement
from planner.schema import Column
from proxy.access.policy import AccessPolicy
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.query.parsing import ParsedStatement, StatementParser
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

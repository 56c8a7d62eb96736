"""What the parser leaves of a statement: one tree, rewritten when all that it needs is known."""

from __future__ import annotations

import pyarrow as pa

from connectors.iceberg.pin_cache import PinCache
from planner.schema import Column
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

"""Mutated statements: each is refused with a typed error or answered from what it may name, and the engine lives.

Seeds are the varied statements the gate lets pass; mutations put words, names and pieces of hostile and of other
statements into them. What passes is looked at again by a walk that knows nothing of the planner's: every function and
table in the tree must be one of those allowed.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from planner.errors import FederationError, InternalError
from planner.names import TableName
from planner.ports import ArrowRelation
from planner.statement.allowed import FUNCTIONS, TABLE_FUNCTIONS, WINDOWS
from planner.statement.gate import check, check_text
from planner.statement.references import references, resolve
from planner.statement.rewrite import LINEAR, rewrite
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Relation
from proxy.engine.running import working_for
from proxy.session import Deadline
from tests.harness.sql import TABLES, VARIED

DATA = Path(__file__).parents[1]
HOSTILE = (DATA / "protocol" / "data" / "hostile_statements.sql").read_text().splitlines()
MARK = "do-not-read-me"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TOKEN = re.compile(r"\s+|[A-Za-z_][A-Za-z0-9_$]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[0-9.]+|.")
#: What a traceback, a path of this machine or an object of Python looks like in a message.
LEAKS = re.compile(r'Traceback|File "|site-packages|\.py\b|<[a-z_]+ object at')


class Mutator:
    """Makes one statement of another, the same for the same seed."""

    def __init__(self, seed: int, outside: str) -> None:
        self._chance = random.Random(seed)
        self._seeds = [TOKEN.findall(line) for line in VARIED if line]
        hostile = [line.replace("{outside}", outside) for line in HOSTILE if line[:3] != "-- "]
        self._pieces = [TOKEN.findall(line) for line in hostile if line]
        items = (*self._pieces, *self._seeds)
        words = {token for line in items for token in line if token.strip()}
        self._words = sorted(words)

    def statement(self) -> str:
        tokens = list(self._chance.choice(self._seeds))
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            mutate = self._chance.choice(
                (
                    self._drop,
                    self._double,
                    self._swap,
                    self._insert,
                    self._replace,
                    self._splice,
                )
            )
            mutate(tokens, self._chance.randrange(len(tokens) + 1))
        return "".join(tokens)

    def _piece(self) -> list[str]:
        line = self._chance.choice(self._chance.choice((self._pieces, self._seeds)))
        start = self._chance.randrange(len(line))
        return line[start : start + self._chance.randint(1, 12)]

    def _drop(self, tokens: list[str], at: int) -> None:
        del tokens[at : at + self._chance.randint(1, 3)]

    def _double(self, tokens: list[str], at: int) -> None:
        tokens[at:at] = tokens[at : at + self._chance.randint(1, 6)]

    def _swap(self, tokens: list[str], at: int) -> None:
        other = self._chance.randrange(len(tokens) + 1)
        tokens[at : at + 1], tokens[other : other + 1] = (
            tokens[other : other + 1],
            tokens[at : at + 1],
        )

    def _insert(self, tokens: list[str], at: int) -> None:
        tokens[at:at] = [" ", self._chance.choice(self._words), " "]

    def _replace(self, tokens: list[str], at: int) -> None:
        tokens[at : at + 1] = [self._chance.choice(self._words)]

    def _splice(self, tokens: list[str], at: int) -> None:
        tokens[at:at] = [self._chance.choice((" ", ", ", " (", ") ")), *self._piece(), " "]


class Tried:
    """An engine over the tables of the varied statements."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engine: Engine | None = None
        rows = duckdb.connect()
        self.relations = []
        for schema, name, content in TABLES:
            table = rows.sql(content).to_arrow_table()
            self.relations.append(
                Relation(f"__tc:{schema}.{name}", table.schema, (ArrowRelation(table),))
            )
        self.tables = [TableName("memory", (schema,), name) for schema, name, _ in TABLES]

    def engine(self) -> Engine:
        """The engine; a new one where the former refuses all work, as the supervisor would start one."""
        if self._engine is None or not self._engine.healthy():
            self.close()
            self._engine = Engine(
                storage_roots=[str(self._folder)],
                spill_dir=self._folder,
                memory_limit_bytes=512 << 20,
                threads=1,
            )
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def ask(self, sql: str) -> tuple[Any, int]:
        """The checked tree, and how many rows it answered."""
        engine = self.engine()
        check_text(sql)
        document = engine.parse(sql)
        check(document)
        names = {}
        for reference in references(document):
            table = resolve(reference, "memory", "main", self.tables).table
            names[reference] = f"__tc:{table.schema}.{table.name}"
        used = [relation for relation in self.relations if relation.name in names.values()]
        rewritten = rewrite(document, names)
        engine.describe(rewritten, used)
        with (
            working_for(Deadline(1), None),
            engine.run(rewritten, used, when=When(NOW)) as result,
        ):
            reply = pa.Table.from_batches(list(result), result.schema)
        assert MARK not in reply.slice(0, 1000).to_string(preview_cols=1000)
        return document, reply.num_rows


def named(tree: Any) -> Iterator[tuple[str, str]]:
    """Every function, table and WITH clause of a tree, whatever it is part of."""
    if isinstance(tree, list):
        for item in tree:
            yield from named(item)
    elif isinstance(tree, dict):
        if "function_name" in tree:
            yield "function", tree["function_name"].lower()
        if tree.get("type") == "BASE_TABLE":
            yield "table", tree["table_name"].lower()
        if "key" in tree and isinstance(tree.get("value"), dict):
            yield "clause", str(tree["key"]).lower()
        if "cte_name" in tree:
            yield "clause", tree["cte_name"].lower()
        for item in tree.values():
            yield from named(item)


ALLOWED = FUNCTIONS | WINDOWS | TABLE_FUNCTIONS | set(LINEAR.values())


def check_refusal(refused: FederationError, sql: str, folder: Path) -> None:
    text = str(refused)
    assert not LEAKS.search(text), (sql, text)
    # What the statement holds may come back, and nothing else of the machine.
    assert str(folder.parent) not in text.replace(sql, "") or str(folder.parent) in sql
    # A fault of DuckDB's own: after it the engine is as well as before, or replaced.
    assert not isinstance(refused, InternalError) or "the engine failed" in text


def run(seed: int, count: int, folder: Path) -> int:
    """Try mutants; return how many were let pass."""
    outside = folder.parent / "outside.csv"
    outside.write_text(f"a\n{MARK}\n")
    mutator, tried = Mutator(seed, str(outside)), Tried(folder)
    tables = {name.name.lower() for name in tried.tables}
    passed = 0
    try:
        for number in range(count):
            sql = mutator.statement()
            try:
                tree, _ = tried.ask(sql)
            except FederationError as refused:
                check_refusal(refused, sql, folder)
                continue
            except Exception as error:
                raise AssertionError((seed, number, sql)) from error  # no type of ours
            passed += 1
            items = list(named(tree))
            clauses = {name for kind, name in items if kind == "clause"}
            for kind, name in items:
                assert kind != "function" or name in ALLOWED, (sql, name)
                assert kind != "table" or name in tables | clauses, (sql, name)
    finally:
        tried.close()
    assert {path.name for path in folder.iterdir()} <= {"tails.duckdb", "tails.duckdb.wal"}
    return passed


def test_mutants_are_refused_by_name_or_answered_from_what_they_may_name(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    assert run(20261121, 200, folder) > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_many_mutants(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    assert run(seed, 5_000, folder) > 250

"""Every regular expression of the product: over callers' text it takes time linear in that text.

A pattern that backtracks holds Python's lock meanwhile, so no deadline reaches it. Each is timed, in processor time,
over up to a megabyte of text made to have it backtrack; so are other loops of ours over such texts.
"""

from __future__ import annotations

import ast
import contextlib
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import connectors.decoding.json.lenient
import connectors.decoding.json.parsing
import connectors.decoding.json.strict
import connectors.iceberg.errors
import connectors.iceberg.live.folder
import connectors.iceberg.store
import connectors.store.errors
import connectors.syntax_trees
import planner.explain
import planner.names
import planner.sql_text
import planner.statement.gate
import planner.statement.postgres_forms
import planner.statement.references
import planner.statement.rewrite
import planner.tiering.write_plan
import proxy.engine.engine
import proxy.engine.errors
import proxy.engine.macros
import proxy.flightsql.session_sql
import proxy.flightsql.uploads
from planner.errors import FederationError
from planner.seam.freshness import parse_freshness, parse_wait_for
from planner.statement.gate import check_text
from planner.statement.references import long_names
from proxy.flightsql.metadata.like import MAX_CHARS, Like
from proxy.flightsql.session_sql import as_query, change_of
from proxy.session import Session

# A generator of what a pattern matches reads it as Python's compiler does.
PARSER: Any = re._parser  # type: ignore[attr-defined]

ROOT = Path(__file__).parents[2]
SESSION = Session("s", catalog="lake", schema="net")
Work = Callable[[str], object]


def over(module: Any, name: str, how: str) -> tuple[Work, str]:
    compiled: re.Pattern[str] = getattr(module, name)
    if how == "sub":
        return (lambda text: compiled.sub("", text)), compiled.pattern
    return getattr(compiled, how), compiled.pattern


#: Where callers' text goes, by (file, name) of the pattern or of the function it is written in.
OF_CALLERS: dict[str, tuple[Work, str]] = {
    "planner/sql_text.py _TOKEN": (lambda text: deque(planner.sql_text.tokens(text), 0), planner.sql_text._TOKEN.pattern),
    "planner/sql_text.py _EXPLAIN": over(planner.sql_text, "_EXPLAIN", "match"),
    "planner/sql_text.py _ANALYZE": over(planner.sql_text, "_ANALYZE", "match"),
    "planner/seam/freshness.py _SPAN": (lambda text: parse_freshness(f"max_staleness {text}"), r"\d+\s*h"),
    "planner/seam/freshness.py _RECORD": (lambda text: parse_wait_for(f"{text},"), r"([a-z]+)/(\d+):(\d+)"),
    "planner/seam/freshness.py parse_wait_for": (lambda text: parse_wait_for(f"a/0:1{text}"), r"[,\s]+"),
    "planner/statement/gate.py _COSTLY_FORMAT": over(planner.statement.gate, "_COSTLY_FORMAT", "search"),
    "planner/statement/gate.py _QUOTED": over(planner.statement.gate, "_QUOTED", "findall"),
    "planner/statement/postgres_forms.py _PIECE": over(planner.statement.postgres_forms, "_PIECE", "match"),
    "planner/statement/references.py PATH": over(planner.statement.references, "PATH", "search"),
    "planner/statement/rewrite.py _POSITION": over(planner.statement.rewrite, "_POSITION", "sub"),
    "connectors/syntax_trees.py _POSITION": over(connectors.syntax_trees, "_POSITION", "sub"),
    "connectors/syntax_trees.py _INFINITE": over(connectors.syntax_trees, "_INFINITE", "search"),
    "proxy/engine/errors.py _MISSING": over(proxy.engine.errors, "_MISSING", "search"),
    "proxy/engine/errors.py _DAMAGED": over(proxy.engine.errors, "_DAMAGED", "search"),
    "proxy/engine/errors.py _PATH": over(proxy.engine.errors, "_PATH", "sub"),
    "proxy/engine/errors.py _SOURCE": over(proxy.engine.errors, "_SOURCE", "search"),
    "proxy/engine/errors.py _NAMES_IN_QUOTES": over(proxy.engine.errors, "_NAMES_IN_QUOTES", "sub"),
    "planner/sql_text.py _BARE": over(planner.sql_text, "_BARE", "fullmatch"),
    "proxy/engine/macros.py _AGES": over(proxy.engine.macros, "_AGES", "search"),
    "proxy/flightsql/session_sql.py _TRANSACTION": over(proxy.flightsql.session_sql, "_TRANSACTION", "fullmatch"),
    "proxy/flightsql/session_sql.py _ONE_FUNCTION": over(proxy.flightsql.session_sql, "_ONE_FUNCTION", "fullmatch"),
    "proxy/flightsql/session_sql.py _ASKS_FUNCTIONS": over(proxy.flightsql.session_sql, "_ASKS_FUNCTIONS", "fullmatch"),
    "proxy/flightsql/uploads.py _FIXED_OFFSET": over(proxy.flightsql.uploads, "_FIXED_OFFSET", "fullmatch"),
    # A cut's text names the metadata file of then.
    "connectors/iceberg/live/folder.py _NAME": over(connectors.iceberg.live.folder, "_NAME", "fullmatch"),
    "connectors/iceberg/store.py _METADATA_FILE": over(connectors.iceberg.store, "_METADATA_FILE", "fullmatch"),
    # Of those who write records, and of those who write metadata.
    "planner/names.py CLUSTER_NAME": over(planner.names, "CLUSTER_NAME", "fullmatch"),
    "planner/tiering/write_plan.py _NUMBER": over(planner.tiering.write_plan, "_NUMBER", "fullmatch"),
    "planner/tiering/write_plan.py _SIZE": over(planner.tiering.write_plan, "_SIZE", "fullmatch"),
    "planner/tiering/write_plan.py _WHOLE": over(planner.tiering.write_plan, "_WHOLE", "fullmatch"),
    "connectors/decoding/json/strict.py _NUMBER": over(connectors.decoding.json.strict, "_NUMBER", "fullmatch"),
    "connectors/decoding/json/strict.py _DATE": over(connectors.decoding.json.strict, "_DATE", "fullmatch"),
    "connectors/decoding/json/strict.py _TIMESTAMP": over(connectors.decoding.json.strict, "_TIMESTAMP", "fullmatch"),
    "connectors/decoding/json/strict.py _HEX": over(connectors.decoding.json.strict, "_HEX", "fullmatch"),
    "connectors/decoding/json/strict.py UUID": over(connectors.decoding.json.strict, "UUID", "fullmatch"),
    "connectors/decoding/json/parsing.py _JSON_STRING": over(connectors.decoding.json.parsing, "_JSON_STRING", "sub"),
    "connectors/decoding/json/parsing.py _BASE64": over(connectors.decoding.json.parsing, "_BASE64", "fullmatch"),
    "connectors/decoding/json/parsing.py _depth": (connectors.decoding.json.parsing._depth, r"[\[\]{}]"),
    "connectors/decoding/json/lenient.py _TIME": over(connectors.decoding.json.lenient, "_TIME", "fullmatch"),
    "connectors/decoding/json/lenient.py _UUID": over(connectors.decoding.json.lenient, "_UUID", "fullmatch"),
    "connectors/decoding/json/lenient.py _boolean": (lambda text: re.split("[eE]", text), "[eE]"),
    "connectors/store/errors.py _QUOTED": over(connectors.store.errors, "_QUOTED", "sub"),
    "connectors/iceberg/errors.py _NO_DATABASE": over(connectors.iceberg.errors, "_NO_DATABASE", "search"),
    "connectors/iceberg/errors.py _UNSUPPORTED_TYPE": over(connectors.iceberg.errors, "_UNSUPPORTED_TYPE", "search"),
}  # fmt: skip

#: Whose text the others read: no caller's, or it is read in a process of his own.
OF_OTHERS = {
    "connectors/decoding/json/columns.py _compiled": "records; RE2 reads the same texts, patterns of fixed lengths",
    "connectors/iceberg/partition_terms.py _TERM": "the command line of `create`",
    "connectors/iceberg/partition_terms.py _DIRECTION": "the command line of `create`",
    "connectors/jars.py java": "what Java prints",
    "connectors/jars.py _reason": "what Ivy prints",
    "thermocline/schema_columns.py _read": "an option of the command line",
    "thermocline/demo/broker.py _previous_ports": "a file of the demo's broker",
    "thermocline/demo/broker.py _failed": "what the demo's broker prints",
    "connectors/kafka/log.py _TOPIC": "names of topics, at most 249 characters are looked at",
    "connectors/kafka/settings.py refused": "librdkafka's reason against the operator's settings",
    "connectors/spark/publish/changes.py _TWO_PARTITIONS": "messages of the tierer's own executors",
    "connectors/spark/errors.py _REFUSED_BY_WRITER": "messages of the tierer's own JVM",
    "connectors/spark/errors.py _TOO_LARGE": "messages of the tierer's own JVM",
    "connectors/spark/errors.py _APART": "messages of the tierer's own JVM",
    "connectors/spark/errors.py _FIELD": "messages of the tierer's own JVM",
    "connectors/spark/errors.py _LONG_FOLDER": "messages of the tierer's own JVM",
    "planner/tiering/layout.py _TRANSFORM": "transforms in the metadata of tables that are tiered",
    "connectors/spark/errors.py _NOT_INSTALLED": "messages of the tierer's own executors",
    "connectors/spark/errors.py _PACKED": "messages of the tierer's own executors",
    "connectors/spark/session_check.py _SECRET": "the operator's settings",
    "connectors/spark/lake/stream.py _SPAN": "the user's own process",
    "connectors/spark/filter_option.py _SPELLINGS": "the user's own process",
    "planner/spark_names.py _TOKEN": "the user's own process",
    "planner/sql_text.py _QUOTED": "command lines and settings",
    "planner/type_text.py _TOKEN": "the command line of `create`",
    "planner/type_text.py _BARE_NAME": "the command line of `create`",
    "planner/type_text.py _SPACE": "the command line of `create`",
    "proxy/access/authentication/credentials.py _SHA256": "the operator's credentials file",
    "clients/python/thermocline_client/errors.py _SERVER_ERROR": "the user's own process",
    "clients/python/thermocline_client/errors.py _NO_SERVER": "the user's own process",
    "clients/python/thermocline_client/magics.py _SPAN": "the user's own process",
    "clients/python/thermocline_client/sql_text.py _NAME": "the user's own process",
    "clients/python/thermocline_client/sql_text.py side_name": "the user's own process",
    "clients/python/thermocline_client/sqlalchemy_types.py _DECIMAL": "the user's own process",
    "thermocline/commands/tail.py _SPAN": "the command line",
    "thermocline/commands/verify.py _DURATION": "the command line",
    "thermocline/demo/world.py _PAGES": "what the demo's console prints",
    "thermocline/demo/observer.py _PUBLISHED": "the log of the demo's tierer",
    "thermocline/doctor/machine.py _REQUIREMENT": "our own package's requirements",
    "thermocline/doctor/machine.py _numbers": "versions of packages",
    "thermocline/config/masking.py _SECRET": "the operator's settings",
    "thermocline/config/masking.py _PLAIN": "the operator's settings",
    "thermocline/config/masking.py _USER_INFO": "the operator's settings",
    "thermocline/config/masking.py _QUERY": "the operator's settings",
    "thermocline/prompt.py _PLAIN": "the user's own process",
    "thermocline/prompt.py _TYPED": "the user's own process",
    "thermocline/client.py _pieces": "the user's own process",
}

#: What reads callers' text besides, with what it looks for.
LOOPS: dict[str, tuple[Work, str]] = {
    "a message of the engine": (
        lambda text: proxy.engine.errors.translate(ValueError(f"Binder Error: {text}")), r"(/a)+",
    ),
    "another one": (
        lambda text: proxy.engine.errors.translate(ValueError(f"Invalid Input Error: {text}")), r"(/a)+",
    ),
    "what is no query": (lambda text: proxy.engine.engine._not_a_query(text, "SELECT"), r"(/\*a\*/)+"),
    "long names of tables": (long_names, r"(a\.)+|(a\.\"b\" )+"),
    "a change of the session": (change_of, r"SET a = ('')+"),
    "a transaction": (change_of, r"BEGIN( ISOLATION LEVEL A)+"),
    "a question for the session": (lambda text: as_query(text, SESSION), "SELECT current_user(, current_user)+"),
    "the size of a statement": (check_text, r"(/\*)+|(,')+|,+"),
    "a pattern of names": (
        lambda text: [*map(Like(text[:MAX_CHARS]).matches, ["order_items", "a" * 60] * 1_000)], r"(%a)+",
    ),
}  # fmt: skip

SIZES = (3_000, 100_000, 1_000_000)
MAX_S = 1.0
#: Of the shapes, so many of the slowest are tried at the larger sizes.
SLOWEST = 3
FRAGMENTS = (
    *("a", "1", "é", " ", "\n", "/", "/a", "//", ":", "a:", "a:/", "'", '"', '\\"', "\\", "/*", "/**/", "--"),
    *("--\n", "(", "[", "{", "{}", "%", "%a", "a.", "a,", ";", "$", "$a$", "SELECT a ", ".parquet", "now "),
)  # fmt: skip
AROUND = (
    ("", ""),
    ("", "\0"),
    ("'", "\0"),
    ('"', ""),
    ("SELECT a", ";x"),
    ("/*", ""),
    ("SET ", "'"),
)


@pytest.mark.parametrize("name", [*OF_CALLERS, *LOOPS])
def test_it_takes_time_linear_in_what_callers_send(name: str) -> None:
    work, source = (OF_CALLERS | LOOPS)[name]
    shapes = [
        *((before, fragment, after) for fragment in FRAGMENTS for before, after in AROUND),
        *(
            (before, pump, after)
            for before, pump in pumps(source)
            for after in ("", "\0", "!x")
        ),
    ]
    for size in SIZES:
        times = sorted(((_seconds(work, shape, size), shape) for shape in shapes), reverse=True)
        assert times[0][0] < MAX_S, (size, times[0])
        shapes = [shape for _, shape in times[:SLOWEST]]


def _seconds(work: Work, shape: tuple[str, str, str], size: int) -> float:
    before, fragment, after = shape
    text = before + fragment * (size // len(fragment)) + after
    # Coverage counts lines, which makes loops of ours several times as slow.
    tracer = sys.gettrace()
    sys.settrace(None)
    began = time.process_time()
    # Python's matcher looks for signals now and then: the worst of patterns ends the test, too.
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_S)
    try:
        with contextlib.suppress(FederationError):
            work(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.settrace(tracer)
    return time.process_time() - began


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    def over_time(number: int, frame: object) -> None:
        pytest.fail(f"more than {MAX_S:g} s of processor time", pytrace=False)

    before = signal.signal(signal.SIGVTALRM, over_time)
    yield
    signal.signal(signal.SIGVTALRM, before)


def pumps(source: str) -> Iterator[tuple[str, str]]:
    """Yield (what leads to it, what it repeats) of every repetition within a pattern."""
    for variant in range(3):
        pairs = set(_pumps(PARSER.parse(source), "", variant))
        yield from sorted(pair for pair in pairs if pair[1])


def _pumps(tokens: Any, before: str, variant: int) -> Iterator[tuple[str, str]]:
    for operation, argument in tokens:
        for inner in _inner(str(operation), argument):
            if "REPEAT" in str(operation):
                yield before, _sample(inner, variant)
            yield from _pumps(inner, before, variant)
        before += _sample([(operation, argument)], variant)


def _inner(operation: str, argument: Any) -> list[Any]:
    if "REPEAT" in operation:
        return [argument[2]]
    if operation == "BRANCH":
        return list(argument[1])
    if operation == "SUBPATTERN":
        return [argument[3]]
    return [argument] if operation == "ATOMIC_GROUP" else []


def _sample(tokens: Any, variant: int) -> str:
    """A text that ``tokens`` match; ``variant`` chooses among them."""
    return "".join(_one(str(operation), argument, variant) for operation, argument in tokens)


def _one(operation: str, argument: Any, variant: int) -> str:
    match operation:
        case "LITERAL":
            return chr(argument)
        case "IN":
            return _of_class(argument, variant)
        case "NOT_LITERAL" | "ANY":
            return "a1 "[variant]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _sample(argument[2], variant) * max(argument[0], 1)
        case "BRANCH":
            return _sample(argument[1][variant % len(argument[1])], variant)
    return "".join(_sample(inner, variant) for inner in _inner(operation, argument))


def _of_class(members: Any, variant: int) -> str:
    if str(members[0][0]) == "NEGATE":
        return "a1 "[variant]
    operation, argument = members[variant % len(members)]
    match str(operation):
        case "LITERAL":
            return chr(argument)
        case "RANGE":
            return chr(argument[0])
    return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(argument), "a")


def test_a_pattern_that_is_new_says_whose_text_it_reads() -> None:
    texts = {
        path: text
        for folder in ("planner", "connectors", "proxy", "thermocline", "clients")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"^\s*(import|from) re\b", text := path.read_text(encoding="utf-8"), re.M)
    }
    named = {
        f"{path.relative_to(ROOT)} {name}"
        for path, text in texts.items()
        for name in _patterns(ast.parse(text), "")
    }
    assert named == OF_CALLERS.keys() | OF_OTHERS.keys()


def _patterns(node: ast.AST, place: str) -> Iterator[str]:
    """Name what calls ``re`` within ``node``: the variable it is assigned to, else the function it is in."""
    for child in ast.iter_child_nodes(node):
        inside = place
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = child.name
        elif (
            isinstance(child, ast.Assign)
            and isinstance(child.targets[0], ast.Name)
            and not place
        ):
            inside = child.targets[0].id
        if isinstance(child, ast.ImportFrom) and child.module == "re":
            yield "import from re"
        if (
            isinstance(child, ast.Attribute)
            and isinstance(child.value, ast.Name)
            and child.value.id == "re"
            and child.attr
            in {
                "compile",
                "match",
                "search",
                "fullmatch",
                "sub",
                "subn",
                "split",
                "findall",
                "finditer",
            }
        ):
            yield inside
        yield from _patterns(child, inside)


def test_generated_texts_find_what_backtracks() -> None:
    """The generator itself: a pattern of nested repetitions is reached by what it repeats."""
    assert ("x ", "ab ") in set(pumps(r"x (?:[ab]b )*"))

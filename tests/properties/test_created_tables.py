"""What ``create --infer`` accepts decodes, and what it refuses is accepted with what it says to type."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from connectors.decoding.json.infer import Inferred, infer_columns
from connectors.decoding.json.samples import read_samples
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from planner.epoch_units import numbered, units_by_id
from planner.names import LEADING_COLUMNS, TableName
from planner.schema import RAW_SCHEMA
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.sql_text import split_name
from proxy.session import Deadline
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.fixtures.server import sqlite_catalog
from tests.harness.inferable import OPTIONS, topics, wishes_of
from tests.harness.json_decoder import json_decoder
from tests.harness.serving import SESSION, forget, serve
from thermocline.commands.create import first_watermark

EXAMPLES = 300
#: Of those that make a table in a catalog and read it.
READ_EXAMPLES = 15
SOAK_EXAMPLES = int(os.environ.get("THERMOCLINE_CREATE_EXAMPLES", "20000"))
#: A field that is left out may leave the one around it without a type, and so on outwards.
MOST_ROUNDS = 12


def inferred(values: list[bytes], options: str) -> Inferred:
    return infer_columns(
        read_samples(("", value) for value in values).records, wishes_of(options)
    )


def decode(values: list[bytes], result: Inferred, mode: str) -> pa.RecordBatch:
    schema = numbered(result.columns)
    units = units_by_id(result.columns, schema)
    binding = Binding("t", JsonFormat(mode, units))  # type: ignore[arg-type]
    entries = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_value": value}
        for at, value in enumerate(values)
    ]
    decoder = json_decoder("t", schema, binding)
    return decoder.decode(pa.RecordBatch.from_pylist(entries, RAW_SCHEMA)).rows


def mode_of(options: str) -> str:
    return "lenient" if "--json-mode lenient" in options else "strict"


def check_decoding(values: list[bytes], options: str, result: Inferred) -> None:
    assert decode(values, result, mode_of(options)).num_rows == len(values)


class Site:
    """A catalog, a log in memory, and the program's own way to create and to ask."""

    def __init__(self, folder: Path) -> None:
        self._catalogs = {"lake": sqlite_catalog(folder)}
        self._log = MemoryLog()
        self._store = IcebergStore(self._catalogs)
        self._board, self._tails, self._statements = serve(self._store, self._log)
        self._numbers = itertools.count()

    def check(self, values: list[bytes], options: str, result: Inferred) -> None:
        """Create a table over a topic of these values: a statement reads them all, as the decoder gives them."""
        topic = f"t{next(self._numbers)}"
        self._log.create_topic(topic, 1)
        for value in values:
            self._log.append(topic, 0, MemoryRecord(value))
        mode = mode_of(options)
        binding = Binding(topic, JsonFormat(mode))  # type: ignore[arg-type]
        table = TableName("lake", ("net",), topic)
        first = first_watermark(self._log.measure([topic])[topic], binding)
        create_table(self._catalogs, NewTable(table, result.columns, binding), first)
        self._board.refresh_due(None)
        planned = self._statements.plan(SESSION, f"SELECT * FROM {table}", None, Deadline(60))
        stream = self._statements.open(SESSION, planned.ticket, Deadline(60))
        try:
            rows = pa.Table.from_batches(list(stream), stream.schema)
        finally:
            stream.close()
        assert rows.num_rows == len(values)
        names = [column.name for column in result.columns]
        assert rows.column_names == [*LEADING_COLUMNS, *names]
        decoded = decode(values, result, mode)
        assert rows.select(names).to_pylist() == decoded.to_pylist()

    def close(self) -> None:
        forget(self._board, self._tails)


def check_created(
    data: st.DataObject, check: Callable[[list[bytes], str, Inferred], None]
) -> None:
    values = data.draw(topics())
    options = first = data.draw(OPTIONS)
    before, way = None, "no way yet"
    for _ in range(MOST_ROUNDS):
        result = inferred(values, options)
        # What was offered is taken, and does what it was offered for.
        assert before not in result.refusals
        if not way.startswith("--column A:"):  # a type of OPTIONS, for field A in place of a
            assert not [each for each in result.refusals if each.reason.startswith(f"{way}:")]
        if not result.refusals:
            assert [column for column in result.columns if not column.is_metadata]
            return check(values, options, result)
        refusal = data.draw(st.sampled_from(result.refusals))
        if refusal.ways == ("--column NAME:TYPE",):
            assert not result.columns
            return None
        if not refusal.ways:
            # A wish of the first round that fits no sample has no way out but to take it away.
            assert first, refusal
            assume(False)
        before = refusal
        way = data.draw(st.sampled_from(refusal.ways))
        replaced = [
            each for each in ("--epoch", "--column", "--rename") if way.startswith(each)
        ]
        if replaced:
            options = _without(options, replaced[0], shlex.split(way)[1])
        options = f"{options} {way}"
    raise AssertionError(f"refused for ever: {options}: {result.refusals}")


def _without(options: str, option: str, text: str) -> str:
    """The options without the one that another of its kind, with ``text``, replaces."""
    mark = ":" if option == "--column" else "="
    path, _ = split_name(text, mark)
    words = shlex.split(options)
    return " ".join(
        shlex.join(pair)
        for pair in zip(words[::2], words[1::2], strict=True)
        if not (pair[0] == option and split_name(pair[1], mark)[0] == path)
    )


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_what_is_created_decodes(data: st.DataObject) -> None:
    check_created(data, check_decoding)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(
    max_examples=SOAK_EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.data())
def test_what_is_created_decodes_at_length(data: st.DataObject) -> None:
    check_created(data, check_decoding)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("created"))
    yield made
    made.close()


@settings(
    max_examples=READ_EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_what_is_created_is_read(site: Site, data: st.DataObject) -> None:
    check_created(data, site.check)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(
    max_examples=SOAK_EXAMPLES // 20,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_what_is_created_is_read_at_length(site: Site, data: st.DataObject) -> None:
    check_created(data, site.check)

"""Uploads that lie: refused by name before anything reads what they say, in a real server by a stock client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.flightsql import uploads
from tests.fixtures.server import SqlServer
from tests.harness.lying import LIES, ROWS, Lie, lying, row
from tests.harness.wire import command, nested, prepare
from tests.protocol.upload_fuzz import REACHING


@pytest.fixture(scope="module")
def client(iceberg_server: SqlServer) -> Iterator[flight.FlightClient]:
    with closing(flight.connect(iceberg_server.uri)) as connected:
        yield connected


def bind(client: flight.FlightClient, batch: pa.RecordBatch, *, times: int = 1) -> bytes:
    """Bind rows to ``SELECT $1``: the statement's handle."""
    handle: bytes = prepare(client, "SELECT $1 AS it").prepared_statement_handle
    put = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    sent(client.do_put(put, batch.schema), batch, times=times)
    return handle


def sent(put: tuple[Any, Any], batch: pa.RecordBatch, *, times: int = 1) -> None:
    writer, answers = put
    with writer:
        for _ in range(times):
            writer.write_batch(batch)
        writer.done_writing()
        answers.read()


def answer(client: flight.FlightClient, batch: pa.RecordBatch) -> pa.Table:
    put = command(
        "CommandPreparedStatementQuery", prepared_statement_handle=bind(client, batch)
    )
    info = client.get_flight_info(put)
    table: pa.Table = client.do_get(info.endpoints[0].ticket).read_all()
    return table


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_what_lies_is_refused_where_it_is_bound(client: flight.FlightClient, lie: Lie) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"Parameter 1, of type .* is not valid Arrow"):
        bind(client, lying(lie))


@pytest.mark.parametrize("of", ROWS)
def test_a_true_row_of_every_type_is_answered(client: flight.FlightClient, of: str) -> None:
    assert answer(client, row(of)).num_rows == 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**31 - 1], pa.date32()),
        pa.array([86_400_000 * 10**9], pa.date64()),
        pa.array([2**63 - 1], pa.timestamp("s")),
        pa.array([-(2**63)], pa.timestamp("us", "Europe/Zurich")),
        pa.array([2**63 - 1], pa.duration("s")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_value_that_the_engine_does_not_hold_is_refused_by_name(
    client: flight.FlightClient, column: pa.Array
) -> None:
    with pytest.raises(pa.ArrowInvalid, match="has a value outside what the engine holds"):
        answer(client, pa.record_batch([column], names=["1"]))


@pytest.mark.parametrize(
    "zone", ["../../etc/passwd", "/etc/localtime", "a/b", "no zone", "+25:00", "UTC\0", "."]
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_time_zone_that_is_none_is_refused_by_name(
    client: flight.FlightClient, zone: str, nested: bool
) -> None:
    values = pa.array([0], pa.timestamp("us", zone))
    column = pa.ListArray.from_arrays([0, 1], values) if nested else values
    with pytest.raises(pa.ArrowInvalid, match="has the time zone"):
        bind(client, pa.record_batch([column], names=["1"]))


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        pytest.param(
            pa.record_batch([pa.array([b"x" * (uploads.MAX_PARAMETER_BYTES + 1)])], ["1"]),
            "bytes; 4,194,304 is the limit",
            id="large",
        ),
        pytest.param(
            pa.record_batch([pa.nulls(1)] * (uploads.MAX_FIELDS + 1), names=["1"] * 20_001),
            "more than 20,000 fields",
            id="wide",
        ),
        pytest.param(
            pa.record_batch([pa.nulls(1, nested(uploads.MAX_DEPTH + 1))], names=["1"]),
            "nested deeper than 16",
            id="deep",
        ),
        pytest.param(
            pa.record_batch([pa.nulls(1)], names=["n" * (uploads.MAX_SCHEMA_BYTES + 1)]),
            "The schema of the parameters has",
            id="long name",
        ),
    ],
)
def test_what_is_too_much_is_refused_by_name(
    client: flight.FlightClient, batch: pa.RecordBatch, words: str
) -> None:
    with pytest.raises(pa.ArrowInvalid, match=words):
        bind(client, batch)


def test_messages_of_one_upload_are_counted(client: flight.FlightClient) -> None:
    with pytest.raises(pa.ArrowInvalid, match="more than 1,000 messages"):
        bind(client, row("int64").slice(0, 0), times=uploads.MAX_BATCHES + 1)


def test_a_small_message_that_grows_is_refused(client: flight.FlightClient) -> None:
    """Compressed: the bytes that arrive say nothing of the bytes that they become."""
    batch = pa.record_batch(
        [pa.array([b"\0" * (uploads.MAX_PARAMETER_BYTES + 1)])], names=["1"]
    )
    handle: bytes = prepare(client, "SELECT $1 AS it").prepared_statement_handle
    put = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    compressed = pa.ipc.IpcWriteOptions(compression="zstd")
    options = flight.FlightCallOptions(write_options=compressed)
    with pytest.raises(pa.ArrowInvalid, match="is the limit"):
        sent(client.do_put(put, batch.schema, options), batch)


class Tensor(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int8(), "tests.unknown")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, text: bytes) -> Tensor:
        return cls()


def test_an_extension_type_of_some_library_is_refused(client: flight.FlightClient) -> None:
    """Registered in the server's process, as pandas registers its own."""
    pa.register_extension_type(Tensor())
    try:
        column = pa.ExtensionArray.from_storage(Tensor(), pa.array([1], pa.int8()))
        with pytest.raises(pa.ArrowInvalid, match=r"extension type 'tests\.unknown'"):
            bind(client, pa.record_batch([column], names=["1"]))
    finally:
        pa.unregister_extension_type("tests.unknown")


def fuzzed(folder: Path, first: int, count: int, *options: str) -> dict[str, Any]:
    """What became of the broken streams of these seeds, in a process of their own."""
    notes = folder / "notes"
    child = [sys.executable, "-m", "tests.protocol.upload_fuzz", str(first), str(count)]
    ended = subprocess.run([*child, str(notes), *options], check=False)
    assert ended.returncode == 0, f"ended by {-ended.returncode} at seed {notes.read_text()}"
    outcome: dict[str, Any] = json.loads(notes.read_text())
    return outcome


def test_the_fuzz_sees_memory_that_is_let_out(tmp_path: Path) -> None:
    reaching = [len(LIES) + at for at, _ in enumerate(REACHING)]
    outcome = fuzzed(tmp_path, reaching[0], len(reaching), "--unchecked")
    assert outcome["leaks"] == reaching


def check_fuzzed(outcome: dict[str, Any]) -> None:
    assert not outcome["faults"]
    assert not outcome["leaks"]
    assert outcome["accepted"] > 0, "altered where it does no harm"
    assert outcome["refused"] > outcome["accepted"]


def test_no_broken_stream_ends_the_process_or_brings_memory_back(tmp_path: Path) -> None:
    check_fuzzed(fuzzed(tmp_path, 0, 600))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_no_broken_stream_of_a_million_does(tmp_path: Path, part: int) -> None:
    check_fuzzed(fuzzed(tmp_path, 1_000_000 + part * 50_000, 50_000))

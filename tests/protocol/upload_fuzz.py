"""A child process that is sent broken Arrow streams, one per seed: ``python -m tests.protocol.upload_fuzz``.

The first seeds are the lies of ``tests.harness.lying``, then those that reach further; the others are drawn.

Each stream lies between canaries, in one allocation that no lie leaves; more canaries lie about the heap. What a server does with the row of an upload is
done: it is read, checked, written into a ticket, read again, bound and returned. A canary that comes out of that was
memory of others. The file it is given holds the seed it is at, and at the end what became of all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa

from planner.errors import RequestError
from proxy.engine.describe import _plain
from proxy.flightsql import uploads
from proxy.flightsql.service import _one_row
from proxy.query.tickets import parameter_values, to_ipc
from tests.harness.lying import LIES, ROWS, Lie, lying_stream, row, stream

#: Text, so that checks of UTF-8 do not stop it.
CANARY = b"~"
#: So many in a row come by no chance: no stream has two.
SIGHTED = CANARY * 4
AROUND_BYTES = 128 << 10
#: What a broken size asks for is refused by the system, and must not be the end of the process.
MAX_ADDRESS_BYTES = 16 << 30

#: What tells that memory is let out if nothing checks: texts that end in the canaries behind the stream.
REACHING = (
    Lie("binary", 1, "<2i", (0, 4_096)),
    Lie("large_binary", 1, "<2q", (0, 4_096)),
)
#: Offsets that say how far a text or list reaches, by the row that has them.
_REACHES = tuple(
    lie for lie in LIES if len(lie.says) == 2 and lie.says[0] == 0 and lie.of != "decimal128"
)
#: A longer reach would leave the canaries, of values of 16 bytes too.
_LONGEST = AROUND_BYTES // 32


def streams() -> list[bytes]:
    """Streams that are as they should be: each type alone, all together, compressed, in several batches."""
    every = pa.record_batch(list(ROWS.values()), names=list(ROWS))
    made = [stream(row(of)) for of in ROWS]
    for codec in ("lz4", "zstd"):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        made += [stream(row(of), options) for of in ("binary", "int64", "list", "string_view")]
    return [*made, stream(every), _with_deltas()]


def _with_deltas() -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    batches = [
        pa.record_batch([pa.array(words).dictionary_encode()], names=["1"])
        for words in (["hello"], ["hello", "there"], ["hello", "there", "again"])
    ]
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def drawn(rng: random.Random, whole: list[bytes]) -> bytes:
    """A stream as it should be, one that is cut short, or one whose text or list reaches as far as the canaries do."""
    how = rng.random()
    if how < 0.1:
        return rng.choice(whole)
    if how < 0.3:
        content = rng.choice(whole)
        return content[: rng.randrange(1, len(content))]
    lie = rng.choice(_REACHES)
    return lying_stream(replace(lie, says=(0, rng.randrange(1, _LONGEST))))


@dataclass
class Outcome:
    accepted: int = 0
    refused: int = 0
    leaks: list[int] = field(default_factory=list)
    #: What was raised that is no refusal, by its seed.
    faults: dict[int, str] = field(default_factory=dict)


class Chunks:
    """An Arrow stream as Flight hands it over."""

    def __init__(self, memory: pa.Buffer) -> None:
        self._reader = pa.ipc.open_stream(memory)

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return (SimpleNamespace(data=batch) for batch in self._reader)


class Opened:
    """As ``Chunks``, opened where its schema is asked for: what that raises is the upload's."""

    def __init__(self, memory: pa.Buffer) -> None:
        self._memory = memory

    @property
    def schema(self) -> pa.Schema:
        self._chunks = Chunks(self._memory)
        return self._chunks.schema

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return iter(self._chunks)


def unchecked(reader: Opened) -> Iterator[pa.RecordBatch]:
    """What a server would do that believes its clients."""
    with contextlib.suppress(pa.ArrowException, OSError):
        _ = reader.schema
        for chunk in reader:
            yield chunk.data


def answered(memory: pa.Buffer, intake: Any, engine: duckdb.DuckDBPyConnection) -> bytes:
    """All that a client could get to see of its row."""
    batch = _one_row(intake(Opened(memory)))
    if batch is None:
        return b""
    own = [_plain(str(at), column[0]) for at, column in enumerate(batch.columns)]
    if SIGHTED in repr(own).encode("utf-8", "replace"):
        return SIGHTED
    ticket = to_ipc(batch)
    # A ticket comes back, and lies between other things then, too.
    values = [
        _plain(str(at), value) for at, value in enumerate(parameter_values(among(ticket)))
    ]
    items = [ticket, repr(values).encode("utf-8", "replace")]
    for value in values:
        with contextlib.suppress(duckdb.Error):
            rows = engine.execute("SELECT $1", [value]).fetchall()
            items.append(repr(rows).encode("utf-8", "replace"))
    return b"".join(items)


def among(content: bytes) -> Any:
    """The content in the midst of canaries."""
    room = bytearray(CANARY * AROUND_BYTES) + content + CANARY * AROUND_BYTES
    return pa.py_buffer(room).slice(AROUND_BYTES, len(content))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("notes", type=Path)
    parser.add_argument("--unchecked", action="store_true")
    request = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
    intake = unchecked if request.unchecked else uploads.checked
    engine = duckdb.connect(":memory:", config={"threads": "1"})
    heap = [bytearray(CANARY * (64 << (at % 10))) for at in range(4_000)]
    whole, outcome, first = streams(), Outcome(), (*LIES, *REACHING)
    notes = os.open(request.notes, os.O_WRONLY | os.O_CREAT)
    for seed in range(request.first, request.first + request.count):
        os.pwrite(notes, b"%-20d" % seed, 0)
        lies = seed < len(first)
        content = lying_stream(first[seed]) if lies else drawn(random.Random(seed), whole)
        try:
            observed = answered(among(content), intake, engine)
        except RequestError:
            outcome.refused += 1
        except Exception as error:
            outcome.faults[seed] = repr(error)[:300]
        else:
            outcome.accepted += 1
            if SIGHTED in observed:
                outcome.leaks.append(seed)
    del heap
    request.notes.write_text(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()

"""A child process that is sent broken Arrow streams, one per seed: ``python -m tests.protocol.upload_fuzz``.

The first seeds are the lies of ``tests.harness.lying``, the others are drawn.

Each stream lies between canaries, and more of them lie about the heap. What a server does with the row of an upload is
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
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa

from planner.errors import RequestError
from proxy.engine.parameters import _plain
from proxy.flightsql import uploads
from proxy.flightsql.service import _one_row
from proxy.query.tickets import parameter_values, to_ipc
from tests.harness.lying import LIES, ROWS, lying_stream, row, stream

#: Text, so that checks of UTF-8 do not stop it.
CANARY = b"~"
#: So many in a row come by no chance: no stream has two.
SIGHTED = CANARY * 4
AROUND_BYTES = 128 << 10
#: What a broken size asks for is refused by the system, and must not be the end of the process.
MAX_ADDRESS_BYTES = 16 << 30

_EDGES = (0, 1, -1, 2, 5, 7, 8, 64, 255, 4096, 65_535, 1 << 20, 1 << 30, (1 << 31) - 1)
_FAR = (-(1 << 31), 1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1, -(1 << 63))


def streams() -> list[bytes]:
    """Streams that are as they should be: each type alone, all together, compressed, foreign-endian, in several batches."""
    every = pa.record_batch(list(ROWS.values()), names=list(ROWS))
    made = [stream(row(of)) for of in ROWS]
    for codec in ("lz4", "zstd"):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        made += [stream(row(of), options) for of in ("binary", "int64", "list", "string_view")]
    made += [stream(every), _with_deltas()]
    return made + [turned for turned in map(big_endian, made) if turned is not None]


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


def big_endian(content: bytes) -> bytes | None:
    """The stream with a schema that says big-endian (Schema.fbs: field 0 of its table), so that Arrow swaps bytes.

    The field has its default, so it is not there; it is made to point at two bytes of value 1 that are.
    """
    turned = bytearray(content)
    at = 8  # behind the continuation and the length of the first message, the schema
    message = at + _u32(turned, at)
    schema = _field(turned, message, 2)
    table = schema + _u32(turned, schema)
    entries = table - struct.unpack_from("<i", turned, table)[0]
    for offset in range(4, 400, 2):
        if turned[table + offset : table + offset + 2] == b"\1\0":
            struct.pack_into("<H", turned, entries + 4, offset)
            return bytes(turned)
    return None


def _u32(content: bytearray, at: int) -> int:
    value: int = struct.unpack_from("<I", content, at)[0]
    return value


def _field(content: bytearray, table: int, number: int) -> int:
    entries = table - struct.unpack_from("<i", content, table)[0]
    offset: int = struct.unpack_from("<H", content, entries + 4 + 2 * number)[0]
    return table + offset


def broken(rng: random.Random, whole: list[bytes]) -> bytes:
    """One of the streams, altered in one to four places; or the schema of one before the rows of another."""
    content = bytearray(rng.choice(whole))
    if rng.random() < 0.1:
        other = rng.choice(whole)
        content = content[: _first_end(content)] + other[_first_end(other) :]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_ALTERATIONS)(rng, content)
    return bytes(content)


def _first_end(content: bytes | bytearray) -> int:
    end: int = 8 + struct.unpack_from("<i", content, 4)[0]
    return end


def _number(rng: random.Random, content: bytearray) -> None:
    form, width, values = rng.choice((("<i", 4, _EDGES), ("<q", 8, _EDGES + _FAR)))
    at = rng.randrange(0, max(1, len(content) - width), 4)
    if at + width <= len(content):
        struct.pack_into(form, content, at, rng.choice(values))


def _short(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(0, max(1, len(content) - 2), 2)
    if at + 2 <= len(content):
        struct.pack_into("<h", content, at, rng.choice((0, 1, -1, 4, 6, 8, 12, 32_767)))


def _byte(rng: random.Random, content: bytearray) -> None:
    content[rng.randrange(len(content))] = rng.choice((0, 1, 2, 127, 128, 254, 255))


def _bit(rng: random.Random, content: bytearray) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(rng: random.Random, content: bytearray) -> None:
    at = rng.randrange(8, len(content))
    del content[at : at + rng.choice((1, 8, 64, len(content)))]
    if len(content) < 16:
        content += bytes(16)


_ALTERATIONS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    *(_number,) * 5,
    _short,
    _byte,
    _bit,
    _cut,
)


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
    whole, outcome = streams(), Outcome()
    notes = os.open(request.notes, os.O_WRONLY | os.O_CREAT)
    for seed in range(request.first, request.first + request.count):
        os.pwrite(notes, b"%-20d" % seed, 0)
        lies = seed < len(LIES)
        content = lying_stream(LIES[seed]) if lies else broken(random.Random(seed), whole)
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

"""What record formats take: decoding by itself, as processor time of one thread, and following and tiering.

The same rows as Avro behind a registry's prefix and as JSON: ten fields of ten types, some 160 bytes as Avro. Then on real parts:
``benchmarks.formats_served``.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import fastavro
import pyarrow as pa

from benchmarks import formats_served
from benchmarks.options import seed
from benchmarks.report import Report, recorded
from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import Writers
from planner.ports import Decoder
from planner.schema import METADATA_TYPES, RAW_SCHEMA, TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat, JsonFormat

FIELDS: dict[str, tuple[Any, pa.DataType]] = {
    "id": ("long", pa.int64()),
    "packets": ("int", pa.int32()),
    "ratio": ("double", pa.float64()),
    "encrypted": ("boolean", pa.bool_()),
    "protocol": (
        {"type": "enum", "name": "Protocol", "symbols": ["TCP", "UDP", "ICMP"]},
        pa.string(),
    ),
    "host": ("string", pa.string()),
    "note": (["null", "string"], pa.string()),
    "at": ({"type": "long", "logicalType": "timestamp-micros"}, TIMESTAMPTZ),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        pa.decimal128(12, 2),
    ),
    "mac": ({"type": "fixed", "name": "Mac", "size": 6}, pa.binary(6)),
}
SCHEMA = TableSchema(
    0,
    (
        *(
            Column(at, name, METADATA_TYPES[name])
            for at, name in enumerate(RAW_SCHEMA.names[:3], 1)
        ),
        *(Column(at, name, kind) for at, (name, (_, kind)) in enumerate(FIELDS.items(), 10)),
    ),
)
_WRITERS = 8
_BAD_EVERY = 1_000
_SMALL = 100
_MIN_TURNS = 3


@click.command()
@seed
@click.option("--rows", type=click.IntRange(1_000), default=32_768, show_default=True)
@click.option("--turns", type=click.IntRange(_MIN_TURNS), default=15, show_default=True)
@click.option(
    "--served-rows",
    type=click.IntRange(0),
    default=400_000,
    show_default=True,
    help="Rows that a server follows and Spark tiers; 0: none.",
)
@click.option("--served-turns", type=click.IntRange(1), default=3, show_default=True)
@click.pass_obj
def command(
    results: Path, seed: int, rows: int, turns: int, served_rows: int, served_turns: int
) -> None:
    """Decode the same rows as Avro and as JSON, in turns; the best turn of each counts. Then follow and tier them."""
    with recorded(results, "formats") as report:
        same = _rows(random.Random(seed), rows)
        _measure(report, same, random.Random(seed), turns)
        if served_rows:
            _serve(report, same, served_rows, served_turns, seed)


def _serve(
    report: Report, rows: Sequence[dict[str, Any]], count: int, turns: int, seed: int
) -> None:
    """Measure on real parts, over as many records as ``count`` says: the rows again and again."""
    texts = [
        json.dumps(_schema(more, [*FIELDS])) for more in range(formats_served.VERSIONS + 1)
    ]
    first, later = texts[0], [(text, f"more{at}") for at, text in enumerate(texts[1:])]
    with formats_served.running_parts(seed) as parts:
        empty = formats_served.Topic("Avro", ())
        schema_id = parts.register(empty, first)
        parts.register(empty.warm, first)
        json_values = [_json(row) for row in rows]
        avro_values = [_avro(json.loads(first), schema_id, row) for row in rows]
        topics = []
        for name, values in (("JSON", json_values), ("Avro", avro_values)):
            topic = formats_served.Topic(
                name, [values[at % len(values)] for at in range(count)]
            )
            for each in (topic, topic.warm):
                parts.create(each, SCHEMA.payload)
                parts.produce(each)
            topics.append(topic)
        formats_served.measure(report, parts, topics, later, turns)


def _measure(
    report: Report, rows: Sequence[dict[str, Any]], chance: random.Random, turns: int
) -> None:
    writers = Writers()
    appended = [_schema(number, [*FIELDS]) for number in range(_WRITERS)]
    # Each with its fields in an order of its own: nothing is the same but the names.
    mixed = [
        _schema(0, chance.sample([*FIELDS], len(FIELDS)), f"M{number}")
        for number in range(_WRITERS)
    ]
    for schema_id, schema in enumerate([*appended, *mixed], 1):
        writers.add(schema_id, json.dumps(schema))
    one = [_avro(appended[0], 1, row) for row in rows]
    batches = {
        "JSON": _batch([_json(row) for row in rows]),
        "Avro": _batch(one),
        "Avro, 8 writers that append fields": _of_writers(appended, 1, rows, chance),
        "Avro, 8 writers of other orders": _of_writers(mixed, 1 + _WRITERS, rows, chance),
        "Avro, one bad in a thousand": _batch(
            [raw[:-1] if at % _BAD_EVERY == 7 else raw for at, raw in enumerate(one)]
        ),
    }
    for name in ("JSON", "Avro"):
        batches[f"{name}, {_SMALL} records"] = batches[name].slice(0, _SMALL)
    decoders = {
        "JSON": decoder_for("t", SCHEMA, Binding("t", JsonFormat(), on_error="skip")),
        "Avro": decoder_for("t", SCHEMA, Binding("t", AvroFormat(), on_error="skip"), writers),
    }
    decode = {name: decoders[name.partition(",")[0]] for name in batches}
    assert (
        decode["JSON"].decode(batches["JSON"]).rows
        == decode["Avro"].decode(batches["Avro"]).rows
    )
    best = dict.fromkeys(batches, float("inf"))
    for _ in range(turns):
        for name, batch in batches.items():
            best[name] = min(best[name], _cpu_us(decode[name], batch))
    for name, took in best.items():
        report.figure(f"{name}: CPU of a row", took, "us")
    report.figure("bytes of a row as Avro", sum(map(len, one)) / len(one), "")
    report.figure("decode Avro / JSON", best["JSON"] / best["Avro"], "x", at_least=3)
    for name, floor in (
        ("Avro, 8 writers that append fields", 0.5),
        ("Avro, 8 writers of other orders", 0.5),
        ("Avro, one bad in a thousand", 0.8),
    ):
        what = f"{name.removeprefix('Avro, ')} / one writer, none bad"
        report.figure(what, best["Avro"] / best[name], "x", at_least=floor)
    small = best[f"Avro, {_SMALL} records"] / best[f"JSON, {_SMALL} records"]
    report.figure(f"time of {_SMALL} records, Avro / JSON", small, "x", at_most=5)
    report.details["best_cpu_us_of_a_row"] = best


def _cpu_us(decoder: Decoder, batch: pa.RecordBatch) -> float:
    """Decode a batch some times over, so that a small one is measured too."""
    times = max(1, 4_096 // len(batch))
    began = time.process_time()
    for _ in range(times):
        decoder.decode(batch)
    return (time.process_time() - began) * 1e6 / len(batch) / times


def _rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    start = datetime(2026, 11, 20, tzinfo=UTC)
    return [
        {
            "id": chance.getrandbits(40),
            "packets": chance.randint(1, 100_000),
            "ratio": chance.random(),
            "encrypted": chance.random() < 0.5,
            "protocol": chance.choice(["TCP", "UDP", "ICMP"]),
            "host": f"host-{at}.{'x' * chance.randint(20, 70)}.example.org",
            "note": None if chance.random() < 0.5 else "überwacht " * chance.randint(3, 7),
            "at": start + timedelta(microseconds=chance.randrange(86_400_000_000)),
            "price": Decimal(chance.randrange(10**8)).scaleb(-2),
            "mac": chance.randbytes(6),
        }
        for at in range(count)
    ]


def _schema(more: int, names: Sequence[str], name: str = "Flow") -> dict[str, Any]:
    """Return a schema of these fields, with as many more that no column has."""
    fields = [{"name": each, "type": FIELDS[each][0]} for each in names]
    fields += [{"name": f"more{number}", "type": ["null", "long"]} for number in range(more)]
    return {"type": "record", "name": name, "fields": fields}


def _of_writers(
    schemas: Sequence[dict[str, Any]],
    first: int,
    rows: Sequence[dict[str, Any]],
    chance: random.Random,
) -> pa.RecordBatch:
    """Write each row by one of the schemas; their ids begin at ``first``."""
    values = []
    for row in rows:
        number = chance.randrange(len(schemas))
        more = {f"more{at}": chance.choice([None, at]) for at in range(number)}
        values.append(_avro(schemas[number], first + number, row | more))
    return _batch(values)


def _avro(schema: dict[str, Any], schema_id: int, row: dict[str, Any]) -> bytes:
    written = io.BytesIO(b"\0" + schema_id.to_bytes(4))
    written.seek(5)
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), row)
    return written.getvalue()


def _json(row: dict[str, Any]) -> bytes:
    forms = {"at": row["at"].isoformat(), "price": str(row["price"]), "mac": row["mac"].hex()}
    return json.dumps(row | forms, ensure_ascii=False).encode()


def _batch(values: Sequence[bytes]) -> pa.RecordBatch:
    records = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_value": value}
        for at, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(records, RAW_SCHEMA)

"""Records that are one value, and keys as a column: the same rows in the tail, in live tables, in Spark and once tiered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from planner.names import TableName
from planner.schema import METADATA_TYPES, Column
from planner.seam.formats import JsonFormat, RawFormat, RecordFormat, StringFormat
from planner.seam.keys import KeySchema, RecordKey
from planner.seam.watermark import Outcomes
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.spark_rows import read_here, settings_of
from thermocline.cli import app

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

POINT = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
AVRO_POINT = '{"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}'
NUMBER = Column(0, "n", pa.int64())


def avro(body: str, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + bytes.fromhex(body)


@dataclass(frozen=True)
class Case:
    """A table's format and key, its columns behind the key, and keys and values with what rows have of them: None, no row."""

    form: RecordFormat
    key: RecordKey
    kind: pa.DataType
    column: Column
    policy: str
    records: tuple[tuple[bytes | None, bytes | None, tuple[Any, ...] | None], ...]


CASES = {
    "raw": Case(
        RawFormat(),
        RecordKey("string"),
        pa.string(),
        Column(0, "value", pa.binary()),
        "skip",
        (
            ("é".encode(), b"\xff\0", ("é", b"\xff\0")),
            (None, b"", (None, b"")),
            (b"", b'{"a": 1}', ("", b'{"a": 1}')),
            (b"k", None, None),
            (b"\xff", b"a", None),
        ),
    ),
    "string": Case(
        StringFormat(),
        RecordKey("json"),
        POINT,
        Column(0, "value", pa.string()),
        "null",
        (
            (b'{"x": 1, "z": 2}', "é\0".encode(), ({"x": 1, "y": None}, "é\0", None)),
            (b"null", b"", (None, "", None)),
            (
                b"[]",
                b"a",
                (None, "a", "key: field key: expected an object for struct, found an array"),
            ),
            (
                b'{"x": 3}',
                b"\xff",
                ({"x": 3, "y": None}, None, "the value is not UTF-8 (byte 0)"),
            ),
            (b"[]", None, None),
        ),
    ),
    "json": Case(
        JsonFormat(),
        RecordKey("avro", schema=KeySchema(7, "t-key", 1, AVRO_POINT)),
        POINT,
        NUMBER,
        "skip",
        (
            (avro("020261"), b'{"n": 1, "key": 2}', ({"x": 1, "y": "a"}, 1)),
            (None, b"{}", (None, None)),
            (avro("020261", 8), b"{}", None),
            (avro("0202"), b"{}", None),
            (avro("04026b"), b'{"n": 9223372036854775807}', ({"x": 2, "y": "k"}, 2**63 - 1)),
        ),
    ),
}


def verified(live: LiveServer, table: TableName, folder: Path, *options: str) -> Any:
    sections = {f"catalogs.{name}": each for name, each in live.settings.catalogs.items()}
    sections["kafka"] = dict(live.settings.kafka)
    lines = []
    for section, each_option in sections.items():
        lines.append(f"[{section}]")
        lines += [f'"{key}" = {json.dumps(each)}' for key, each in each_option.items()]
    config = folder / "thermocline.toml"
    config.write_text("\n".join(lines))
    done = CliRunner().invoke(
        app, ["--config", str(config), "verify", str(table), "--json", *options]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    [report] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_the_same_on_every_side(
    name: str, kafka: Kafka, live: LiveServer, tmp_path: Path
) -> None:
    case = CASES[name]
    topic = kafka.topic()
    columns = [Column(0, "key", case.kind), case.column]
    if case.policy == "null":
        columns += [Column(0, "kafka_key", METADATA_TYPES["kafka_key"])]
    table = live.bind(
        topic,
        columns,
        format=case.form,
        key=case.key,
        key_column="key",
        on_error=case.policy,
    )
    sent = [(key, value) for key, value, _ in case.records]

    def produce() -> None:
        keys, values = zip(*sent, strict=True)
        kafka.produce(topic, values, keys=keys)

    def by_name(row: tuple[Any, ...], turn: int) -> tuple[Any, ...]:
        # A reason names the column as it was called when the record was decoded.
        *others, last = row
        is_renamed = turn and isinstance(last, str) and last.startswith("key: ")
        return (*others, last.replace("field key", "field id") if is_renamed else last)

    def expected(times: int, key: str) -> list[dict[str, Any]]:
        names = ["kafka_offset", key, case.column.name]
        names += ["kafka_error"] * (case.policy == "null")
        return [
            dict(zip(names, (at + turn * len(case.records), *by_name(row, turn)), strict=True))
            for turn in range(times)
            for at, (_, _, row) in enumerate(case.records)
            if row is not None
        ]

    def check(times: int, key: str = "key") -> None:
        rows = expected(times, key)
        listed = ", ".join(rows[0])
        answer = live.ask(f"SELECT {listed} FROM {table} ORDER BY kafka_offset").to_pylist()
        assert answer == rows
        sides: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "a live table": lambda: live.arrow(table).to_pylist(),
            "Spark's source": lambda: read_here(settings_of(live), table=str(table)),
        }
        for side, read in sides.items():
            own = sorted(read(), key=lambda row: row["kafka_offset"])
            assert [{each: row[each] for each in rows[0]} for row in own] == rows, side

    produce()
    check(1)
    count = len(expected(1, "key"))
    tombstones = sum(value is None for _, value in sent)
    assert live.tier(table).outcomes == Outcomes(
        rows=count, tombstones=tombstones, skipped=len(sent) - count - tombstones
    )
    live.refresh(table)
    check(1)
    # The column is known by its id, above and below the watermark.
    live.spark(table).sql("ALTER TABLE {t} RENAME COLUMN key TO id")
    live.refresh(table)
    produce()
    check(2, "id")
    live.tier(table)
    live.refresh(table)
    check(2, "id")
    for options in ((), ("--offsets-only",)):
        report = verified(live, table, tmp_path, *options)
        assert report["findings"] == []
        assert report["outcomes"]["rows"] == 2 * count
    if case.policy == "null":
        bad = live.ask(
            f"SELECT kafka_key, kafka_value FROM {table} WHERE kafka_error IS NOT NULL ORDER BY kafka_offset LIMIT 2"
        )
        assert bad.to_pylist() == [
            {"kafka_key": b"[]", "kafka_value": b"a"},
            {"kafka_key": b'{"x": 3}', "kafka_value": b"\xff"},
        ]

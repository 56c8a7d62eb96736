"""``thermocline create`` as its first users meet it: what it makes can be read and tiered, what it refuses says what to type."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from tests.fixtures.commands import CliSite
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog
from tests.harness.inferable import MORE, OPTIONS, topics
from thermocline.commands.create import first_watermark

pytestmark = pytest.mark.kafka


@dataclass
class Maker:
    """Makes tables over topics of its own."""

    site: CliSite
    kafka: Kafka
    topics: dict[str, str] = field(default_factory=dict)

    def topic(
        self, table: str, values: Sequence[Any], keeps_ms: int = -1, **options: Any
    ) -> str:
        """Make the table's topic, which keeps records for so long, and write values to it."""
        self.topics[table] = self.kafka.topic(1, config={"retention.ms": str(keeps_ms)})
        self.kafka.produce(
            self.topics[table],
            [
                value if isinstance(value, bytes) else json.dumps(value).encode()
                for value in values
            ],
            **options,
        )
        return self.topics[table]

    def create(self, table: str, *options: str) -> tuple[int, list[str]]:
        """Exit code, and the lines that it says; ``TOPIC`` stands for the topic's name."""
        topic = self.topics[table]
        code, out, err = self.site.run(
            "create", f"lake.net.{table}", "--topic", topic, *options
        )
        assert (out == "") == (code != 0)
        return code, (out + err).replace(topic, "TOPIC").splitlines()

    def made(self, table: str, values: Sequence[Any], *options: str) -> list[str]:
        """Make a table with inferred columns; what is said below its columns."""
        self.topic(table, values)
        code, lines = self.create(table, "--infer", *options)
        assert code == 0, lines
        assert (
            lines[0] == f"created lake.net.{table} over topic TOPIC; it starts at offsets 0: 0"
        )
        return [line for line in lines[1:] if not line.startswith("  ")]

    def records(self, statements: str) -> list[str]:
        """The answers of several statements, a line of JSON for each row."""
        code, out, err = self.site.run("sql", statements, "--local", "--format", "jsonl")
        assert code == 0, err
        return out.splitlines()

    def rows(self, sql: str) -> list[str]:
        """The answer's lines below the names, as csv."""
        code, out, err = self.site.run("sql", sql, "--local", "--format", "csv")
        assert code == 0, err
        return out.splitlines()[1:]

    def error(self, sql: str) -> str:
        code, _, err = self.site.run("sql", sql, "--local", "--format", "csv")
        assert code != 0
        return re.sub(r" \(statement [0-9a-f]{16}\)\.$", ".", err.splitlines()[-1])

    def is_empty(self) -> bool:
        """Whether no table was ever made: the first makes its namespace."""
        catalog = load_catalog("lake", **sqlite_catalog(self.site.config.parent))
        try:
            return catalog.list_namespaces() == []
        finally:
            catalog.close()


@pytest.fixture
def maker(cli_site: CliSite, kafka: Kafka) -> Maker:
    return Maker(cli_site, kafka)


def test_fields_without_a_type_and_whole_numbers_are_named(maker: Maker) -> None:
    record: dict[str, Any] = {"event": "Signup", "traits": {}, "items": [], "ref": None, "n": 1}
    assert maker.made("signups", [record] * 3) == [
        "no columns, for want of a type: traits (always {}), items (always []), ref (always null)",
        "long, since whole in all samples: n (3); for one that can have a fraction: --column n:double",
    ]
    assert maker.rows("SELECT event, n FROM lake.net.signups") == ['"Signup",1'] * 3


def test_a_table_without_a_column_is_refused(maker: Maker) -> None:
    maker.topic("nothing", [{"a": None}] * 2)
    assert maker.create("nothing", "--infer") == (
        2,
        [
            "thermocline: no table was made over topic TOPIC:",
            "  no field has a type (a: always null): --column NAME:TYPE",
        ],
    )
    assert maker.create("nothing", "--infer", "--column", "a:string")[0] == 0
    assert maker.rows("SELECT a FROM lake.net.nothing") == ["", ""]


@pytest.mark.parametrize(
    ("value", "options", "sql", "rows"),
    [
        (
            {"at": 1767225600000, "n": 1},
            "--epoch at=ms",
            'SELECT "at"::VARCHAR, n FROM {}',
            ['"2026-01-01 00:00:00+00",1'],
        ),
        (
            b'{"ts": 1767225600.309996, "id.orig_h": "x"}',
            "--epoch ts=s",
            'SELECT ts::VARCHAR, "id.orig_h" FROM {}',
            ['"2026-01-01 00:00:00.309996+00","x"'],
        ),
        (
            {"payload": {"ts_ms": 1767225600000, "l": [{"t": 1}]}},
            "--epoch payload.ts_ms=ms --epoch payload.l.element.t=s",
            "SELECT payload.ts_ms::VARCHAR, payload.l[1].t::VARCHAR FROM {}",
            ['"2026-01-01 00:00:00+00","1970-01-01 00:00:01+00"'],
        ),
        (
            {"payload": {"ts_ms": 1767225600000}},
            "--column 'payload:struct<ts_ms: timestamptz>' --epoch payload.ts_ms=ms",
            "SELECT payload.ts_ms::VARCHAR FROM {}",
            ['"2026-01-01 00:00:00+00"'],
        ),
    ],
    ids=["whole", "fractions", "inside", "inside declared"],
)
def test_numbers_in_a_unit_are_times(
    value: Any, options: str, sql: str, rows: list[str], maker: Maker
) -> None:
    maker.made("times", [value], *shlex.split(options))
    assert maker.rows(sql.format("lake.net.times")) == rows


def test_units_need_a_column_of_times_without_inference_too(maker: Maker) -> None:
    maker.topic("times", [{"p": {"at": 1000}}])
    options = "--column", "p:struct<at: long>", "--epoch"
    assert maker.create("times", *options, "p.at=ms") == (
        2,
        [
            "thermocline: no table was made over topic TOPIC:",
            "  --epoch p.at=ms: column p.at is long, and only date, timestamp and timestamptz can have a unit: "
            "--column 'p:struct<at: timestamptz>'",
        ],
    )
    assert maker.create("times", *options, "p.at=min") == (
        2,
        ["thermocline: --epoch p.at=min: write NAME=UNIT; units are s, ms, us, ns."],
    )
    assert (
        maker.create("times", "--column", "p:struct<at: timestamp>", "--epoch", "p.at=ms")[0]
        == 0
    )
    assert maker.rows("SELECT p.at::VARCHAR FROM lake.net.times") == ['"1970-01-01 00:00:01"']


def test_all_refusals_come_in_one_list_and_its_lines_work(maker: Maker) -> None:
    values = [
        {"request": "GET /", "id": 2**64 - 1, "kafka_offset": 1, "good": 1},
        {"request": {"path": "/"}, "id": 1, "kafka_offset": 2, "good": 2},
    ]
    maker.topic("hooks", values)
    code, lines = maker.create("hooks", "--infer")
    assert (code, lines) == (
        2,
        [
            "thermocline: no table was made over topic TOPIC:",
            "  field request is a string once and an object once, and no type takes both: --leave-out request or "
            "--json-mode lenient --column request:string",
            "  field id has whole numbers beyond 64 bits: --column 'id:decimal(20,0)' or --leave-out id",
            "  field kafka_offset has the name of a column that every table has or Iceberg computes: --leave-out "
            "kafka_offset or --rename kafka_offset=kafka_offset_2",
        ],
    )
    assert maker.is_empty()
    others = "--infer", "--column", "id:decimal(20,0)", "--leave-out", "kafka_offset"
    assert maker.create("hooks", *others, "--leave-out", "request")[0] == 0
    ids = "SELECT id, good FROM lake.net.hooks ORDER BY good"
    assert maker.rows(ids) == ["18446744073709551615,1", "1,2"]
    for more in ([], ["--column", "request:string"]):
        code, lines = maker.create(
            "hooks", *others, "--json-mode", "lenient", "--replace", *more
        )
        assert code == 0, lines
        assert maker.rows("SELECT request FROM lake.net.hooks ORDER BY good") == [
            '"GET /"',
            '"{""path"":""/""}"',
        ]


REGISTRY = b"\x00\x00\x00\x00\x2a\x02\x06abc"
BEHIND = "this looks like Avro with schema id 42"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (REGISTRY, BEHIND),
        (b'{"a":1,"b":{"c":NaN}}', "b.c is a bare NaN, which is not JSON"),
        *(
            pytest.param(value, reason, marks=pytest.mark.soak)
            for value, reason in (
                (
                    b'\x00\x00\x00\x00\x2a{"a":1}',
                    "this looks like JSON behind a schema registry, schema id 42",
                ),
                (
                    b'{"a":1}\n{"a":2}\n',
                    "the value is several JSON values, as in NDJSON, and a record is one",
                ),
                (
                    b'\xef\xbb\xbf{"a":1}',
                    "the value begins with a byte order mark, which is not JSON",
                ),
                (b'[{"a":1}]', "the JSON is an array, not an object"),
                (b"<a/>", "the value is not JSON (character 0)"),
            )
        ),
    ],
    ids=["registry", "NaN", "JSON behind a registry", "NDJSON", "BOM", "array", "XML"],
)
def test_what_is_no_json_object_is_said_as_what_it_is(
    value: bytes, reason: str, maker: Maker
) -> None:
    said = f"do not decode, the first at partition 0, offset 0: {reason}"
    maker.topic("odd", [value, value])
    way = ": configure [schema_registry], with url, and create the table then"
    assert maker.create("odd", "--infer", "--on-error", "skip") == (
        2,
        [
            "thermocline: no table was made over topic TOPIC:",
            f"  2 of 2 samples {said}{way if value == REGISTRY else ''}",
        ],
    )
    maker.kafka.produce(maker.topics["odd"], [b'{"a": 1.5}'])
    assert maker.create("odd", "--infer") == (
        2,
        [
            "thermocline: no table was made over topic TOPIC:",
            f"  2 of 3 samples {said}: --on-error skip or --on-error null",
        ],
    )
    code, lines = maker.create("odd", "--infer", "--on-error", "skip")
    assert (code, lines[-1]) == (0, f"2 of 3 samples {said}")
    assert maker.rows("SELECT a FROM lake.net.odd") == ["1.5"]
    assert maker.create("odd", "--column", "a:double", "--replace")[0] == 0
    error = maker.error("SELECT * FROM lake.net.odd")
    where = "the record at partition 0, offset 0 does not decode"
    if value == REGISTRY:
        assert error == (
            f"thermocline: lake.net.odd: {where}: {reason}; make a table of such records with `thermocline "
            f"create --format avro`; where it is a single one, run `thermocline skip lake.net.odd --partition 0 --offset 0`, "
            f"or choose error policy null or skip for the table."
        )
    assert error.startswith(f"thermocline: lake.net.odd: {where}: ")
    assert ("correct its producer" in error) == ("schema id" not in reason)


def test_raw_text_and_keys_are_columns(maker: Maker) -> None:
    keys = [b"k", None, b"\xc3\xa9"]
    maker.topic("bytes", [b"\xff", b"", b"a"], keys=keys)
    starts = "created lake.net.bytes over topic TOPIC; it starts at offsets 0: 0"
    assert maker.create("bytes", "--format", "raw", "--key-format", "string") == (
        0,
        [starts, "  key  string  from keys", "  value  binary"],
    )
    select = "SELECT key, hex(value) AS v FROM lake.net.bytes ORDER BY kafka_offset"
    assert maker.records(select) == [
        '{"key":"k","v":"FF"}',
        '{"key":null,"v":""}',
        '{"key":"é","v":"61"}',
    ]
    options = "--on-error", "null", "--key-format", "json", "--replace"
    typed = "--key-column", '"Id":string', "--rename", "value=text"
    code, lines = maker.create("bytes", "--format", "string", *options, *typed)
    assert (code, lines) == (
        0,
        [starts, "  Id  string  from keys", "  text  string  from field value"],
    )
    columns = (
        'SELECT "Id", text, kafka_key, kafka_error FROM lake.net.bytes ORDER BY kafka_offset'
    )
    assert json.loads(maker.records(columns)[0])["kafka_error"] == (
        "the value is not UTF-8 (byte 0)"
    )
    code, lines = maker.create(
        "bytes",
        *("--column", "a:long", "--on-error", "skip", "--key-format", "raw", "--replace"),
    )
    assert (code, lines[1:]) == (0, ["  key  binary  from keys", "  a  int64"])


def test_options_of_formats_and_keys_that_contradict_are_named(maker: Maker) -> None:
    maker.topic("odd", [{"key": 1, "b": 2}])

    def refused(*options: str) -> str:
        code, [line] = maker.create("odd", *options)
        assert code == 2
        return line.removeprefix("thermocline: ")

    inferred = "--infer", "--key-format", "string"
    said = (
        "column key of the values has this name, which SQL does not tell apart; name the column of keys otherwise, with "
        "--key-column NAME, or the other one, with --rename key=key_2."
    )
    assert refused(*inferred) == f"--key-column key: {said}"
    assert refused(*inferred, "--key-column", "KEY") == f"--key-column KEY: {said}"
    assert refused(*inferred, "--key-column", "Kafka_Offset") == (
        "--key-column Kafka_Offset: a column that every table has, or that Iceberg computes, is called so; choose another "
        "name."
    )
    assert refused(*inferred, "--key-column", "k:long") == (
        "--key-column k:long: keys of the format string say their type themselves; leave :long out."
    )
    assert refused(*inferred, "--key-column", "a.b") == (
        "--key-column 'a.b' is not NAME or NAME:TYPE; a name with a dot stands in double quotes."
    )
    assert refused(*inferred, "--key-schema", "a") == (
        "--key-schema means nothing for --key-format string; leave it out."
    )
    assert refused("--infer", "--key-format", "json") == (
        "--key-format json needs the type of keys: --key-column key:string, or 'key:struct<id: long>'."
    )
    for option in ("--key-column", "--key-schema"):
        assert refused("--infer", option, "k") == (
            f"{option} goes with --key-format, which says what keys are: raw, string, json, avro."
        )
    assert refused("--infer", "--key-format", "avro", "--key-column", "k") == (
        "--key-format avro takes the schema of keys from a schema registry, and the settings have no [schema_registry]; "
        "add it, with url."
    )
    for words in (
        ["--infer"],
        ["--column", "a:long"],
        ["--epoch", "value=ms"],
        ["--record", "r"],
    ):
        assert refused("--format", "string", *words) == (
            f"{words[0]} means nothing for --format string, whose records are the one column value string; leave it out."
        )
    code, lines = maker.create("odd", "--format", "raw", "--rename", "body=b")
    assert (code, lines[1:]) == (
        2,
        ["  --rename body=b: there is no column b, for want of an outermost field body"],
    )
    assert maker.is_empty()


def test_change_events_are_named(maker: Maker) -> None:
    change = {"before": None, "after": {"id": "1"}, "source": {"db": "x"}, "op": "c"}
    assert maker.made("changes", [change]) == [
        "no columns, for want of a type: before (always null)",
        "1 of 1 samples are Debezium's change events (before, after, op): each event becomes a row, and an update or "
        "a delete is one more row",
    ]
    assert maker.made("inserts", [{"id": "1", "__deleted": "false"}])[-1].startswith(
        "1 of 1 samples are Debezium's change events (__deleted): "
    )
    assert maker.made("wrapped", [{"schema": {"type": "struct"}, "payload": change}])[-1] == (
        "1 of 1 samples are Debezium's change events (before, after, op): each event becomes a row, and an update or "
        "a delete is one more row"
    )
    flat = {
        "id": "1",
        "text": "__debezium_unavailable_value",
        "__op": "u",
        "__deleted": "false",
    }
    assert maker.made("flat", [flat, {"id": "2"}]) == [
        "1 of 2 samples are Debezium's change events (__op, __deleted): each event becomes a row, and an update or a "
        "delete is one more row",
        "text: Debezium's __debezium_unavailable_value stands for a value that did not change, as a text",
    ]


def test_a_wide_record_is_not_listed_whole(maker: Maker) -> None:
    maker.topic("wide", [{f"n{at}": 1.5 for at in range(360)}, b""])
    maker.kafka.produce(maker.topics["wide"], [None])
    code, lines = maker.create("wide", "--infer", "--on-error", "skip")
    assert (code, lines[1:]) == (
        0,
        [
            *(f"  n{at}  double" for at in range(50)),
            "  and 310 more",
            "1 of 3 samples are tombstones, which have no value: they become no rows",
            "1 of 2 samples do not decode, the first at partition 0, offset 1: the value is empty (zero bytes, which is "
            "no tombstone)",
        ],
    )
    assert maker.rows("SELECT n359 FROM lake.net.wide") == ["1.5"]


def test_two_declared_columns_of_one_name_get_a_line_that_works(maker: Maker) -> None:
    maker.topic("cased", [{"id": 1, "Id": "x"}])
    assert maker.create("cased", "--column", "id:long", "--column", "Id:string") == (
        2,
        [
            "thermocline: no table was made over topic TOPIC:",
            "  columns id and Id differ in case only, which SQL does not tell apart; in place of the second: --column "
            "Id_2:string --rename Id=Id_2",
        ],
    )
    again = "--column", "id:long", "--column", "Id_2:string", "--rename", "Id=Id_2"
    assert maker.create("cased", *again)[0] == 0
    assert maker.rows("SELECT id, Id_2 FROM lake.net.cased") == ['1,"x"']


def test_records_that_retention_may_remove_are_told_of(maker: Maker) -> None:
    day_ms = 86_400_000
    old_ms = time.time_ns() // 1_000_000 - 10 * day_ms
    maker.topic("old", [{"a": "x"}], keeps_ms=7 * day_ms, timestamp_ms=old_ms)
    code, lines = maker.create("old", "--infer")
    assert (code, lines[2:]) == (
        0,
        [
            "the newest record is 10d 0h old, and the topic keeps records for 7d 0h: Kafka may remove all of them at "
            "any time; tier now"
        ],
    )


def test_a_topic_without_records_says_why(maker: Maker) -> None:
    none = "thermocline: topic TOPIC holds no record to infer columns from"
    maker.topic("empty", [])
    assert maker.create("empty", "--infer") == (2, [f"{none}; give them with --column."])
    maker.topic("gone", [{"a": 1}])
    maker.kafka.delete_records(maker.topics["gone"], 0, 1)
    assert maker.create("gone", "--infer") == (
        2,
        [
            f"{none}: what it had is removed, by its retention or on request; give them with --column."
        ],
    )
    maker.topic("tombstones", [b"{}"])
    maker.kafka.produce(maker.topics["tombstones"], [None] * 500)
    assert maker.create("tombstones", "--infer") == (
        2,
        [
            f"{none}: the newest 500 are tombstones, which have no value; give them with --column."
        ],
    )


def broken(maker: Maker, table: str, column: pa.DataType, value: Any) -> None:
    """Make a table as `create --infer --epoch` did: a unit for a column that holds no time."""
    topic = maker.topic(table, [value])
    binding = Binding(topic)
    with KafkaLog(maker.kafka.settings) as log:
        first = first_watermark(log.measure([topic])[topic], binding)
    create_table(
        {"lake": sqlite_catalog(maker.site.config.parent)},
        NewTable(
            TableName("lake", ("net",), table),
            [Column(1, "at", column, epoch_unit="ms")],
            binding,
        ),
        first,
    )


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_table_that_its_unit_broke_is_made_anew_and_tiered(maker: Maker) -> None:
    broken(maker, "whole", pa.int64(), {"at": 1767225600000})
    broken(maker, "fractions", pa.float64(), {"at": 1767225600000.5})
    values = {"p": {"t": 1}, "m": {"a": 1.5}, "u": 2**64 - 1}, {"p": {}, "m": {"b": 2}, "u": 1}
    maker.made(
        "others",
        values,
        *("--column", "m:map<string, double>", "--column", "u:decimal(20,0)"),
        *("--epoch", "p.t=s", "--partition-by", "day(p.t)"),
    )
    for table, kind in (("whole", "long"), ("fractions", "double")):
        topic = maker.topics[table]
        assert maker.error(f"SELECT * FROM lake.net.{table}") == (
            f"thermocline: lake.net.{table}: an epoch unit is declared for at, which is {kind}; only date, timestamp "
            f"and timestamptz can have one: remove the property thermocline.epoch_unit.<field id>, or, while the table "
            f"has no rows, make it anew: `thermocline create lake.net.{table} --topic {topic} --replace --infer --epoch "
            f"at=ms`."
        )
        code, lines = maker.create(table, "--replace", "--infer", "--epoch", "at=ms")
        assert (code, lines[1:]) == (0, ["  at  timestamp[us, tz=UTC]"])
    statements = [
        'SELECT "at"::VARCHAR FROM lake.net.whole',
        'SELECT "at"::VARCHAR FROM lake.net.fractions',
        "SELECT p.t::VARCHAR, m.a, m.b, u FROM lake.net.others ORDER BY u",
    ]
    before = [maker.rows(sql) for sql in statements]
    assert before == [
        ['"2026-01-01 00:00:00+00"'],
        ['"2026-01-01 00:00:00.0005+00"'],
        [",,2,1", '"1970-01-01 00:00:01+00",1.5,,18446744073709551615'],
    ]
    code, out, err = maker.site.run("tier", "--once")
    assert code == 0, err
    assert out.count(": published ") == 3
    assert [maker.rows(sql) for sql in statements] == before
    assert maker.rows('SELECT count(*) FROM lake.net."others$cold"') == ["2"]
    # What has rows is not dropped.
    assert maker.create("whole", "--replace", "--infer", "--epoch", "at=ms") == (
        2,
        [
            "thermocline: lake.net.whole: --replace is for a table over topic TOPIC that has no rows yet, and this one "
            "has rows, or another topic; choose another name, or drop it first."
        ],
    )
    assert maker.rows(statements[0]) == before[0]


def test_a_table_over_another_topic_is_not_replaced(maker: Maker) -> None:
    maker.made("mine", [{"a": "x"}])
    maker.topic("mine", [{"b": "y"}])
    assert maker.create("mine", "--infer", "--replace")[0] == 2
    assert maker.rows("SELECT a FROM lake.net.mine") == ['"x"']


def test_options_that_do_not_go_together_are_refused(maker: Maker) -> None:
    maker.topic("t", [{"a": "x"}])
    assert maker.create("t") == (
        2,
        [
            "thermocline: give --infer, or --format avro, raw or string, or each column with --column."
        ],
    )
    assert maker.create("t", "--column", "a:string", "--leave-out", "a") == (
        2,
        [
            "thermocline: --leave-out goes with --infer or --format avro: other columns are those of --column."
        ],
    )


#: Of one run of ``tier --once``.
TABLES = 20


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(3600)
@settings(
    max_examples=int(os.environ.get("THERMOCLINE_CREATE_ROUNDS", "3")),
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.tuples(topics(), OPTIONS, MORE), min_size=TABLES, max_size=TABLES))
def test_what_create_accepts_is_read_and_tiered(
    maker: Maker, cases: list[tuple[list[bytes], str, str]]
) -> None:
    made: dict[str, int] = {}
    for values, options, more in cases:
        table = f"t{len(maker.topics)}"
        maker.topic(table, values)
        code, lines = maker.create(table, "--infer", *shlex.split(f"{options} {more}"))
        assert code in (0, 2), lines
        if code == 0:
            made[table] = len(values)
    if not made:
        return
    sql = ";".join(f"SELECT count(*) AS n FROM lake.net.{table}" for table in made)
    whole = ";".join(f"SELECT * FROM lake.net.{table} ORDER BY kafka_offset" for table in made)
    counts = maker.records(sql)
    assert counts == [f'{{"n":{count}}}' for count in made.values()]
    before = maker.records(whole)
    code, out, err = maker.site.run("tier", "--once", *(f"lake.net.{table}" for table in made))
    assert code == 0, err
    assert out.count(": published ") == len(made), err
    cold = ";".join(f'SELECT count(*) AS n FROM lake.net."{table}$cold"' for table in made)
    assert maker.records(cold) == counts
    assert maker.records(whole) == before

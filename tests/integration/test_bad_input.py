"""What users are told when something is wrong: the whole sentence, the right status, and nothing of the server.

Each message is checked through raw Flight, where the status code shows, and through the stock ADBC driver.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from planner.errors import ShapeMismatch
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.commands import wait_until
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, TieredServer, serving, settings_of, sqlite_catalog
from tests.harness.forked_commands import run
from tests.harness.tcp_proxy import Mode
from tests.harness.wire import fetched

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
#: Traces, machine paths, code. ``/etc/passwd`` and the like in a message are the user's own words.
LEAKS = re.compile(
    r'Traceback|File "|site-packages|\.py\b|sqlite:|/tmp/|warehouse|metadata\.json'
)
INVALID, MISSING = "INVALID_ARGUMENT", "NOT_FOUND"
UNAVAILABLE, INTERNAL = "UNAVAILABLE", "INTERNAL"
#: Status: what raw Flight raises, what ADBC calls it.
RAISED: dict[str, tuple[type[Exception], str]] = {
    INVALID: (pa.ArrowInvalid, INVALID),
    MISSING: (pa.ArrowKeyError, MISSING),
    UNAVAILABLE: (flight.FlightUnavailableError, "IO"),
    INTERNAL: (flight.FlightInternalError, INTERNAL),
}
EVENT = (Column(0, "id", pa.int64()), Column(0, "name", pa.string()))


def events(start: int, stop: int) -> list[bytes]:
    return [json.dumps({"id": n, "name": f"row {n}"}).encode() for n in range(start, stop)]


_ID = re.compile(r" \((?:statement|request) [0-9a-f]{16}\)\. Detail: .*", re.DOTALL)


def error_of(server: SqlServer, sql: str, status: str) -> str:
    """Run a statement that must fail both ways; the sentence, which is the same both ways but for the id."""
    raised, name = RAISED[status]
    with closing(flight.connect(server.uri)) as client, pytest.raises(raised) as raw:
        fetched(client, sql)
    with pytest.raises(adbc.Error) as driver:
        server.ask(sql)
    # Each library adds its own words behind the sentence and the id.
    by_flight, by_adbc = (_ID.sub(".", str(result.value), 1) for result in (raw, driver))
    assert by_adbc == f"{name}: [FlightSQL] {by_flight}"
    for text in (str(raw.value), str(driver.value), str(driver.value.details)):
        assert not LEAKS.search(text), text
        assert str(ROOT) not in text
    return by_flight


@pytest.fixture(scope="module")
def table(kafka: Kafka, server: SqlServer) -> TableName:
    topic = kafka.topic()
    kafka.produce(topic, events(0, 3))
    return server.bind(topic, EVENT)


QUERIES_ONLY = "statements are not supported; this server answers queries only."
STATEMENTS = [
    (
        "SELECT * FROM lake.net.nothing_like_it",
        MISSING,
        "there is no table lake.net.nothing_like_it.",
    ),
    (
        "SELECT * FROM {t}x",
        MISSING,
        "there is no table {t}x; did you mean {t}?.",
    ),  # the full stop is pyarrow's
    ("SELECT * FROM sqlite_master", MISSING, "there is no table sqlite_master."),
    ("SELEC 1", INVALID, 'syntax error at or near "SELEC".'),
    ("SELECT nope FROM {t}", INVALID, 'Referenced column "nope" not found in FROM clause!.'),
    ("SELECT 'x'::INT", INVALID, "Could not convert string 'x' to INT32."),
    (
        "SELECT name::INT FROM {t}",
        INVALID,
        "Could not convert string 'row 0' to INT32 when casting from source column name.",
    ),
    (";", INVALID, "the text holds no statement; send one query."),
    (
        "SELECT 1; SELECT 2",
        INVALID,
        "one statement is expected, the text holds 2; send them one by one.",
    ),
    ("DROP TABLE {t}", INVALID, f"DROP {QUERIES_ONLY}"),
    ("CREATE TABLE x (a INT)", INVALID, f"CREATE {QUERIES_ONLY}"),
    ("INSERT INTO {t} VALUES (1)", INVALID, f"INSERT {QUERIES_ONLY}"),
    ("DELETE FROM {t}", INVALID, f"DELETE {QUERIES_ONLY}"),
    ("UPDATE {t} SET id = 1", INVALID, f"UPDATE {QUERIES_ONLY}"),
    ("COPY (SELECT 1) TO 'x.csv'", INVALID, f"COPY {QUERIES_ONLY}"),
    ("ATTACH 'x.db'", INVALID, f"ATTACH {QUERIES_ONLY}"),
    (
        "SET threads = 1",
        INVALID,
        "There is no setting 'threads' here; there are catalog, schema, time_zone, freshness, wait_for, cut, profile, hugeint, "
        "timestamp_unit, max_message_bytes.",
    ),
    ("INSTALL httpfs", INVALID, f"INSTALL {QUERIES_ONLY}"),
    ("SELECT getenv('HOME')", INVALID, "function getenv is not supported."),
    ("SELECT * FROM read_csv('/etc/passwd')", INVALID, "function read_csv is not supported."),
    ("SELECT * FROM duckdb_settings()", INVALID, "function duckdb_settings is not supported."),
    (
        "SELECT * FROM '/etc/passwd'",
        INVALID,
        "'/etc/passwd' is not a table of this server; files and addresses cannot be read.",
    ),
    (
        "SELECT repeat(name, 1000000000) FROM {t}",
        INVALID,
        "repeat would build more than 10000 characters or elements in one row.",
    ),
    (
        "SELECT * FROM {t} AT (VERSION => 3)",
        INVALID,
        "{t}: snapshot 3 is not one of the 1 that the table retains.",
    ),
    ("SELECT ?::INT", INVALID, "the statement has 1 parameters and 0 are bound."),
]


@pytest.mark.parametrize(("sql", "status", "message"), STATEMENTS)
def test_a_statement_that_is_refused_is_told_why(
    sql: str, status: str, message: str, server: SqlServer, table: TableName
) -> None:
    def filled(text: str) -> str:
        return text.replace("{t}", str(table)).replace("{n}", table.name)

    assert error_of(server, filled(sql), status) == filled(message)


def test_an_unbound_table_has_no_tail(server: SqlServer) -> None:
    plain = server.create_plain(pa.table({"a": [1]}))
    sql = f'SELECT * FROM {plain.catalog}.{plain.schema}."{plain.name}$tail"'
    assert error_of(server, sql, MISSING) == (
        f'{plain} is not bound to a topic, so there is no "{plain.name}$tail".'
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([1, 2], "the statement has 1 parameters and 2 are bound."),
        (["x"], "Could not convert string 'x' to INT64."),
    ],
)
def test_parameters_that_do_not_fit_are_named(
    parameters: Sequence[Any], message: str, server: SqlServer, table: TableName
) -> None:
    with pytest.raises(adbc.Error) as result:
        server.ask(f"SELECT * FROM {table} WHERE id = ?", parameters)
    assert _ID.sub(".", str(result.value), 1) == f"INVALID_ARGUMENT: [FlightSQL] {message}"


# --- what the log has become ---


def test_a_topic_that_is_gone_or_replaced_is_named(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 3))
    assert server.ask(f"SELECT * FROM {table}").num_rows == 3
    kafka.delete_topic(topic)
    assert error_of(server, f"SELECT * FROM {table}", MISSING) == (
        f"{table}: it is bound to topic {topic}, which the Kafka cluster does not have; point the server at the "
        f"right brokers, or bind a new table."
    )
    kafka.topic(name=topic)
    kafka.produce(topic, events(0, 5))
    said = error_of(server, f"SELECT * FROM {table}", INTERNAL)
    assert re.sub(r"id [\w/+-]+", "id …", said) == (
        f"{table}: its watermark names topic {topic} with id …, the log has {topic} with id …: the topic was "
        f"deleted and created again, so its offsets start over. Bind a new table to the new topic."
    )


def test_records_lost_before_they_were_tiered_are_counted(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 9))
    kafka.delete_records(topic, 0, 4)
    assert error_of(server, f"SELECT count(*) FROM {table}", INTERNAL) == (
        f"{table}: {topic}/0: cold data ends at offset 0 but the log starts at 4; 4 offsets were removed before "
        f"they were tiered. Raise the topic's retention.ms or tier more often, then run `thermocline gap accept "
        f"{table}`: it gives the lost range up."
    )


def test_a_log_that_ends_below_the_watermark_is_named(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    kafka.produce(topic, events(0, 3))
    table = server.bind(topic, EVENT)
    _set_watermark(server, table, next=[7])
    assert error_of(server, f"SELECT count(*) FROM {table}", INTERNAL) == (
        f"{table}: {topic}/0: cold data ends at offset 7 but the log ends at 3; the log lost records that cold "
        f"holds (an unclean leader election or a restored broker)."
    )


def test_a_record_that_does_not_decode_is_named_under_policy_fail(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic(2)
    table = server.bind(topic, EVENT)
    kafka.produce(topic, [*events(0, 3), b'{"id": "seven", "secret": "hunter2"}'], partition=1)
    for sql in (f"SELECT * FROM {table}", f"SELECT count(*) FROM {table}"):
        said = error_of(server, sql, INTERNAL)
        assert "hunter2" not in said
        assert "seven" not in said
        assert said == (
            f"{table}: the record at partition 1, offset 3 does not decode: field id: expected a whole number for "
            f"long, found a string; correct its producer, then run `thermocline skip {table} --partition 1 --offset "
            f"3`, or choose error policy null or skip for the table."
        )


def test_a_tail_beyond_its_limit_is_named(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT, max_tail_rows=5)
    kafka.produce(topic, events(0, 6))
    assert error_of(server, f"SELECT count(*) FROM {table}", INVALID) == (
        f"{table}: the untiered tail holds more than 5 (max_tail_rows); tier the table, or raise the limit."
    )


# --- what the table has become ---


def _set_property(server: SqlServer, table: TableName, key: str, value: str) -> None:
    with server.catalog() as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
        with loaded.transaction() as transaction:
            transaction.set_properties({key: value})


def _set_watermark(server: SqlServer, table: TableName, **changes: Any) -> None:
    """Commit a watermark text as another program would; ``v`` changes its version, the rest its topic's mark."""
    with server.catalog() as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
        text = json.loads(loaded.properties["thermocline.watermark"])
        text["v"] = changes.pop("v", text["v"])
        # A text that does not name its parent was copied from another commit.
        head = loaded.current_snapshot()
        text["prev"] = None if head is None else str(head.snapshot_id)
        text["topics"] = {topic: {**mark, **changes} for topic, mark in text["topics"].items()}
        with loaded.transaction() as transaction:
            properties = {"thermocline.watermark": json.dumps(text)}
            transaction.update_snapshot(snapshot_properties=properties).fast_append().commit()


def test_a_watermark_of_a_newer_version_is_not_guessed(kafka: Kafka, server: SqlServer) -> None:
    table = server.bind(kafka.topic(), EVENT)
    _set_watermark(server, table, v=4)
    assert error_of(server, f"SELECT * FROM {table}", INTERNAL) == (
        f"{table}: the watermark text has version 4 and this program reads versions 1 to 3; run a newer Thermocline."
    )


def test_rows_of_another_writer_are_named(kafka: Kafka, server: SqlServer) -> None:
    table = server.bind(kafka.topic(), EVENT)
    with server.catalog() as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
        row = {"kafka_partition": 0, "kafka_offset": 0, "id": 1}
        loaded.append(pa.Table.from_pylist([row], schema=loaded.schema().as_arrow()))
        head = loaded.current_snapshot()
        assert head is not None
        snapshot = head.snapshot_id
    assert error_of(server, f"SELECT * FROM {table}", INTERNAL) == (
        f"{table}: snapshot {snapshot} was committed by another writer above the watermark and it appended "
        f"rows; roll the table back to the snapshot before it, or, if its rows belong to the table, run "
        f"`thermocline accept {table} --snapshot {snapshot}`."
    )


UNTIERABLE = (
    "which Spark cannot load, so the table cannot be tiered; use timestamp or timestamptz in microseconds, or "
    "store the value as long or string."
)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("time", f"column name holds time, {UNTIERABLE}"),
        ("timestamp_ns", f"column name holds timestamp_ns, {UNTIERABLE}"),
        (
            "timestamptz_ns",
            "column name holds timestamptz_ns, which this program cannot read; drop the column or leave the table "
            "out.",
        ),
    ],
)
def test_a_bound_table_with_a_type_one_side_cannot_hold_is_named(
    kind: str, why: str, kafka: Kafka, server: SqlServer
) -> None:
    table = server.bind(kafka.topic(), EVENT)
    with server.catalog() as catalog:
        location = catalog.load_table((*table.namespace, table.name)).metadata_location
    # Nothing here writes format version 3, where the last two are at home: the file is edited.
    file = Path(location.removeprefix("file://"))
    file.write_text(file.read_text().replace('"type":"string"', f'"type":"{kind}"'))
    assert error_of(server, f"SELECT id FROM {table}", INVALID) == f"{table}: {why}"


def test_a_property_with_a_typing_error_is_named(kafka: Kafka, server: SqlServer) -> None:
    table = server.bind(kafka.topic(), EVENT)
    _set_property(server, table, "thermocline.on_eror", "skip")
    said = error_of(server, f"SELECT * FROM {table}", INVALID)
    assert said.startswith(f"{table}: unknown property thermocline.on_eror; known are thermo")


@pytest.mark.spark
def test_a_changed_shape_stops_the_tierer_but_no_reader(
    kafka: Kafka, tiered_server: TieredServer
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, [*events(0, 2), b"bad"])
    _set_property(tiered_server, table, "thermocline.on_error", "skip")
    answer = tiered_server.ask(f"SELECT id FROM {table} ORDER BY id")
    assert answer.to_pylist() == [{"id": 0}, {"id": 1}]
    seam = f'{table.catalog}.{table.schema}."{table.name}$seam"'
    [shapes] = tiered_server.ask(f"SELECT tiered_shape, binding_shape FROM {seam}").to_pylist()
    with pytest.raises(ShapeMismatch) as refused:
        tiered_server.tier(table)
    assert refused.value.message == (
        f"{table}: rows below the watermark were decoded with shape {shapes['tiered_shape']}, the binding now "
        f"asks for {shapes['binding_shape']} (decoder version, error policy, JSON mode, epoch units or floors changed); "
        f"restore the table properties, or move the shape on purpose with `thermocline shape accept {table}`."
    )


# --- what does not answer ---


@dataclass
class Fragile:
    """A server of its own, whose way to the broker and whose catalog may be taken away."""

    server: SqlServer
    kafka: Kafka
    catalog_file: Path

    @contextlib.contextmanager
    def without_catalog(self) -> Iterator[None]:
        """Overwritten, not moved: a moved SQLite file goes on answering through connections already open."""
        items = self.catalog_file.read_bytes()
        self.catalog_file.write_bytes(b"\xff" * len(items))
        yield
        self.catalog_file.write_bytes(items)


@pytest.fixture(scope="module")
def failing_server(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fragile]:
    folder = tmp_path_factory.mktemp("fragile")
    catalogs = {"lake": sqlite_catalog(folder)}
    with serving(settings_of(catalogs, kafka.proxied_settings, fetch_timeout_s=3)) as server:
        yield Fragile(server, kafka, folder / "catalog.db")


def test_a_broker_that_is_down_is_named_in_time_and_plain_tables_answer(
    failing_server: Fragile,
) -> None:
    server, kafka = failing_server.server, failing_server.kafka
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    plain = server.create_plain(pa.table({"a": [1]}))
    kafka.produce(topic, events(0, 3))
    assert server.ask(f"SELECT * FROM {table}").num_rows == 3
    assert kafka.proxy is not None
    kafka.proxy.set(Mode.CLOSED)
    try:
        began = time.monotonic()
        said = error_of(server, f"SELECT * FROM {table}", UNAVAILABLE)
        assert time.monotonic() - began < 15, "two statements, 5 s each"
        assert re.sub(r"\(_\w+\)", "(…)", said) == (
            f"{topic}: the Kafka brokers do not answer (…); retry when they do."
        )
        assert server.ask(f"SELECT * FROM {plain}").num_rows == 1
        cold = f'{table.catalog}.{table.schema}."{table.name}$cold"'
        assert server.ask(f"SELECT * FROM {cold}").num_rows == 0
        assert server.ask("SELECT 1").num_rows == 1
    finally:
        kafka.proxy.set(Mode.OPEN)
    # Its clients look for the broker again after a pause.
    wait_until(lambda: answers(server, f"SELECT * FROM {table}"), 30)
    assert server.ask(f"SELECT * FROM {table}").num_rows == 3


def answers(server: SqlServer, sql: str) -> bool:
    try:
        server.ask(sql)
    except adbc.Error:
        return False
    return True


def test_a_catalog_that_is_down_stops_no_table_in_use(failing_server: Fragile) -> None:
    server = failing_server.server
    topic = failing_server.kafka.topic()
    table, unread = server.bind(topic, EVENT), server.bind(topic, EVENT)
    failing_server.kafka.produce(topic, events(0, 3))
    assert server.ask(f"SELECT * FROM {table}").num_rows == 3
    with failing_server.without_catalog():
        server.refresh(table)  # what the background does: it fails, and the pin stays
        failing_server.kafka.produce(topic, events(3, 5))
        assert server.ask(f"SELECT * FROM {table}").num_rows == 5
        assert error_of(server, f"SELECT * FROM {unread}", UNAVAILABLE) == (
            f"{unread}: catalog lake does not answer; try again."
        )
    assert server.ask(f"SELECT * FROM {unread}").num_rows == 5


# --- what the command line says ---


def thermocline(*arguments: str, config: str | None = None) -> tuple[int, str]:
    """Run the command in a process of its own: exit code, and all it said."""
    before = [] if config is None else ["--config", config]
    code, out, err = run((*before, *arguments), ROOT, timeout_s=60)
    said = out + err
    assert not re.search(r'Traceback|File "|\.py\b', said), said
    return code, said.strip()


CONFIGURATIONS = {
    "a key with a typing error": (
        "[server]\nprot = 1",
        ": server.prot: unknown key; did you mean port?",
    ),
    "a section with a typing error": (
        "[catalog.lake]",
        ": catalog: unknown key; did you mean catalogs?",
    ),
    "a value that does not fit": (
        '[server]\nport = "many"',
        ": server.port: input should be a valid integer, unable to parse string as an integer; correct the "
        "value, or leave the key out.",
    ),
    "no TOML": (
        "[server\n",
        ": not valid TOML: (at line 1, column 8).",
    ),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_wrong_configuration_is_named_with_its_file(case: str, tmp_path: Path) -> None:
    text, message = CONFIGURATIONS[case]
    file = tmp_path / "thermocline.toml"
    file.write_text(text)
    assert thermocline("status", config=str(file)) == (2, f"thermocline: {file}{message}")


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    file = str(tmp_path / "none.toml")
    assert thermocline("serve", config=file) == (
        78,
        f"thermocline: {file}: the configuration cannot be read (No such file or directory); name another with "
        f"--config.",
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["serve"], 78),
        (["status"], 2),
        (["tier", "--once"], 2),
        (["create", "lake.net.x", "--topic", "t", "--infer"], 2),
    ],
)
def test_settings_without_a_catalog_are_refused(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "127.0.0.1:1"')
    assert thermocline(*arguments, config=str(file)) == (
        code,
        "thermocline: no catalog is configured; add a section [catalogs.<name>].",
    )


def test_a_server_for_anybody_on_an_open_address_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text(
        '[catalogs.lake]\ntype = "rest"\nuri = "https://c.example"\n[server]\nhost = "0.0.0.0"'
    )
    assert thermocline("serve", config=str(file)) == (
        78,
        "thermocline: the server would listen on 0.0.0.0 for anybody; add users (access.credentials_file, "
        "jwt_issuer, certificate_users or [server.users]), or listen on 127.0.0.1. If that is meant, say "
        "access.allow_insecure_public = true.",
    )

"""Names that need quotes, and tables in nested namespaces, through every command: said as they are printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.names import Side, TableName
from tests.fixtures.commands import CliServer, CliSite, wait_until
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka

ORDERS = "lake.shop.public.orders"
#: A namespace with a space, and a table with a dot, a quote and a slash.
ODD = 'lake."a b"."o.d/d ""x"""'
RECORDS: list[dict[str, Any]] = [
    {
        "@timestamp": f"2026-01-0{n}T00:00:00Z",
        "a b": n,
        "dc:title": f"title {n}",
        "a=b": 1767225600000 + n,
        "😀": n % 2 == 0,
        'q"x/y': [n],
        "id.orig_h": f"10.0.0.{n}",
        "http": {"user-agent": f"agent {n}", "$oid": n},
        "id": f"id {n}",
        "Id": n,
    }
    for n in range(1, 6)
]
COLUMNS = (
    '"@timestamp"::VARCHAR, "a b", "dc:title", epoch_ms("a=b"), "😀", "q""x/y", "id.orig_h", '
    'http."user-agent", http."$oid", id, id_2'
)
EXPECTED = [
    (
        f"2026-01-0{n} 00:00:00+00",
        n,
        f"title {n}",
        1767225600000 + n,
        n % 2 == 0,
        [n],
        f"10.0.0.{n}",
        f"agent {n}",
        n,
        f"id {n}",
        n,
    )
    for n in range(1, 6)
]
OPTIONS = (
    *("--rename", "Id=id_2", "--epoch", '"a=b"=ms', "--partition-by", 'day("@timestamp")'),
    *("--partition-by", 'truncate(5, "dc:title")', "--partition-by", "id.orig_h"),
    *("--sort-by", '"a b" desc nulls last', "--sort-by", "http.user-agent"),
)
DECLARED = (
    '"@timestamp":timestamptz',
    '"a b":long',
    '"dc:title":string',
    '"a=b":timestamptz',
    "😀:boolean",
    '"q""x/y":list<long>',
    "id.orig_h:string",
    'http:struct<"user-agent": string, $oid: long>',
    "id:string",
    "id_2:long",
)


#: Each has nothing to do, and says so of the table.
REPAIRS = (
    ("gap", "accept", "T"),
    ("skip", "T", "--partition", "0", "--offset", "0"),
    ("accept", "T", "--snapshot", "7"),
    ("covers", "T"),
)


def test_a_name_is_taken_by_every_command_as_it_is_printed(
    kafka: Kafka, cli_site: CliSite, cli_server: CliServer
) -> None:
    check_names(kafka, cli_site, is_tiered=False)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_name_is_taken_on_both_sides_of_the_seam(
    kafka: Kafka, cli_site: CliSite, cli_server: CliServer
) -> None:
    check_names(kafka, cli_site, is_tiered=True)


def check_names(kafka: Kafka, cli_site: CliSite, *, is_tiered: bool) -> None:
    topic = kafka.topic(1)
    kafka.produce(topic, [json.dumps(record).encode() for record in RECORDS])
    columns = [word for column in DECLARED for word in ("--column", column)]
    for table, source in ((ORDERS, ["--infer"]), (ODD, columns)):
        code, out, err = cli_site.run("create", table, "--topic", topic, *source, *OPTIONS)
        assert (code, err) == (0, "")
        assert out.startswith(
            f"created {table} over topic {topic}; it starts at offsets 0: 0\n"
        )
        assert "  id_2  int64  from field Id\n" in out

    def rows(table: str) -> list[Any]:
        return cli_site.ask(f"SELECT {COLUMNS} FROM {table} ORDER BY id_2")

    wait_until(lambda: cli_site.answers(f"SELECT 1 FROM {ODD}"), 10)
    assert rows(ORDERS) == rows(ODD) == rows(side(ORDERS, "tail")) == EXPECTED
    if is_tiered:
        code, out, err = cli_site.run("tier", "--once", ORDERS, ODD)
        assert code == 0, err
        assert f" {ORDERS}: published 5 rows" in out
        assert f" {ODD}: published 5 rows" in out
        assert rows(ORDERS) == rows(side(ORDERS, "cold")) == rows(side(ODD, "cold")) == EXPECTED
    # A field of the column's own name comes first, as after any rename.
    kafka.produce(topic, [json.dumps({**RECORDS[0], "Id": 6, "id_2": 7}).encode()])
    wait_until(lambda: len(rows(ORDERS)) == 6, 10)
    assert rows(side(ODD, "tail"))[-1] == (*EXPECTED[0][:-1], 7)
    for table, other in ((ORDERS, ODD), (ODD, ORDERS)):
        for select in (
            f"count(*) AS n FROM {table} WHERE http.\"user-agent\" = 'agent 3'",
            f"max({table}.id_2) - 6 AS n FROM {table}",
            f"n - 5 AS n FROM (WITH q AS (FROM {table}) SELECT count(*) AS n FROM q)",
            f"count(*) - 5 AS n FROM {table} a JOIN {other} USING (kafka_offset)",
        ):
            assert cli_site.ask(f"SELECT {select}") == [(1,)], select
        code, out, err = cli_site.run(
            "sql", f"SELECT max(id_2) FROM {table}", "--format", "json"
        )
        assert (code, json.loads(out)) == (0, [{"max(id_2)": 7}]), err
        code, out, err = cli_site.run("explain", f"SELECT count(*) FROM {table}")
        assert (code, out.splitlines()[0].partition("  ")[0]) == (0, table), err
        follow = f"SELECT id_2 FROM {table}"
        code, out, err = cli_site.run("tail", "--once", "--from", "beginning", follow)
        assert (code, len(out.splitlines())) == (0, 6), err
        [(snapshot,)] = cli_site.ask(f"SELECT snapshot_id FROM {side(table, 'seam')}")
        past = f"SELECT count(*) FROM {table} AT (VERSION => {snapshot})"
        assert cli_site.ask(past) == [(5 if is_tiered else 0,)]
    code, out, err = cli_site.run("status", "--json", ORDERS, ODD)
    assert (code, [each["table"] for each in json.loads(out)]) == (0, [ORDERS, ODD]), err
    code, out, err = cli_site.run("verify", ORDERS, ODD)
    assert code == 0, out + err
    assert ORDERS in out
    assert ODD in out
    for arguments in REPAIRS:
        for table in (ORDERS, ODD):
            code, _, err = cli_site.run(*(table if word == "T" else word for word in arguments))
            assert code == 2, (arguments, err)
            assert err.startswith(f"thermocline: {table}: "), err


def side(table: str, name: str) -> str:
    return str(TableName.parse(table).side(Side(name)))

"""``create --mode upsert`` and ``rebuild`` as their users run them, over a topic of a real broker."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.commands import CliSite
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka

#: A topic that is compacted alone loses no log start.
COMPACTED = {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "7200000"}
ROWS = "SELECT id, state FROM lake.shop.devices ORDER BY id"


def put(kafka: Kafka, topic: str, **states: str | None) -> None:
    values = [None if each is None else json.dumps({"state": each}) for each in states.values()]
    kafka.produce(
        topic,
        [None if each is None else each.encode() for each in values],
        keys=[key.encode() for key in states],
    )


def create(site: CliSite, topic: str, *options: str) -> tuple[int, str]:
    code, out, err = site.run(
        *("create", "lake.shop.devices", "--topic", topic, "--mode", "upsert"), *options
    )
    return code, (out + err).replace(topic, "TOPIC")


def rows(site: CliSite, sql: str = ROWS) -> list[str]:
    code, out, err = site.run("sql", sql, "--local", "--format", "csv")
    assert code == 0, err
    return out.splitlines()[1:]


def test_what_a_topic_does_not_keep_is_said(cli_site: CliSite, kafka: Kafka) -> None:
    columns = ("--key", "id:string", "--column", "state:string", "--key-format", "string")
    short = kafka.topic(config={"cleanup.policy": "compact", "delete.retention.ms": "1000"})
    assert create(cli_site, short, *columns) == (
        2,
        "thermocline: topic TOPIC has delete.retention.ms 1,000: a delete may leave the log before it is tiered, which may take "
        "3,600,000, and the row would stay for ever; set it to so much at least.\n",
    )
    assert create(cli_site, kafka.topic(config={"cleanup.policy": "compact"}), *columns) == (
        0,
        "created lake.shop.devices over topic TOPIC; it starts at offsets 0: 0\n"
        "  id  string  from keys\n"
        "  state  string\n"
        "topic TOPIC has min.compaction.lag.ms 0: a cut or a ticket that ends between two changes of a key may lack its row "
        "once the log is compacted; 7,200,000 or more keep them.\n",
    )


@pytest.mark.spark
@pytest.mark.soak
def test_a_table_whose_changes_were_lost_is_rebuilt(cli_site: CliSite, kafka: Kafka) -> None:
    topic = kafka.topic(config=COMPACTED)
    put(kafka, topic, a="old", b="old", c="old")
    options = ("--key", "id:string", "--infer", "--key-format", "string")
    code, said = create(cli_site, topic, *options)
    assert (code, said.splitlines()[1:]) == (
        0,
        [
            "  id  string  from keys",
            "  state  string",
            "topic TOPIC has cleanup.policy compact,delete: where retention removes the last change of a key, the table keeps "
            "its row, and no rebuild could bring it back.",
        ],
    )
    code, out, err = cli_site.run("tier", "--once", "lake.shop.devices")
    assert code == 0, out + err
    put(kafka, topic, a=None, b="new", d="new")
    put(kafka, topic, c="kept", e="kept")
    # As if only the newest change of each key were left.
    kafka.delete_records(topic, 0, 4)
    code, _, err = cli_site.run("tier", "--once", "lake.shop.devices")
    assert code == 6
    assert "then run `thermocline rebuild lake.shop.devices`: it reads all" in err
    code, out, err = cli_site.run("rebuild", "lake.shop.devices", "--yes", "--json")
    assert code == 0, out + err
    document = json.loads(out)
    assert (document["rows"], document["deletes"], document["superseded"]) == (4, 0, 0)
    assert rows(cli_site) == ['"b","new"', '"c","kept"', '"d","new"', '"e","kept"']
    code, out, _ = cli_site.run("verify", "lake.shop.devices")
    assert code == 0, out
    put(kafka, topic, b=None, c="newest")
    assert rows(cli_site) == ['"c","newest"', '"d","new"', '"e","kept"']
    code, out, err = cli_site.run("tier", "--once", "lake.shop.devices")
    assert code == 0, out + err
    assert rows(cli_site) == ['"c","newest"', '"d","new"', '"e","kept"']


def test_a_table_with_a_row_for_each_record_is_not_rebuilt(
    cli_site: CliSite, kafka: Kafka
) -> None:
    topic = kafka.topic()
    code, *_ = cli_site.run(
        *("create", "lake.shop.events", "--topic", topic, "--column", "state:string")
    )
    assert code == 0
    code, _, err = cli_site.run("rebuild", "lake.shop.events", "--yes")
    assert (code, err) == (
        2,
        "thermocline: lake.shop.events: only a keyed table can be rebuilt: this one has a row for each record, and of those that "
        "the log has lost nothing would be left.\n",
    )

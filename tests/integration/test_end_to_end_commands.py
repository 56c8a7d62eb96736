"""The commands as users run them: processes of their own over one configuration file."""

from __future__ import annotations

import json
import signal
from typing import Any

import psutil
import pytest

from tests.fixtures.commands import (
    START_TIMEOUT_S,
    CliServer,
    CliSite,
    wait_until,
)
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka

#: The promise: a killed server answers again within this time.
RESTART_S = 5.0
#: The supervisor notices within 0.2 s and waits 0.1 s; on a busy machine the rest is what any start takes there.
RESTART_DELAY_S = 1.0


def test_a_killed_server_answers_again_on_the_same_port(
    cli_site: CliSite, cli_server: CliServer
) -> None:
    killed = cli_server.child()
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE, 5)
    took_s = wait_until(cli_site.answers, START_TIMEOUT_S, cli_server.supervisor)
    # A machine that others keep busy starts one server in the time of two others.
    assert took_s < max(RESTART_S, 2 * cli_server.started_in_s + RESTART_DELAY_S)
    assert cli_server.child().pid != killed.pid
    # And it stops in order.
    child = cli_server.child()
    cli_server.supervisor.send_signal(signal.SIGTERM)
    _, err = cli_server.supervisor.communicate(timeout=30)
    assert cli_server.supervisor.returncode == 0
    assert not child.is_running()
    assert cli_site.is_free()
    assert "Traceback" not in err
    assert (
        "thermocline: the server process ended with signal 9; starting it again in 0.1 s" in err
    )


def events(start: int, stop: int) -> list[bytes]:
    return [
        json.dumps({"id": n, "name": f"row {n}", "seen": "2026-01-02T03:04:05Z"}).encode()
        for n in range(start, stop)
    ]


def statuses(cli_site: CliSite) -> list[dict[str, Any]]:
    code, out, err = cli_site.run("status", "--json")
    assert (code, err) == (0, "")
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


@pytest.mark.spark
def test_a_topic_becomes_a_table_that_is_served_and_tiered_until_its_server_is_killed(
    kafka: Kafka, cli_site: CliSite, cli_server: CliServer
) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, events(0, 5), partition=0)
    code, out, err = cli_site.run("create", "lake.net.flows", "--topic", topic, "--infer")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"created lake.net.flows over topic {topic}; it starts at offsets 0: 0, 1: 0",
        "  id  int64",
        "  name  string",
        "  seen  timestamp[us, tz=UTC]",
        "long, since whole in all samples: id (5); for one that can have a fraction: --column id:double",
    ]
    again = cli_site.run("create", "lake.net.flows", "--topic", topic, "--infer")
    assert again == (
        2,
        "",
        "thermocline: lake.net.flows: the table exists already; choose another name, or drop it first.\n",
    )
    [before] = statuses(cli_site)
    assert (before["table"], before["topic"], before["lag"]) == ("lake.net.flows", topic, 5)
    assert before["error"] is None
    offsets = ("partition", "log_start", "watermark", "log_end", "lag", "headroom")
    assert [tuple(fields[name] for name in offsets) for fields in before["partitions"]] == [
        (0, 0, 0, 5, 5, 0),
        (1, 0, 0, 0, 0, 0),
    ]
    counted = "SELECT count(*), sum(id), max(seen)::VARCHAR FROM lake.net.flows"
    listed = "SELECT count(*) FROM lake.net.flows"
    wait_until(
        lambda: cli_site.answers(listed), 10
    )  # the server lists tables again every 0.2 s
    answer = cli_site.ask(counted)
    assert answer == [(5, 10, "2026-01-02 03:04:05+00")]
    code, out, err = cli_site.run("tier", "--once", "lake.net.flows")
    assert code == 0, err
    [line] = out.splitlines()
    assert " lake.net.flows: published 5 rows, 0 skipped, 0 tombstones; " in line
    assert line.endswith(", lag 0; by age")
    assert cli_site.ask(counted) == answer
    [after] = statuses(cli_site)
    assert [fields["watermark"] for fields in after["partitions"]] == [5, 0]
    assert after["lag"] == 0
    kafka.produce(topic, events(5, 7), partition=1)
    assert cli_site.ask(counted) == [(7, 21, "2026-01-02 03:04:05+00")]
    kafka.delete_topic(topic)
    code, out, err = cli_site.run("status", "--json")
    [refused] = json.loads(out)
    assert (code, err, refused["error_class"]) == (6, "", "UnknownTopic")
    assert refused["error"] == f"the Kafka cluster has no topic {topic}."
    # A supervisor that is killed leaves no server behind.
    child = cli_server.child()
    cli_server.supervisor.kill()
    child.wait(timeout=30)
    assert cli_site.is_free()

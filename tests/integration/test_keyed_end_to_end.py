"""A topic of changes as a keyed table, by the commands: what SQL answers is what a dictionary of the changes holds."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.commands import CliServer, CliSite, wait_until
from tests.fixtures.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROWS = "SELECT id, status, n FROM lake.net.devices ORDER BY id"


class Devices:
    """A topic of two partitions, whose producer chooses them by the key, and what its changes come to."""

    def __init__(self, kafka: Kafka) -> None:
        self.topic = kafka.topic(2)
        self.rows: dict[int, tuple[str, int]] = {}
        self._kafka = kafka
        self._written = 0

    def put(self, *keys: int, status: str = "open") -> None:
        for key in keys:
            self._written += 1
            self.rows[key] = status, self._written
            row = json.dumps({"status": status, "n": self._written}).encode()
            self._send(key, row)

    def delete(self, *keys: int) -> None:
        for key in keys:
            self.rows.pop(key, None)
            self._send(key, None)

    def _send(self, key: int, value: bytes | None) -> None:
        name = json.dumps({"id": key}).encode()
        self._kafka.produce(self.topic, [value], partition=key % 2, keys=[name])

    @property
    def expected(self) -> list[tuple[int, str, int]]:
        return [(key, *row) for key, row in sorted(self.rows.items())]


def test_a_keyed_table_is_its_newest_rows_before_between_and_after_publishes(
    kafka: Kafka, cli_site: CliSite, cli_server: CliServer
) -> None:
    devices = Devices(kafka)
    devices.put(1, 2, 3, 4)
    code, out, err = cli_site.run(
        *("create", "lake.net.devices", "--topic", devices.topic, "--infer"),
        *("--mode", "upsert", "--key", "id:long"),
    )
    assert (code, err) == (0, ""), out + err
    wait_until(lambda: cli_site.answers(ROWS), 10)

    def check() -> None:
        assert cli_site.ask(ROWS) == devices.expected
        total = cli_site.ask("SELECT count(*) FROM lake.net.devices")
        assert total == [(len(devices.rows),)]

    def tier(says: str) -> None:
        code, out, err = cli_site.run("tier", "--once", "lake.net.devices")
        assert code == 0, out + err
        assert says in out, out
        check()  # by the pin of before, or the newest

    check()
    tier("published 4 rows")
    devices.put(2, status="done")
    devices.put(5)
    devices.delete(1)
    check()
    # A row and its update in one publish, a row that comes and goes, a key that comes back.
    devices.put(2, 6)
    devices.delete(6)
    devices.put(1, status="again")
    devices.delete(3, 9)
    check()
    tier("published 3 rows")
    wait_until(
        lambda: cli_site.ask(ROWS.replace("devices", '"devices$cold"')) == devices.expected, 10
    )
    code, out, err = cli_site.run("status", "--json")
    assert (code, err) == (0, "")
    [status] = json.loads(out)
    assert (status["error"], status["lag"]) == (None, 0)
    code, out, err = cli_site.run("verify", "lake.net.devices")
    assert (code, err) == (0, ""), out + err
    assert out.partition("  no faults: ")[2] == (
        "all of 13 offsets below the watermark compared with the log value by value; 4 rows, 3 deletes, 6 superseded, "
        "0 tombstones, 0 skipped; 4 rows in cold\n"
    )

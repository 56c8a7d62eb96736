"""Who may load a live table: users, tokens, files; what is written down of it, and how doctor tries it."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr
from pyiceberg.catalog import load_catalog

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.live_rest import Answer, Rest, live_settings
from tests.fixtures.oidc import AUDIENCE, Provider
from tests.fixtures.server import serving, sqlite_catalog
from tests.harness.events import EVENT, events
from thermocline.commands.doctor import command as doctor
from thermocline.commands.sql import command as sql
from thermocline.config.settings import Granted

pytestmark = pytest.mark.kafka


def test_tokens_of_an_identity_provider_are_those_of_flight(
    kafka: Kafka, tmp_path: Path, provider: Provider
) -> None:
    settings = live_settings(kafka, tmp_path)
    log = tmp_path / "audit.log"
    settings = settings.model_copy(
        update={
            "server": settings.server.model_copy(update={"audit_log": str(log)}),
            "access": settings.access.model_copy(
                update={
                    "jwt_issuer": provider.issuer,
                    "jwt_audience": AUDIENCE,
                    "jwt_groups_claim": "groups",
                }
            ),
            "permissions": {"eu": Granted(groups=("eu",), tables=("lake.net.*",))},
        }
    )
    with serving(settings) as server:
        rest = Rest(server)
        topic = kafka.topic()
        kafka.produce(topic, events(0, 3))
        table = server.bind(topic, EVENT)

        def load(token: str) -> Answer:
            return rest.ask(rest.table(table), authorization=f"Bearer {token}")

        good = provider.token(groups=["eu"])
        assert load(good).status == 200
        assert load(provider.token(groups=["us"])).error == (404, "NoSuchWarehouseException")
        for bad in (
            provider.token(groups=["eu"], expires_in_s=-3_600),
            provider.token(groups=["eu"], aud="another"),
            provider.token(groups=["eu"], iss="https://another"),
            good[:-4] + "AAAA",
            "nonsense",
        ):
            assert load(bad).error == (401, "NotAuthorizedException")
        assert rest.ask(rest.table(table)).error == (401, "NotAuthorizedException")
        exchange = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": good,
        }
        answer = rest.ask("/v1/oauth/tokens", "POST", urlencode(exchange).encode())
        assert (answer.status, answer.body["error"]) == (400, "unsupported_grant_type")
        properties = {
            "type": "rest",
            "uri": "http://{}:{}".format(*rest.address),
            "warehouse": "lake",
            "token": good,
        }
        with contextlib.closing(load_catalog("live", **properties)) as live:
            assert live.load_table((*table.namespace, table.name)).scan().count() == 3
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["user"] for line in lines if line["outcome"] == "ok"} == {"ada"}


HANDED_OUT = {
    "s3.access-key-id": "handed",
    "s3.secret-access-key": "out",
    "s3.region": "eu-central-1",
}

PASSWORDS = {"whole": "w", "part": "p", "files": "f", "none": "n"}


@pytest.fixture(scope="module")
def guarded(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    folder = tmp_path_factory.mktemp("guarded")
    users = {user: SecretStr(text) for user, text in PASSWORDS.items()}
    settings = live_settings(kafka, folder, credentials={"lake": HANDED_OUT})
    settings = settings.model_copy(
        update={
            "server": settings.server.model_copy(update={"users": users}),
            "permissions": {
                "whole": Granted(users=("whole",), tables=("*",)),
                "part": Granted(users=("part",), tables=("*",), rows="id < 3"),
                "files": Granted(
                    users=("files",), tables=("*",), without=("name",), files=True
                ),
            },
        }
    )
    with serving(settings) as server:
        yield Rest(server)


def test_users_are_those_of_flight_and_files_are_for_who_may_read_all_of_them(
    guarded: Rest, kafka: Kafka
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, events(0, 10))
    table = guarded.server.bind(topic, EVENT, name=TableName("lake", ("net",), "guarded"))

    def token(user: str, password: str) -> Answer:
        form = {
            "grant_type": "client_credentials",
            "client_id": user,
            "client_secret": password,
        }
        return guarded.ask("/v1/oauth/tokens", "POST", urlencode(form).encode())

    def status(user: str) -> Answer:
        bearer = f"Bearer {token(user, PASSWORDS[user]).body['access_token']}"
        return guarded.ask(guarded.table(table), authorization=bearer)

    assert guarded.ask(guarded.table(table)).error == (401, "NotAuthorizedException")
    assert "www-authenticate" in guarded.ask("/v1/config").headers
    wrong = token("whole", "wrong")
    assert (wrong.status, wrong.body["error"]) == (401, "invalid_client")
    other = guarded.ask("/v1/oauth/tokens", "POST", b"grant_type=password")
    assert (other.status, other.body["error"]) == (400, "unsupported_grant_type")
    whole = status("whole")
    assert whole.status == 200
    assert whole.body["config"] == HANDED_OUT
    assert status("files").status == 200
    refused = status("part")
    assert refused.error == (403, "ForbiddenException")
    assert "read it over Flight SQL" in refused.body["error"]["message"]
    assert status("none").error == (404, "NoSuchWarehouseException")
    host, port = guarded.address
    with contextlib.closing(
        load_catalog(
            "live",
            type="rest",
            uri=f"http://{host}:{port}",
            warehouse="lake",
            credential="whole:w",
            **{"oauth2-server-uri": f"http://{host}:{port}/v1/oauth/tokens"},
        )
    ) as live:
        assert live.load_table(("net", "guarded")).scan().to_arrow().num_rows == 10


def test_loads_are_counted_and_written_down(kafka: Kafka, tmp_path: Path) -> None:
    settings = live_settings(kafka, tmp_path)
    log = tmp_path / "audit.log"
    server = settings.server.model_copy(update={"audit_log": str(log), "http_port": 0})
    with serving(settings.model_copy(update={"server": server})) as running:
        rest = Rest(running)
        topic = kafka.topic()
        kafka.produce(topic, events(0, 3))
        table = running.bind(topic, EVENT)
        rest.rows(table)
        rest.ask(rest.table(TableName("lake", ("net",), "no")))
        with urllib.request.urlopen(
            f"http://127.0.0.1:{running.running.http_port}/metrics"
        ) as answer:
            counted = answer.read().decode()
    assert 'thermocline_table_loads_total{outcome="ok"} 1.0' in counted
    assert 'thermocline_table_loads_total{outcome="UnknownTable"} 1.0' in counted
    assert "thermocline_table_load_seconds_count 1.0" in counted
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    loads = [(line["call"], line["table"], line["outcome"]) for line in lines]
    assert loads == [
        ("LoadTable", str(table), "ok"),
        ("LoadTable", "lake.net.no", "UnknownTable"),
    ]


def test_doctor_prints_settings_and_tries_the_engines(
    guarded: Rest, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, events(0, 7))
    guarded.server.bind(topic, EVENT, name=TableName("lake", ("a",), "first"))
    catalog = guarded.server.settings.catalogs["lake"]
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in catalog.items())
    config = tmp_path / "thermocline.toml"
    config.write_text(f"[catalogs.lake]\n{lines}[iceberg_rest]\nport = {guarded.address[1]}\n")
    monkeypatch.setenv("THERMOCLINE_PASSWORD", "w")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(doctor, ["--engines", *arguments], obj=str(config))

    well = run("--user", "whole", "--json")
    assert well.exit_code == 0, well.output
    checks = {line["check"]: line["what"] for line in json.loads(well.stdout)["findings"]}
    assert checks == dict.fromkeys(("pyiceberg", "DuckDB", "Polars"), "read 7 rows of a.first")
    text = run("--user", "whole").stdout
    assert "spark.sql.catalog.live.cache-enabled false" in text
    assert f"http://127.0.0.1:{guarded.address[1]}" in text
    assert "whole:w" not in text
    nobody = run("--json")
    assert nobody.exit_code == 1
    (line,) = json.loads(nobody.stdout)["findings"]
    assert line["state"] == "fail"


def test_a_statement_of_this_process_serves_no_live_tables(rest: Rest, tmp_path: Path) -> None:
    catalog = sqlite_catalog(tmp_path)
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in catalog.items())
    config = tmp_path / "thermocline.toml"
    config.write_text(
        f"[catalogs.lake]\n{lines}[iceberg_rest]\nport = {rest.address[1]}\n"  # taken
    )
    answer = CliRunner().invoke(sql, ["--local", "SELECT 40 + 2 AS n"], obj=str(config))
    assert answer.exit_code == 0, answer.output
    # Rows, and no line of an audit log.
    assert (answer.stdout, answer.stderr) == (" n\n──\n42\n(1 row)\n", "")

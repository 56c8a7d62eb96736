"""What ``doctor --permissions`` prints is enough: a server and a tierer get just that, and do all they have to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation
from pyiceberg.catalog import load_catalog

from planner.names import TableName
from tests.fixtures.commands import ROOT
from tests.fixtures.guarded_kafka import GuardedKafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.forked_commands import run
from tests.harness.store_gateway import StoreGateway
from tests.harness.store_rights import allowing
from thermocline.doctor.stores import stores
from thermocline.doctor.systems import catalogs
from thermocline.serve.assembly import running_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

FLOWS = TableName("lake", ("net",), "flows")


@pytest.fixture
def gateways(object_store: ObjectStore) -> Iterator[dict[str, StoreGateway]]:
    """A way to the store for each purpose."""
    with StoreGateway(object_store.port) as read, StoreGateway(object_store.port) as tier:
        yield {"read": read, "tier": tier}


def test_server_and_tierer_do_with_the_rights_that_are_printed(
    guarded: GuardedKafka,
    postgresql: PostgreSQL,
    object_store: ObjectStore,
    gateways: dict[str, StoreGateway],
    tmp_path: Path,
) -> None:
    owner = postgresql.catalog(tmp_path) | object_store.warehouse()
    topic, folder = guarded.topic(), f"{owner['warehouse']}/net/flows"
    guarded.produce(topic, [b'{"id": %d}' % number for number in range(10)])
    config = tmp_path / "owner.toml"
    write(config, owner, guarded.settings)
    ran(config, "create", str(FLOWS), "--topic", topic, "--infer")
    rights = json.loads(ran(config, "doctor", "--permissions", "--json"))
    users = {
        purpose: user_with(
            postgresql, owner, f"{purpose}_user", granted(rights, purpose, "catalog lake")
        )
        | {"s3.endpoint": gateway.endpoint}
        for purpose, gateway in gateways.items()
    }
    for purpose, gateway in gateways.items():
        gateway.choose_fault = allowing({folder: granted(rights, purpose, folder)})
    for purpose in users:
        for operation in granted(rights, purpose, f"topic {topic}"):
            if operation != "DescribeConfigs":
                guarded.allow(topic, AclOperation[operation.upper()])
    login = guarded.login("SCRAM-SHA-512")
    settings = settings_of({"lake": users["read"]}, login)
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        write(tmp_path / "tier.toml", users["tier"], login)
        ran(tmp_path / "tier.toml", "tier", "--once", str(FLOWS))
        guarded.produce(topic, [b'{"id": 100}'])
        server.refresh(FLOWS)
        answer = server.ask("SELECT count(*) AS n, sum(id)::BIGINT AS s FROM net.flows")
        assert answer.to_pylist() == [{"n": 11, "s": 145}]
        cold = server.ask('SELECT count(*) AS n FROM net."flows$cold"')
        assert cold.to_pylist() == [{"n": 10}]
    for purpose, gateway in gateways.items():
        denied = [each for each in gateway.requests if gateway.choose_fault(each) is not None]
        assert gateway.requests
        assert denied == [], purpose
    for purpose, state in (("read", "warn"), ("tier", "ok")):
        of_user = settings_of({"lake": users[purpose]}, {})
        states = {each.check: each.state for each in catalogs(of_user, {})}
        assert states["catalog lake"] == "ok"
        assert states.get("rights in catalog lake", "ok") == state
        states = {each.check: each.state for each in stores(of_user, {"lake": [FLOWS]})}
        assert states["store of lake"] == state
    # The store lets it write here: the database does not.
    way = {"s3.endpoint": owner["s3.endpoint"]}
    with closing(load_catalog("lake", **(users["read"] | way))) as catalog:
        table = catalog.load_table("net.flows")
        with pytest.raises(Exception, match="permission denied"):
            table.transaction().set_properties(a="b").commit_transaction()


def granted(rights: list[dict[str, Any]], purpose: str, on: str) -> list[str]:
    operations = [
        operation
        for right in rights
        if (right["purpose"], right["on"]) == (purpose, on)
        for operation in right["operations"]
    ]
    assert operations, rights
    return operations


def user_with(
    postgresql: PostgreSQL, owner: Mapping[str, str], name: str, operations: list[str]
) -> dict[str, str]:
    """The catalog's properties for a user who got just these rights."""
    database = owner["uri"].rpartition("/")[2]
    postgresql.administrate(f"CREATE USER {name} PASSWORD 'word'")
    for operation in operations:
        postgresql.administrate(f"GRANT {operation} TO {name}", database)
    address = owner["uri"].rpartition("@")[2]
    return {**owner, "uri": f"postgresql+psycopg2://{name}:word@{address}"}


def write(config: Path, catalog: Mapping[str, str], kafka: Mapping[str, str]) -> None:
    sections = {"catalogs.lake": catalog, "kafka": kafka, "tier": {"master": "local[2]"}}
    config.write_text(
        "".join(
            f"[{name}]\n"
            + "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in entries.items())
            for name, entries in sections.items()
        )
    )


def ran(config: Path, *arguments: str) -> str:
    """Standard output of a command that ends well."""
    code, out, err = run(("--config", str(config), *arguments), ROOT, 240)
    assert code == 0, out + err
    return out

"""Options of schema registries: confluent's names, what is refused, and with which hint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import SchemaRegistryClient

from connectors.registry import options as registry_options
from connectors.registry.client import SchemaRegistry
from connectors.registry.options import checked
from planner.errors import BadConfig
from thermocline.commands.config import command
from thermocline.config.settings import load

URL = {"url": "https://registry.example:8081/path"}
BEARER = {
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.client.id": "thermocline",
    "bearer.auth.client.secret": "hush",
    "bearer.auth.scope": "schemas",
    "bearer.auth.issuer.endpoint.url": "https://login.example/token",
    "bearer.auth.logical.cluster": "lsrc-1",
    "bearer.auth.identity.pool.id": "pool-1",
}
STATIC = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": "hush",
    "bearer.auth.logical.cluster": "lsrc-1",
}
AZURE = {
    "bearer.auth.credentials.source": "OAUTHBEARER_AZURE_IMDS",
    "bearer.auth.issuer.endpoint.query": "resource=x",
    "bearer.auth.logical.cluster": "lsrc-1",
}
WELL = """
[catalogs.lake]
type = "rest"
uri = "https://catalog.example"
warehouse = "s3://lake"
[kafka]
"bootstrap.servers" = "b:9092"
"""


@pytest.mark.parametrize(
    "options",
    [
        URL,
        {"url": "http://a:1, https://u:p@b/x ,http://[::1]:8081"},
        URL | {"basic.auth.user.info": "alice:hu:sh"},
        URL | BEARER,
        URL | STATIC,
        URL | AZURE,
        URL | {"proxy": "http://u:p@proxy:3128", "timeout": "2.5", "max.retries": "0"},
        URL | {"retries.wait.ms": "10", "retries.max.wait.ms": "20"},
    ],
    ids=lambda options: ",".join(options),
)
def test_what_the_client_takes_is_taken(options: dict[str, str]) -> None:
    assert checked(options) == options
    SchemaRegistry(options).close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            URL | {"basic.auth.userinfo": "a:b"},
            "basic.auth.userinfo: unknown option of schema registries; did you mean basic.auth.user.info?",
        ),
        (URL | {"sasl.mechanism": "PLAIN"}, "sasl.mechanism: unknown option of schema registries; known are url, "),
        ({}, "url: it is missing; set it to the registry's URL."),
        ({"url": "registry:8081"}, "url: it is no URL of a registry; write http:// or https://, a host, "),
        ({"url": "http://a,,http://b"}, "url: it is no URL of a registry; write http"),
        ({"url": "mock://a"}, "url: it is no URL of a registry; write http"),
        ({"url": "http://u:p/w@host"}, "url: it is no URL of a registry; write http"),
        ({"url": "http://a b"}, "url: it is no URL of a registry; write http"),
        (URL | {"proxy": "socks5://a"}, "proxy: it is no URL of a proxy; write http"),
        (URL | {"timeout": "soon"}, "timeout: it is no number; write one, 0 or more."),
        (
            URL | {"unknown_id_grace_s": "21"},
            "unknown_id_grace_s: it is no number of seconds up to 20; write one, 0 or more.",
        ),
        (
            URL | {"unknown_id_grace": "3"},
            "unknown_id_grace: unknown option of schema registries; did you mean unknown_id_grace_s?",
        ),
        (URL | {"ssl.ca.location": "/no/such"}, "ssl.ca.location: there is no such file; name a file in PEM."),
        (
            URL | {"ssl.key.location": __file__},
            "ssl.key.location: there is no certificate for it; set ssl.certificate.location.",
        ),
        (URL | {"basic.auth.user.info": "alice"}, "basic.auth.user.info: it has no colon; write USER:PASSWORD."),
        (
            {"url": "https://u:p@a", "basic.auth.user.info": "a:b"},
            "basic.auth.user.info: url has a login, too; remove one.",
        ),
        (
            URL | {"bearer.auth.token": "hush"},
            "bearer.auth.token: without bearer.auth.credentials.source it has no effect; set that to one of "
            "STATIC_TOKEN, OAUTHBEARER, OAUTHBEARER_AZURE_IMDS.",
        ),
        (
            URL | {"bearer.auth.credentials.source": "CUSTOM"},
            "bearer.auth.credentials.source: there is no such source of tokens; sources are STATIC_TOKEN, ",
        ),
        (
            URL | {key: value for key, value in BEARER.items() if key != "bearer.auth.scope"},
            "bearer.auth.credentials.source: OAUTHBEARER needs bearer.auth.scope; set it.",
        ),
        (
            URL | {key: value for key, value in STATIC.items() if not key.endswith("cluster")},
            "bearer.auth.credentials.source: STATIC_TOKEN needs bearer.auth.logical.cluster; set it.",
        ),
        (
            URL | {key: value for key, value in AZURE.items() if not key.endswith("query")},
            "bearer.auth.credentials.source: OAUTHBEARER_AZURE_IMDS needs bearer.auth.issuer.endpoint.query; set it.",
        ),
        (
            URL | STATIC | {"bearer.auth.scope": "x"},
            "bearer.auth.scope: bearer.auth.credentials.source = STATIC_TOKEN does not use it; remove it.",
        ),
        (
            URL | {"cache.capacity": "5"},
            "cache.capacity: each schema id is asked for once and kept; remove it.",
        ),
    ],
    ids=lambda value: value.partition(";")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_option(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        checked(options)
    assert caught.value.message.startswith(sentence)
    assert caught.value.facts["key"] == sentence.partition(":")[0]
    assert "hush" not in caught.value.message
    with pytest.raises(BadConfig, match=r"^\[schema_registries.plant\]: "):
        SchemaRegistry(options, name="plant")


def test_every_option_of_the_client_is_one_of_ours_or_refused_with_its_reason() -> None:
    """Its class says in its docstring which there are."""
    documented = {
        word.strip("`")
        for word in (SchemaRegistryClient.__doc__ or "").split()
        if word.startswith("``") and word.endswith("``")
    }
    ours = {*registry_options._OPTIONS, *registry_options._WITHOUT_EFFECT}
    assert (
        {"url", "ssl.ca.location", "max.retries"} < documented <= ours | {"username:password"}
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("THERMOCLINE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "thermocline.toml"


def test_settings_have_registries_and_show_no_secret(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_text(
        f'{WELL}[schema_registry]\nurl = ["http://alice:hush@a:8081", "http://b"]\nmax.retries = 2\n'
        '[schema_registries.plant]\nurl = "http://c"\nproxy = "http://bob:hush@proxy:1"\n'
    )
    monkeypatch.setenv("THERMOCLINE_SCHEMA_REGISTRIES__PLANT__BASIC_AUTH_USER_INFO", "eve:hush")
    assert load(str(site)).registries == {
        "": {"url": "http://alice:hush@a:8081,http://b", "max.retries": "2"},
        "plant": {
            "url": "http://c",
            "proxy": "http://bob:hush@proxy:1",
            "basic.auth.user.info": "eve:hush",
        },
    }
    assert "hush" not in repr(load(str(site)))
    result = CliRunner().invoke(command, ["show", "--json"], obj=str(site))
    printed = {key: item["value"] for key, item in json.loads(result.stdout).items()}
    mask = "********"
    assert {k: v for k, v in printed.items() if k.startswith("schema_")} == {
        "schema_registry.url": f"http://{mask}@a:8081,http://b",
        "schema_registry.max.retries": "2",
        "schema_registries.plant.url": "http://c",
        "schema_registries.plant.proxy": f"http://{mask}@proxy:1",
        "schema_registries.plant.basic.auth.user.info": mask,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[schema_registry]\nurll = "http://a"\n',
            "{site}: schema_registry.urll: unknown option of schema registries; did you mean url?",
        ),
        (
            '[schema_registries.plant]\nurl = "http://a"\ntimeout = "soon"\n',
            "{site}: schema_registries.plant.timeout: it is no number; write one, 0 or more.",
        ),
        (
            '[schema_registries."two words"]\nurl = "http://a"\n',
            "{site}: schema_registries.two words: its name has other characters than letters, digits, _ and -; "
            "rename it.",
        ),
    ],
    ids=["option", "value", "name"],
)
def test_settings_with_a_mistake_in_a_registry_do_not_load(
    site: Path, text: str, problem: str
) -> None:
    site.write_text(WELL + text)
    with pytest.raises(BadConfig) as caught:
        load(str(site))
    assert caught.value.message == problem.format(site=site)


def test_the_grace_time_of_unknown_ids_is_a_setting(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_text(
        f'{WELL}[schema_registry]\nurl = "http://a"\nunknown_id_grace_s = 3\n'
        '[schema_registries.plant]\nurl = "http://c"\n'
    )
    monkeypatch.setenv("THERMOCLINE_SCHEMA_REGISTRIES__PLANT__UNKNOWN_ID_GRACE_S", "0.5")
    sections = load(str(site)).registries
    assert [each["unknown_id_grace_s"] for each in sections.values()] == ["3", "0.5"]


def test_the_client_is_loaded_by_who_asks_a_registry_alone() -> None:
    """It takes half a second."""
    program = (
        "import sys, thermocline.commands.serve, thermocline.commands.doctor, thermocline.commands.tier\n"
        "import connectors.registry.registries, connectors.registry.texts\n"
        "print(*(name for name in ('confluent_kafka.schema_registry', 'httpx2', 'authlib') if name in sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""

"""Settings: where each came from, what is refused and with which hint, and that no secret is ever shown."""

from __future__ import annotations

import json
import pickle
import re
import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.errors import BadConfig
from thermocline.commands.config import command
from thermocline.config.masking import MASK, Options, is_secret, masked
from thermocline.config.settings import Server, Settings, load, own_sections
from thermocline.config.sources import SECTIONS, read

EXAMPLE = Path(__file__).parents[2] / "thermocline.example.toml"
WELL = """
[catalogs.lake]
type = "rest"
uri = "https://catalog.example"
warehouse = "s3://lake"
[kafka]
"bootstrap.servers" = "b:9092"
"""
#: One credential for each option that can hold one; the option must not be printed with it.
CREDENTIALS = {
    "catalogs.lake": (
        "token",
        "credential",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.sse.key-secret",
        "adls.account-key",
        "adls.sas-token",
        "adls.connection-string",
        "adls.client-secret",
        "gcs.oauth2.token",
        "glue.secret-access-key",
        "client.session-token",
        "header.Authorization",
        "header.X-Iceberg-Whatever",
        "hf.token",
    ),
    "kafka": (
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ),
    "tier.conf": (
        "spark.hadoop.fs.s3a.secret.key",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.sql.catalog.lake.jdbc.password",
    ),
    "server.users": ("alice", "bob"),
}
PRINTED = (
    *("s3.access-key-id", "s3.endpoint", "oauth2-server-uri", "token-refresh-enabled"),
    *("sasl.username", "sasl.mechanism", "ssl.ca.location", "ssl.key.location", "type"),
    *("sasl.oauthbearer.token.endpoint.url", "bootstrap.servers", "client.region"),
)


def written(folder: Path, text: str) -> str:
    file = folder / "thermocline.toml"
    file.write_text(text)
    return str(file)


def run(*arguments: str, config: str) -> Result:
    return CliRunner().invoke(command, arguments, obj=config)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("THERMOCLINE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_example_is_the_defaults_and_has_every_key() -> None:
    settings, text = load(str(EXAMPLE)), EXAMPLE.read_text()
    for section, model in own_sections().items():
        assert getattr(settings, section) == model(), section
        body = text.split(f"\n[{section}]")[1].split("\n[")[0]
        for key in model.model_fields:
            assert f"{key} = " in body or f"[{section}.{key}]" in text, (section, key)


@pytest.fixture
def example_in_full(tmp_path: Path) -> str:
    """The example with its commented lines in force."""
    lines = [
        line.removeprefix("# ") if line.startswith(("# ", '# "')) and " = " in line else line
        for line in EXAMPLE.read_text().splitlines()
        if not line.startswith("# A variable")
    ]
    return written(tmp_path, "\n".join(lines))


def test_every_section_is_known_to_variables_and_shown(example_in_full: str) -> None:
    assert set(Settings.model_fields) <= SECTIONS
    document = json.loads(run("show", "--json", config=example_in_full).stdout)
    assert {key.split(".")[0] for key in document} == set(Settings.model_fields)


def test_the_commented_lines_of_the_example_are_settings_too(example_in_full: str) -> None:
    settings = load(example_in_full)
    assert settings.server.users.keys() == {"alice"}
    assert settings.server.threads == 4
    assert settings.clusters.keys() == {"", "plant"}


def test_a_cluster_has_a_name_that_topics_can_be_told_with(tmp_path: Path) -> None:
    config = written(
        tmp_path, f'{WELL}[kafka_clusters."two words"]\n"bootstrap.servers" = "b:1"\n'
    )
    with pytest.raises(BadConfig, match="its name has other characters than letters"):
        load(config)


def test_variables_name_properties_of_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_KAFKA_CLUSTERS__PLANT__SASL_PASSWORD", "hush")
    monkeypatch.setenv("THERMOCLINE_KAFKA_CLUSTERS__PLANT__BOOTSTRAP_SERVERS", "b:1")
    config = written(tmp_path, WELL)
    assert load(config).kafka_clusters["plant"] == {
        "bootstrap.servers": "b:1",
        "sasl.password": "hush",
    }
    assert "hush" not in run("show", config=config).stdout


def test_a_mistake_in_a_cluster_is_found_in_its_section(tmp_path: Path) -> None:
    text = '[kafka_clusters.plant]\n"bootstrap.servers" = "b:1"\n"isolation.level" = "x"\n'
    document = json.loads(run("check", "--json", config=written(tmp_path, WELL + text)).stdout)
    assert [p["key"] for p in document["problems"]] == ["kafka_clusters.plant.isolation.level"]


def test_a_variable_wins_over_the_file_and_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path, f"{WELL}[server]\nport = 5\nmax_streams = 7\n")
    monkeypatch.setenv("THERMOCLINE_SERVER__PORT", "6")
    server = load(config).server
    assert (server.port, server.max_streams, server.max_tail_rows) == (6, 7, 5_000_000)
    document = json.loads(run("show", "--json", config=config).stdout)
    assert document["server.port"] == {"value": 6, "from": "$THERMOCLINE_SERVER__PORT"}
    assert document["server.max_streams"] == {"value": 7, "from": config}
    assert document["server.host"] == {"value": "127.0.0.1", "from": "default"}
    assert document["catalogs.lake.uri"]["from"] == config
    plain = run("show", config=config).stdout
    assert "$THERMOCLINE_SERVER__PORT" in plain
    assert re.search(r"max_streams +7 +file\b", plain)


def test_variables_alone_make_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CATALOGS__LAKE__TYPE": "sql",
        "CATALOGS__LAKE__URI": "sqlite:////lake/catalog.db",
        "CATALOGS__LAKE__S3__SECRET_ACCESS_KEY": "hush",
        "CATALOGS__LAKE__oauth2-server-uri": "https://a.example",
        "KAFKA__BOOTSTRAP_SERVERS": "b:9092",
        "KAFKA__SASL__PASSWORD": "hush",
        "SERVER__STORAGE_ROOTS": '["s3://a", "s3://b"]',
        "SERVER__USERS__ALICE": "hush",
        "TIER__CONF__SPARK_DRIVER_MEMORY": "4g",
    }.items():
        monkeypatch.setenv(f"THERMOCLINE_{name}", value)
    settings = load()
    assert settings.catalogs["lake"] == {
        "type": "sql",
        "uri": "sqlite:////lake/catalog.db",
        "s3.secret-access-key": "hush",
        "oauth2-server-uri": "https://a.example",
    }
    assert settings.kafka == {"bootstrap.servers": "b:9092", "sasl.password": "hush"}
    assert settings.server.storage_roots == ("s3://a", "s3://b")
    assert settings.server.users["alice"].get_secret_value() == "hush"
    assert settings.tier.conf == {"spark.driver.memory": "4g"}


def test_vendor_names_may_be_written_without_quotes(tmp_path: Path) -> None:
    config = written(tmp_path, "[kafka]\nbootstrap.servers = ['a:1', 'b:2']\nssl.x = true\n")
    assert load(config).kafka == {"bootstrap.servers": "a:1,b:2", "ssl.x": "true"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[server]\nprot = 1", "{}: server.prot: unknown key; did you mean port?"),
        ("[servr]\nport = 1", "{}: servr: unknown key; did you mean server?"),
        (
            "[tier]\nstorage_roots = 1",
            "{}: tier.storage_roots: unknown key; did you mean server.storage_roots?",
        ),
        ("[tier]\nport = 1", "{}: tier.port: unknown key; did you mean http_port?"),
        (
            "[server]\nzzz = 1",
            f"{{}}: server.zzz: unknown key; known keys are {', '.join(Server.model_fields)}.",
        ),
        (
            "[server]\nport = 70000",
            "{}: server.port: input should be less than or equal to 65535; correct the value, "
            "or leave the key out.",
        ),
        (
            "[catalogs.other]\ntype = 'sqll'",
            "{}: catalogs.other.type: there is no catalog type 'sqll'; types are rest, sql, hive, "
            "glue, dynamodb, bigquery.",
        ),
        (
            "[catalogs.other]\nwarehouse = 's3://x'",
            "{}: catalogs.other: it names no type of catalog; set type to one of rest, sql, hive, "
            "glue, dynamodb, bigquery.",
        ),
        (
            "[catalogs.other]\ntype = 'hive'",
            "{}: catalogs.other.uri: a hive catalog needs an address; set uri.",
        ),
        (
            "[catalogs.other]\ntype = 'sql'\nuri = 'sqlite://'",
            "{}: catalogs.other.uri: a catalog in memory is another one in every process; use "
            'type = "sql" with a file, as in uri = "sqlite:////var/lib/thermocline/catalog.db".',
        ),
        (
            "[catalogs.other]\ntype = 'glue'",
            "{}: catalogs.other.type: the client for glue catalogs is not installed; pip install "
            "'pyiceberg[glue]'.",
        ),
    ],
)
def test_a_mistake_is_told_with_its_file_and_its_remedy(
    line: str, sentence: str, tmp_path: Path
) -> None:
    config = written(tmp_path, f"{WELL}{line}\n")
    expected = sentence.format(config)
    with pytest.raises(BadConfig) as caught:
        load(config)
    assert caught.value.message == expected
    checked = run("check", config=config)
    assert checked.exit_code == 2
    assert expected in checked.stdout


def test_a_variable_that_names_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOCLINE_SERVER__PROT", "1")
    with pytest.raises(BadConfig) as caught:
        load()
    assert caught.value.message == (
        "$THERMOCLINE_SERVER__PROT: server.prot: unknown key; did you mean port?"
    )


def test_one_underscore_too_few_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOCLINE_SERVER_PORT", "1")
    with pytest.raises(BadConfig, match=r"did you mean THERMOCLINE_SERVER__PORT\?$"):
        load()


def test_every_problem_is_listed_and_loading_says_how_many_more_there_are(
    tmp_path: Path,
) -> None:
    config = written(tmp_path, f"{WELL}[server]\nprot = 1\nthreads = 0\n[tier]\nmastre = 'x'\n")
    document = json.loads(run("check", "--json", config=config).stdout)
    assert document["ok"] is False
    assert {p["key"] for p in document["problems"]} == {
        "server.prot",
        "server.threads",
        "tier.mastre",
    }
    assert all(p["what"] and p["fix"] and p["from"] for p in document["problems"])
    with pytest.raises(BadConfig, match=r"2 more: `thermocline config check` lists all"):
        load(config)


def test_what_only_a_command_would_find_is_checked_too(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        '[catalogs.a]\ntype = "rest"\nuri = "https://c.example"\n"s3.endpoint" = "store:9000"\n'
        '[kafka]\n"bootstrap.servers" = "b:1"\n"isolation.level" = "x"\n'
        '[server]\nhost = "0.0.0.0"\n[cold]\ncache_dir = "/tmp"\n',
    )
    document = json.loads(run("check", "--json", config=config).stdout)
    result = {(p["severity"], p["key"]): p for p in document["problems"]}
    assert result.keys() == {
        ("warning", "catalogs.a"),  # no warehouse
        ("warning", "cold.cache_dir"),  # of an earlier version
        ("error", "catalogs.a.s3.endpoint"),
        ("error", "kafka.isolation.level"),
        ("error", "access"),
    }
    assert result["error", "catalogs.a.s3.endpoint"]["what"] == "it is not a URL"
    assert result["error", "kafka.isolation.level"]["from"] == config
    assert result["error", "kafka.isolation.level"]["fix"] == "remove it"


def test_good_settings_pass(tmp_path: Path) -> None:
    result = run("check", config=written(tmp_path, WELL))
    assert (result.exit_code, "fine" in result.stdout) == (0, True)


@pytest.mark.parametrize("name", ["absent.toml", "broken.toml", "latin.toml"])
def test_a_file_that_cannot_be_read_is_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text('[kafka]\n"sasl.password" = hush-hush\n')
    (tmp_path / "latin.toml").write_bytes(b'a = "\xfcber"\n')
    file = str(tmp_path / name)
    with pytest.raises(BadConfig) as caught:
        load(file)
    assert caught.value.message.startswith(file)
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert run("check", config=file).exit_code == 2


@pytest.mark.parametrize(
    ("section", "key"), [(s, k) for s, keys in CREDENTIALS.items() for k in keys]
)
def test_a_credential_is_never_printed(section: str, key: str, tmp_path: Path) -> None:
    text = f'{WELL}[server]\n[tier]\n[{section}]\n"{key}" = "hush-hush"\n'
    if section in ("catalogs.lake", "kafka"):
        text = WELL.replace(f"[{section}]", f'[{section}]\n"{key}" = "hush-hush"')
    config = written(tmp_path, text)
    settings = load(config)
    items = Options(settings.catalogs["lake"]), settings.kafka, settings.tier.conf
    outputs = [
        *(
            repr(settings),
            str(settings),
            str(settings.model_dump()),
            settings.model_dump_json(),
        ),
        *(repr(item) for item in items),
        *(f"{item}" for item in items),
        run("show", config=config).stdout,
        run("show", "--json", config=config).stdout,
        run("check", config=config).output,
    ]
    assert not [text for text in outputs if "hush" in text]
    assert MASK in outputs[-2]
    # And none in an error about something else in the same file.
    Path(config).write_text(f"{text}\n[nonsense]\nx = 1\n")
    with pytest.raises(BadConfig) as caught:
        load(config)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_a_credential_in_the_wrong_place_is_not_printed_either(tmp_path: Path) -> None:
    for text in ('[server]\nport = "hush"', '[server]\npassword = "hush"', 'kafka = "hush"'):
        config = written(tmp_path, text)
        with pytest.raises(BadConfig) as caught:
            load(config)
        assert "hush" not in "".join(traceback.format_exception(caught.value))
        assert "hush" not in run("check", config=config).output


@pytest.mark.parametrize("key", PRINTED)
def test_what_is_no_credential_is_shown(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("postgresql+psycopg2://u:p@db:5432/x", f"postgresql+psycopg2://{MASK}@db:5432/x"),
        ("postgresql://u:p%40q@db/x?password=z&a=b", f"postgresql://{MASK}@db/x?password={MASK}&a=b"),
        ("https://catalog.example/a@b", "https://catalog.example/a@b"),
        ("sqlite:////lake/catalog.db", "sqlite:////lake/catalog.db"),
    ],
)  # fmt: skip
def test_credentials_in_an_address_are_masked(value: str, expected: str) -> None:
    assert masked("uri", value) == expected


def test_options_travel_as_the_dict_they_are() -> None:
    options = Options({"sasl.password": "x"})
    assert type(pickle.loads(pickle.dumps(options))) is dict
    assert pickle.loads(pickle.dumps(options)) == {"sasl.password": "x"}


def test_settings_made_in_code_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOCLINE_SERVER__PORT", "1")
    assert Settings().server.port == 31337
    assert read(None).origin("server.port") is not None


DEEP = {
    "lists": f"a = {'[' * 5_000}{']' * 5_000}",
    "lists without an end": f"a = {'[' * 5_000}",
    "tables": f"a = {'{a = ' * 5_000}1{'}' * 5_000}",
    "names": f"{'.'.join(['a'] * 5_000)} = 1",
    "a section": f"[{'.'.join(['a'] * 5_000)}]",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_whatever_is_nested_is_refused_by_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text(text)
    said = f"{file}: nested more than 32 levels deep; settings need fewer."
    with pytest.raises(BadConfig) as refused:
        load(str(file))
    assert refused.value.message == said
    checked = CliRunner().invoke(command, ["check"], obj=str(file))
    assert (checked.exit_code, "Traceback" in checked.output) == (2, False)
    assert "nested more than 32 levels deep" in checked.output


def test_whatever_a_variable_nests_is_refused_by_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("SERVER__PORT", "[" * 5_000), ("__".join(["A"] * 5_000), "1")):
        with monkeypatch.context() as one:
            one.setenv(f"THERMOCLINE_{name}", value)
            with pytest.raises(BadConfig, match="nested more than 32 levels deep"):
                load()


def test_brackets_within_a_text_are_no_nesting(tmp_path: Path) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text(f'{WELL}"client.id" = """\n{"[" * 5_000}\n"""\n')
    assert load(str(file)).kafka["client.id"].startswith("[[[")


def test_logins_that_only_python_knows_are_refused(tmp_path: Path) -> None:
    text = '[catalogs.lake]\nuri = "https://c.example"\nwarehouse = "s3://a/b"\n"auth.type" = "oauth2"\n'
    with pytest.raises(BadConfig, match=r"auth\.type: it is known to pyiceberg alone"):
        load(written(tmp_path, text))


def test_a_bundle_of_certificates_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = '[catalogs.lake]\nuri = "https://c.example"\nwarehouse = "s3://a/b"\n"ssl.cabundle" = "/no/ca.pem"\n'
    with pytest.raises(
        BadConfig, match=r"catalogs\.lake\.ssl\.cabundle: there is no such file"
    ):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ('[kafka]\n"bootstrap.servers" = "b:1"\n', {""}),
        ('[kafka_clusters.plant]\n"bootstrap.servers" = "b:1"\n', {"plant"}),
    ],
)
def test_clusters_are_those_that_are_configured(
    tmp_path: Path, text: str, names: set[str]
) -> None:
    settings = load(written(tmp_path, text))
    assert settings.clusters.keys() == names
    if names:
        assert settings.require_clusters() == settings.clusters
    else:
        with pytest.raises(
            BadConfig, match=r"bootstrap\.servers is missing; set it in the section \[kafka\]\."
        ):
            settings.require_clusters()

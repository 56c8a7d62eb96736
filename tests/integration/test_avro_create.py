"""Tables of Avro records behind a real schema registry: ``create``, and the schemas that come after (``schemas``)."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField
from pyiceberg.catalog import load_catalog

from connectors.decoding.registry import decoder_for
from connectors.iceberg.store import IcebergStore
from connectors.kafka.log import KafkaLog
from connectors.registry.decoders import Decoders
from connectors.registry.registries import SchemaRegistries
from planner.errors import SchemaRegistryChanged, UndecodableRecord
from planner.evolution.ledger import SCHEMAS, SchemaLedger
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import Pin
from planner.seam.formats import SCHEMA_FIXED, AvroFormat
from tests.fixtures.commands import CliSite
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import ApicurioRegistry
from tests.fixtures.server import sqlite_catalog

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def flow(*fields: tuple[str, Any], name: str = "Flow") -> str:
    items = [{"name": field, "type": kind} for field, kind in fields]
    schema = {"type": "record", "name": name, "namespace": "net", "fields": items}
    return json.dumps(schema, separators=(",", ":"))


FIRST = flow(("src", "string"), ("bytes", "int"), ("gone", "null"))
WIDER = flow(("src", "string"), ("bytes", "long"), ("port", ["null", "int"]))
JSON_SCHEMA = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'


@dataclass
class Site:
    """A configuration with a registry, a topic and its table ``lake.net.flows``."""

    cli: CliSite
    kafka: Kafka
    registry: ApicurioRegistry
    topic: str

    @property
    def subject(self) -> str:
        return f"{self.topic}-value"

    @property
    def table(self) -> TableName:
        return TableName("lake", ("net",), "flows")

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        """Exit code, and what it says; ``TOPIC`` stands for the topic, ``#`` for ids of schemas."""
        code, out, err = self.cli.run(*arguments)
        text = (out + err).replace(self.topic, "TOPIC")
        return code, re.sub(r"schema id \d+", "schema id #", text).splitlines()

    def create(self, *options: str) -> tuple[int, list[str]]:
        return self.run("create", "lake.net.flows", "--topic", self.topic, *options)

    def schemas(self, *words: str) -> tuple[int, list[str]]:
        return self.run("schemas", words[0], "lake.net.flows", *words[1:])

    def produce(self, text: str, *values: Any, has_id: bool = True) -> None:
        """Write values of a schema, which is registered."""
        records = self.registry.serialized(self.topic, text, values)
        self.kafka.produce(self.topic, [record if has_id else record[5:] for record in records])

    def pin(self) -> Pin:
        catalogs = {"lake": sqlite_catalog(self.cli.config.parent)}
        with closing(IcebergStore(catalogs)) as store:
            return store.pin(self.table)

    def format(self) -> AvroFormat:
        pin = self.pin()
        assert pin.binding is not None
        assert isinstance(pin.binding.format, AvroFormat)
        return pin.binding.format

    def rows(self) -> list[dict[str, Any]]:
        """The topic's records as rows of the table, by the decoder of both sides."""
        pin = self.pin()
        assert pin.binding is not None
        sections = {"": {"url": self.registry.url}}
        with SchemaRegistries(sections) as registries, KafkaLog(self.kafka.settings) as log:
            decoder = Decoders(registries.of)(str(self.table), pin.schema, pin.binding)
            [bounds] = log.measure([self.topic])[self.topic].partitions
            ranges = [OffsetRange(0, bounds.log_start, bounds.log_end)]
            source = TopicSource.of(decoder, self.topic)
            batches = log.fetch(source, ranges, timeout_s=30)
            rows = [row for batch in batches for row in decoder.decode(batch).rows.to_pylist()]
        return [
            {key: value for key, value in row.items() if not key.startswith("kafka_")}
            for row in rows
        ]


def site_of(cli: CliSite, kafka: Kafka, registry: ApicurioRegistry) -> Site:
    with cli.config.open("a") as file:
        file.write(f'[schema_registry]\nurl = "{registry.url}"\n')
    return Site(cli, kafka, registry, kafka.topic(1))


@pytest.fixture
def site(cli_site: CliSite, kafka: Kafka, schema_registry: ApicurioRegistry) -> Site:
    return site_of(cli_site, kafka, schema_registry)


def test_columns_come_from_the_newest_version_with_the_first_ledger(site: Site) -> None:
    site.registry.register(site.subject, flow(("src", "string")))
    site.produce(FIRST, {"src": "a", "bytes": 7, "gone": None})
    assert site.create("--format", "avro") == (
        0,
        [
            "created lake.net.flows over topic TOPIC; it starts at offsets 0: 0",
            "  src  string  from TOPIC-value:2 (schema id #)",
            "  bytes  int32  from TOPIC-value:2 (schema id #)",
            "no column: field gone: it holds no values",
        ],
    )
    assert site.rows() == [{"src": "a", "bytes": 7}]
    form = site.format()
    assert form.evolution == "additive"
    assert len(form.ledger.fingerprints) == 1
    assert site.schemas("show") == (
        0,
        ["schema id #  TOPIC-value:2  net.Flow  same"],
    )
    assert site.schemas("plan") == (0, ["TOPIC-value:1 (schema id #): nothing to change"])


def test_exceptions_are_said_with_the_columns(site: Site) -> None:
    text = flow(
        ("Id", "long"), ("id", "int"), ("at", "long"), ("kafka_offset", "int"), ("no", "int")
    )
    site.registry.register(site.subject, text)
    code, lines = site.create("--format", "avro", "--leave-out", "no")
    assert code == 0
    assert lines[-3:] == [
        "no column: field no: left out by --leave-out",
        "no column: field id: its name differs from another one's in case only, which SQL does not tell apart; to have "
        "one: --rename id=id_2",
        "no column: field kafka_offset: its name is one of the metadata columns'; to have one: --rename "
        "kafka_offset=kafka_offset_2",
    ]
    values = {"Id": 1, "id": 2, "at": 3, "kafka_offset": 4, "no": 5}
    site.produce(text, values)
    options = "--leave-out no --rename id=id_2 --epoch at=ms --rename kafka_offset=from_offset"
    more = "--column", "id_2:decimal(20,0)", "--column", "note:string", "--replace"
    assert site.create("--format", "avro", *options.split(), *more)[1][1:] == [
        "  Id  int64  from TOPIC-value:1 (schema id #)",
        "  id_2  decimal128(20, 0)  from field id of TOPIC-value:1 (schema id #), its type from --column",
        "  at  timestamp[us, tz=UTC]  from TOPIC-value:1 (schema id #)",
        "  from_offset  int32  from field kafka_offset of TOPIC-value:1 (schema id #)",
        "  note  string  from --column: TOPIC-value:1 has no such field",
        "no column: field no: left out by --leave-out",
    ]
    [row] = site.rows()
    assert (row["Id"], int(row["id_2"]), row["at"].timestamp(), row["from_offset"]) == (
        1,
        2,
        0.003,
        4,
    )


def test_a_fixed_schema_is_pinned_to_its_number(site: Site) -> None:
    site.produce(FIRST, {"src": "a", "bytes": 7, "gone": None}, has_id=False)
    options = "--format", "avro", "--schema", f"{site.subject}:latest", "--schema-fixed"
    assert site.create(*options)[0] == 0
    site.registry.register(site.subject, flow(("other", "string"), name="Other"))
    assert site.format().properties[SCHEMA_FIXED] == f"{site.subject}:1"
    assert site.rows() == [{"src": "a", "bytes": 7}]
    assert site.schemas("show") == (0, ["fixed schema  TOPIC-value:1  net.Flow  same"])
    assert site.schemas("plan") == (
        0,
        ["lake.net.flows: the ledger has every version of its subject."],
    )


def test_records_of_a_union_become_rows_by_their_name(site: Site) -> None:
    other = flow(("why", "string"), name="Other")
    site.registry.register(site.subject, f"[{FIRST}, {other}]")
    site.produce(f"[{FIRST}, {other}]", ("net.Other", {"why": "a"}))
    site.produce(f"[{FIRST}, {other}]", ("net.Flow", {"src": "b", "bytes": 1, "gone": None}))
    assert site.create("--format", "avro", "--record", "net.Other") == (
        0,
        [
            "created lake.net.flows over topic TOPIC; it starts at offsets 0: 0",
            "  why  string  from TOPIC-value:1 (schema id #)",
        ],
    )
    assert site.rows() == [{"why": "a"}]
    assert site.schemas("plan")[1] == [
        "lake.net.flows: the ledger has every version of its subject."
    ]


def test_a_schema_that_is_no_record_is_one_column(site: Site) -> None:
    site.produce('"string"', "text")
    assert site.create("--format", "avro")[1][1:] == [
        "  value  string  from TOPIC-value:1 (schema id #)",
        "TOPIC-value:1 is no record: its values are the column value",
    ]
    assert site.rows() == [{"value": "text"}]


def test_infer_recognises_schema_ids(site: Site) -> None:
    site.produce(FIRST, {"src": "a", "bytes": 7, "gone": None})
    code, lines = site.create("--infer", "--leave-out", "bytes")
    assert (code, lines[1:]) == (
        0,
        [
            "  src  string  from TOPIC-value:1 (schema id #)",
            "records are Avro with schema ids, such as " + lines[2].split()[-1],
            "no column: field bytes: left out by --leave-out",
            "no column: field gone: it holds no values",
        ],
    )
    assert site.rows() == [{"src": "a"}]
    assert site.create("--infer", "--replace", "--json-mode", "strict") == (
        2,
        ["thermocline: --json-mode means nothing for records of Avro; leave it out."],
    )


def test_infer_finds_the_subject_of_the_ids(site: Site) -> None:
    other = f"{site.topic}-net.Flow"
    schema_id = site.registry.register(other, FIRST)
    site.kafka.produce(site.topic, [b"\0" + schema_id.to_bytes(4) + b"\2a\x0e"])
    assert site.create("--infer") == (
        2,
        [
            "thermocline: the registry has no subject TOPIC-value; records have schema id #: --schema TOPIC-net.Flow:1."
        ],
    )
    assert site.create("--infer", "--schema", f"{other}:1")[0] == 0
    assert site.rows() == [{"src": "a", "bytes": 7}]
    # The versions of that subject are the table's.
    site.registry.register(other, WIDER)
    assert site.schemas("plan") == (
        0,
        [
            "TOPIC-net.Flow:2 (schema id #):",
            "  widen bytes from int to long",
            "  add port int",
        ],
    )


def test_without_a_registry_it_is_said_what_records_look_like(
    cli_site: CliSite, kafka: Kafka, schema_registry: ApicurioRegistry
) -> None:
    site = Site(cli_site, kafka, schema_registry, kafka.topic(1))
    site.produce(FIRST, {"src": "a", "bytes": 7, "gone": None})
    said = "  1 of 1 samples do not decode, the first at partition 0, offset 0: this looks like Avro with schema id #"
    first = "thermocline: no table was made over topic TOPIC:"
    assert site.create("--infer") == (
        2,
        [first, f"{said}: configure [schema_registry], with url, and create the table then"],
    )
    assert site.create("--format", "avro") == (
        2,
        [
            "thermocline: --format avro takes columns from a schema registry, and the settings have no [schema_registry]; "
            "add it, with url."
        ],
    )
    with cli_site.config.open("a") as file:
        file.write(f'[schema_registries.plant]\nurl = "{schema_registry.url}"\n')
    assert site.create("--infer") == (2, [first, f"{said}: --registry plant"])
    assert site.create("--infer", "--registry", "plant")[0] == 0
    assert site.format().registry == "plant"


def test_what_is_wrong_is_named_in_a_sentence(site: Site) -> None:
    def refused(*options: str) -> str:
        code, [line] = site.create(*options)
        assert code == 2
        return line.removeprefix("thermocline: ")

    avro = "--format", "avro"
    named = "name one with --schema SUBJECT[:VERSION]."
    assert refused(*avro) == f"the registry has no subject TOPIC-value; {named}"
    site.registry.register(site.subject, FIRST)
    assert refused(*avro, "--schema", f"{site.subject}:7") == (
        "the registry has no subject TOPIC-value, version 7; its versions are 1."
    )
    assert refused(*avro, "--schema", "none-of-it:7") == (
        "the registry has no subject none-of-it, version 7; name another subject with --schema SUBJECT[:VERSION]."
    )
    site.registry.register(f"{site.topic}-json", JSON_SCHEMA, "JSON")
    assert refused(*avro, "--schema", f"{site.topic}-json") == (
        "subject TOPIC-json, version 1 (schema id #) is of the type JSON, and records of Avro alone are read from behind "
        "a registry; name another version with --schema SUBJECT:VERSION."
    )
    assert refused(*avro, "--record", "net.Other") == (
        "--record net.Other: TOPIC-value:1 has net.Flow; name the schema of that record with --schema SUBJECT[:VERSION]."
    )
    assert refused("--format", "json", "--column", "a:string", "--record", "x") == (
        "--record means nothing for records of JSON; it goes with --format avro."
    )
    assert refused("--column", "a:string", "--schema-fixed") == (
        "--schema-fixed means nothing for records of JSON; it goes with --format avro."
    )
    assert refused("--column", "a:string", "--registry", "eu") == (
        "--registry means nothing for records of JSON; it goes with --format avro or --key-format avro."
    )


def test_a_table_follows_the_versions_of_its_subject(site: Site) -> None:
    site.produce(FIRST, {"src": "a", "bytes": 7, "gone": None})
    assert site.create("--format", "avro")[0] == 0
    with site.registry.client() as client:
        client.set_compatibility(site.subject, "NONE")
    site.produce(WIDER, {"src": "b", "bytes": 2**40, "port": 53})
    third = flow(
        ("src", "string"),
        ("port", ["null", "long"]),
        ("tags", {"type": "array", "items": "int"}),
    )
    site.registry.register(site.subject, third)
    second_lines = [
        "TOPIC-value:2 (schema id #):",
        "  widen bytes from int to long",
        "  add port int",
    ]
    third_lines = [
        "TOPIC-value:3 (schema id #):",
        "  widen port from int to long",
        "  add tags list<int>",
    ]
    before = site.pin().metadata_location
    assert site.schemas("plan") == (0, [*second_lines, *third_lines])
    assert site.pin().metadata_location == before
    assert site.schemas("evolve") == (0, [*second_lines, *third_lines])
    nothing = ["lake.net.flows: the ledger has every version of its subject."]
    assert site.schemas("evolve") == (0, nothing)
    assert site.schemas("plan", "--json")[1][-2:] == ['  "schemas": []', "}"]
    assert site.rows() == [
        {"src": "a", "bytes": 7, "port": None, "tags": None},
        {"src": "b", "bytes": 2**40, "port": 53, "tags": None},
    ]
    assert [line.partition("  ")[2] for line in site.schemas("show")[1]] == [
        f"TOPIC-value:{version}  net.Flow  same" for version in (1, 2, 3)
    ]
    # What fits no column stops at that schema, which is in no ledger then.
    site.registry.register(site.subject, flow(("src", "int")))
    assert site.schemas("plan") == (
        0,
        [
            "TOPIC-value:4 (schema id #):",
            "  does not fit: field src is int, and its column string",
        ],
    )
    code, [line] = site.schemas("evolve")
    assert (code, line[:60]) == (
        6,
        "thermocline: lake.net.flows: schema id # (net.Flow) does not",
    )
    assert len(site.format().ledger.fingerprints) == 3


def test_keys_are_read_by_the_one_schema_of_their_subject(site: Site) -> None:
    text = flow(("id", "int"), ("shop", ["null", "string"]), name="Key")
    value = {"id": 7, "shop": "a"}
    [key] = site.registry.serialized(site.topic, text, [value], MessageField.KEY)
    keyed = "--column", "n:long", "--key-format", "avro"
    site.kafka.produce(site.topic, [b'{"n":1}', b'{"n":2}'], keys=[key, None])
    assert site.create(*keyed) == (
        0,
        [
            "created lake.net.flows over topic TOPIC; it starts at offsets 0: 0",
            "  key  struct<id: int32, shop: string>  from keys, by TOPIC-key:1 (schema id #)",
            "  n  int64",
        ],
    )
    assert site.rows() == [{"key": {"id": 7, "shop": "a"}, "n": 1}, {"key": None, "n": 2}]
    # Nothing asks the registry for it any more, and a later version is another schema.
    pinned = site.pin()
    assert pinned.binding is not None
    decoder = decoder_for("t", pinned.schema, pinned.binding)
    assert "kafka_key" in decoder.reads
    site.kafka.produce(
        site.topic, [b'{"n":3}'], keys=[key[:4] + bytes([key[4] ^ 0xFF]) + key[5:]]
    )
    with pytest.raises(UndecodableRecord, match="is not that of the table's keys"):
        site.rows()
    other = "--replace", "--key-schema", f"{site.topic}-key:7"
    assert site.create(*keyed, *other) == (
        2,
        ["thermocline: the registry has no subject TOPIC-key, version 7; its versions are 1."],
    )


def test_ids_in_headers_are_refused_by_name(site: Site) -> None:
    site.registry.register(site.subject, FIRST)
    site.registry.register(f"{site.topic}-key", '"string"')
    for side, name, options in (
        ("value", "__value_schema_id", ("--format", "avro")),
        ("key", "apicurio.key.globalId", ("--column", "a:long", "--key-format", "avro")),
    ):
        site.kafka.produce(
            site.topic, [b"\2a\2"], keys=[b"\2a"], headers=[("other", b"1"), (name, b"\1" * 17)]
        )
        assert site.create(*options) == (
            2,
            [
                f"thermocline: records of topic TOPIC have the id of their {side}'s schema in the header {name}, which is not "
                f"read; have their producer write it in front of the {side}, as serializers do by default."
            ],
        )
    # Other formats take such records.
    assert site.create("--format", "raw", "--key-format", "raw")[0] == 0


def test_other_tables_have_no_schemas(site: Site) -> None:
    assert site.create("--column", "a:string")[0] == 0
    assert site.schemas("show") == (
        2,
        [
            "thermocline: lake.net.flows: its records are not Avro, so it has no schemas of writers."
        ],
    )
    assert site.schemas("accept", "--yes")[0] == 2


def test_a_registry_that_was_replaced_is_accepted_by_a_person(site: Site) -> None:
    site.produce(FIRST, {"src": "a", "bytes": 7, "gone": None})
    assert site.create("--format", "avro", "--leave-out", "bytes")[0] == 0
    assert site.schemas("accept", "--yes") == (
        2,
        [
            "thermocline: lake.net.flows: the registry has the schemas of before under all ids of the ledger; there is "
            "nothing to accept."
        ],
    )
    # As if another schema had been there when records were tiered.
    [schema_id] = site.format().ledger.fingerprints
    catalog = load_catalog("lake", **sqlite_catalog(site.cli.config.parent))
    with closing(catalog), catalog.load_table("net.flows").transaction() as transaction:
        transaction.set_properties({SCHEMAS: SchemaLedger({schema_id: f"1:{0:032x}"}).text})
    before = site.pin()
    assert site.schemas("show") == (0, ["schema id #  TOPIC-value:1  net.Flow  changed"])
    for word in ("plan", "evolve"):
        assert site.schemas(word) == (
            0,
            ["schema id # has changed, so the table answers SchemaRegistryChanged"],
        )
    with pytest.raises(SchemaRegistryChanged):
        site.rows()
    code, lines = site.schemas("accept")
    assert (code, lines[:2]) == (
        130,
        [
            "lake.net.flows: the registry has other schemas than when records were tiered:",
            "  schema id # is net.Flow",
        ],
    )
    assert before.watermark is not None
    assert site.pin().watermark == before.watermark
    code, lines = site.schemas("accept", "--yes", "--json")
    assert code == 0
    document = json.loads("\n".join(lines))
    del document["run"]
    assert document == {"table": "lake.net.flows", "ids": [schema_id], "era": 1}
    after = site.pin()
    assert after.watermark is not None
    assert after.binding is not None
    assert after.watermark.shape == after.binding.shape != before.watermark.shape
    assert after.watermark.next == before.watermark.next
    assert site.format().ledger == SchemaLedger({}, 1)
    # Its schema is taken up as that of a new id, with all its fields.
    code, lines = site.schemas("evolve")
    assert (code, lines[:2]) == (0, ["TOPIC-value:1 (schema id #):", "  add bytes int"])
    assert site.format().ledger.era == 1
    assert site.schemas("show")[1] == ["schema id #  TOPIC-value:1  net.Flow  same"]
    assert site.rows() == [{"src": "a", "bytes": 7}]


def test_a_ledger_is_shown_while_the_registry_is_away(site: Site) -> None:
    site.registry.register(site.subject, FIRST)
    assert site.create("--format", "avro")[0] == 0
    text = site.cli.config.read_text()
    site.cli.config.write_text(text.replace(site.registry.url, "http://127.0.0.1:1"))
    code, [row, said] = site.schemas("show")
    assert (code, row) == (0, "schema id #  not asked")
    assert said.startswith("thermocline: the schema registry ")
    code, [said] = site.schemas("plan")
    assert (code, said[:33]) == (3, "thermocline: the schema registry ")

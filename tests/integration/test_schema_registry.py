"""A real schema registry: what it says of ids and subjects, what is gone, and what an outage leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from confluent_kafka.schema_registry import Schema

from connectors.registry.client import SchemaRegistry
from connectors.registry.texts import Format, UnknownSchema, WriterText
from planner.errors import SchemaRegistryUnavailable
from planner.evolution.avro import parse_schema
from tests.fixtures.schema_registry import ApicurioRegistry, running_schema_registry
from tests.harness.clock import Clock
from tests.harness.scripted_registry import by_id
from thermocline.config.settings import Settings
from thermocline.doctor.findings import ok
from thermocline.doctor.systems import registries

pytestmark = pytest.mark.timeout(300)


def record(name: str, *fields: tuple[str, str]) -> str:
    items = [{"name": field, "type": kind} for field, kind in fields]
    schema = {"type": "record", "name": name, "namespace": "n", "fields": items}
    # Apicurio takes white space out of some schemas, and not of those with references.
    return json.dumps(schema, separators=(",", ":"))


@pytest.fixture
def registry(schema_registry: ApicurioRegistry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry({"url": schema_registry.url}) as registry:
        yield registry


def test_two_versions_of_a_subject_by_id_and_by_version(
    schema_registry: ApicurioRegistry, registry: SchemaRegistry
) -> None:
    subject = "two/versions ü-value"
    texts = [record("Two", ("a", "int")), record("Two", ("a", "long"))]
    ids = [schema_registry.register(subject, text) for text in texts]
    of_ids = registry.by_ids(ids, timeout_s=10)
    assert of_ids == {
        schema_id: WriterText(schema_id, text, {}, "AVRO")
        for schema_id, text in zip(ids, texts, strict=True)
    }
    assert registry.versions(subject, timeout_s=10) == {1: ids[0], 2: ids[1]}
    for version, schema_id in enumerate(ids, start=1):
        assert registry.by_subject(subject, version, timeout_s=10) == of_ids[schema_id]
    assert registry.subject_versions_of(ids[1], timeout_s=10) == ((subject, 2),)
    subjects = registry.subjects(timeout_s=10)
    assert subject in subjects
    options = {"url": schema_registry.url}
    assert list(registries(Settings(schema_registry=options))) == [
        ok("schema registry", f"answers, {len(subjects)} subjects")
    ]


def test_what_a_registry_does_not_have_is_answered_as_unknown(registry: SchemaRegistry) -> None:
    unknown = UnknownSchema("subject no-such-value")
    assert registry.versions("no-such-value", timeout_s=10) == unknown
    assert registry.by_subject("no-such-value", 3, timeout_s=10) == UnknownSchema(
        "subject no-such-value, version 3"
    )
    assert registry.subject_versions_of(90_000, timeout_s=10) == UnknownSchema(
        "schema id 90000"
    )


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_references_two_levels_deep_come_in_the_order_they_need_each_other(
    kind: Format, schema_registry: ApicurioRegistry, registry: SchemaRegistry
) -> None:
    if kind == "AVRO":
        inner, middle = record("Inner", ("a", "int")), record("Middle", ("i", "n.Inner"))
        outer = record("Outer", ("m", "n.Middle"), ("i", "n.Inner"))
        names = ["n.Inner", "n.Middle"]
    else:
        head = 'syntax = "proto3";\n'
        inner = f"{head}message Inner {{ int32 a = 1; }}\n"
        middle = f'{head}import "inner.proto";\nmessage Middle {{ Inner i = 1; }}\n'
        outer = f'{head}import "middle.proto";\nmessage Outer {{ Middle m = 1; }}\n'
        names = ["inner.proto", "middle.proto"]
    schema_registry.register(f"{kind}-inner", inner, kind)
    schema_registry.register(f"{kind}-middle", middle, kind, [(names[0], f"{kind}-inner", 1)])
    outer_id = schema_registry.register(
        f"{kind}-outer", outer, kind, [(names[1], f"{kind}-middle", 1)]
    )
    answer = by_id(registry, outer_id, timeout_s=10)
    assert answer == WriterText(outer_id, outer, {names[0]: inner, names[1]: middle}, kind)
    assert isinstance(answer, WriterText)
    assert list(answer.references) == names


def test_an_id_names_a_text_and_a_fingerprint_a_schema(
    schema_registry: ApicurioRegistry, registry: SchemaRegistry
) -> None:
    """Apicurio throws the text of a schema away that it holds for an old one; normalized it is one more id."""
    text = record("Named", ("a", "int"))
    schema_id = schema_registry.register("named-value", text)
    loaded = json.loads(text)
    for same in (
        json.dumps(loaded, indent=2),
        json.dumps(dict(reversed(loaded.items()))),
        json.dumps({**loaded, "doc": "said later"}),
        json.dumps({**loaded, "aliases": ["Before"]}),
        text.replace('"int"', '{"type": "int"}'),
    ):
        assert schema_registry.register("named-value", same) == schema_id
    assert by_id(registry, schema_id, timeout_s=10) == WriterText(schema_id, text, {}, "AVRO")
    with schema_registry.client() as client:
        normal_id = client.register_schema("named-value", Schema(text), normalize_schemas=True)
    answers = registry.by_ids([schema_id, normal_id], timeout_s=10).values()
    fingerprints = {
        parse_schema(each.text).fingerprint for each in answers if isinstance(each, WriterText)
    }
    assert len(fingerprints) == 1
    others = [
        text.replace('"int"', '{"type": "int", "logicalType": "date"}'),
        json.dumps({**loaded, "fields": [{**loaded["fields"][0], "default": 0}]}),
    ]
    for other in others:
        other_id = schema_registry.register("named-value", other)
        assert other_id not in (schema_id, normal_id)
        fingerprints.add(parse_schema(other).fingerprint)
    assert len(fingerprints) == 3


def test_one_text_with_other_references_is_another_schema(
    schema_registry: ApicurioRegistry, registry: SchemaRegistry
) -> None:
    for version, kind in enumerate(("int", "long"), start=1):
        schema_registry.register("point-value", record("Point", ("x", kind)))
        versions = registry.versions("point-value", timeout_s=10)
        assert isinstance(versions, dict)
        assert version in versions
    outer = record("Outer", ("at", "n.Point"))
    ids = [
        schema_registry.register(
            "outer-value", outer, references=[("n.Point", "point-value", at)]
        )
        for at in (1, 2)
    ]
    assert ids[0] != ids[1]
    answers = [by_id(registry, each, timeout_s=10) for each in ids]
    texts = [each for each in answers if isinstance(each, WriterText)]
    assert [each.text for each in texts] == [outer, outer]
    first, second = (parse_schema(each.text, each.references).fingerprint for each in texts)
    assert first != second


def test_deleted_softly_it_is_read_by_id_and_version_and_not_listed(
    schema_registry: ApicurioRegistry, registry: SchemaRegistry
) -> None:
    first, second = record("Soft", ("a", "int")), record("Soft", ("a", "long"))
    ids = [schema_registry.register("soft-value", text) for text in (first, second)]
    with schema_registry.client() as client:
        client.delete_version("soft-value", 2)
    answer = WriterText(ids[1], second, {}, "AVRO")
    assert by_id(registry, ids[1], timeout_s=10) == answer
    assert registry.by_subject("soft-value", 2, timeout_s=10) == answer
    assert registry.versions("soft-value", timeout_s=10) == {1: ids[0]}
    # The same text again: the old id, and a number that was never used.
    assert schema_registry.register("soft-value", second) == ids[1]
    assert registry.versions("soft-value", timeout_s=10) == {1: ids[0], 3: ids[1]}
    # So is it after all of them were deleted.
    with schema_registry.client() as client:
        client.delete_subject("soft-value")
    assert schema_registry.register("soft-value", second) == ids[1]
    versions = registry.versions("soft-value", timeout_s=10)
    assert isinstance(versions, dict)
    assert list(versions.values()) == [ids[1]]
    assert min(versions) > 3


def test_a_copy_with_the_ids_of_before_gets_new_ones(
    schema_registry: ApicurioRegistry, registry: SchemaRegistry
) -> None:
    """Outside its import mode a registry passes over the id that a registration names, without a word."""
    text = record("Copied", ("a", "int"))
    answer = httpx2.post(
        f"{schema_registry.url}/subjects/copied-value/versions",
        json={"schema": text, "id": 80_000, "version": 5},
    )
    own = answer.json()["id"]
    assert own != 80_000
    assert registry.versions("copied-value", timeout_s=10) == {1: own}
    unknown = UnknownSchema("schema id 80000")
    assert registry.subject_versions_of(80_000, timeout_s=10) == unknown


def test_deleted_for_good_it_is_unknown_until_it_is_registered_again(
    schema_registry: ApicurioRegistry,
) -> None:
    text = record("Hard", ("a", "int"))
    schema_id = schema_registry.register("hard-value", text)
    with schema_registry.client() as client:
        client.delete_subject("hard-value")
        client.delete_subject("hard-value", permanent=True)
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    options = {"url": schema_registry.url}
    with SchemaRegistry(options, clock=clock, sleep=sleep) as registry:
        unknown = UnknownSchema(f"schema id {schema_id}")
        assert by_id(registry, schema_id, timeout_s=60) == unknown
        assert schema_registry.register("hard-value", text) == schema_id
        # Ids that do not exist are in records again and again: one request in ten seconds.
        clock.now += 9
        assert by_id(registry, schema_id, timeout_s=60) == unknown
        clock.now += 1
        assert by_id(registry, schema_id, timeout_s=60) == WriterText(
            schema_id, text, {}, "AVRO"
        )


def test_an_id_that_comes_within_the_grace_time_was_never_unknown(
    schema_registry: ApicurioRegistry,
) -> None:
    clock = Clock()
    text = record("Late", ("a", "int"))
    next_id = schema_registry.register("late-before", record("Before", ("a", "int"))) + 1

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now >= 1007 and late_ids == []:
            late_ids.append(schema_registry.register("late-value", text))

    late_ids: list[int] = []
    options = {"url": schema_registry.url}
    with SchemaRegistry(options, clock=clock, sleep=sleep) as registry:
        answer = by_id(registry, next_id, timeout_s=60)
        assert late_ids == [next_id]
        assert answer == WriterText(next_id, text, {}, "AVRO")
        # A call whose time is over before that says neither.
        with pytest.raises(
            SchemaRegistryUnavailable,
            match=r"^the schema registry does not know schema id 90000 yet; retry in 10 s\.$",
        ):
            by_id(registry, 90_000, timeout_s=4)


def test_known_ids_outlive_the_registry_and_a_new_one_gives_their_numbers_to_others(
    tmp_path: Path,
) -> None:
    first, second = record("First", ("a", "int")), record("Second", ("b", "string"))
    with running_schema_registry(tmp_path) as apicurio:
        schema_id = apicurio.register("first-value", first)
        options = {"url": apicurio.url, "max.retries": "1", "retries.wait.ms": "10"}
        with SchemaRegistry(options, name="plant") as registry:
            answer = WriterText(schema_id, first, {}, "AVRO")
            assert by_id(registry, schema_id, timeout_s=10) == answer
            apicurio.stop()
            assert by_id(registry, schema_id, timeout_s=10) == answer
            for ask in (
                lambda: by_id(registry, schema_id + 1, timeout_s=10),
                lambda: registry.versions("first-value", timeout_s=10),
            ):
                with pytest.raises(
                    SchemaRegistryUnavailable,
                    match=r"^the schema registry plant does not answer \(ConnectError\); retry when it does\.$",
                ):
                    ask()
            apicurio.start()
            assert apicurio.register("second-value", second) == schema_id
            other = record("Other", ("c", "int"))
            other_id = apicurio.register("other-value", other)
            # The outage was not kept; what was answered before it is.
            assert by_id(registry, other_id, timeout_s=10) == WriterText(
                other_id, other, {}, "AVRO"
            )
            assert by_id(registry, schema_id, timeout_s=10) == answer
        with SchemaRegistry(options) as registry:
            assert by_id(registry, schema_id, timeout_s=10) == WriterText(
                schema_id, second, {}, "AVRO"
            )

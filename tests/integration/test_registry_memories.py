"""What processes remember of a registry that is replaced while they run, and how often they ask it (scripted registry)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NewTable, create_table
from connectors.registry.client import SchemaRegistry
from connectors.registry.decoders import Decoders, shipped_decoder
from connectors.registry.facts import SchemaReports
from connectors.registry.following import LOOK_S, SchemaFollower
from connectors.registry.registries import SchemaRegistries
from connectors.registry.shipping import SchemaShipping, Shipment
from connectors.registry.subjects import followed, lacking
from planner.errors import (
    BadConfig,
    SchemaRegistryChanged,
    SchemaRegistryUnavailable,
    UndecodableRecord,
)
from planner.evolution.avro import parse_schema
from planner.evolution.ledger import SCHEMAS, UNKNOWN, UNREADABLE, SchemaLedger
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding, decoding_key
from planner.seam.formats import AvroFormat
from planner.seam.schemas_table import SchemaFacts, schema_rows
from planner.seam.watermark import Outcomes
from tests.doubles.evolving_table import EvolvingTable
from tests.fixtures.spark import first_watermark
from tests.harness.avro_decoder import framed, raw_batch
from tests.harness.clock import Clock
from tests.harness.scripted_registry import Reply, ScriptedRegistry, missing, scripted_registry
from thermocline.commands.schemas import command

ONE, TWO, LATE = (TableName("lake", ("shop",), name) for name in ("one", "two", "late"))
SCHEMA = TableSchema(1, (Column(1, "id", pa.int64()), Column(2, "name", pa.string())))


def text(*fields: tuple[str, str]) -> str:
    members = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": members})


OLD, NEW = text(("id", "long")), text(("name", "string"))
OLD_MARK, NEW_MARK = (parse_schema(each).fingerprint for each in (OLD, NEW))


def bound(ledger: dict[int, str], era: int = 0) -> Binding:
    return Binding("orders", AvroFormat(ledger=SchemaLedger(ledger, era), evolution="additive"))


@dataclass
class Site:
    """``texts`` are the schemas by id, ``subjects`` the versions of each subject with their ids."""

    texts: dict[int, str] = field(default_factory=dict)
    subjects: dict[str, dict[int, int]] = field(default_factory=dict)
    #: What it answers, whatever is asked: 200, as it should.
    status: int = 200
    scripted: ScriptedRegistry = field(init=False)
    registries: SchemaRegistries = field(init=False)

    def answer(self, path: str) -> Reply:
        if self.status != 200:
            return Reply(status=self.status)
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.texts:
                return Reply({"schema": self.texts[int(number)]})
            case ["schemas", "ids", number, "versions"]:
                return Reply(
                    [
                        {"subject": subject, "version": version}
                        for subject, versions in self.subjects.items()
                        for version, each in versions.items()
                        if each == int(number)
                    ]
                )
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return Reply(sorted(self.subjects[subject]))
            case ["subjects", subject, "versions", version]:
                schema_id = self.subjects[subject][int(version)]
                return Reply({"id": schema_id, "schema": self.texts[schema_id]})
        return missing()

    def requests(self) -> list[str]:
        paths = [path.strip("/") for path in self.scripted.paths]
        self.scripted.paths.clear()
        return paths


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site({7: OLD}, {"orders-value": {1: 7}})
    with ExitStack() as stack:
        site.scripted = stack.enter_context(scripted_registry(site.answer))
        site.registries = stack.enter_context(
            SchemaRegistries({"": {"url": site.scripted.url}})
        )
        yield site


def row(decoders: Decoders, table: TableName, binding: Binding, raw: bytes) -> list[object]:
    decoded = decoders(str(table), SCHEMA, binding).decode(raw_batch(raw))
    return [tuple(each.values()) for each in decoded.rows.to_pylist()]


def test_a_new_era_of_a_table_asks_again_and_other_tables_have_what_they_had(
    site: Site,
) -> None:
    decoders = Decoders(site.registries.of)
    old, new = framed(7, b"\2"), framed(7, b"\2x")
    for table in (ONE, TWO):
        assert row(decoders, table, bound({7: OLD_MARK}), old) == [(1, None)]
    site.texts[7] = NEW
    # A person accepted it for one table: in its new era the id is as that of a new schema.
    for _ in range(2):
        assert row(decoders, ONE, bound({}, 1), new) == [(None, "x")]
        assert row(decoders, TWO, bound({7: OLD_MARK}), old) == [(1, None)]
    decoders.check(str(ONE), bound({7: NEW_MARK}, 1))
    # A table that was made since knows the new registry alone, and one that was tiered by it stops.
    assert row(decoders, LATE, bound({7: NEW_MARK}), new) == [(None, "x")]
    with pytest.raises(SchemaRegistryChanged, match=r"^lake\.shop\.two: .* under id 7 than"):
        row(decoders, TWO, bound({7: NEW_MARK}), old)
    assert site.requests() == ["schemas/ids/7"] * 4


def test_a_table_that_was_made_anew_by_its_name_asks_again(site: Site) -> None:
    """Dropped together with its registry's data, and made again on a server that runs."""
    decoders = Decoders(site.registries.of)
    before, after = (replace(bound({}), table_uuid=each) for each in ("1", "2"))
    table = EvolvingTable(SCHEMA, before)
    follower = SchemaFollower(site.registries.of, table.commit)
    assert row(decoders, ONE, before, framed(7, b"\2")) == [(1, None)]
    assert follower.shipment(ONE, replace(bound({7: OLD_MARK}), table_uuid="1")).fingerprints
    site.texts[7] = NEW
    assert row(decoders, ONE, after, framed(7, b"\2x")) == [(None, "x")]
    shipment = follower.shipment(ONE, replace(bound({7: NEW_MARK}), table_uuid="2"))
    assert shipment.fingerprints == {7: NEW_MARK}
    # Of the ids that records had, each table has its own.
    assert decoders.answers(str(ONE), before) != decoders.answers(str(ONE), after)
    assert decoders.met(str(ONE), replace(after, table_uuid="3")) == frozenset()


def test_a_new_era_of_a_table_follows_the_versions_of_the_new_registry(site: Site) -> None:
    clock = Clock()
    table = EvolvingTable(SCHEMA, bound({}))
    follower = SchemaFollower(site.registries.of, table.commit, clock=clock)
    follower.follow(ONE, bound({}))
    assert json.loads(table.properties[SCHEMAS]) == {"7": OLD_MARK}
    assert list(follower.shipment(ONE, bound({7: OLD_MARK})).answers) == [7]
    # In the new registry version 1 of the subject is another id, and id 7 another schema.
    site.texts, site.subjects = {7: NEW, 9: NEW}, {"orders-value": {1: 9}}
    table.properties[SCHEMAS] = SchemaLedger({}, 1).text
    clock.now += LOOK_S
    follower.follow(ONE, bound({}, 1))
    assert json.loads(table.properties[SCHEMAS]) == {"9": NEW_MARK, "era": "1"}
    assert follower.take_up(ONE, bound({9: NEW_MARK}, 1), [7]).facts["ids"] == "7"
    assert json.loads(table.properties[SCHEMAS])["7"] == NEW_MARK


def test_a_tierer_follows_the_subjects_that_plan_shows_and_asks_each_now_and_then(
    site: Site,
) -> None:
    """Named by record: <topic>-<record>, as the registry's other strategies do."""
    site.texts |= {8: NEW, 9: NEW}
    site.subjects = {"orders-Order": {1: 7, 2: 8}, "other": {1: 7}}
    binding = bound({7: OLD_MARK})
    table, clock = EvolvingTable(SCHEMA, binding), Clock()
    assert isinstance(binding.format, AvroFormat)
    with SchemaRegistry({"url": site.scripted.url}) as registry:
        plan = lacking(followed(registry, binding, binding.format), binding, binding.format)
    assert list(map(str, plan)) == ["orders-Order:2 (schema id 8)"]
    site.requests()
    follower = SchemaFollower(site.registries.of, table.commit, look_s=3600, clock=clock)
    follower.follow(ONE, binding)
    assert sorted(json.loads(table.properties[SCHEMAS])) == ["7", "8"]
    first = site.requests()
    assert [
        first.count(f"subjects/{each}/versions") for each in ("orders-value", "orders-Order")
    ] == [1, 1]
    # Another table of the topic asks for the ids of its own ledger, and no subject again; nor does a look too soon.
    again = bound({7: OLD_MARK, 8: NEW_MARK})
    assert follower.follow(ONE, again) is None
    assert follower.follow(TWO, again) == ()
    assert not [
        path for path in site.requests() if path.endswith("/versions") and "subjects" in path
    ]
    clock.now += 3600
    assert follower.follow(ONE, again) == ()
    assert site.requests() == ["schemas/ids/8/versions"]


def test_plan_and_evolve_know_a_dropped_column_whose_schema_is_gone(
    site: Site, tmp_path: Path
) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    binding = bound({7: OLD_MARK})
    columns = [Column(0, "id", pa.int64()), Column(0, "note", pa.string())]
    first = first_watermark(0, binding=binding)
    create_table({"lake": catalog}, NewTable(ONE, columns, binding), first)
    with (
        closing(Catalogs({"lake": catalog})) as catalogs,
        catalogs.load(ONE).update_schema() as update,
    ):
        update.delete_column("note")
    config = tmp_path / "thermocline.toml"
    registry = {"url": site.scripted.url, "unknown_id_grace_s": "1"}
    with config.open("w") as file:
        for section, options in (("catalogs.lake", catalog), ("schema_registry", registry)):
            file.write(f"[{section}]\n")
            file.writelines(f'{key} = "{value}"\n' for key, value in options.items())
    site.texts[8] = text(("id", "long"), ("note", "string"), ("port", "int"))
    site.subjects = {"orders-value": {2: 8}}
    del site.texts[7]
    planned = "orders-value:2 (schema id 8):\n  add port int\n"
    reason = "a schema of before had it, too, and its column was dropped"
    answers = []
    for action in ("plan", "evolve", "plan"):
        result = CliRunner().invoke(command, [action, str(ONE)], obj=str(config))
        assert result.exit_code == 0, result.output
        answers.append(result.stdout)
    changed = "schema id 7 has changed, so the table answers SchemaRegistryChanged\n"
    step = f"{planned}  left out: field note: {reason}\n{changed}"
    assert answers == [step, step, changed]


def test_a_subject_that_cannot_be_told_silences_no_other_table(site: Site) -> None:
    site.subjects = {"billing": {1: 7}, "returns": {1: 7}}
    table = EvolvingTable(SCHEMA, bound({7: OLD_MARK}))
    follower = SchemaFollower(site.registries.of, table.commit)
    with pytest.raises(BadConfig, match=r"under several others \(billing, returns\)"):
        follower.follow(ONE, bound({7: OLD_MARK}))
    site.subjects["orders-value"] = {1: 7}
    assert follower.follow(TWO, bound({7: OLD_MARK})) == ()


def test_an_id_that_the_ledger_has_as_unknown_is_a_bad_record_on_both_sides(site: Site) -> None:
    """Whatever the registry has by now: nobody asks it."""
    binding = replace(bound({7: UNKNOWN}), on_error="skip")
    raw = raw_batch(framed(7, b"\2"))
    decoded = Decoders(site.registries.of)(str(ONE), SCHEMA, binding).decode(raw)
    task = shipped_decoder(str(ONE), SCHEMA, binding).decode(raw)
    assert [decoded.outcomes, task.outcomes] == [Outcomes(skipped=1)] * 2
    assert (task.needs, site.requests()) == (frozenset(), [])
    # When it is taken up, rows change: cuts of before end by name, and tails are read anew.
    later = replace(bound({7: OLD_MARK}), on_error="skip")
    assert decoding_key(SCHEMA, binding) != decoding_key(SCHEMA, later)
    assert binding.shape == later.shape


def test_a_schema_that_cannot_be_read_is_asked_for_so_its_reason_is_the_same(
    site: Site,
) -> None:
    site.texts[7] = "[]"
    for ledger in ({}, {7: UNREADABLE}):
        decoders = Decoders(site.registries.of)
        with pytest.raises(UndecodableRecord) as refused:
            decoders(str(ONE), SCHEMA, bound(ledger)).decode(raw_batch(framed(7, b"\2")))
        assert "schema id 7 cannot be read: " in str(refused.value.facts["reason"])
    assert decoders.writers(str(ONE), bound({})).fingerprints == {7: UNREADABLE}


def test_an_id_that_a_ledger_has_a_schema_of_is_asked_for_again(site: Site) -> None:
    """Unknown when this process met it, and taken up by a tierer since."""
    text = site.texts.pop(7)
    decoders = Decoders(
        SchemaRegistries({"": {"url": site.scripted.url, "unknown_id_grace_s": "1"}}).of
    )
    decoder = decoders(str(ONE), SCHEMA, replace(bound({}), on_error="skip"))
    raw = raw_batch(framed(7, b"\2"))
    assert decoder.decode(raw).outcomes == Outcomes(skipped=1)
    assert not decoders.check(str(ONE), bound({}))
    site.texts[7] = text
    assert decoders.check(str(ONE), bound({7: OLD_MARK}))
    assert not decoders.check(str(ONE), bound({7: OLD_MARK}))
    assert decoder.decode(raw).outcomes == Outcomes(rows=1)


@pytest.mark.parametrize("status", [401, 500], ids=["its login is refused", "it is away"])
def test_tables_that_need_no_schema_are_tiered_all_the_same(status: int, site: Site) -> None:
    site.status = status
    table = EvolvingTable(SCHEMA, bound({7: OLD_MARK}))
    follower = SchemaFollower(site.registries.of, table.commit, timeout_s=1)
    assert follower.shipment(ONE, table.binding) == Shipment()
    site.status = 200
    assert follower.shipment(TWO, table.binding) == Shipment()


def test_requests_and_failures_of_a_registry_are_counted(site: Site) -> None:
    assert site.registries.states() == ()
    decoders = Decoders(site.registries.of, timeout_s=1)
    binding = bound({})
    decoders.ask(str(ONE), binding, [7])
    (state,) = site.registries.states()
    assert (state.name, state.requests, state.failures) == ("", 1, 0)
    site.status = 500
    with pytest.raises(SchemaRegistryUnavailable):
        decoders.ask(str(TWO), binding, [7])
    (later,) = site.registries.states()
    assert later.failures == later.requests - 1 > 0
    assert later.silent_s > state.silent_s
    assert decoders.counts() == {str(ONE): 1, str(TWO): 1}


def test_ids_that_a_registry_lacks_hide_nothing_of_others(site: Site) -> None:
    """By settings of today, whose grace time is longer than a statement waits for facts."""
    site.texts[8] = NEW
    binding = bound({3: UNKNOWN, 5: OLD_MARK, 7: OLD_MARK, 8: OLD_MARK})
    reports = SchemaReports(site.registries.of, Decoders(site.registries.of))
    rows = [tuple(each.values()) for each in schema_rows(binding, reports(ONE, binding))]
    assert rows == [
        (3, None, None, None, "unknown", None),
        (5, None, None, None, "changed", None),
        (7, "orders-value", 1, "Order", "same", None),
        (8, None, None, "Order", "changed", None),
    ]


def test_facts_from_before_a_registry_went_away_are_said(site: Site) -> None:
    binding = bound({7: OLD_MARK, 8: NEW_MARK})
    reports = SchemaReports(site.registries.of, Decoders(site.registries.of))
    order = SchemaFacts(7, OLD_MARK, "Order", (("orders-value", 1),))
    assert reports(ONE, bound({7: OLD_MARK})) == [order]
    site.status = 503
    assert reports(ONE, binding) == [order, SchemaFacts(8)]


def test_what_is_shipped_waits_for_no_id_that_may_be_in_no_record(site: Site) -> None:
    """By settings of today: the grace time is for records that have such an id."""
    binding = bound({5: OLD_MARK, 7: OLD_MARK})
    shipping = SchemaShipping(site.registries.of)
    for answers in (shipping.of_ledger(ONE, binding).answers, shipping.of_tail(ONE, binding)):
        assert list(answers) == [7]
    paths = site.requests()
    assert [paths.count(f"schemas/ids/{each}") for each in (5, 7)] == [1, 1]

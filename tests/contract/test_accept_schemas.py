"""A registry that was replaced, accepted by a person: ledger and watermark in one commit, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.repairs import AcceptingSchemas, RepairCommitter
from planner.errors import BadBinding, BadParameter, ShapeMismatch, TieringConflict
from planner.evolution.ledger import UNKNOWN, SchemaLedger
from planner.seam.binding import Binding
from planner.seam.cut import Pin
from planner.seam.formats import AvroFormat
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.doubles.amending import MemoryRepairCommitter
from tests.fixtures.cold import ColdHarness, IcebergCold, MemoryCold
from tests.harness.builders import BINDING, FLOWS, bounds, watermark

BEFORE = SchemaLedger({1: "1:a", 2: "1:b", 3: UNKNOWN})
AVRO = Binding("flows", AvroFormat(ledger=BEFORE))
#: Of today's registry: 2 is another schema, 3 has come.
TODAY = {1: "1:a", 2: "1:other", 3: "1:c"}


def bound(cold: ColdHarness, binding: Binding = AVRO) -> RepairCommitter:
    cold.create(binding=binding, first=watermark(4, 0, shape=binding.shape))
    if isinstance(cold, IcebergCold):
        return IcebergRepairCommitter(cold.properties, sleep=lambda _: None)
    return MemoryRepairCommitter(cast("MemoryCold", cold).store)


def decision(ids: Mapping[int, str] = TODAY) -> AcceptingSchemas:
    def today(binding: Binding) -> Mapping[int, str]:
        assert isinstance(binding.format, AvroFormat)
        return {at: ids[at] for at in binding.format.ledger.fingerprints}

    return AcceptingSchemas(today)


def ledger(pin: Pin) -> SchemaLedger:
    assert pin.binding is not None
    assert isinstance(pin.binding.format, AvroFormat)
    return pin.binding.format.ledger


def accept(committer: RepairCommitter, decide: AcceptingSchemas) -> None:
    committer.amend(FLOWS, decide, decide.properties)


def test_ids_that_mean_something_else_begin_anew(cold: ColdHarness) -> None:
    committer = bound(cold)
    before = cold.store.pin(FLOWS)
    accept(committer, decision())
    after = cold.store.pin(FLOWS)
    assert ledger(after) == SchemaLedger({1: "1:a", 3: UNKNOWN}, 1)
    assert after.watermark is not None
    assert before.watermark is not None
    assert after.binding is not None
    assert after.watermark.shape == after.binding.shape != before.watermark.shape
    assert after.watermark.next == before.watermark.next
    assert plan_tiering(after, bounds((0, 9), (0, 9)), TieringBudget()).offsets == 14


def test_the_ledger_alone_is_not_enough(cold: ColdHarness) -> None:
    bound(cold)
    cold.set_properties(schemas=SchemaLedger({}, 1).text)
    with pytest.raises(ShapeMismatch):
        plan_tiering(cold.store.pin(FLOWS), bounds((0, 9), (0, 9)), TieringBudget())


@pytest.mark.parametrize("era", [0, 2])
def test_a_property_that_is_no_ledger_begins_anew_above_the_era_of_the_rows(
    era: int, cold: ColdHarness
) -> None:
    committer = bound(cold, Binding("flows", AvroFormat(ledger=SchemaLedger({1: "1:a"}, era))))
    cold.set_properties(schemas="{")
    with pytest.raises(BadBinding, match="thermocline schemas accept"):
        cold.store.pin(FLOWS)
    accept(committer, decision())
    assert ledger(cold.store.pin(FLOWS)) == SchemaLedger({}, era + 1)


def test_a_ledger_of_a_newer_program_is_left_to_that(cold: ColdHarness) -> None:
    committer = bound(cold)
    cold.set_properties(schemas='{"1":"1:a","2":"2:b"}')
    for attempt in (lambda: accept(committer, decision()), lambda: cold.store.pin(FLOWS)):
        with pytest.raises(
            BadBinding, match="has schema id 2 by rule 2, and this program goes"
        ):
            attempt()


def test_a_ledger_that_is_another_than_the_one_looked_at_stays(cold: ColdHarness) -> None:
    committer = bound(cold)
    decide = decision()
    committer.look(FLOWS, decide)
    cold.set_properties(schemas=BEFORE.with_schemas({4: "1:d"}).text)
    with pytest.raises(TieringConflict, match="is not the one that was shown any more"):
        accept(committer, decide)
    assert ledger(cold.store.pin(FLOWS)).fingerprints == {**BEFORE.fingerprints, 4: "1:d"}


@pytest.mark.parametrize(
    ("binding", "ids", "disturb", "why"),
    [
        (AVRO, {1: "1:a", 2: "1:b", 3: "1:c"}, {}, "there is nothing to accept"),
        (AVRO, TODAY, {"on_error": "skip"}, "or run `thermocline shape accept"),
        (BINDING, TODAY, {}, "its records are not Avro"),
    ],
)
def test_what_is_not_accepted(
    binding: Binding,
    ids: Mapping[int, str],
    disturb: dict[str, str],
    why: str,
    cold: ColdHarness,
) -> None:
    committer = bound(cold, binding)
    cold.set_properties(**disturb)
    before = cold.store.pin(FLOWS)
    decide = AcceptingSchemas(lambda _: ids)
    with pytest.raises(BadParameter, match=why):
        accept(committer, decide)
    assert cold.store.pin(FLOWS) == before

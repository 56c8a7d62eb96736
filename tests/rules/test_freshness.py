"""How new an answer is: contracts, the past, and what is waited for. Real statements over the doubles."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from connectors.bounds_cache import BoundsCache
from connectors.cuts import WaitFor, current_cuts
from planner.errors import (
    BadParameter,
    CutExpired,
    FederationError,
    LogUnavailable,
    NotYetCommitted,
    UnsupportedStatement,
)
from planner.names import TableName
from planner.schema import Column
from planner.seam.freshness import parse_wait_for
from proxy.session import Deadline
from tests.harness.asking import bag
from tests.harness.flows import PLACES, places, tier, write, written
from tests.harness.lake import FLOWS, Lake
from tests.harness.ledger import Place
from tests.harness.records import GOOD
from tests.harness.serving import SESSION

WHOLE = "SELECT * FROM flows"
KINDS = TableName("lake", ("net",), "kinds")


@pytest.fixture
def measured(lake_in_memory: Lake) -> list[str]:
    """One item for every round of measuring from here on."""
    rounds: list[str] = []
    lake_in_memory.before = lambda step: rounds.append(step) if step == "measure" else None
    return rounds


def plain_table(lake_in_memory: Lake, *kinds: str) -> None:
    """A table without a topic, each row in a snapshot of its own."""
    lake_in_memory.store.create(KINDS, [Column(0, "kind", pa.string())])
    for kind in kinds:
        lake_in_memory.store.append(KINDS, pa.table({"kind": [kind]}))


def below(*ends: int) -> Counter[Place]:
    return Counter((at, offset) for at, end in enumerate(ends) for offset in range(end))


def cut_of(lake_in_memory: Lake, sql: str = PLACES, **request: Any) -> str:
    planned = lake_in_memory.statements.plan(
        replace(SESSION, **request), sql, None, Deadline(60)
    )
    return planned.app_metadata.decode()


def outcome(lake_in_memory: Lake, sql: str, **request: str) -> Counter[Place] | FederationError:
    try:
        return places(lake_in_memory.ask(sql, **request))
    except FederationError as error:
        return error


# --- contracts ---


def test_cold_reads_what_iceberg_holds_and_asks_no_broker(
    lake_in_memory: Lake, measured: list[str]
) -> None:
    lake_in_memory.log.stop()
    assert places(lake_in_memory.ask(PLACES, freshness="cold")) == below(3)
    assert measured == []
    lake_in_memory.log.start()
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)


def test_tail_reads_what_iceberg_does_not_hold(lake_in_memory: Lake) -> None:
    assert places(lake_in_memory.ask(PLACES, freshness="tail")) == written(
        lake_in_memory
    ) - below(3)


@pytest.mark.parametrize("freshness", ["cold", "tail"])
def test_a_side_that_is_named_is_that_side_under_every_contract(
    lake_in_memory: Lake, freshness: str
) -> None:
    both = 'SELECT kafka_partition, kafka_offset FROM "flows$cold" UNION ALL FROM ({})'.format(
        'SELECT kafka_partition, kafka_offset FROM "flows$tail"'
    )
    assert places(lake_in_memory.ask(both, freshness=freshness)) == written(lake_in_memory)


@pytest.mark.parametrize(("freshness", "rows"), [("cold", 3), ("tail", 3), ("live", 6)])
def test_a_table_without_a_topic_is_read_whole_under_every_contract(
    lake_in_memory: Lake, freshness: str, rows: int
) -> None:
    plain_table(lake_in_memory, "a", "b")
    joined = lake_in_memory.ask("SELECT count(*) AS n FROM flows, kinds", freshness=freshness)
    assert joined["n"].to_pylist() == [2 * rows]


def test_max_staleness_is_answered_as_of_a_round_that_is_young_enough(
    lake_in_memory: Lake, measured: list[str]
) -> None:
    before = places(lake_in_memory.ask(PLACES))
    assert before == written(lake_in_memory)
    write(lake_in_memory, 0, 2)
    assert places(lake_in_memory.ask(PLACES, freshness="max_staleness 1h")) == before
    assert len(measured) == 1
    assert places(lake_in_memory.ask(PLACES, freshness="max_staleness 0s")) == written(
        lake_in_memory
    )
    assert len(measured) == 2
    # What a live statement measured counts for those that come after it.
    assert places(lake_in_memory.ask(PLACES, freshness="max_staleness 1h")) == written(
        lake_in_memory
    )
    assert len(measured) == 2


def test_max_staleness_outlives_the_brokers_as_far_as_it_goes(lake_in_memory: Lake) -> None:
    before = places(lake_in_memory.ask(PLACES))
    lake_in_memory.log.stop()
    assert places(lake_in_memory.ask(PLACES, freshness="max_staleness 1h")) == before
    assert isinstance(
        outcome(lake_in_memory, PLACES, freshness="max_staleness 0s"), LogUnavailable
    )
    lake_in_memory.log.start()


def test_what_was_tiered_since_an_old_round_is_in_the_answer(lake_in_memory: Lake) -> None:
    lake_in_memory.ask(PLACES)
    write(lake_in_memory, 0, 2)
    write(lake_in_memory, 1, 1)
    tier(lake_in_memory)
    lake_in_memory.board.refresh(FLOWS)
    assert places(lake_in_memory.ask(PLACES, freshness="max_staleness 1h")) == written(
        lake_in_memory
    )


def test_tables_that_were_not_measured_together_are_measured_anew(
    lake_in_memory: Lake, measured: list[str]
) -> None:
    joined = "SELECT count(*) FROM flows, hosts"
    lake_in_memory.ask("SELECT count(*) FROM flows", freshness="max_staleness 1h")
    lake_in_memory.ask("SELECT count(*) FROM hosts", freshness="max_staleness 1h")
    lake_in_memory.ask(joined, freshness="max_staleness 1h")
    assert len(measured) == 3
    lake_in_memory.ask(joined, freshness="max_staleness 1h")
    lake_in_memory.ask("SELECT count(*) FROM hosts", freshness="max_staleness 1h")
    assert len(measured) == 3


# --- waiting ---


def test_a_record_that_is_waited_for_is_in_the_answer(lake_in_memory: Lake) -> None:
    write(lake_in_memory, 0, 1)
    waiting = threading.Thread(target=lambda: write(lake_in_memory, 0, 3))
    waiting.start()
    result = places(lake_in_memory.ask(PLACES, wait_for="flows/0:8, flows/1:0, elsewhere/3:9"))
    waiting.join()
    assert result == written(lake_in_memory)
    assert (0, 8) in result


def test_an_old_round_is_not_enough_for_a_record_that_is_waited_for(
    lake_in_memory: Lake,
) -> None:
    lake_in_memory.ask(PLACES)
    write(lake_in_memory, 0, 1)
    result = places(
        lake_in_memory.ask(PLACES, freshness="max_staleness 1h", wait_for="flows/0:5")
    )
    assert result == written(lake_in_memory)


def test_a_record_that_does_not_come_is_named(lake_in_memory: Lake) -> None:
    session = replace(SESSION, wait_for="flows/0:4 flows/1:1")
    with pytest.raises(NotYetCommitted) as refused:
        lake_in_memory.statements.plan(session, PLACES, None, Deadline(0.2))
    assert refused.value.message == (
        "flows/1: the record at offset 1 was waited for 0.2 s, and committed records end at 1; if it was sent in "
        "a transaction, commit that first, then try again."
    )


def test_a_cut_outside_a_server_waits_no_longer_than_it_is_told(lake_in_memory: Lake) -> None:
    ends = parse_wait_for("flows/1:1")
    with pytest.raises(NotYetCommitted, match=r"waited for 0\.05 s, and committed records end"):
        current_cuts(
            lake_in_memory.board,
            BoundsCache(lake_in_memory.log),
            [FLOWS],
            wait=WaitFor(ends, 0.05),
        )


def test_a_record_in_an_open_transaction_is_waited_for_until_it_is_committed(
    lake_in_memory: Lake,
) -> None:
    transaction = lake_in_memory.log.begin()
    lake_in_memory.transactions.append((transaction, []))
    lake_in_memory.produce(lake_in_memory.topics["flows"], 0, GOOD, 0)
    committing = threading.Timer(0.1, lambda: lake_in_memory.end_transaction(0, commit=True))
    committing.start()
    result = places(lake_in_memory.ask(PLACES, wait_for="flows/0:5"))
    committing.join()
    assert (0, 5) in result


# --- versions ---


def test_a_version_is_the_rows_below_its_own_watermark(
    lake_in_memory: Lake, measured: list[str]
) -> None:
    first = lake_in_memory.store.facts(FLOWS).head
    tier(lake_in_memory, 2)
    second = lake_in_memory.store.facts(FLOWS).head
    write(lake_in_memory, 0, 1)
    lake_in_memory.store.compact(FLOWS)
    lake_in_memory.log.stop()
    measured.clear()
    for version in (first, second):
        covered = lake_in_memory.versions[version or 0].covered
        text = f"{PLACES} AT (VERSION => {version})"
        assert places(lake_in_memory.ask(text)) == below(covered[0], covered[1])
        assert places(lake_in_memory.ask(text.replace(str(version), f"'{version}'"))) == places(
            lake_in_memory.ask(text)
        )
    assert measured == []
    lake_in_memory.log.start()


def test_a_table_is_joined_with_its_own_past(lake_in_memory: Lake) -> None:
    version = lake_in_memory.store.facts(FLOWS).head
    tier(lake_in_memory)
    new = lake_in_memory.ask(
        "SELECT n.kafka_partition, n.kafka_offset FROM flows AS n ANTI JOIN "
        f"flows AS p AT (VERSION => {version}) USING (kafka_partition, kafka_offset)"
    )
    assert places(new) == written(lake_in_memory) - below(3)


def test_the_sides_of_a_version_are_all_and_nothing(lake_in_memory: Lake) -> None:
    version = lake_in_memory.store.facts(FLOWS).head
    tier(lake_in_memory)
    at = f"AT (VERSION => {version})"
    assert places(
        lake_in_memory.ask(f"{PLACES.replace('flows', chr(34) + 'flows$cold' + chr(34))} {at}")
    ) == below(3)
    assert (
        places(
            lake_in_memory.ask(
                f"{PLACES.replace('flows', chr(34) + 'flows$tail' + chr(34))} {at}"
            )
        )
        == below()
    )
    seam = lake_in_memory.ask(
        f'SELECT watermark, log_end FROM "flows$seam" {at} ORDER BY kafka_partition'
    )
    assert seam["watermark"].to_pylist() == seam["log_end"].to_pylist() == [3, 0]


def test_a_version_has_the_columns_it_was_written_with(lake_in_memory: Lake) -> None:
    version = lake_in_memory.store.facts(FLOWS).head
    before = lake_in_memory.ask(f"{WHOLE} AT (VERSION => {version})").schema
    lake_in_memory.store.set_columns(
        FLOWS,
        lambda items: (*items, Column(len(items) + 1, "added", pa.int64(), keys=("added",))),
    )
    lake_in_memory.note(FLOWS)
    tier(lake_in_memory)
    lake_in_memory.board.refresh(FLOWS)
    assert lake_in_memory.ask(f"{WHOLE} AT (VERSION => {version})").schema == before
    prepared = lake_in_memory.statements.prepare(
        SESSION, f"{WHOLE} AT (VERSION => {version})", Deadline(60)
    )
    assert prepared.dataset_schema == before
    assert "added" in lake_in_memory.ask(WHOLE).column_names


def test_a_version_that_is_not_retained_is_refused_by_name(lake_in_memory: Lake) -> None:
    version = lake_in_memory.store.facts(FLOWS).head
    tier(lake_in_memory)
    lake_in_memory.expire(FLOWS, 1, orphans=False)
    for request in (version, 4_711, -3):
        refused = outcome(lake_in_memory, f"{PLACES} AT (VERSION => {request})")
        assert isinstance(refused, CutExpired)
        assert refused.message.startswith(
            f"lake.net.flows: snapshot {request} is not one of the "
        )
    with pytest.raises(BadParameter, match="takes the id of a snapshot, or the text of a cut"):
        lake_in_memory.ask(f"{PLACES} AT (VERSION => 'main')")


def test_a_version_that_was_just_committed_is_found(lake_in_memory: Lake) -> None:
    lake_in_memory.ask(PLACES)
    tier(lake_in_memory)
    version = lake_in_memory.store.facts(FLOWS).head
    assert places(lake_in_memory.ask(f"{PLACES} AT (VERSION => {version})")) == written(
        lake_in_memory
    )


def test_tables_without_a_topic_have_versions_and_times_too(lake_in_memory: Lake) -> None:
    plain_table(lake_in_memory, "a", "b")
    first = min(lake_in_memory.store.facts(KINDS).history.snapshots)
    assert lake_in_memory.ask(f"FROM kinds AT (VERSION => {first})")["kind"].to_pylist() == [
        "a"
    ]
    assert lake_in_memory.ask("FROM kinds AT (TIMESTAMP => '2999-01-01')").num_rows == 2
    with pytest.raises(CutExpired, match="had no snapshot at that time"):
        lake_in_memory.ask("FROM kinds AT (TIMESTAMP => '1999-01-01')")
    cut = cut_of(lake_in_memory, "FROM kinds")
    lake_in_memory.store.append(KINDS, pa.table({"kind": ["c"]}))
    lake_in_memory.board.refresh(KINDS)
    assert lake_in_memory.ask("FROM kinds", cut=cut).num_rows == 2
    lake_in_memory.store.expire(KINDS, set())
    lake_in_memory.board.refresh(KINDS)
    with pytest.raises(CutExpired, match="is not retained"):
        lake_in_memory.ask("FROM kinds", cut=cut)


def test_a_cut_of_a_table_without_a_snapshot_stays_empty(lake_in_memory: Lake) -> None:
    plain_table(lake_in_memory)
    cut = cut_of(lake_in_memory, "FROM kinds")
    lake_in_memory.store.append(KINDS, pa.table({"kind": ["a"]}))
    lake_in_memory.board.refresh(KINDS)
    assert lake_in_memory.ask("FROM kinds").num_rows == 1
    assert lake_in_memory.ask("FROM kinds", cut=cut).num_rows == 0


# --- times ---


def test_a_time_is_the_same_wherever_the_watermark_is(lake_in_memory: Lake) -> None:
    """Up to the first row of that time or later, per partition; rows without a time do not count."""
    stamps = [
        (at, offset, None if slot.record is None else slot.record.timestamp_ms)
        for at, slots in enumerate(lake_in_memory.topics["flows"].partitions)
        for offset, slot in enumerate(slots)
    ]
    reply = sorted(stamp for _, _, stamp in stamps if stamp is not None)
    request = {
        since: Counter(
            (at, offset)
            for at, offset, _ in stamps
            if not any(
                other == at and value <= offset and stamp is not None and stamp >= since
                for other, value, stamp in stamps
            )
        )
        for since in (reply[0], reply[2], reply[-1], reply[-1] + 1)
    }
    assert len({len(items) for items in request.values()}) > 2
    for _ in range(3):
        for since, expected in request.items():
            time = f"make_timestamp({since * 1000})"
            assert places(lake_in_memory.ask(f"{PLACES} AT (TIMESTAMP => {time})")) == expected
        tier(lake_in_memory, 2)
        lake_in_memory.board.refresh(FLOWS)


def test_a_time_may_be_told_from_now_and_in_the_zone_of_the_session(
    lake_in_memory: Lake,
) -> None:
    assert places(
        lake_in_memory.ask(f"{PLACES} AT (TIMESTAMP => now() + INTERVAL 1 DAY)")
    ) == written(lake_in_memory)
    # Of 2023-11-14 22:13:20 UTC and some milliseconds are the records.
    utc, berlin = (
        places(
            lake_in_memory.ask(
                f"{PLACES} AT (TIMESTAMP => '2023-11-14 22:30:00')", time_zone=zone
            )
        )
        for zone in ("UTC", "Europe/Berlin")
    )
    assert utc == written(lake_in_memory)
    assert sum(berlin.values()) < sum(utc.values())
    for wrong in ("NULL", "'soon'", "7"):
        with pytest.raises(BadParameter, match="takes a time"):
            lake_in_memory.ask(f"{PLACES} AT (TIMESTAMP => {wrong})")


# --- cuts ---


def test_a_cut_brings_later_statements_back_to_it(lake_in_memory: Lake) -> None:
    before = lake_in_memory.ask(WHOLE)
    cut = cut_of(lake_in_memory, WHOLE)
    write(lake_in_memory, 0, 4)
    assert bag(lake_in_memory.ask(WHOLE, cut=cut)) == bag(before)
    tier(lake_in_memory, 4)
    lake_in_memory.board.refresh(FLOWS)
    assert bag(lake_in_memory.ask(WHOLE, cut=cut)) == bag(before)
    tier(lake_in_memory)
    lake_in_memory.delete(FLOWS, (0, 0), rewriting=True)
    lake_in_memory.board.refresh(FLOWS)
    # Its own snapshot is read, where no later delete shows.
    assert bag(lake_in_memory.ask(WHOLE, cut=cut)) == bag(before)
    assert bag(lake_in_memory.ask(f"FROM flows AT (VERSION => '{cut}')")) == bag(before)
    assert places(lake_in_memory.ask(WHOLE)) == written(lake_in_memory) - Counter([(0, 0)])


@pytest.mark.parametrize("freshness", ["cold", "tail"])
def test_a_side_at_a_cut_is_that_side_of_then(lake_in_memory: Lake, freshness: str) -> None:
    before = places(lake_in_memory.ask(PLACES, freshness=freshness))
    cut = cut_of(lake_in_memory, freshness=freshness)
    write(lake_in_memory, 0, 4)
    tier(lake_in_memory, 4)
    lake_in_memory.board.refresh(FLOWS)
    assert places(lake_in_memory.ask(PLACES, cut=cut, freshness=freshness)) == before


def test_a_cut_outlives_the_log_and_it_outlives_the_snapshot(lake_in_memory: Lake) -> None:
    before = lake_in_memory.ask(WHOLE)
    cut = cut_of(lake_in_memory, WHOLE)
    write(lake_in_memory, 0, 4)
    tier(lake_in_memory)
    topic = lake_in_memory.topics["flows"]
    lake_in_memory.retain(topic, 0, topic.end(0))
    lake_in_memory.retain(topic, 1, topic.end(1))
    lake_in_memory.stop_server()
    lake_in_memory.start_server()  # nothing is held any more
    assert bag(lake_in_memory.ask(WHOLE, cut=cut)) == bag(before)
    lake_in_memory.expire(FLOWS, 1, orphans=False)
    lake_in_memory.board.refresh(FLOWS)
    assert bag(lake_in_memory.ask(WHOLE, cut=cut)) == bag(before)


def test_a_cut_is_gone_when_nobody_holds_its_records(lake_in_memory: Lake) -> None:
    cut = cut_of(lake_in_memory)
    topic = lake_in_memory.topics["flows"]
    lake_in_memory.retain(topic, 0, 4)
    lake_in_memory.stop_server()
    lake_in_memory.start_server()
    refused = outcome(lake_in_memory, PLACES, cut=cut)
    assert isinstance(refused, CutExpired)
    assert refused.message == (
        "lake.net.flows: the cut cannot be read any more: the log of flows/0 begins at offset 4, and Iceberg holds "
        "the records below 3 only. Take a new one with thermocline_cut()."
    )


@pytest.mark.parametrize("change", ["columns", "topic", "table"])
def test_a_cut_of_what_has_become_another_thing_is_gone(
    lake_in_memory: Lake, change: str
) -> None:
    cut = cut_of(lake_in_memory)
    tier(lake_in_memory)
    if change == "columns":
        lake_in_memory.store.set_columns(
            FLOWS,
            lambda items: (
                *items,
                Column(len(items) + 1, "added", pa.int64(), keys=("added",)),
            ),
        )
        lake_in_memory.expire(FLOWS, 1, orphans=False)
    elif change == "topic":
        lake_in_memory.recreate_topic("flows", 2)
        lake_in_memory.expire(FLOWS, 1, orphans=False)
    else:
        lake_in_memory.bind_anew(FLOWS)
    lake_in_memory.board.refresh(FLOWS)
    refused = outcome(lake_in_memory, PLACES, cut=cut)
    if change == "topic":
        assert refused == written_before(lake_in_memory)  # all of it is cold
        return
    assert isinstance(refused, CutExpired)


def written_before(lake_in_memory: Lake) -> Counter[Place]:
    version = lake_in_memory.versions[lake_in_memory.store.facts(FLOWS).head or 0]
    return below(version.covered[0], version.covered[1])


def test_a_statement_can_ask_for_its_own_cut(lake_in_memory: Lake) -> None:
    sql = "SELECT thermocline_cut() AS cut, count(*) AS n FROM flows GROUP BY 1"
    (row,) = lake_in_memory.ask(sql).to_pylist()
    assert row == {"cut": cut_of(lake_in_memory), "n": 6}
    write(lake_in_memory, 0, 1)
    (again,) = lake_in_memory.ask(sql, cut=row["cut"]).to_pylist()
    assert again["n"] == 6
    assert lake_in_memory.ask("SELECT thermocline_cut()").to_pylist() == [
        {"thermocline_cut()": None}
    ]
    assert cut_of(lake_in_memory, "SELECT 1") == ""


def test_a_cut_holds_all_tables_of_its_statement_and_no_other(lake_in_memory: Lake) -> None:
    both = "SELECT (SELECT count(*) FROM flows) AS f, (SELECT count(*) FROM hosts) AS h"
    cut = cut_of(lake_in_memory, both)
    before = lake_in_memory.ask(both)
    write(lake_in_memory, 1, 2)
    lake_in_memory.produce(lake_in_memory.topics["hosts"], 0, GOOD)
    assert lake_in_memory.ask(both, cut=cut) == before
    plain_table(lake_in_memory, "a")
    for catalog in (None, "lake"):
        lake_in_memory.board.refresh_due(catalog)
    with pytest.raises(BadParameter, match="did not read this table"):
        lake_in_memory.ask("FROM kinds", cut=cut)


# --- what does not go together ---


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ({"cut": "c:x"}, "not one a server gave out"),
        ({"wait_for": "flows"}, "names no record to wait for"),
        ({"freshness": "new"}, "is no freshness"),
        ({"cut": "c:x", "wait_for": "flows/0:1"}, "contradict each other"),
        ({"cut": "c:x", "after": "now"}, "cannot be read at a cut"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    lake_in_memory: Lake, statements: dict[str, str], why: str
) -> None:
    with pytest.raises(BadParameter, match=why):
        lake_in_memory.ask(PLACES, **statements)


@pytest.mark.parametrize(
    ("sql", "freshness"),
    [(f"{PLACES} AT (TIMESTAMP => now())", "live"), (PLACES, "cold"), (PLACES, "tail")],
)
def test_only_the_whole_of_the_present_is_followed(
    lake_in_memory: Lake, sql: str, freshness: str
) -> None:
    with pytest.raises(UnsupportedStatement, match="cannot be followed"):
        lake_in_memory.ask(sql, after="now", freshness=freshness)


def test_a_follower_is_never_answered_as_of_before(lake_in_memory: Lake) -> None:
    first = lake_in_memory.statements.plan(
        replace(SESSION, after="beginning", freshness="max_staleness 1h"),
        PLACES,
        None,
        Deadline(60),
    )
    write(lake_in_memory, 0, 1)
    answer = lake_in_memory.ask(
        PLACES, after=first.app_metadata.decode(), freshness="max_staleness 1h"
    )
    assert places(answer) == Counter([(0, 5)])


def test_an_information_schema_has_no_versions(lake_in_memory: Lake) -> None:
    with pytest.raises(UnsupportedStatement, match="has no versions; leave AT out"):
        lake_in_memory.ask("FROM information_schema.tables AT (VERSION => 3)")


def test_explain_tells_the_contract(lake_in_memory: Lake) -> None:
    def reply(sql: str, **request: str) -> list[tuple[str, str, bool]]:
        rows = lake_in_memory.ask(f"EXPLAIN {sql}", **request).to_pylist()
        return [(row["side"], row["contract"], row["log_age_s"] is not None) for row in rows]

    assert reply(PLACES) == [("cold", "live", False), ("tail", "live", True)]
    assert reply(PLACES, freshness="max_staleness 1h")[1] == (
        "tail",
        "max_staleness 3600s",
        True,
    )
    assert reply(PLACES, freshness="cold") == [("cold", "cold", False)]
    assert reply(PLACES, freshness="tail") == [("tail", "tail", True)]
    assert reply(PLACES, cut=cut_of(lake_in_memory)) == [
        ("cold", "cut", False),
        ("tail", "cut", False),
    ]
    version = lake_in_memory.store.facts(FLOWS).head
    at = f"AT (VERSION => {version})"
    assert reply(f"{PLACES} {at}") == [("cold", at, False), ("tail", at, False)]

"""The loop of maintenance: a step at a time by new facts, until nothing is due; what is in vain or refused ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from connectors.jobs import events
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.maintain import (
    CONFLICT_S,
    GROWS_S,
    IN_VAIN_S,
    MaintainedTable,
    MaintenanceJob,
)
from planner.errors import (
    BadBinding,
    BadConfig,
    ColdStoreUnavailable,
    FederationError,
    ForeignCommit,
    TieringConflict,
)
from planner.maintenance.facts import (
    MAIN,
    MAINTAIN_KEY,
    FileSize,
    HeadFiles,
    MaintenanceFacts,
    SnapshotRef,
)
from planner.maintenance.steps import (
    Compaction,
    OrphanRemoval,
    RowExpiry,
    Situation,
    Step,
    StepResult,
    plan_upkeep,
)
from planner.names import TableName
from planner.seam.boundary import RetentionBoundary
from planner.seam.snapshots import History, Snapshot
from planner.tiering.schedule import choose
from tests.harness.builders import schema
from thermocline.maintaining import run_on
from thermocline.tiering.console import Lines
from thermocline.tiering.maintenance_metrics import MaintenanceMetrics

FLOWS = TableName("lake", ("net",), "flows")
NOW_S = 1_800_000_000.0
NOW_MS = int(NOW_S * 1000)
MB = 1024**2
LIMITS = LoopLimits(poll_s=0.01, refresh_s=0.01, stop_s=1.0)


def facts_of(files: int, swept_ms: int = NOW_MS) -> MaintenanceFacts:
    return MaintenanceFacts(
        table=FLOWS,
        head=1,
        history=History({1: Snapshot(1, None, 1, "append")}),
        committed_ms={1: NOW_MS - 60_000},
        properties={"thermocline-maintain.orphans-ms": str(swept_ms)},
        refs={MAIN: SnapshotRef(1, is_branch=True)},
        log=((NOW_MS - 60_000, 1),),
        files=HeadFiles((FileSize((1,), 10 * MB, 1_000),) * files),
    )


@dataclass
class Lake:
    """One table, whose steps do what is to be expected, unless ``act`` does otherwise."""

    facts: MaintenanceFacts | None
    steps: list[Step] = field(default_factory=list)
    opened: int = 0
    cancelled: int = 0
    act: Callable[[Step], None] = lambda _: None
    is_idle: bool = False
    heard: list[events.Event] = field(default_factory=list)
    clock_s: float = 0.0

    def read(self, name: TableName) -> MaintenanceFacts | None:
        assert name == FLOWS
        return self.facts

    def open(self, name: TableName) -> Lake:
        assert name == FLOWS
        self.opened += 1
        return self

    def take(self, step: Step) -> StepResult:
        self.act(step)
        self.steps.append(step)
        if self.is_idle:
            return StepResult()
        if isinstance(step, Compaction):
            self.facts = facts_of(1, 1)
            return StepResult(5, 200 * MB, 2.0)
        self.facts = facts_of(1)
        return StepResult(3)

    def cancel(self) -> None:
        self.cancelled += 1

    def loop(self) -> TableLoop[MaintainedTable]:
        job = MaintenanceJob(
            tables=lambda: [FLOWS],
            read_facts=self.read,
            open_target=self.open,
            by_command=True,
            now_s=lambda: NOW_S,
        )
        return TableLoop(
            job, listeners=[self.heard.append], limits=LIMITS, clock=lambda: self.clock_s
        )

    def of(self, kind: type[events.Event]) -> list[events.Event]:
        return [event for event in self.heard if isinstance(event, kind)]


def test_steps_are_taken_until_nothing_is_due() -> None:
    lake = Lake(facts_of(5, 1))
    assert lake.loop().drain() == 1
    assert [type(step) for step in lake.steps] == [Compaction, OrphanRemoval]
    assert lake.opened == 1
    done = lake.of(events.StepDone)
    assert [type(event.step) for event in done] == [Compaction, OrphanRemoval]  # type: ignore[union-attr]


def test_nothing_is_opened_where_nothing_is_due() -> None:
    lake = Lake(facts_of(1))
    lake.loop().drain()
    assert lake.opened == 0


def test_a_table_without_a_topic_is_refused_by_name() -> None:
    with pytest.raises(BadBinding, match="the table is not bound to a topic"):
        Lake(None).loop().drain()


def test_another_writer_that_is_first_has_it_decided_again() -> None:
    lost = iter([TieringConflict("first."), TieringConflict("first.")])

    def conflict(_: Step) -> None:
        for error in lost:
            raise error

    lake = Lake(facts_of(5), act=conflict)
    lake.loop().drain()
    assert len(lake.of(events.RoundRefused)) == 2
    assert [type(step) for step in lake.steps] == [Compaction, OrphanRemoval]


def test_one_that_is_always_first_ends_it() -> None:
    def conflict(_: Step) -> None:
        raise TieringConflict("first.")

    lake = Lake(facts_of(5), act=conflict)
    with pytest.raises(TieringConflict):
        lake.loop().drain()
    assert len(lake.of(events.RoundRefused)) == 5


def test_a_step_in_vain_is_left_for_an_hour() -> None:
    lake = Lake(facts_of(5), is_idle=True)
    loop = lake.loop()
    loop.drain()
    loop.drain()
    assert len(lake.steps) == 1
    assert [type(event.step) for event in lake.of(events.StepInVain)] == [Compaction]  # type: ignore[union-attr]
    lake.clock_s = IN_VAIN_S + 1
    loop.drain()
    assert len(lake.steps) == 2


def test_a_step_that_publishes_outran_is_not_in_vain() -> None:
    lake = Lake(facts_of(5), is_idle=True)

    def rewrite(_: Step) -> None:
        number = len(lake.steps) + 2
        counts = {"deleted-data-files": "5", "added-data-files": "1", MAINTAIN_KEY: "run"}
        rewrites = {
            at: Snapshot(at, at - 1, at, "replace", counts) for at in range(2, number + 1)
        }
        first = {1: Snapshot(1, None, 1, "append")}
        # As many files as before: others brought them.
        lake.facts = replace(
            facts_of(5 if number < 5 else 1), history=History(first | rewrites)
        )

    lake.act = rewrite
    lake.loop().drain()
    assert len(lake.steps) == 4
    assert lake.of(events.StepInVain) == []


def test_what_is_left_out_for_an_hour_still_waits() -> None:
    lake = Lake(facts_of(5), is_idle=True)
    loop = lake.loop()
    loop.drain()
    loop.drain()
    surveys = lake.of(events.TableSurveyed)
    assert [event.upkeep.backlog[0] for event in surveys] == [5, 5, 5]  # type: ignore[union-attr]


def test_a_step_for_which_another_writer_was_first_waits_a_minute() -> None:
    lake = Lake(facts_of(5))

    def conflict(_: Step) -> None:
        raise TieringConflict("first.")

    lake.act = conflict
    loop = lake.loop()
    table = loop.job.open(FLOWS)
    for clock_s, refused in ((0.0, 1), (CONFLICT_S - 1, 1), (CONFLICT_S, 2)):
        lake.clock_s = clock_s
        loop.job.run(table, loop)
        assert len(lake.of(events.RoundRefused)) == refused


AGING = {"thermocline.retention_days": "30"}


@pytest.mark.parametrize(
    "error",
    [
        TieringConflict("first."),
        ColdStoreUnavailable("no room."),
        BadConfig("lists no files."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_old_rows_that_cannot_go_stop_no_other_step(error: FederationError) -> None:
    """Neither do they take a rewrite each minute, where publishes are first each time."""
    files, steps = facts_of(5), list[type[Step]]()
    facts = replace(files, schema=schema(), properties=dict(files.properties) | AGING)

    def act(step: Step) -> None:
        steps.append(type(step))
        if isinstance(step, RowExpiry):
            raise error

    lake = Lake(None, act=act)
    loop = lake.loop()
    table = loop.job.open(FLOWS)
    for clock_s in (0.0, CONFLICT_S, IN_VAIN_S - 1, IN_VAIN_S):
        lake.clock_s, lake.facts = clock_s, facts
        loop.job.run(table, loop)
    assert steps == [RowExpiry, Compaction, Compaction, RowExpiry]
    assert len(lake.of(events.RoundRefused) + lake.of(events.StepRefused)) == 2


def test_a_table_is_decided_once_for_each_reading() -> None:
    lake = Lake(facts_of(1))
    loop = lake.loop()
    table = loop.job.open(FLOWS)
    for reading in (1, 2):
        loop.job.read(table)
        for _ in range(3):
            assert list(loop.job.due([table], loop)) == [(table, None)]
        assert len(lake.of(events.TableSurveyed)) == reading
        # Of five hundred tables all files are more than a tierer should remember.
        assert table.facts is None


def test_a_table_that_never_catches_up_lets_others_have_a_turn() -> None:
    lake = Lake(None)
    loop, small = lake.loop(), TableName("lake", ("net",), "small")
    tables = [MaintainedTable(name=FLOWS), MaintainedTable(name=small)]

    def first() -> TableName:
        for table, files in zip(tables, (5_000, 5), strict=True):
            table.facts, table.is_decided = facts_of(files), False
        due = {table.name: upkeep for table, upkeep in loop.job.due(tables, loop) if upkeep}
        return choose(due, set(), at_once=1)[0]

    lake.clock_s = 1_000.0
    assert first() == FLOWS
    lake.facts = facts_of(5_000)
    loop.job.run(tables[0], loop)
    tables[0].out_until_s.clear()
    lake.clock_s += 0.1
    assert first() == small
    tables[1].stepped_s = lake.clock_s
    lake.clock_s += 1.0
    assert first() == FLOWS


def test_the_pace_of_rewrites_bounds_the_next_step() -> None:
    lake = Lake(facts_of(5))
    loop = lake.loop()
    job = loop.job
    assert isinstance(job, MaintenanceJob)
    assert job.situation.bytes_per_s == 20e6
    loop.drain()
    assert job.situation.bytes_per_s == (20e6 + 100 * MB) / 2


def test_a_backlog_that_grew_for_an_hour_is_told() -> None:
    table = MaintainedTable(name=FLOWS)
    assert [table.grown_from(files, clock_s) for files, clock_s in _backlog()] == [
        *[None] * 4,
        20,
        None,
    ]


def test_a_backlog_that_we_leave_alone_is_not_told() -> None:
    off = {"thermocline.maintain.mode": "off"}
    lake = Lake(replace(facts_of(5), properties=off))
    loop = lake.loop()
    for clock_s, files in ((0.0, 5), (GROWS_S + 1, 50)):
        lake.clock_s = clock_s
        lake.facts = replace(facts_of(files), properties=off)
        loop.drain()
    surveys = lake.of(events.TableSurveyed)
    assert [event.upkeep.backlog[0] for event in surveys] == [5, 50]  # type: ignore[union-attr]
    assert lake.of(events.BacklogGrows) == []


def _backlog() -> Iterator[tuple[int, float]]:
    yield 50, 0.0
    yield 20, 100.0
    yield 40, 200.0
    yield 30, GROWS_S
    yield 60, GROWS_S + 100
    yield 70, GROWS_S + 200


def test_a_loop_takes_steps_by_itself_and_ends_them_when_it_stops() -> None:
    lake = Lake(facts_of(5, 1))
    loop = lake.loop()

    def after(_: Step) -> None:
        if len(lake.steps) == 1:
            loop.stop()

    lake.act = after
    loop.run()
    assert [type(step) for step in lake.steps] == [Compaction, OrphanRemoval]
    loop.job.cancel(loop._tables[FLOWS])
    assert lake.cancelled == 1


def test_a_loop_beside_another_stops_with_it() -> None:
    other = Lake(facts_of(1)).loop()
    main = Lake(facts_of(1)).loop()
    main.beside = (other,)
    main.stop()
    assert other.stopping


def test_a_failure_of_one_table_waits_and_is_told() -> None:
    lake = Lake(facts_of(5))

    def refused(_: Step) -> None:
        loop.stop()
        raise ForeignCommit("another.")

    lake.act = refused
    loop = lake.loop()
    with pytest.raises(ForeignCommit):
        loop.drain()
    assert lake.steps == []


def test_orphans_that_cannot_be_told_stop_no_other_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = Lake(facts_of(1, 1))
    loop = lake.loop()

    def refused(_: Step) -> None:
        loop.stop()
        raise BadBinding("lake.net.flows: the table lake.net.other lies in its folder.")

    lake.act = refused
    loop.run()
    [event] = lake.of(events.StepRefused)
    assert lake.of(events.TableFailed) == []
    Lines(bars=False)(event)
    assert capsys.readouterr().err.partition(" ")[2] == (
        "remove orphans: BadBinding: lake.net.flows: the table lake.net.other lies in its folder. "
        "(again in an hour; the rest goes on)\n"
    )


def test_a_rewrite_without_room_lets_the_steps_go_on_that_make_some() -> None:
    lake = Lake(facts_of(5, 1))

    def full(step: Step) -> None:
        if isinstance(step, Compaction):
            raise ColdStoreUnavailable("lake.net.flows: 5 bytes are free where the table lies.")

    lake.act = full
    with pytest.raises(ColdStoreUnavailable):
        lake.loop().drain()
    assert [type(step) for step in lake.steps] == [OrphanRemoval]
    [event] = lake.of(events.StepRefused)
    assert isinstance(event, events.StepRefused)
    assert isinstance(event.step, Compaction)


def test_a_round_without_room_leaves_the_next_to_what_makes_some() -> None:
    lake = Lake(facts_of(5, 1))

    def full(step: Step) -> None:
        if isinstance(step, Compaction):
            raise ColdStoreUnavailable("lake.net.flows: 5 bytes are free where the table lies.")

    lake.act = full
    loop, table = lake.loop(), MaintainedTable(name=FLOWS)
    assert loop.job.run(table, loop) is None
    done = loop.job.run(table, loop)
    assert isinstance(done, events.StepDone)
    assert isinstance(done.step, OrphanRemoval)


def test_what_both_loops_meet_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(bars=False)
    failed = events.TableFailed(FLOWS, ForeignCommit("lake.net.flows: another."), 1.0)
    recovered, removed = events.TableRecovered(FLOWS), events.TableRemoved(FLOWS)
    other = events.TableFailed(FLOWS, BadBinding("lake.net.flows: a key."), 1.0)
    for tell in (lines.beside, lines):
        for event in (failed, recovered, removed):
            tell(event)
    # What only one of them meets is a line each time.
    for _ in range(2):
        lines.beside(other)
    printed = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in printed] == [
        "lake.net.flows: another. (next try in 1 s)",
        "works again",
        "is not there any more",
        *["lake.net.flows: a key. (next try in 1 s)"] * 2,
    ]


def test_a_fault_of_ours_is_a_line_and_the_loop_goes_on() -> None:
    lake = Lake(facts_of(5))
    loop = replace(lake.loop(), clock=time.monotonic)
    faults = iter([TypeError("ours")])

    def listed() -> list[TableName]:
        for error in faults:
            raise error
        return [FLOWS]

    job = loop.job
    assert isinstance(job, MaintenanceJob)
    job.tables = listed
    lake.act = lambda _: loop.stop()
    run_on(loop, pause_s=0.01)
    [failed] = lake.of(events.TableFailed)
    assert failed.error.message == (  # type: ignore[union-attr]
        "TypeError in maintenance; tables are tiered all the same, report it."
    )
    assert [type(step) for step in lake.steps] == [Compaction]


def test_what_is_done_is_a_line_and_a_metric(capsys: pytest.CaptureFixture[str]) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    lake = Lake(facts_of(5))
    lake.loop().drain()
    registry = CollectorRegistry()
    metrics, lines = MaintenanceMetrics(registry, lambda: NOW_S), Lines(bars=False)
    grown = events.BacklogGrows(FLOWS, 70, 20)
    vain = events.StepInVain(FLOWS, OrphanRemoval())
    failed = events.TableFailed(FLOWS, ForeignCommit("another."), 1.0)
    for event in (*lake.heard, grown, vain, failed, events.TableRecovered(FLOWS)):
        metrics(event)
        lines(event)
    out, err = capsys.readouterr()
    assert [line.partition(" ")[2] for line in out.splitlines()] == [
        f"{FLOWS}: compact files: 5 small files; 200 MiB in 2.0s",
        f"{FLOWS}: remove orphans: not looked for within a day; 0.0s",
    ]
    assert [line.partition(" ")[2] for line in err.splitlines()][:2] == [
        f"{FLOWS}: 70 files wait to be compacted, 20 an hour ago, and it did not keep up since",
        f"{FLOWS}: remove orphans changed nothing of what is due; not again for an hour",
    ]
    text = generate_latest(registry).decode()
    for line in (
        'thermocline_maintain_backlog_files{table="lake.net.flows"} 0.0',
        'thermocline_maintain_snapshots{table="lake.net.flows"} 1.0',
        'thermocline_maintain_oldest_snapshot_seconds{table="lake.net.flows"} 60.0',
        'thermocline_maintain_rewritten_bytes_total{table="lake.net.flows"} 2.097152e+08',
        'thermocline_maintain_compacted_ratio{table="lake.net.flows"} NaN',
        'thermocline_maintain_orphan_bytes{table="lake.net.flows"} NaN',
        'thermocline_maintain_last_step_timestamp_seconds{table="lake.net.flows"} 1.8e+09',
        'thermocline_maintain_steps_total{step="compact files",table="lake.net.flows"} 1.0',
        'thermocline_maintain_failing{table="lake.net.flows"} 0.0',
    ):
        assert line in text.splitlines()
    metrics(events.TableRemoved(FLOWS))
    assert "thermocline_maintain_snapshots{" not in generate_latest(registry).decode()
    # Another of its name has had no step.
    new = replace(facts_of(1), properties={})
    metrics(events.TableSurveyed(FLOWS, new, plan_upkeep(new, Situation(NOW_MS))))
    never = 'thermocline_maintain_last_step_timestamp_seconds{table="lake.net.flows"} 0.0'
    after = generate_latest(registry).decode().splitlines()
    assert never in after
    assert (
        'thermocline_maintain_boundary_timestamp_seconds{table="lake.net.flows"} NaN' in after
    )
    old = replace(new, boundary=RetentionBoundary(3, 86_400_000_000))
    metrics(events.TableSurveyed(FLOWS, old, plan_upkeep(old, Situation(NOW_MS))))
    moved = 'thermocline_maintain_boundary_timestamp_seconds{table="lake.net.flows"} 86400.0'
    assert moved in generate_latest(registry).decode().splitlines()

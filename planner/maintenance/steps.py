"""What is due at a table: steps with their reason and their cost, most worthwhile first. Facts in, decision out.

Rows that are too old come first, then rewrites. Then the watermark is committed anew where they lie above it, then snapshots expire, then files go that
belong to none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from planner.maintenance.compaction import Backlog, CompactionRules, backlogs, next_step
from planner.maintenance.expiry import (
    ENOUGH_SNAPSHOTS,
    GC_ENABLED,
    MAX_SNAPSHOTS,
    Retention,
    broken_promise,
    expirable,
    expire_before_ms,
    gc_enabled,
)
from planner.maintenance.facts import MaintenanceFacts
from planner.maintenance.options import (
    COMPACT,
    DEFAULT_MAX_STEP_S,
    MaintainOptions,
    parse_maintain,
)
from planner.maintenance.retention import due_boundary
from planner.schema import Column
from planner.seam.binding import MAINTAIN_MODE, count_property
from planner.seam.boundary import RetentionBoundary
from planner.tiering.triggers import DEFAULT_TARGET_FILE_BYTES, TARGET_FILE_BYTES

#: Iceberg's own properties, "Table properties".
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
MANIFEST_BYTES = "commit.manifest.target-size-bytes"
_DEFAULT_VERSIONS = 100
_DEFAULT_MANIFEST_BYTES = 8 * 1024**2
#: Each is read for every statement that cannot leave it out: a request to the store.
_MANY_MANIFESTS = 50
#: The metadata file names all of them, some 150 bytes each, and is written with each commit.
_MOST_VERSIONS = 5_000
#: As long as a weekly job's rewrites are noticed.
FOREIGN_MS = 8 * 24 * 3_600_000
#: Files of commits under way are younger; and a rollback finds its files for as long.
ORPHAN_AGE_MS = 3 * 24 * 3_600_000
_BETWEEN_ORPHANS_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class RowExpiry:
    """Delete the rows before a boundary of ``column``, and move the boundary there, in one commit."""

    boundary: RetentionBoundary
    column: Column
    score: float = 1.0
    cost_bytes: int = 0
    backlog: int = 1

    @property
    def reason(self) -> str:
        return f"rows before {self.boundary.text} in {self.column.name}"


@dataclass(frozen=True, slots=True)
class Compaction:
    """Rewrite data files of some partitions; ``max_files`` bounds their number where one partition is more than a step.

    ``drops_deletes``: delete files that apply to no file any more go, too.
    """

    backlogs: tuple[Backlog, ...]
    max_files: int | None
    rules: CompactionRules
    backlog_files: int
    backlog_bytes: int
    drops_deletes: bool = False

    @property
    def backlog(self) -> int:
        """How much is to do, of this kind: a step that leaves as much was in vain."""
        return self.backlog_files

    @property
    def score(self) -> float:
        return sum(backlog.score for backlog in self.backlogs)

    @property
    def reason(self) -> str:
        deleted = sum(backlog.deleted for backlog in self.backlogs)
        files = sum(backlog.files for backlog in self.backlogs)
        small = f"{files - deleted:,} small files" if files > deleted else ""
        gone = f"{deleted:,} files with deleted rows" if deleted else ""
        count = len(self.backlogs)
        where = f" in {count} partitions" if count > 1 else ""
        return f"{' and '.join(filter(None, (small, gone)))}{where}"

    @property
    def cost_bytes(self) -> int:
        """What it reads, and about what it writes."""
        return min(sum(backlog.bytes for backlog in self.backlogs), self.rules.budget_bytes)


@dataclass(frozen=True, slots=True)
class ManifestRewrite:
    """Write all manifests anew, sorted by partition."""

    manifests: int
    cost_bytes: int

    @property
    def backlog(self) -> int:
        return self.manifests

    @property
    def score(self) -> float:
        return self.manifests / _MANY_MANIFESTS

    @property
    def reason(self) -> str:
        return f"{self.manifests:,} manifests"


@dataclass(frozen=True, slots=True)
class LogLength:
    """Have the table keep another number of metadata files. ``own`` is the number that it had before ours."""

    versions: int
    own: int
    commits: int
    grace_s: int
    score: float = 1.0
    cost_bytes: int = 0
    backlog: int = 1

    @property
    def reason(self) -> str:
        commits = f"{self.commits:,} commits within the grace of {self.grace_s:,} s"
        return f"{commits}; {PREVIOUS_VERSIONS} = {self.versions}"


@dataclass(frozen=True, slots=True)
class WatermarkRenewal:
    """Commit the watermark anew, without rows, so that expiry hides none of what lies above it."""

    score: float = 1.0
    reason: str = "commits above the watermark, which expiry would hide"
    cost_bytes: int = 0
    backlog: int = 1


@dataclass(frozen=True, slots=True)
class Expiry:
    """Expire snapshots committed before a time, exclusive, and remove the files that only they name.

    ``snapshots`` is how many may go, of which a step takes ``MAX_SNAPSHOTS`` about. ``head`` is the snapshot that was
    the newest: what may go was decided by it.
    """

    before_ms: int
    snapshots: int
    cost_bytes: int
    head: int

    @property
    def backlog(self) -> int:
        return self.snapshots

    @property
    def score(self) -> float:
        return self.snapshots / ENOUGH_SNAPSHOTS

    @property
    def reason(self) -> str:
        return f"{self.snapshots:,} snapshots"


@dataclass(frozen=True, slots=True)
class OrphanRemoval:
    """Remove files of the table's folder that no snapshot names, older than three days by the store's clock.

    For ``max_step_s`` at most, once they are listed; the next step goes on.
    """

    max_step_s: int = DEFAULT_MAX_STEP_S
    score: float = 1.0
    reason: str = "not looked for within a day"
    cost_bytes: int = 0
    backlog: int = 1


Step = (
    RowExpiry
    | Compaction
    | ManifestRewrite
    | LogLength
    | WatermarkRenewal
    | Expiry
    | OrphanRemoval
)

#: How people name each step.
TITLES: dict[type[Step], str] = {
    RowExpiry: "expire rows",
    Compaction: "compact files",
    ManifestRewrite: "rewrite manifests",
    LogLength: "keep metadata files",
    WatermarkRenewal: "renew the watermark",
    Expiry: "expire snapshots",
    OrphanRemoval: "remove orphans",
}


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did: files and bytes that it rewrote or removed, in ``seconds``. ``files`` counts snapshots of an expiry."""

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Steps in the order to take them. ``withheld`` says what would be due otherwise, and why it is not done.

    ``backlog`` is how many files and bytes wait to be compacted, withheld or not. ``waited_s`` is how long ago the table's
    last step was.
    """

    steps: tuple[Step, ...] = ()
    withheld: tuple[str, ...] = ()
    options: MaintainOptions = field(default_factory=MaintainOptions)
    backlog: tuple[int, int] = (0, 0)
    waited_s: float = 1.0

    @property
    def urgency(self) -> tuple[float, ...]:
        """Weigh what is due by how long it waited: a table that never catches up would be the only one."""
        return (max((step.score for step in self.steps), default=0.0) * self.waited_s,)

    def without(self, kinds: Set[type[Step]]) -> Upkeep:
        """Leave out the steps of some kinds; without a renewal that it needs an expiry, too, and the reverse."""
        both = {WatermarkRenewal, Expiry}
        renews = WatermarkRenewal in map(type, self.steps)
        out = {*kinds, *both} if renews and kinds & both else kinds
        left = tuple(step for step in self.steps if type(step) not in out)
        return replace(self, steps=left)


@dataclass(frozen=True, slots=True)
class Situation:
    """``now_ms`` is our time; what removes compares it with the store's. ``by_command``: a person asked for it.

    ``bytes_per_s`` is how fast files were rewritten lately.
    """

    now_ms: int
    by_command: bool = False
    bytes_per_s: float = 20e6


def plan_upkeep(facts: MaintenanceFacts, situation: Situation) -> Upkeep:
    """Decide what is due.

    Raises:
        BadBinding: a property is unknown or does not fit.
    """
    options = parse_maintain(facts.table, facts.properties)
    rewrites = _rewrites(facts, options, situation)
    compactions = [step for step in rewrites if isinstance(step, Compaction)]
    backlog = (
        sum(step.backlog_files for step in compactions),
        sum(step.backlog_bytes for step in compactions),
    )
    if options.mode == "off":
        return Upkeep((), (f"everything: {MAINTAIN_MODE} = off",), options, backlog)
    log = [*_log_length(facts, options, situation)]
    withheld: list[str] = []
    is_on = options.mode == "on"
    if not (is_on or situation.by_command or options.compact):
        why_not = f"only by `thermocline maintain`, or with {COMPACT} = true, as `thermocline create` sets it, or {MAINTAIN_MODE} = on"
        withheld += [f"{TITLES[type(step)]}: {why_not}" for step in (*rewrites, *log)]
        rewrites, log = (), []
    foreign = None if is_on else _foreign(facts, situation)
    if foreign is not None:
        withheld += [f"{TITLES[type(step)]}: {foreign}" for step in rewrites]
        rewrites = ()
    removals, why = _removals(facts, options, situation)
    # It is asked for by properties of its own, so no upgrade begins to delete rows.
    aging = [*_aging(facts, options, situation)]
    return Upkeep((*aging, *rewrites, *log, *removals), (*withheld, *why), options, backlog)


def _aging(
    facts: MaintenanceFacts, options: MaintainOptions, situation: Situation
) -> Iterator[RowExpiry]:
    boundary = due_boundary(facts, options.pin_grace_s, situation.now_ms)
    column = None if boundary is None or facts.schema is None else boundary.column(facts.schema)
    if boundary is not None and column is not None:
        yield RowExpiry(boundary, column)


def _rewrites(
    facts: MaintenanceFacts, options: MaintainOptions, situation: Situation
) -> Sequence[Step]:
    files = facts.files.files
    target = count_property(facts.table, facts.properties, TARGET_FILE_BYTES)
    step_bytes = options.max_step_s * situation.bytes_per_s
    rules = CompactionRules.of(target or DEFAULT_TARGET_FILE_BYTES, step_bytes, files)
    due: list[Step] = []
    waiting = backlogs(files, rules)
    if waiting:
        chosen, max_files = next_step(waiting, rules)
        counts = sum(each.files for each in waiting), sum(each.bytes for each in waiting)
        drops = facts.files.delete_files > 0
        due.append(Compaction(chosen, max_files, rules, *counts, drops))
    size = count_property(facts.table, facts.properties, MANIFEST_BYTES)
    manifests = len(facts.files.manifests)
    total = sum(facts.files.manifests)
    least = math.ceil(total / (size or _DEFAULT_MANIFEST_BYTES))
    if manifests >= _MANY_MANIFESTS and manifests >= 2 * least:
        due.append(ManifestRewrite(manifests, total))
    return sorted(due, key=lambda step: -step.score)


def _foreign(facts: MaintenanceFacts, situation: Situation) -> str | None:
    """Say that another writer maintains the table, if it does."""
    times = [facts.committed_ms[each.snapshot_id] for each in facts.foreign_rewrites]
    recent = [at_ms for at_ms in times if situation.now_ms - at_ms <= FOREIGN_MS]
    if not recent:
        return None
    hours = max(0, situation.now_ms - max(recent)) // 3_600_000
    return (
        f"another writer rewrote files {hours} h ago; {MAINTAIN_MODE} = on does it all the same"
    )


def _log_length(
    facts: MaintenanceFacts, options: MaintainOptions, situation: Situation
) -> Iterator[LogLength]:
    """Older metadata files tell what expiry hid, and tickets name them: they stay as long as the grace.

    The number goes by commits that there were, and back to the table's own after a burst of them.
    """
    set_to = count_property(facts.table, facts.properties, PREVIOUS_VERSIONS, least=0)
    # Iceberg keeps one at least.
    present = _DEFAULT_VERSIONS if set_to is None else max(1, set_to)
    own = min(options.own_versions or present, present)
    since_ms = situation.now_ms - options.pin_grace_s * 1000
    commits = sum(at_ms >= since_ms for at_ms in facts.versions_ms)
    more, fewer = _versions(own, commits), _versions(own, 2 * commits)
    if more > present or fewer < present:
        yield LogLength(more if more > present else fewer, own, commits, options.pin_grace_s)


def _versions(own: int, commits: int) -> int:
    """Return how many metadata files to keep: doubled until the commits fill three quarters at most."""
    versions = own
    while commits * 4 >= versions * 3 and versions < _MOST_VERSIONS:
        versions *= 2
    return max(own, min(versions, _MOST_VERSIONS))


def _removals(
    facts: MaintenanceFacts, options: MaintainOptions, situation: Situation
) -> tuple[Sequence[Step], Sequence[str]]:
    """What deletes: only where a person wants it, and never where other tables may have the files."""
    steps, broken = _expiry(facts, options, situation)
    last_ms = options.orphans_ms
    if last_ms is None or situation.now_ms - last_ms >= _BETWEEN_ORPHANS_MS:
        steps.append(OrphanRemoval(options.max_step_s))
    removing = [TITLES[type(step)] for step in steps]
    if not gc_enabled(facts.properties):
        return (), [f"{title}: {GC_ENABLED} = false" for title in removing]
    if options.mode != "on" and not situation.by_command:
        why = f"only by `thermocline maintain`, or with {MAINTAIN_MODE} = on"
        return (), [f"{title}: {why}" for title in removing]
    return steps, [] if broken is None else [f"{TITLES[Expiry]}: {broken}"]


def _expiry(
    facts: MaintenanceFacts, options: MaintainOptions, situation: Situation
) -> tuple[list[Step], str | None]:
    """Return the steps of an expiry, or why there are none although one is due."""
    retention = Retention.of(facts.table, facts.properties)
    now_ms, grace_ms = situation.now_ms, options.pin_grace_s * 1000
    before_ms = expire_before_ms(facts, retention, grace_ms, now_ms)
    expired = expirable(facts, retention, before_ms, now_ms)
    if not expired:
        return [], None
    broken = broken_promise(facts, expired, grace_ms, now_ms)
    if broken is not None:
        return [], broken
    times = sorted(facts.committed_ms[each] for each in expired)
    waits_ms = now_ms - max(retention.max_age_ms, grace_ms) - times[0]
    if len(expired) < ENOUGH_SNAPSHOTS and waits_ms < grace_ms:
        return [], None
    if len(times) > MAX_SNAPSHOTS:
        # The oldest first: the next step has the rest.
        before_ms = min(before_ms, times[MAX_SNAPSHOTS])
    expiry = Expiry(before_ms, len(expired), sum(facts.files.manifests), facts.head)
    return [WatermarkRenewal(), expiry] if facts.needs_watermark else [expiry], None

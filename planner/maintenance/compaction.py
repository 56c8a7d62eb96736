"""Which data files are rewritten together: those that are too small, and those whose rows are deleted.

The rules are those of Iceberg's ``BinPackRewriteFilePlanner`` (1.12), which then chooses the files, with one more: a rewrite
must leave fewer files or fewer deletes. Iceberg rewrites two files of 300 MB to two again, each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.maintenance.facts import FileSize, PartitionValues

#: Iceberg's defaults (``min-file-size-bytes``, ``min-input-files``, ``delete-ratio-threshold``).
MIN_FILE_SHARE = 0.75
MIN_INPUT_FILES = 5
DELETED_SHARE = 0.3
#: So many delete files on one data file are read with it each time.
MAX_DELETE_FILES = 5
#: Target files that are rewritten together at least. Each file is below ``MIN_FILE_SHARE`` of one, so four of them fill three, while
#: two groups of two come out as they were.
MIN_GROUP_TARGETS = 3
#: A step of more is one of all there is; Iceberg's options are 64 bits.
_MAX_BUDGET_BYTES = 2**62
#: Partitions of a step. Each is a Spark job of its own however little it reads, and a term of the step's filter.
MAX_PARTITIONS = 50


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """``budget_bytes`` is about what one step may read, and no less than ``MIN_GROUP_TARGETS`` target files.

    A data file with ``max_delete_files`` or more is rewritten.
    """

    target_bytes: int
    budget_bytes: int
    max_delete_files: int = MAX_DELETE_FILES

    @classmethod
    def of(
        cls, target_bytes: int, step_bytes: float, files: Sequence[FileSize]
    ) -> CompactionRules:
        """Let all delete files go where what they touch fits in one step: without any, readers list files by themselves."""
        budget = max(MIN_GROUP_TARGETS * target_bytes, int(step_bytes))
        budget = min(budget, _MAX_BUDGET_BYTES)
        touched = sum(file.bytes for file in files if file.delete_files)
        return cls(target_bytes, budget, 1 if touched <= budget else MAX_DELETE_FILES)

    def group_bytes(self, cores: int | None) -> int:
        """Return how much is rewritten together; with ``cores`` that it may take, each writes about one file of the target size."""
        if cores is None:
            return self.budget_bytes
        return min(self.budget_bytes, self.target_bytes * max(MIN_GROUP_TARGETS, cores))

    def is_small(self, file: FileSize) -> bool:
        return file.bytes < int(MIN_FILE_SHARE * self.target_bytes)

    def is_deleted(self, file: FileSize) -> bool:
        """Whether the file is rewritten for its deletes, of any size."""
        return file.delete_files > 0 and (
            file.delete_files >= self.max_delete_files
            or file.deleted_rows >= DELETED_SHARE * file.rows
        )


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is to be rewritten of one partition. ``left`` is how many files there are about afterwards."""

    partition: PartitionValues | None
    files: int
    bytes: int
    left: int
    deleted: int

    @property
    def score(self) -> float:
        """How much it is worth: by how many times the files that go are the least for which a rewrite is begun."""
        return max(self.files - self.left, 0) / (MIN_INPUT_FILES - 1) + self.deleted


def backlogs(files: Iterable[FileSize], rules: CompactionRules) -> tuple[Backlog, ...]:
    """Return the partitions to rewrite, most worthwhile first."""
    by_partition: dict[PartitionValues | None, list[FileSize]] = defaultdict(list)
    for file in files:
        if rules.is_small(file) or rules.is_deleted(file):
            by_partition[file.partition].append(file)
    every = (_backlog(partition, group, rules) for partition, group in by_partition.items())
    return tuple(
        sorted(
            (backlog for backlog in every if _is_due(backlog, rules)),
            key=lambda backlog: (-backlog.score, str(backlog.partition)),
        )
    )


def _backlog(
    partition: PartitionValues | None, group: Sequence[FileSize], rules: CompactionRules
) -> Backlog:
    size = sum(file.bytes for file in group)
    left = max(1, -(-size // rules.target_bytes))
    return Backlog(partition, len(group), size, left, sum(map(rules.is_deleted, group)))


def _is_due(backlog: Backlog, rules: CompactionRules) -> bool:
    if backlog.deleted:
        return True
    is_enough = backlog.files >= MIN_INPUT_FILES or backlog.bytes > rules.target_bytes
    return is_enough and backlog.left < backlog.files


def next_step(
    waiting: Sequence[Backlog], rules: CompactionRules
) -> tuple[tuple[Backlog, ...], int | None]:
    """Take as many partitions as one step may rewrite, one to ``MAX_PARTITIONS``; and of one that is more, how many files."""
    chosen_bytes, chosen = 0, list[Backlog]()
    for backlog in waiting:
        is_over = chosen_bytes + backlog.bytes > rules.budget_bytes
        if chosen and (is_over or len(chosen) == MAX_PARTITIONS):
            break
        chosen.append(backlog)
        chosen_bytes += backlog.bytes
    if chosen_bytes <= rules.budget_bytes:
        return tuple(chosen), None
    [only] = chosen
    return (only,), max(MIN_INPUT_FILES, only.files * rules.budget_bytes // only.bytes)

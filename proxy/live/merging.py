"""Writes many small files of a tail again as a large one, after the load that made them many was answered."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from connectors.iceberg.live.files import LiveFiles
from planner.errors import FederationError
from planner.live.tiling import Merge
from planner.names import TableName
from proxy.live.load_ledger import TableAnswers
from proxy.live.pieces import PieceWriter, PinnedCut
from proxy.session import Cancellation, Deadline

_log = logging.getLogger(__name__)
#: The answer is on its way first: it needs the interpreter, too.
_PAUSE_S = 0.05
_LONGEST_S = 120.0
_STOP_S = 5.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What to merge: of the tail ``key``, of answers under ``contract``, the rows as of ``pinned``.

    The file counts for ``user``, whose load it was that made it necessary.
    """

    answers: TableAnswers
    pinned: PinnedCut
    key: tuple[object, ...]
    contract: str
    merge: Merge
    user: str | None

    @property
    def table(self) -> TableName:
        return self.pinned.cut.table


class Merging:
    """One thread, for one table after the other. Thread-safe; the caller stops it."""

    def __init__(self, writer: PieceWriter, files: LiveFiles) -> None:
        self._writer = writer
        self._files = files
        self._changed = threading.Condition()
        #: One per table, until it is done: loads until then still see the pieces that the merge will replace.
        self._tasks: OrderedDict[TableAnswers, MergeTask] = OrderedDict()
        self._stopped = threading.Event()
        self._cancellation = Cancellation()
        self._thread = threading.Thread(target=self._run, name="live-merging", daemon=True)
        self._thread.start()

    def begin(self, task: MergeTask) -> None:
        """Have it done soon, unless one of the table is to be done already. Does not wait."""
        with self._changed:
            self._tasks.setdefault(task.answers, task)
            self._changed.notify()

    def wait(self, answers: TableAnswers, deadline: Deadline, limit_s: float) -> None:
        """Wait until nothing of a table is to be merged, so long at most.

        Raises:
            FederationError: the deadline is over, or the caller has gone.
        """
        until_s = time.monotonic() + limit_s
        with self._changed:
            while answers in self._tasks and (left_s := until_s - time.monotonic()) > 0:
                self._changed.wait(min(_LOOK_S, left_s))
                deadline.check()

    def stop(self) -> None:
        """Give up what is at work."""
        self._stopped.set()
        self._cancellation.request()
        with self._changed:
            self._changed.notify()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._tasks and not self._stopped.is_set():
                    self._changed.wait()
            if self._stopped.wait(_PAUSE_S):
                return
            task = next(iter(self._tasks.values()))
            try:
                self._work(task)
            except FederationError as error:
                if not self._stopped.is_set():
                    _log.warning("live files of %s were not merged: %s", task.table, error)
            except Exception:  # noqa: BLE001  a bug of ours must not end merging
                _log.exception("live files of %s were not merged", task.table)
            finally:
                with self._changed:
                    del self._tasks[task.answers]
                    self._changed.notify_all()

    def _work(self, task: MergeTask) -> None:
        answers, catalog = task.answers, task.table.catalog
        if not answers.has(task.key, task.merge.pieces):
            return  # tiering took some of them over, or they are merged already
        deadline = Deadline(_LONGEST_S, self._cancellation)
        (piece,) = self._writer.write(
            *(task.pinned, [task.merge.hole], deadline, None),
            lambda written: answers.note([written], answers.rooms.live, task.user),
        )
        # In the table's turn: a load under way would replace what is noted here.
        with answers.turn(deadline):
            if self._files.replica(catalog) == answers.replica:
                answers.add(task.key, task.contract, piece)
            elif piece.path is not None:
                self._files.remove(catalog, [piece.path])

"""Writes what of a cut's tail is in no file yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from connectors.iceberg.live.files import LiveFiles
from planner.live.tiling import Hole, LivePiece
from planner.seam.cut import Pin, TableCut
from proxy.deadline import WAITED_FOR_TAIL, Deadline
from proxy.engine.engine import Engine
from proxy.engine.thread_pool import ThreadPool
from proxy.live.tail_rows import tail_batches
from proxy.tail.tails import Tails


class PieceWriter:
    """Thread-safe; the caller closes it."""

    def __init__(self, tails: Tails, engine: Engine, files: LiveFiles) -> None:
        self._tails = tails
        self._engine = engine
        self._files = files
        # A thread whose call into the engine takes long has a lower priority from then on: these end, the caller's would not.
        self._threads = ThreadPool()

    def close(self) -> None:
        self._threads.close()

    def write(
        self,
        pin: Pin,
        cut: TableCut,
        holes: Iterable[Hole],
        deadline: Deadline,
        owner: str | None,
        note: Callable[[Sequence[LivePiece]], None],
    ) -> tuple[LivePiece, ...]:
        """Write a file for each hole of a cut that has a tail, by the deadline.

        ``holes`` are asked for the next one once the last is written. ``note`` gets each file as it is written, also
        where its caller has gone.

        Raises:
            FederationError: as ``holes``, ``Tails.read``, ``Engine.run`` and ``LiveFiles.write_piece``.
        """
        hot = cut.hot
        if hot is None:
            raise ValueError(f"{cut.table} has no tail")

        def work() -> tuple[LivePiece, ...]:
            written = []
            with self._tails.read(cut, partial(deadline.check, WAITED_FOR_TAIL)) as tail:
                for hole in holes:
                    batches = tail_batches(
                        self._engine, cut, tail.relations, hole.ranges, deadline, owner
                    )
                    piece = self._files.write_piece(pin, hole, hot.epochs, batches)
                    note([piece])
                    written.append(piece)
            return tuple(written)

        return self._threads.run(work, deadline, owner)

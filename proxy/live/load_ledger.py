"""What one table's loads have been answered, which files of it may be removed, and the newest answers' texts in memory."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cachetools import FIFOCache, LRUCache

from planner.errors import Overloaded
from planner.live.tiling import MOST, LivePiece
from proxy.live.room import Room, Rooms
from proxy.session import Deadline

#: Contracts of freshness whose pieces later answers may use: contracts that accept older answers have other ranges.
_MAX_CONTRACTS = 8
_LOOK_S = 0.05
#: Of a generation of tails.
Key = tuple[object, ...]


@dataclass(eq=False, slots=True)
class Answer:
    """One answer to a load, whose text is at ``location``.

    ``paths`` are files of it alone; ``pieces`` it shares with others. ``answered_s``: when it was answered last.
    """

    cut: str
    location: str
    #: Of the table, which is not that of its metadata file.
    table_location: str
    etag: str
    paths: tuple[str, ...]
    pieces: tuple[LivePiece, ...]
    answered_s: float = 0.0

    @property
    def is_ours(self) -> bool:
        """Whether we wrote its text: that of a table which passes through is in no file."""
        return self.location in self.paths


def etag_of(location: str, raw: bytes) -> str:
    """Name an answer. The file at ``location`` may be gone where another with the same text is not."""
    return f'"{hashlib.sha256(location.encode() + raw).hexdigest()[:32]}"'


@dataclass(eq=False)
class TableAnswers:
    """Answers and pieces of one table, all in one folder.

    One load at a time writes; others share one that began after they asked. Loads of named cuts have turns of their own.
    """

    clock: Callable[[], float]
    rooms: Rooms
    replica: str = ""
    #: That of the pin that the newest answer was made from.
    grace_s: int | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _named_turn: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _answers: OrderedDict[str, Answer] = field(default_factory=OrderedDict)
    #: Of the newest tail's generation: the pieces that later answers may use, by contract.
    _key: Key | None = None
    _usable: FIFOCache[str, tuple[LivePiece, ...]] = field(
        default_factory=lambda: FIFOCache(_MAX_CONTRACTS)
    )
    #: Of that generation all pieces that are there, by file: also those that a larger one stands for.
    _there: dict[str, LivePiece] = field(default_factory=dict)
    #: Pieces that named cuts left, by file, of any tail. Only named cuts use them.
    _of_named: dict[str, tuple[Key, LivePiece]] = field(default_factory=dict)
    #: Every file there is, and when an answer that names it was answered last.
    _pieces: dict[str, float] = field(default_factory=dict)
    #: The newest live answer, and when its measuring began.
    _newest: tuple[float, Answer] | None = None
    #: Whether the folder is lost: what loads still write there takes no room.
    _is_lost: bool = False

    @contextmanager
    def turn(self, deadline: Deadline, *, is_named: bool = False) -> Iterator[None]:
        """Wait until no other load of the table writes; of a named cut, no other one of those.

        Raises:
            Overloaded: it did not come by the deadline.
        """
        turn = self._named_turn if is_named else self._turn
        while not turn.acquire(timeout=min(_LOOK_S, max(deadline.left_s, 0.0))):
            deadline.cancellation.check()
            if deadline.is_over:
                raise Overloaded(
                    "Other loads of this table take longer than this one may wait; try again."
                )
        try:
            yield
        finally:
            turn.release()

    def since(self, arrival_s: float) -> Answer | None:
        """Return the newest answer if all that it is made of was asked for after ``arrival_s``."""
        newest = self._newest
        return None if newest is None or newest[0] <= arrival_s else self.again(newest[1])

    def began(self, at_s: float, answer: Answer) -> None:
        """Note the newest live answer, whose measuring began at that time."""
        self._newest = at_s, answer

    def of(self, cut: str) -> Answer | None:
        """Return the answer of a cut; who gives it says so (``again``)."""
        with self._lock:
            return self._answers.get(cut)

    def again(self, answer: Answer) -> Answer | None:
        """Note that an answer is handed out now: its files stay as long as it is good for.

        None where it was forgotten since, and its files with it (``expired``).
        """
        with self._lock:
            if self._answers.get(answer.cut) is not answer:
                return None
            self._hand_out(answer)
        return answer

    def _hand_out(self, answer: Answer) -> None:
        answer.answered_s = self.clock()
        self._note(answer.pieces)
        self._answers.move_to_end(answer.cut)

    def keep(self, answer: Answer, room: Room, user: str | None, size: int) -> Answer | None:
        """Keep an answer, whose own files have ``size`` bytes; None where files that it names are gone,
        or the folder is.

        The text of a plain table may be made again: then the first answer is handed out again.
        """
        with self._lock:
            if self._is_lost or not self._are_there(answer.pieces):
                return None
            before = self._answers.get(answer.cut)
            if before is not None and before.etag == answer.etag:
                self._hand_out(before)
                return before
            room.add_answer(answer, user)
            if answer.paths:
                room.add_file(answer.location, user, size)
            if before is not None:  # its files stay as long as it is good for
                self._answers[f"{answer.cut} {before.etag}"] = before
            self._answers[answer.cut] = answer
            self._hand_out(answer)
        return answer

    def usable(self, key: Key) -> tuple[LivePiece, ...]:
        """Return pieces of a tail, some of which hold the same records; their files stay for now."""
        with self._lock:
            if key != self._key:
                return ()
            pieces = {id(piece): piece for own in self._usable.values() for piece in own}
            self._note(pieces.values())
        return tuple(pieces.values())

    @property
    def is_full(self) -> bool:
        """Whether the next load has to merge before it answers."""
        with self._lock:
            return any(len(pieces) >= MOST for pieces in self._usable.values())

    def others(self, key: Key) -> tuple[LivePiece, ...]:
        """Return all pieces of a tail that are there yet. They may go at any time until they are claimed."""
        with self._lock:
            return tuple(self._there.values()) if key == self._key else ()

    def claim(self, pieces: Iterable[LivePiece]) -> bool:
        """Have files stay for now; False where one of them is gone."""
        pieces = tuple(pieces)
        with self._lock:
            if not self._are_there(pieces):
                return False
            self._note(pieces)
        return True

    def _are_there(self, pieces: Iterable[LivePiece]) -> bool:
        return all(piece.path is None or piece.path in self._pieces for piece in pieces)

    def use(self, key: Key, contract: str, pieces: Iterable[LivePiece]) -> None:
        """Note the newest pieces of a tail under a contract: those that are not among them are not used again for it."""
        with self._lock:
            if key != self._key:
                self._key = key
                self._usable.clear()
                self._there.clear()
            self._usable.pop(contract, None)
            self._usable[contract] = tuple(pieces)
            self._there |= {
                piece.path: piece
                for piece in self._usable[contract]
                if piece.path is not None and piece.path in self._pieces
            }

    def has(self, key: Key, pieces: Iterable[LivePiece]) -> bool:
        """Whether later answers may use all of these pieces of a tail."""
        with self._lock:
            own = {id(piece) for usable in self._usable.values() for piece in usable}
            return key == self._key and all(id(piece) in own for piece in pieces)

    def add(self, key: Key, contract: str, piece: LivePiece) -> None:
        """Note a merged piece. The pieces it replaces stay, for cuts that need a part of it. Call in the table's turn."""
        with self._lock:
            if key == self._key and contract in self._usable:
                self._usable[contract] = (*self._usable[contract], piece)

    def note(self, written: Iterable[LivePiece], room: Room, user: str | None) -> None:
        """Note files that were written for a user, kept or not."""
        written = tuple(written)
        with self._lock:
            if self._is_lost:
                return
            self._note(written)
            for piece in written:
                if piece.path is not None:
                    room.add_file(piece.path, user, piece.size)

    def for_named(self, key: Key) -> tuple[LivePiece, ...]:
        """Return all pieces of a tail that a named cut may use. They may go at any time until they are claimed."""
        with self._lock:
            own = tuple(piece for tail, piece in self._of_named.values() if tail == key)
            if key != self._key:
                return own
            usable = (piece for pieces in self._usable.values() for piece in pieces)
            there = {piece.path: piece for piece in (*self._there.values(), *usable)}
            return (*own, *(piece for path, piece in there.items() if path is not None))

    def leave(self, key: Key, pieces: Iterable[LivePiece]) -> None:
        """Leave pieces that were written for a named cut to other named cuts."""
        with self._lock:
            for piece in pieces:
                if piece.path is not None and piece.path in self._pieces:
                    self._of_named[piece.path] = key, piece

    def _note(self, pieces: Iterable[LivePiece]) -> None:
        now = self.clock()
        for piece in pieces:
            if piece.path is not None:
                self._pieces[piece.path] = now

    def expired(self, before_s: float) -> tuple[str, ...]:
        """Forget answers that were answered last before that time; return the files that nothing names any more."""
        with self._lock:
            answers = list(self._answers.items())
            old = [
                self._answers.pop(key) for key, each in answers if each.answered_s < before_s
            ]
            if self._newest is not None and self._newest[1].answered_s < before_s:
                self._newest = None
            unused = {path for path, at_s in self._pieces.items() if at_s < before_s}
            for path in unused:
                del self._pieces[path]
                self._there.pop(path, None)
                self._of_named.pop(path, None)
            for contract, pieces in list(self._usable.items()):
                if not unused.isdisjoint(piece.path for piece in pieces):
                    left = (piece for piece in pieces if piece.path not in unused)
                    self._usable[contract] = tuple(left)
            own = (answer.location for answer in old if answer.paths)
            self.rooms.forget(old, (*unused, *own))
        return (*unused, *(path for answer in old for path in answer.paths))

    def forget(self) -> None:
        """Take no more room from here on: the folder is not ours any more."""
        with self._lock:
            self._is_lost = True
            own = [answer.location for answer in self._answers.values() if answer.paths]
            self.rooms.forget(self._answers.values(), (*self._pieces, *own))


#: A table of a thousand snapshots has about a megabyte.
MAX_BYTES = 64 << 20


class Texts:
    """By ETag. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._texts: LRUCache[str, bytes] = LRUCache(max_bytes, getsizeof=len)

    def get(self, etag: str) -> bytes | None:
        with self._lock:
            return self._texts.get(etag)

    def put(self, etag: str, text: bytes) -> None:
        with self._lock, contextlib.suppress(ValueError):  # larger than all that is remembered
            self._texts[etag] = text

    @property
    def size(self) -> int:
        """Bytes in memory."""
        with self._lock:
            return int(self._texts.currsize)

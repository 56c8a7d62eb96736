"""Live tables: what an Iceberg engine gets when it loads a table. A load is a cut, as a statement's is.

Pin, measure, decide; write as files what of the tail is not in files yet; answer with the pinned metadata and one snapshot
more (``planner.live.metadata``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from connectors.iceberg.live.files import LiveFiles
from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    ColdStoreUnavailable,
    CutExpired,
    FederationError,
    InternalError,
    StalePlan,
    UnknownTable,
)
from planner.live.tiling import (
    Hole,
    LivePiece,
    Tiling,
    check_tiled,
    merge_of,
    parts_of,
    tile,
    tile_named,
)
from planner.names import Side, TableName
from planner.offsets import OffsetVector
from planner.seam.cut import HotSlice, Pin, TableCut
from planner.seam.time_travel import format_cut
from planner.statement.references import check_no_side
from proxy.access.policy import AccessPolicy
from proxy.engine.engine import Engine
from proxy.live.load_ledger import Answer, TableAnswers, Texts, etag_of
from proxy.live.merging import MergeTask, Merging
from proxy.live.pieces import PieceWriter
from proxy.live.room import MAX_LIVE_BYTES, Rooms
from proxy.query.cut import FreshnessContract, SnapshotCutter
from proxy.session import Deadline, Session
from proxy.tail.followed_table import key_of
from proxy.tail.tails import Tails

#: A load whose files are removed during it is answered anew.
_ATTEMPTS = 3
#: So long it waits for what is being merged; then it merges by itself.
_MERGE_WAIT_S = 10.0
_log = logging.getLogger(__name__)
#: Between two looks at what may be removed, and two heartbeats: a fraction of what answers are good for.
_TEND_SHARE = 8
_LONGEST_TEND_S = 30.0
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The answer to a load: the metadata file's address and its text. ``etag`` is the same for the same text."""

    location: str
    metadata: bytes
    etag: str


class LiveTables:
    """Answers loads. Thread-safe; the caller stops it."""

    def __init__(
        self,
        *,
        pins: PinCache,
        cutter: SnapshotCutter,
        tails: Tails,
        engine: Engine,
        grants: AccessPolicy,
        files: LiveFiles,
        ttl_s: float,
        max_bytes: int = MAX_LIVE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ttl_s``: how long an answer, and the files it names, are good for after it was answered last.

        ``max_bytes``: of all files that are good.
        """
        self._pins = pins
        self._cutter = cutter
        self._grants = grants
        self._files = files
        self._ttl_s = ttl_s
        self.clock = clock
        self._lock = threading.Lock()
        #: By table, and the folder that its files lie in.
        self._tables: dict[tuple[TableName, str], TableAnswers] = {}
        self._rooms = Rooms(max_bytes)
        self._texts = Texts()
        self._writer = PieceWriter(tails, engine, files)
        self._merging = Merging(self._writer, files)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-files", daemon=True)
        self._thread.start()

    @property
    def text_bytes(self) -> int:
        """What texts of answers take in memory."""
        return self._texts.size

    def stop(self) -> None:
        """Beat no more. Files stay for those who read them; another replica removes them."""
        self._stopped.set()
        self._merging.stop()
        self._writer.close()
        self._thread.join(_STOP_S)

    def visible(self, session: Session, *, is_new: bool = False) -> Collection[TableName]:
        """Name the tables a session may see, sorted. ``is_new``: ask the catalogs again, for a name that is not there."""
        is_open = partial(self._grants.is_open, session)
        tables = self._pins.relist(session.user, is_open) if is_new else self._pins.tables()
        return self._grants.visible(session, tables)

    def check(self, session: Session, table: TableName) -> None:
        """Make sure that there is such a table, and that its files may be handed to the session.

        Raises:
            UnknownTable: there is none that it sees.
            CatalogUnavailable: perhaps there is one, which the catalog does not say now.
            NotAllowed: a part of it is hidden from the session.
            BadConfig: its name means a side of another table.
        """
        visible = self.visible(session)
        if table not in visible:
            visible = self.visible(session, is_new=True)
        if table not in visible:
            self._pins.check_listed(table.catalog)
            raise UnknownTable(f"{table}: there is no such table.", table=str(table))
        check_no_side(table, visible)
        self._grants.check_files(session, table)

    def load(
        self,
        session: Session,
        table: TableName,
        deadline: Deadline,
        arrival_s: float | None = None,
    ) -> LoadedTable:
        """Answer a load of the table as the session's freshness says.

        ``arrival_s``: when it was asked for, by ``clock``, if not now: an answer whose measuring began later is its own.

        Raises:
            UnknownTable, NotAllowed: as ``check``.
            FederationError: as a statement over the table; or live files cannot be written.
        """
        self.check(session, table)
        contract = FreshnessContract.of(session)
        if arrival_s is None:
            arrival_s = self.clock()
        if contract.wait_for is not None:
            # Not in the table's turn: a load that waits for a record that never comes would hold up all others.
            with self._grants.redacting_errors(session, [table]):
                self._cutter.cut_table(table, contract, deadline)
        for _ in range(_ATTEMPTS):
            loaded = self._loaded(session, table, contract, deadline, arrival_s)
            if loaded is not None:
                return loaded
        raise _gone(table)

    def _loaded(
        self,
        session: Session,
        table: TableName,
        contract: FreshnessContract,
        deadline: Deadline,
        arrival_s: float,
    ) -> LoadedTable | None:
        """Answer a load; None where files that the answer names are gone."""
        answers = self._answers_of(table)
        is_named = contract.past is not None
        if not is_named and answers.is_full:
            # What is being merged would be merged again, by this load.
            self._merging.wait(answers, deadline, _MERGE_WAIT_S)
        with (
            answers.turn(deadline, is_named=is_named),
            self._grants.redacting_errors(session, [table]),
        ):
            is_plain = contract == FreshnessContract()
            loaded = None
            if is_plain and (answer := answers.since(arrival_s)) is not None:
                loaded = self._again(table, answer)
            if loaded is None:
                began_s = self.clock()
                answered = self._answered(answers, session, table, contract, deadline)
                if answered is None:
                    return None
                answer, loaded = answered
                if is_plain:
                    answers.began(began_s, answer)
        if self._files.replica(table.catalog) != answers.replica:
            return None
        return loaded

    def _again(self, table: TableName, answer: Answer) -> LoadedTable | None:
        """Answer as before; None where the text is not there."""
        text = self._texts.get(answer.etag)
        if text is None and answer.is_ours:
            text = self._files.read(table.catalog, answer.location, answer.table_location)
            self._texts.put(answer.etag, text)
        return None if text is None else LoadedTable(answer.location, text, answer.etag)

    def _answered(
        self,
        answers: TableAnswers,
        session: Session,
        table: TableName,
        contract: FreshnessContract,
        deadline: Deadline,
    ) -> tuple[Answer, LoadedTable] | None:
        try:
            return self._at_cut(answers, session, table, contract, deadline)
        except StalePlan:
            # Files or offsets of the pin are gone: the newest one has others.
            self._cutter.forget(table)
            return self._at_cut(answers, session, table, contract, deadline)

    def _at_cut(
        self,
        answers: TableAnswers,
        session: Session,
        table: TableName,
        contract: FreshnessContract,
        deadline: Deadline,
    ) -> tuple[Answer, LoadedTable] | None:
        cut = self._cutter.cut_table(table, contract, deadline)
        text = format_cut({(table, None): cut})
        answer = answers.of(text)
        if answer is not None and _still_holds(answer, cut, contract) and answers.again(answer):
            loaded = self._again(table, answer)
            if loaded is not None:
                return answer, loaded
        room = self._rooms.live if contract.past is None else self._rooms.named
        room.check(session.user)
        if not cut.is_cold_whole:
            raise CutExpired(
                f"{table}: the snapshot of this cut is not retained, and a newer one holds records from after the cut, "
                f"which files cannot leave out; read the cut over Flight SQL.",
                table=str(table),
            )
        pin = self._cutter.pin_of(cut)
        pieces: tuple[LivePiece, ...] = ()
        if pin.binding is None:
            written = self._files.plain(pin, text)
        else:
            pieces = self._pieces(answers, session, pin, cut, contract, deadline)
            written = self._files.write_table(pin, pieces, text)
        etag = etag_of(written.location, written.raw)
        made = Answer(
            cut=text,
            location=written.location,
            table_location=written.table_location,
            etag=etag,
            paths=written.paths,
            pieces=pieces,
            answered_s=0.0,
        )
        new = answers.keep(made, room, session.user, written.size)
        if new is None:
            self._files.remove(table.catalog, written.paths)
            return None
        self._texts.put(etag, written.raw)
        return new, LoadedTable(written.location, written.raw, etag)

    def _pieces(
        self,
        answers: TableAnswers,
        session: Session,
        pin: Pin,
        cut: TableCut,
        contract: FreshnessContract,
        deadline: Deadline,
    ) -> tuple[LivePiece, ...]:
        """Have exactly the tail of a cut in files: those there are, and new ones."""
        if cut.binding is None or cut.hot is None:
            return ()
        key, hot = key_of(cut, cut.binding, cut.hot), cut.hot
        is_named = contract.past is not None
        room = self._rooms.named if is_named else self._rooms.live
        tiling = (_tiled_named if is_named else _tiled)(answers, key, hot)

        def note(pieces: Sequence[LivePiece]) -> None:
            answers.note(pieces, room, session.user)
            if is_named:
                answers.leave(key, pieces)

        def holes() -> Iterator[Hole]:
            for hole in tiling.holes:
                room.check(session.user)  # what was there before may have been used up
                yield hole

        written: tuple[LivePiece, ...] = ()
        if tiling.holes:
            written = self._writer.write(pin, cut, holes(), deadline, session.user, note)
        pieces = (*tiling.pieces, *written)
        try:
            check_tiled(hot.ranges, pieces)
        except AssertionError as error:
            _log.critical("%s: %s", cut.table, error)
            raise InternalError(f"{cut.table}: its live files do not fit its cut.") from error
        if not is_named and contract.freshness.side is Side.BOTH:
            answers.use(key, str(contract), pieces)
            if (merge := merge_of(pieces)) is not None:
                self._merging.begin(
                    MergeTask(answers, pin, cut, key, str(contract), merge, session.user)
                )
        return pieces

    def _answers_of(self, table: TableName) -> TableAnswers:
        replica = self._files.replica(table.catalog)
        with self._lock:
            answers = self._tables.get((table, replica))
            if answers is None:
                answers = TableAnswers(self.clock, self._rooms, replica)
                self._tables[table, replica] = answers
        return answers

    def tend(self) -> None:
        """Remove files of answers that are not good any more; beat."""
        self._files.tend()
        before_s = self.clock() - self._ttl_s
        with self._lock:
            tables = list(self._tables.items())
        for (table, replica), answers in tables:
            if replica != self._files.replica(table.catalog):
                with self._lock:
                    del self._tables[table, replica]
                answers.forget()
                continue
            expired = answers.expired(before_s)
            if expired:
                self._files.remove(table.catalog, expired)

    def _run(self) -> None:
        pause_s = min(self._ttl_s / _TEND_SHARE, _LONGEST_TEND_S)
        while not self._stopped.wait(pause_s):
            try:
                self.tend()
            except FederationError as error:
                _log.warning("live files were not tended: %s", error)
            except Exception:  # noqa: BLE001  a bug of ours must not end the heartbeat
                _log.exception("live files were not tended")


def _gone(table: TableName) -> ColdStoreUnavailable:
    return ColdStoreUnavailable(
        f"{table}: its live files are removed while they are written; try again.",
        table=str(table),
    )


def _tiled(answers: TableAnswers, key: tuple[object, ...], hot: HotSlice) -> Tiling:
    """Choose among the pieces that are there; they stay for now."""
    tiling = tile(hot.ranges, hot.epochs, answers.usable(key))
    if tiling.cut:
        parts = parts_of(tiling.cut, answers.others(key))
        finer = tile(hot.ranges, hot.epochs, (*tiling.pieces, *parts))
        if answers.claim(finer.pieces):
            return finer
    return tiling


def _tiled_named(answers: TableAnswers, key: tuple[object, ...], hot: HotSlice) -> Tiling:
    """The same for a cut that a reader names: also among those that other named cuts left."""
    tiling = tile_named(hot.ranges, answers.for_named(key))
    if answers.claim(tiling.pieces):
        return tiling
    return tile_named(hot.ranges, answers.usable(key))


def _still_holds(answer: Answer, cut: TableCut, contract: FreshnessContract) -> bool:
    """Whether the log's leaders are those under which the answer's files were read.

    After an unclean election there may be other records at the same offsets.
    """
    if cut.hot is None:
        return True
    return not tile(cut.hot.ranges, _epochs(cut.hot, contract), answer.pieces).holes


def _epochs(hot: HotSlice, contract: FreshnessContract) -> OffsetVector | None:
    return hot.epochs if contract.past is None else None

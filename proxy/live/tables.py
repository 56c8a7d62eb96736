"""Live tables: what an Iceberg engine gets when it loads a table. A load is a cut, as a statement's is.

Pin, measure, decide; write as files what of the tail is not in files yet; answer with the pinned metadata and one snapshot
more (``planner.live.metadata``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from connectors.iceberg.live.files import LiveFiles
from planner.errors import (
    ColdStoreUnavailable,
    CutExpired,
    FederationError,
    InternalError,
    StalePlan,
    UnknownTable,
    not_for_keyed,
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
from planner.seam.cut import HotSlice, TableCut
from planner.seam.time_travel import format_cut
from planner.statement.references import check_no_side
from proxy.live.load_ledger import Answer, TableAnswers, Texts, etag_of
from proxy.live.merging import MergeTask, Merging
from proxy.live.pieces import PieceWriter, PinnedCut
from proxy.live.room import MAX_LIVE_BYTES, Rooms
from proxy.query.cut import FreshnessContract
from proxy.query.executor import Statements
from proxy.session import Deadline, Session
from proxy.tail.followed_table import key_of

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


@dataclass(frozen=True, slots=True)
class _Load:
    """One load: of whom, of what, as of when and until when; ``answers`` are the table's."""

    session: Session
    table: TableName
    contract: FreshnessContract
    deadline: Deadline
    answers: TableAnswers

    @property
    def is_named(self) -> bool:
        """Whether its reader names the cut."""
        return self.contract.past is not None

    def still_holds(self, answer: Answer, cut: TableCut) -> bool:
        """Whether the log's leaders are those under which the answer's files were read.

        After an unclean election there may be other records at the same offsets.
        """
        if cut.hot is None:
            return True
        epochs = None if self.is_named else cut.hot.epochs
        return not tile(cut.hot.ranges, epochs, answer.pieces).holes


class LiveTables:
    """Answers loads. Thread-safe; the caller stops it."""

    def __init__(
        self,
        statements: Statements,
        files: LiveFiles,
        *,
        ttl_s: float,
        max_bytes: int = MAX_LIVE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ttl_s``: how long an answer, and the files it names, are good for after it was answered last.

        ``max_bytes``: of all files that are good.
        """
        sources = statements.sources
        self._pins, self._cutter = sources.pins, statements.cutter
        self._grants = statements.access
        self._files = files
        self._ttl_s = ttl_s
        self.clock = clock
        self._lock = threading.Lock()
        #: By table, and the folder that its files lie in.
        self._tables: dict[tuple[TableName, str], TableAnswers] = {}
        self._rooms = Rooms(max_bytes)
        self._texts = Texts()
        self._writer = PieceWriter(sources.tails, sources.engine, files)
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
        if contract.wait_for:
            # Not in the table's turn: a load that waits for a record that never comes would hold up all others.
            with self._grants.redacting_errors(session, [table]):
                self._cutter.cut_table(table, contract, deadline)
        for _ in range(_ATTEMPTS):
            load = _Load(session, table, contract, deadline, self._answers_of(table))
            loaded = self._loaded(load, arrival_s)
            if loaded is not None:
                return loaded
        raise ColdStoreUnavailable(
            f"{table}: its live files are removed while they are written; try again.",
            table=str(table),
        )

    def _loaded(self, load: _Load, arrival_s: float) -> LoadedTable | None:
        """Answer a load; None where files that the answer names are gone."""
        answers, table = load.answers, load.table
        if not load.is_named and answers.is_full:
            # What is being merged would be merged again, by this load.
            self._merging.wait(answers, load.deadline, _MERGE_WAIT_S)
        with (
            answers.turn(load.deadline, is_named=load.is_named),
            self._grants.redacting_errors(load.session, [table]),
        ):
            is_plain = load.contract == FreshnessContract()
            loaded = None
            if is_plain and (answer := answers.since(arrival_s)) is not None:
                loaded = self._again(table, answer)
            if loaded is None:
                began_s = self.clock()
                answered = self._answered(load)
                if answered is None:
                    return None
                answer, loaded = answered
                if is_plain:
                    answers.began(began_s, answer)
        return loaded if self._files.replica(table.catalog) == answers.replica else None

    def _again(self, table: TableName, answer: Answer) -> LoadedTable | None:
        """Answer as before; None where the text is not there."""
        text = self._texts.get(answer.etag)
        if text is None and answer.is_ours:
            text = self._files.read(table.catalog, answer.location, answer.table_location)
            self._texts.put(answer.etag, text)
        return None if text is None else LoadedTable(answer.location, text, answer.etag)

    def _answered(self, load: _Load) -> tuple[Answer, LoadedTable] | None:
        try:
            return self._at_cut(load)
        except StalePlan:
            # Files or offsets of the pin are gone: the newest one has others.
            self._cutter.forget(load.table)
            return self._at_cut(load)

    def _at_cut(self, load: _Load) -> tuple[Answer, LoadedTable] | None:
        answers, table, user = load.answers, load.table, load.session.user
        cut = self._cutter.cut_table(table, load.contract, load.deadline)
        check_has_files(cut, load.contract)
        text = format_cut({(table, None): cut})
        answer = answers.of(text)
        if answer is not None and load.still_holds(answer, cut) and answers.again(answer):
            loaded = self._again(table, answer)
            if loaded is not None:
                return answer, loaded
        room = self._rooms.named if load.is_named else self._rooms.live
        room.check(user)
        if not cut.is_cold_whole:
            raise CutExpired(
                f"{table}: the snapshot of this cut is not retained, and a newer one holds records from after the cut, "
                f"which files cannot leave out; read the cut over Flight SQL.",
                table=str(table),
            )
        pin = self._cutter.pin_of(cut)
        answers.grace_s = pin.grace_s
        pieces: tuple[LivePiece, ...] = ()
        if pin.binding is None:
            written = self._files.plain(pin, text)
        else:
            pieces = self._pieces(load, PinnedCut(pin, cut))
            written = self._files.write_table(pin, pieces, text)
        etag = etag_of(written.location, written.raw)
        location = written.location
        made = Answer(text, location, written.table_location, etag, written.paths, pieces)
        new = answers.keep(made, room, user, written.size)
        if new is None:
            self._files.remove(table.catalog, written.paths)
            return None
        self._texts.put(etag, written.raw)
        return new, LoadedTable(location, written.raw, etag)

    def _pieces(self, load: _Load, pinned: PinnedCut) -> tuple[LivePiece, ...]:
        """Have exactly the tail of a cut in files: those there are, and new ones."""
        answers, user, cut = load.answers, load.session.user, pinned.cut
        hot, key = cut.hot, key_of(cut)
        if hot is None or key is None:
            return ()
        room = self._rooms.named if load.is_named else self._rooms.live
        tiling = (_tiled_named if load.is_named else _tiled)(answers, key, hot)

        def note(piece: LivePiece) -> None:
            answers.note([piece], room, user)
            if load.is_named:
                answers.leave(key, [piece])

        def holes() -> Iterator[Hole]:
            for hole in tiling.holes:
                room.check(user)  # what was there before may have been used up
                yield hole

        written: tuple[LivePiece, ...] = ()
        if tiling.holes:
            written = self._writer.write(pinned, holes(), load.deadline, user, note)
        pieces = (*tiling.pieces, *written)
        try:
            check_tiled(hot.ranges, pieces)
        except AssertionError as error:
            _log.critical("%s: %s", cut.table, error)
            raise InternalError(f"{cut.table}: its live files do not fit its cut.") from error
        if not load.is_named and load.contract.freshness.side is Side.BOTH:
            contract = str(load.contract)
            answers.use(key, contract, pieces)
            if (merge := merge_of(pieces)) is not None:
                self._merging.begin(MergeTask(answers, pinned, key, contract, merge, user))
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
        clock_s = self.clock()
        with self._lock:
            tables = list(self._tables.items())
        for (table, replica), answers in tables:
            if replica != self._files.replica(table.catalog):
                with self._lock:
                    del self._tables[table, replica]
                answers.forget()
                continue
            expired = answers.expired(clock_s - self._good_s(answers))
            if expired:
                self._files.remove(table.catalog, expired)

    def _good_s(self, answers: TableAnswers) -> float:
        """Return for how long an answer is good: what it names of the table itself stays no longer than the grace."""
        grace_s = answers.grace_s
        return self._ttl_s if grace_s is None else min(self._ttl_s, grace_s)

    def _run(self) -> None:
        pause_s = min(self._ttl_s / _TEND_SHARE, _LONGEST_TEND_S)
        while not self._stopped.wait(pause_s):
            try:
                self.tend()
            except FederationError as error:
                _log.warning("live files were not tended: %s", error)
            except Exception:  # noqa: BLE001  a bug of ours must not end the heartbeat
                _log.exception("live files were not tended")


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


def check_has_files(cut: TableCut, contract: FreshnessContract) -> None:
    """Refuse the tail of a keyed table: its changes hide rows of files that are there.

    Raises:
        NotForKeyedTables: more than the snapshot is asked for.
    """
    is_keyed = cut.binding is not None and cut.binding.upsert is not None
    if is_keyed and contract.freshness.side is not Side.COLD:
        catalog = cut.table.catalog
        raise not_for_keyed(
            cut.table,
            "the Iceberg REST catalog with the tail",
            f"load it from the warehouse {catalog}@cold, which has the rows that are tiered, or ask over Flight SQL",
        )

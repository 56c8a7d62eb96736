"""The permissions in force, as the parts of a statement's path need them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from cachetools import LRUCache

from planner.errors import (
    FederationError,
    GrantsChanged,
    PermissionsMismatch,
    UndecodableRecord,
    UnknownTable,
)
from planner.names import TableName
from planner.permissions import (
    FactKinds,
    Grant,
    GrantList,
    Identity,
    RowExpression,
    VisibleColumns,
    check_files,
    check_whole,
    mismatch,
    view,
)
from planner.schema import TableSchema
from planner.sql_text import identifier, literal
from planner.statement.ast import Node
from planner.statement.references import ResolvedTable
from planner.statement.row_expression import row_expression, selecting
from planner.type_text import sql_type
from proxy.engine.engine import Engine
from proxy.engine.relations import AccessFilter, Relation
from proxy.engine.statement_cache import StatementCache
from proxy.session import Session

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """What one user sees of one table. ``access_filter`` is None where that is all of it.

    ``plain`` are the columns whose values are the table's own; ``is_filtered``: not every row is seen.
    """

    schema: TableSchema
    plain: TableSchema
    access_filter: AccessFilter | None = None

    @property
    def is_filtered(self) -> bool:
        return self.access_filter is not None and self.access_filter.rows is not None


class AccessPolicy:
    """Decisions of one policy, each worked out once. Thread-safe. ``policy`` may be replaced; None: all is open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.policy: GrantList | None = None
        self._once = StatementCache()
        #: By identity: the policy and tables it was made of, and the visible ones. Compared, as hashing 10,000 names takes 2 ms.
        self._visible: LRUCache[
            Identity, tuple[GrantList, Collection[TableName], Collection[TableName]]
        ] = LRUCache(_MAX_IDENTITIES)
        self._lock = threading.Lock()

    def expression(self, text: str) -> RowExpression:
        """Read an expression of a grant.

        Raises:
            BadStatement, UnsupportedStatement: it does not parse, or is not allowed there.
        """
        return RowExpression(text, row_expression(self._engine.parse(f"SELECT {text}")))

    def visible(self, session: Session, tables: Collection[TableName]) -> Collection[TableName]:
        policy, identity = self.policy, _identity(session)
        if policy is None:
            return tables
        with self._lock:
            cached = self._visible.get(identity)
        if cached is not None and cached[0] is policy and cached[1] == tables:
            return cached[2]
        visible = policy.visible(identity, tables)
        with self._lock:
            self._visible[identity] = (policy, tables, visible)
        return visible

    def is_open(self, session: Session, catalog: str) -> bool:
        """Whether a session may know that there is such a catalog: a grant is about it."""
        return self.policy is None or self.policy.opens(_identity(session), catalog)

    def visible_table(
        self, session: Session, reference: ResolvedTable, schema: TableSchema
    ) -> VisibleTable:
        """Return what a session sees of a visible table.

        Raises:
            PermissionsMismatch: the grant does not fit the table. What does not is in the log.
            NotAllowed: as ``planner.permissions.view``.
        """
        policy, identity = self.policy, _identity(session)
        if policy is None:
            return VisibleTable(schema, schema)
        try:
            grant = policy.grant(identity, reference.table)
            if grant is None:  # since it was looked up
                raise GrantsChanged(_CHANGED)
            if grant.is_whole:
                return VisibleTable(schema, schema)
            return self._once.get(
                ("columns", grant, identity, reference.table, reference.side, schema),
                lambda: self.fit(grant, identity, reference, schema),
            )
        except PermissionsMismatch as error:
            _log.error("permissions.%(grant)s on %(table)s: %(why)s", error.facts)
            raise

    def closed_facts(self, session: Session, table: TableName) -> FactKinds:
        """Return which facts of a whole table a session may not know."""
        if self.policy is None:
            return FactKinds(0)
        grant = self.policy.grant(_identity(session), table)
        return ~FactKinds(0) if grant is None else grant.closed_facts

    def check_files(self, session: Session, table: TableName) -> None:
        """Make sure that a session may be given a table's files.

        Raises:
            UnknownTable: it does not see the table.
            NotAllowed: it sees a part of it only.
        """
        if self.policy is None:
            return
        identity = _identity(session)
        grant = self.policy.grant(identity, table)
        if grant is None:
            raise UnknownTable(f"{table}: there is no such table.", table=str(table))
        check_files(grant, identity, table)

    def check_whole(self, session: Session, tables: Iterable[TableName]) -> None:
        """Make sure that nothing of visible tables is hidden from a session.

        Raises:
            NotAllowed: something is.
        """
        if self.policy is None:
            return
        identity = _identity(session)
        for table in tables:
            grant = self.policy.grant(identity, table)
            if grant is None:  # since it was looked up
                raise GrantsChanged(_CHANGED)
            check_whole(grant, identity, table)

    def check_count_disclosure(
        self, session: Session, tables: Iterable[TableName], counting: Iterable[str]
    ) -> bool:
        if self.policy is None:
            return False
        return self.policy.check_count_disclosure(_identity(session), tables, counting)

    def mark(self, session: Session, tables: Iterable[TableName]) -> str:
        """Return what a ticket over ``tables`` remembers of the permissions it was planned under."""
        if self.policy is None:
            return ""
        return self.policy.fingerprint(_identity(session), tables)

    def check(self, session: Session, tables: Iterable[TableName], mark: str) -> None:
        """Refuse a ticket that was planned under other permissions.

        Raises:
            GrantsChanged
        """
        if self.mark(session, tables) != mark:
            raise GrantsChanged(_CHANGED)

    @contextlib.contextmanager
    def redacting_errors(
        self, session: Session, tables: Collection[TableName]
    ) -> Iterator[None]:
        """Tell where and why a record does not decode only to those who may read all of it.

        Raises:
            UndecodableRecord: with a message for them, or for others.
        """
        try:
            yield
        except UndecodableRecord as error:
            policy, identity = self.policy, _identity(session)
            grants = [policy.grant(identity, table) for table in tables] if policy else []
            if all(grant is not None and grant.is_whole for grant in grants):
                raise
            _log.error("%s", error)
            raise UndecodableRecord(
                f"{', '.join(map(str, tables))}: a record that is not tiered yet does not decode; the server's log "
                f"says which, tell its operator."
            ) from error

    def fit(
        self, grant: Grant, identity: Identity, reference: ResolvedTable, schema: TableSchema
    ) -> VisibleTable:
        """Work out what a grant leaves of a table.

        Raises:
            PermissionsMismatch, NotAllowed: as ``visible_table``, without a word in the log.
        """
        left = view(grant, identity, reference, schema)
        if left is None:
            return VisibleTable(schema, schema)
        try:
            restriction = self._access_filter(left)
            # Bound once on its own: an error in a statement would quote the grant to its user.
            everything = self._engine.parse("SELECT * FROM visible")
            self._engine.describe(everything, [Relation("visible", schema, (), restriction)])
        except FederationError as error:
            raise mismatch(grant, reference.table, error.message) from error
        return VisibleTable(left.schema, left.plain, restriction)

    def _access_filter(self, left: VisibleColumns) -> AccessFilter:
        columns = [
            (column.name, self._value(left, column.name, column.type, identifier(column.name)))
            for column in left.schema.columns
        ]
        rows = None if left.rows is None else f"TRY(CAST({self._text(left.rows)} AS BOOLEAN))"
        return AccessFilter(tuple(columns), rows)

    def _value(self, left: VisibleColumns, path: str, kind: pa.DataType, value: str) -> str:
        """Return what stands for ``value``: itself, its mask, or a struct of what is left of its fields."""
        mask = left.masks.get(path)
        if mask is not None:
            return f"TRY(CAST({self._text(mask)} AS {sql_type(kind)}))"
        if path not in left.parted:
            return value
        fields = []
        for field in (kind.field(index) for index in range(kind.num_fields)):
            own = f"struct_extract({value}, {literal(field.name)})"
            inner = self._value(left, f"{path}.{field.name}", field.type, own)
            fields.append(f"{identifier(field.name)} := {inner}")
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"

    def _text(self, expression: Node) -> str:
        printed = self._engine.unparse(selecting([expression]))
        return f"({printed.removeprefix('SELECT ')})"


#: Identities whose visible tables are remembered; a list of 10,000 takes 80 KB.
_MAX_IDENTITIES = 256
_CHANGED = "what you may read has changed since the statement was planned; plan it again."


def _identity(session: Session) -> Identity:
    return Identity(session.user, session.groups)

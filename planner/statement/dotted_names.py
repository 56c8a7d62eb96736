"""Names with the schema or the catalog of a table before them, over relations that have neither.

The rule of DuckDB 1.5.5, measured by ``tests/unit/test_statement_qualified.py``, which asks it. A name of n parts means
the first of these that there is in the nearest FROM clause, then in the one around that; case does not matter.

1. n > 3: catalog.schema.table.column; n > 2: catalog.table.column, then schema.table.column. The table has the column.
   The levels of a schema are one name or several, which is ours: to DuckDB they are one.
2. n > 1: table.column, by the alias if there is one. The table has the column.
3. column: the rest are fields, whether it has them or not. Where its type has none it is an error; in WHERE and GROUP BY
   only if no FROM clause around it has another meaning.
4. A table, as a struct of its columns: table; schema.table, then catalog.table; catalog.schema.table.

What is behind the column are fields. Catalog and schema are those that the table was found in, not those that FROM
writes; a table with an alias, a WITH clause and a subquery have none. An alias of the SELECT list and the parameter of a
lambda come last. EXCLUDE and RENAME know no catalog.table.

Relations are found by one name, so 1 and the longer ones of 4 are written as that. The other meanings are left to the
engine: it knows the columns of subqueries. Where only these decide whether a nearer meaning goes before one of ours,
the name is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.errors import UnsupportedStatement
from planner.statement.ast import (
    Node,
    Nodes,
    Scope,
    fold,
    is_table,
    kind_of,
    scoped,
    statement,
    visible_name,
)
from planner.statement.parameters import call
from planner.statement.query_columns import columns_of_query, texts_of_columns
from planner.statement.references import TableReference, reference_of

Path = tuple[str, ...]

#: Parts of (catalog, schema, table) that address a table before a column, by precedence; and one alone.
_BEFORE_COLUMN = ((0, 1, 2), (0, 2), (1, 2))
_ALONE = ((1, 2), (0, 2), (0, 1, 2))
#: EXCLUDE and RENAME.
_IN_LISTS = ((1, 2), (0, 1, 2))


@dataclass(frozen=True, slots=True)
class AddressableTable:
    """A table as a reference finds it: catalog, schema and name, and the columns that there are for the statement."""

    path: Path
    columns: tuple[str, ...] = ()
    #: Those among the columns that have fields: structs, maps.
    nested: frozenset[str] = frozenset()


def may_name_paths(document: Node, paths: Iterable[Path]) -> bool:
    """Whether a statement may name one of its tables by such a path, or joins two tables of one name.

    Else every name means over relations what it means over the tables. The statement has passed the gate.
    """
    starts = {
        tuple(map(fold, names))[:2]
        for path in paths
        for form in _BEFORE_COLUMN
        for names in _spellings(path, form)
    }
    for node, scope in scoped(document):
        if kind_of(node) == "COLUMN_REF":
            if tuple(map(fold, node["column_names"][:2])) in starts:
                return True
        elif kind_of(node) == "STAR":
            if any(_qualifiers(column)[:2] in starts for column in _listed(node)):
                return True
        elif node.get("type") == "SELECT_NODE" and _has_twins(node, scope):
            return True
    return False


def readdress(document: Node, tables: Mapping[TableReference, AddressableTable]) -> None:
    """Write names that address a table by its path as relations without one are addressed, in place.

    ``tables`` has an entry for every one of ``references(document)``.

    Raises:
        UnsupportedStatement: a name may mean either of two things.
    """
    nodes = list(scoped(document))
    names = _Names(document, nodes, tables)
    names.rename()
    changes: list[tuple[Node, Node]] = []
    items: set[int] = set()
    for node, scope in nodes:
        if "select_list" in node:
            items.update(id(item) for item in node["select_list"] if not item["alias"])
        elif kind_of(node) == "COLUMN_REF":
            changes.extend((node, new) for new in names.written(node, scope, id(node) in items))
        elif kind_of(node) == "STAR":
            changes.extend(names.of_star(node, scope))
        elif is_table(node):
            changes.extend((node, {"alias": alias}) for alias in names.aliases(node))
    for node, new in changes:
        if "class" in new:
            node.clear()
        node.update(new)


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """What a FROM clause joins; folded. No path: it has an alias or is no table. ``columns`` are None where unknown."""

    name: str
    path: Path = ()
    columns: frozenset[str] | None = None
    table: AddressableTable = AddressableTable(())
    #: Columns with fields, and without; of others it is not known.
    nested: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()

    def has(self, column: str, *, is_read: bool) -> bool | None:
        """Whether it has a column, one with fields if a field ``is_read``; None: unknown."""
        if self.columns is None:
            return None
        if column not in self.columns:
            return False
        if not is_read or column in self.nested:
            return True
        return False if column in self.plain else None


class _Frame:
    """What one FROM clause joins, found by what names say."""

    def __init__(self, sources: Sequence[_Source]) -> None:
        self.sources = sources
        self.by_name: dict[str, list[_Source]] = defaultdict(list)
        #: By the parts of a path and what they are.
        self.by_path: dict[tuple[tuple[int, ...], Path], list[_Source]] = defaultdict(list)
        for source in sources:
            self.by_name[source.name].append(source)
            for form in _BEFORE_COLUMN if source.path else ():
                for parts in _spellings(source.path, form):
                    self.by_path[form, parts].append(source)
        #: By what the parts are, how many there may be; the most first.
        self.lengths: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for what, length in sorted({(form, -len(path)) for form, path in self.by_path}):
            self.lengths[what].append(-length)
        complete = [source for source in sources if source.columns is not None]
        self.is_complete = len(complete) == len(sources)
        self.columns = frozenset[str]().union(*(source.columns or () for source in complete))
        self.nested = frozenset[str]().union(*(source.nested for source in complete))
        #: Columns of which it is not known whether they have fields.
        self.untyped = frozenset[str]().union(
            *((each.columns or frozenset()) - each.nested - each.plain for each in complete)
        )

    def named(self, name: str) -> list[_Source]:
        return self.by_name.get(name, [])

    def at(self, names: Path, forms: Iterable[tuple[int, ...]]) -> list[_Source]:
        """Return the tables that a whole name addresses by the first of these parts of their paths that any has."""
        return next(
            (self.by_path[key] for form in forms if (key := (form, names)) in self.by_path), []
        )

    def before_column(self, names: Path) -> tuple[list[_Source], int]:
        """Return the tables that the first parts of a name address, with how many parts; the next is one of their
        columns.
        """
        for form in _BEFORE_COLUMN:
            for length in self.lengths.get(form, ()):
                if len(names) <= length:
                    continue
                addressed = self.by_path.get((form, names[:length]), [])
                matches = [each for each in addressed if names[length] in (each.columns or ())]
                if matches:
                    return matches, length
        return [], 0


@dataclass(frozen=True, slots=True, eq=False)
class _Meaning:
    """A table that a name addresses, what is behind the table's name, and what nearer FROM clauses join."""

    source: _Source
    rest: list[str]
    nearer: tuple[_Frame, ...]


class _Names:
    """What names mean in one statement."""

    def __init__(
        self,
        document: Node,
        nodes: Sequence[tuple[Node, Scope]],
        tables: Mapping[TableReference, AddressableTable],
    ) -> None:
        self._query = statement(document)["node"]
        self._nodes = nodes
        self._sources: dict[int, _Source] = {}
        #: The sources that each name is given to.
        self._of_name: dict[str, set[Path]] = defaultdict(set)
        for node, scope in nodes:
            if "class" not in node and "alias" in node and "type" in node:
                source = _source(node, scope, tables)
                self._sources[id(node)] = source
                self._of_name[source.name].add(source.path)
        self._columns = frozenset().union(
            *(source.columns for source in self._sources.values() if source.columns)
        )
        self._new: dict[Path, str] = {}
        # By the identity of what the scopes of ``nodes`` hold.
        self._frames: dict[int, _Frame] = {}
        self._meanings: dict[tuple[Path, int], _Meaning | None] = {}

    def rename(self) -> None:
        """Give a name of its own to each table that is addressed by its path where its name means something else."""
        hidden: list[_Source] = []
        for node, scope in self._nodes:
            if kind_of(node) == "COLUMN_REF":
                meaning = self._meaning(node["column_names"], scope)
                if meaning is not None and (
                    self._is_shared(meaning.source)
                    or any(self._may_have(near, meaning.source.name) for near in meaning.nearer)
                ):
                    hidden.append(meaning.source)
            elif kind_of(node) == "STAR":
                excluded = (source for _, source in self._excluded(node, scope))
                hidden += filter(self._is_shared, excluded)
            elif node.get("type") == "SELECT_NODE" and _has_twins(node, scope):
                hidden += filter(self._is_shared, self._frame(scope.frames[0]).sources)
        for path, source in {source.path: source for source in hidden if source.path}.items():
            alias = ".".join(source.table.path)
            in_use = self._of_name.keys() | self._columns | (self._texts or frozenset())
            while fold(alias) in in_use:
                alias += "'"
            self._new[path] = alias
        if self._new:
            self._meanings.clear()

    def _is_shared(self, source: _Source) -> bool:
        return len(self._of_name[source.name]) > 1

    def aliases(self, table: Node) -> Iterator[str]:
        """The new name of a table, if it has one."""
        path = self._sources[id(table)].path
        if path in self._new:
            yield self._new[path]

    def written(self, node: Node, scope: Scope, is_item: bool) -> Iterator[Node]:
        """What is new about a reference; its name if it ``is_item``: one of a whole row may change otherwise."""
        names = node["column_names"]
        meaning = self._meaning(names, scope)
        if meaning is None:
            return
        source, rest = meaning.source, meaning.rest
        alias = self._new.get(source.path) or source.table.path[-1]
        if rest:
            yield {"column_names": [alias, *rest]}
            return
        row: Node = {"column_names": [alias]}
        if any(self._may_have(self._frame(nodes), fold(alias)) for nodes in scope.frames):
            # A column comes first. This is what the engine makes of a table's name.
            row = call(
                "struct_pack", *(_field(node, alias, name) for name in source.table.columns)
            )
        has_other_name = "class" in row or alias != names[-1]
        yield {**row, "alias": names[-1] if is_item and has_other_name else node["alias"]}

    def of_star(self, node: Node, scope: Scope) -> Iterator[tuple[Node, Node]]:
        """What is new about ``flows.*``, and about the columns of EXCLUDE and RENAME."""
        name = node["relation_name"]
        named = self._frame(scope.frames[0]).named(fold(name)) if name and scope.frames else []
        if self._are_new(named):
            yield node, {"relation_name": self._new[_one(named, name).path]}
        for column, source in self._excluded(node, scope):
            alias = self._new.get(source.path) or source.table.path[-1]
            yield column, {"catalog": "", "schema": "", "table": alias}

    def _excluded(self, node: Node, scope: Scope) -> Iterator[tuple[Node, _Source]]:
        """The columns of a star's lists that name a table by its path, or one with a new name."""
        for column in _listed(node) if scope.frames else ():
            frame, names = self._frame(scope.frames[0]), _qualifiers(column)
            matches = frame.at(names, _IN_LISTS)
            if len(names) == 1 and self._are_new(frame.named(names[0])):
                matches = frame.named(names[0])
            if matches:
                yield column, _one(matches, ".".join((*names, column["column"])))

    def _meaning(self, names: list[str], scope: Scope) -> _Meaning | None:
        """Return what a name means that addresses a table by its path or its new name; None: it is for the engine.

        Raises:
            UnsupportedStatement: a nearer meaning is possible.
        """
        key = tuple(names), id(scope.frames)
        if key not in self._meanings:
            self._meanings[key] = self._search(names, scope)
        return self._meanings[key]

    def _search(self, names: list[str], scope: Scope) -> _Meaning | None:
        folded = tuple(map(fold, names))
        text = ".".join(names)
        is_unsure = False
        nearer: list[_Frame] = []
        for nodes in scope.frames:
            frame = self._frame(nodes)
            matches, length = frame.before_column(folded)
            named = frame.named(folded[0])
            if not matches and len(names) > 1 and self._are_new(named):
                having = [
                    each for each in named if each.has(folded[1], is_read=False) is not False
                ]
                matches, length = having if self._are_new(having) else [], 1
            if not matches:
                is_column = self._is_column(frame, folded)
                if is_column:
                    return None
                is_unsure |= is_column is None
                # A column without fields is no error in WHERE where a FROM clause around it has another meaning.
                matches = [] if folded[0] in frame.columns else frame.at(folded, _ALONE)
                length = len(names)
                if len(names) == 1 and named:
                    if not self._are_new(named):
                        return None
                    matches = named
                if matches and is_unsure and nodes is scope.frames[-1] and not self._has_lambda:
                    # If it is no column, it is nothing to the engine, which says so.
                    return None
            if matches:
                if is_unsure:
                    raise _two_meanings(text, "a column or a table; give the table an alias.")
                return _Meaning(_one(matches, text), names[length:], tuple(nearer))
            nearer.append(frame)
        return None

    def _is_column(self, frame: _Frame, names: Path) -> bool | None:
        """Whether a name means a column in a FROM clause by 2 or 3; None: only the engine can tell."""
        column, *rest = names
        if column in (frame.nested if rest else frame.columns):
            return True
        named = frame.named(column) if rest else []
        readings = [source.has(rest[0], is_read=len(rest) > 1) for source in named]
        if True in readings:
            return True
        if None in readings or column in frame.untyped:
            return None
        return None if not frame.is_complete and self._may_be_column(column) else False

    def _are_new(self, sources: Iterable[_Source]) -> bool:
        return any(source.path in self._new for source in sources)

    def _frame(self, nodes: Nodes) -> _Frame:
        if id(nodes) not in self._frames:
            self._frames[id(nodes)] = _Frame([self._sources[id(node)] for node in nodes])
        return self._frames[id(nodes)]

    def _may_have(self, frame: _Frame, name: str) -> bool:
        """Whether a FROM clause may have a column of this name."""
        return name in frame.columns or (not frame.is_complete and self._may_be_column(name))

    def _may_be_column(self, name: str) -> bool:
        """Whether a subquery may have a column of this name."""
        return self._texts is None or name in self._texts or name in self._columns

    @cached_property
    def _has_lambda(self) -> bool:
        return any(kind_of(node) == "LAMBDA" for node, _ in self._nodes)

    @cached_property
    def _texts(self) -> frozenset[str] | None:
        return texts_of_columns(self._query, [node for node, _ in self._nodes], self._of_name)


def _source(
    node: Node, scope: Scope, tables: Mapping[TableReference, AddressableTable]
) -> _Source:
    name = fold(visible_name(node))
    if not is_table(node):
        is_query = node["type"] == "SUBQUERY" and not node["column_name_alias"]
        query = node["subquery"]["node"] if is_query else None
        return _Source(name, columns=columns_of_query(query))
    if scope.is_cte(node):
        clause = scope.ctes.get(fold(node["table_name"]))
        has_names = node["column_name_alias"] or clause is None or clause["aliases"]
        query = None if has_names or clause is None else clause["query"]["node"]
        return _Source(name, columns=columns_of_query(query))
    table = tables[reference_of(node)]
    columns = None if node["column_name_alias"] else frozenset(map(fold, table.columns))
    path = () if node["alias"] else tuple(map(fold, table.path))
    nested = frozenset(map(fold, table.nested))
    return _Source(name, path, columns, table, nested, (columns or frozenset()) - nested)


def _spellings(path: Path, form: tuple[int, ...]) -> Iterator[Path]:
    """Yield the parts of a path that ``form`` names: the schema as one name, and as its levels where it has several."""
    parts = tuple(path[part] for part in form)
    yield parts
    levels = tuple(
        level
        for part in form
        for level in (path[part].split(".") if part == 1 else (path[part],))
    )
    if levels != parts:
        yield levels


def _one(matches: Sequence[_Source], text: str) -> _Source:
    """Return the one table there is. Raises UnsupportedStatement: there are several."""
    if len({source.path for source in matches}) > 1:
        raise _two_meanings(text, "either of two tables; give one of them an alias.")
    return matches[0]


def _two_meanings(text: str, which: str) -> UnsupportedStatement:
    return UnsupportedStatement(f"{text} may mean {which}", column=text)


def _has_twins(query: Node, scope: Scope) -> bool:
    """Whether a SELECT joins two sources of one name."""
    if not scope.frames or query["from_table"]["type"] != "JOIN":
        return False
    names = [fold(name) for node in scope.frames[0] if (name := visible_name(node))]
    return len(set(names)) < len(names)


def _listed(star: Node) -> list[Node]:
    """Return the columns of EXCLUDE and RENAME that may have a table before them."""
    return [*star["qualified_exclude_list"], *(item["key"] for item in star["rename_list"])]


def _qualifiers(column: Node) -> Path:
    parts = (column["catalog"], column["schema"], column["table"])
    return tuple(fold(part) for part in parts if part)


def _field(reference: Node, alias: str, name: str) -> Node:
    return {**reference, "column_names": [alias, name], "alias": name}

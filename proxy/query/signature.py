"""What a statement returns and takes: its columns, and the types of its parameters."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from planner.errors import BadParameter
from planner.seam.cut import Pin, TableCut
from planner.statement.ast import parameters as parameters_of
from planner.statement.expansion_limits import Breadth, check_breadth
from planner.statement.references import CutKey
from proxy.engine.engine import Engine
from proxy.engine.statement_cache import StatementCache
from proxy.query.parsing import ParsedStatement
from proxy.query.relations import Relations
from proxy.session import Prepared, Session


class Signatures:
    """Binds statements over empty relations of the types they read; nothing is executed. Thread-safe.

    Binding depends on nothing else, and takes 5 ms: what was prepared is not bound again to be planned.
    """

    def __init__(self, engine: Engine, relations: Relations) -> None:
        self._engine = engine
        self._relations = relations
        self._cache = StatementCache()

    def has(
        self, session: Session, parsed: ParsedStatement, parameters: pa.RecordBatch | None
    ) -> bool:
        """Whether ``columns`` of a statement without tables is cached: it was bound before."""
        return self._cache.cached((parsed, (), session.zone), Prepared) is not None and (
            parameters is None or not parsed.may_type_columns
        )

    def prepared(
        self,
        session: Session,
        parsed: ParsedStatement,
        pins_or_cuts: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> Prepared:
        """Describe a statement whose parameters are not bound: their types, and those of the columns, are a guess.

        Raises:
            RequestError: it does not bind.
        """
        empty = tuple(self._relations.empty(session, parsed, pins_or_cuts))

        def described() -> Prepared:
            breadths = {relation.name: Breadth.of(relation.arrow) for relation in empty}
            document = parsed.over(empty)
            check_breadth(document, breadths)
            result, types = self._engine.describe(document, empty, time_zone=session.zone)
            names = parameters_of(document)
            fields = [pa.field(*parameter) for parameter in zip(names, types, strict=True)]
            return Prepared(result, pa.schema(fields))

        return self._cache.get((parsed, empty, session.zone), described, chars=parsed.chars)

    def columns(
        self,
        session: Session,
        parsed: ParsedStatement,
        cuts: Mapping[CutKey, TableCut],
        parameters: pa.RecordBatch | None,
        *,
        is_bound: bool,
    ) -> pa.Schema:
        """Return the columns that a statement answers with these parameters: clients hold the stream against them.

        Raises:
            BadParameter: ``is_bound``, and they are too many or too few.
            RequestError: it does not bind.
        """
        prepared = self.prepared(session, parsed, cuts)
        if is_bound:
            _check_count(parameters, prepared.parameter_schema)
        if not is_bound or parameters is None or not parsed.may_type_columns:
            return prepared.dataset_schema
        empty = self._relations.empty(session, parsed, cuts)
        return self._engine.describe_bound(
            parsed.over(empty),
            empty,
            [column[0] for column in parameters.columns],
            time_zone=session.zone,
        )


def _check_count(parameters: pa.RecordBatch | None, expected: pa.Schema) -> None:
    count = 0 if parameters is None else parameters.num_columns
    if count != len(expected):
        raise BadParameter(
            f"the statement has {len(expected)} parameters and {count} are bound.",
            expected=len(expected),
            given=count,
        )

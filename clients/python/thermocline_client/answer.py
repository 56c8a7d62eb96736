"""A whole answer: as Arrow, pandas or Polars, and how it looks in a notebook."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from thermocline_client import html
from thermocline_client.errors import printable
from thermocline_client.facts import AnswerFacts, facts_of, quiet_line

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from thermocline_client.connection import Connection


class StatementAnswer:
    """``seconds`` is from the question to the last row; ``cut`` what was read, "" where the server does not tell."""

    def __init__(
        self, sql: str, table: pa.Table, seconds: float, ended_s: float, connection: Connection
    ) -> None:
        """Take a table and when its last row arrived, by ``time.monotonic``."""
        self.sql = sql
        self.seconds = seconds
        self.ended_s = ended_s
        self._table = table
        self._connection = connection

    @property
    def cut(self) -> str:
        """What ``ask(…, cut=…)`` takes: the same rows again."""
        metadata = self._table.schema.metadata or {}
        return str(metadata.get(b"thermocline.cut", b"").decode())

    @functools.cached_property
    def facts(self) -> AnswerFacts:
        """How many rows of each side were there to read; asked of the server at this answer's cut, once."""
        return facts_of(self, self._connection)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def arrow(self) -> pa.Table:
        return self._table

    def pandas(self) -> pd.DataFrame:
        """Whole numbers stay whole: a column of them with NULLs has pandas' nullable type."""
        import pandas as pd

        nullable = {
            index: column
            for index, column in enumerate(self._table.columns)
            if pa.types.is_integer(column.type) and column.null_count
        }
        if not nullable:
            return self._table.to_pandas()
        frame = pd.DataFrame(index=range(len(self)))
        for index, column in enumerate(self._table.columns):
            name = self._table.field(index).name
            one = column.to_pandas() if index not in nullable else _nullable(pd, column)
            frame[name] = one
        return frame

    def polars(self) -> pl.DataFrame:
        import polars as pl

        return pl.DataFrame(self._table)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self._table.schema)
        return f"<StatementAnswer: {len(self):,} rows, {self.seconds * 1_000:,.0f} ms, {printable(columns[:1_000])}>"

    def _repr_html_(self) -> str:
        return html.of_table(self._table, quiet_line(self, self.facts))


def _nullable(pd: Any, column: pa.ChunkedArray) -> Any:
    """A column of whole numbers with NULLs: as float64 those above 2**53 would be other numbers."""
    name = str(column.type).replace("i", "I", 1).replace("uI", "UI", 1)
    return pd.api.types.pandas_dtype(name).__from_arrow__(column)

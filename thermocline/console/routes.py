"""What the pages ask: each route takes a call of a person who is logged in, and answers with a document or a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

from starlette.responses import Response

from planner.errors import BadParameter, FederationError
from thermocline.console import cells, pages
from thermocline.console.person import Document, Person
from thermocline.console.runs import MAX_ROWS, Runs
from thermocline.output.formats import WRITERS

#: Rows of one answer to a grid that scrolls.
_MAX_WINDOW = 500
_MAX_CUT_CHARS = 64 * 1024
_FILE_KINDS = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}


@dataclass(frozen=True, slots=True)
class PageCall:
    """``query`` has the parameters of the address, those of its path too; ``body`` is what was posted."""

    person: Person
    statements: Runs
    query: Mapping[str, str]
    body: Mapping[str, Any]
    server: str

    def text(self, name: str) -> str:
        """Return a parameter. Raises BadParameter: it is missing."""
        value = self.query.get(name, self.body.get(name))
        if not isinstance(value, str) or not value:
            raise BadParameter(f"{name} is missing.")
        if "\0" in value:
            raise BadParameter(f"{name} is a text.")
        return value

    def number(self, name: str, default: int) -> int:
        value = self.query.get(name, str(default))
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise BadParameter(f"{name} is a number.")
        return int(value)

    @property
    def table(self) -> pages.TablePath:
        names = self.text("catalog"), self.text("schema"), self.text("table")
        return pages.TablePath(*names, at=self.query.get("at") or None)

    @property
    def cut(self) -> str | None:
        value = self.body.get("cut") or None
        if value is not None and (
            not isinstance(value, str)
            or not (value.isascii() and value.isprintable() and len(value) < _MAX_CUT_CHARS)
        ):
            raise BadParameter("a cut is a text as thermocline_cut() gives it.")
        return value


@dataclass(frozen=True, slots=True)
class Data:
    """A document."""

    document: Document


@dataclass(frozen=True, slots=True)
class Polled:
    """A document that many tabs ask for again and again: by the page's name, and how to have it."""

    page: str
    ask: Callable[[], Document]


Answer: TypeAlias = Data | Polled | Response


def session(call: PageCall) -> Answer:
    return Data(
        {"name": call.person.name, "server": call.server, "version": version("thermocline")}
    )


def tables(call: PageCall) -> Answer:
    return Polled("tables", lambda: pages.tables(call.person))


def seam(call: PageCall) -> Answer:
    table = call.table
    return Polled(f"seam {table.page}", lambda: pages.seam(call.person, table))


def table(call: PageCall) -> Answer:
    return Data(pages.details(call.person, call.table))


def names(call: PageCall) -> Answer:
    return Data(pages.names(call.person))


def explain(call: PageCall) -> Answer:
    sql = call.text("sql").strip().rstrip(";").rstrip()
    return Data({"sides": cells.records_of(call.person.ask(f"EXPLAIN {sql}", call.cut))})


def start(call: PageCall) -> Answer:
    return Data({"id": call.statements.start(call.text("sql"), call.cut)})


def state(call: PageCall) -> Answer:
    statement = call.statements.statement(call.text("id"))
    state = statement.state
    schema, error = statement.schema, statement.error
    return Data(
        {
            "state": state,
            "rows": statement.rows,
            "is_whole": statement.is_whole,
            "max_rows": MAX_ROWS,
            "elapsed_ms": round(statement.elapsed_s * 1000),
            "columns": [] if schema is None else cells.columns_of(schema),
            "cut": statement.cut,
            "error": None if error is None else described(error),
        }
    )


def window(call: PageCall) -> Answer:
    statement = call.statements.statement(call.text("id"))
    start = call.number("start", 0)
    stop = min(call.number("stop", start + _MAX_WINDOW), start + _MAX_WINDOW)
    return Data({"start": start, "rows": cells.rows_of(statement.table(start, stop))})


def cell(call: PageCall) -> Answer:
    whole = call.statements.statement(call.text("id")).table()
    row, column = call.number("row", 0), call.number("column", 0)
    if row >= whole.num_rows or column >= whole.num_columns:
        raise BadParameter("the answer has no such row or column.")
    return Data({"text": cells.full_text(whole.column(column), row)})


def points(call: PageCall) -> Answer:
    """Return a column of names or times and one of numbers, thinned out, for a chart."""
    whole = call.statements.statement(call.text("id")).table()
    chosen = call.number("x", 0), call.number("y", 1)
    if max(chosen) >= whole.num_columns:
        raise BadParameter("the answer has no such column.")
    step = -(-whole.num_rows // max(1, call.number("points", 1_000))) or 1
    thin = whole.select(list(chosen)).take(list(range(0, whole.num_rows, step)))
    return Data({"step": step, "rows": cells.rows_of(thin, 100)})


def file(call: PageCall) -> Answer:
    statement = call.statements.statement(call.text("id"))
    form = call.text("format")
    if form not in _FILE_KINDS:
        raise BadParameter(f"format is one of {', '.join(_FILE_KINDS)}.")
    whole, sink = statement.table(), io.BytesIO()
    WRITERS[form](sink, whole.schema, whole.to_batches())
    headers = {"content-disposition": f'attachment; filename="answer.{form}"'}
    return Response(sink.getvalue(), media_type=_FILE_KINDS[form], headers=headers)


def cancel(call: PageCall) -> Answer:
    call.statements.statement(call.text("id")).cancel()
    return Data({})


def running(call: PageCall) -> Answer:
    return Polled("running", lambda: pages.running(call.person))


def end_other(call: PageCall) -> Answer:
    return Data(pages.end_statement(call.person, call.text("statement")))


def health(call: PageCall) -> Answer:
    return Polled("health", lambda: pages.health(call.person))


def described(error: FederationError) -> Document:
    return {"class": type(error).__name__, "message": error.message}


ROUTES: Mapping[tuple[str, str], Callable[[PageCall], Answer]] = {
    ("GET", "session"): session,
    ("GET", "tables"): tables,
    ("GET", "seam"): seam,
    ("GET", "table"): table,
    ("GET", "names"): names,
    ("POST", "explain"): explain,
    ("POST", "statements"): start,
    ("GET", "statements/{id}"): state,
    ("DELETE", "statements/{id}"): cancel,
    ("GET", "statements/{id}/rows"): window,
    ("GET", "statements/{id}/cell"): cell,
    ("GET", "statements/{id}/points"): points,
    ("GET", "statements/{id}/file"): file,
    ("GET", "running"): running,
    ("POST", "running/cancel"): end_other,
    ("GET", "health"): health,
}

"""What stood on each side of the seam when a statement was answered, and the quiet line that says so.

Asked of the server at the answer's own cut, when an answer is looked at: one that goes on to pandas pays nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline_client.errors import AnswerError
from thermocline_client.sql_text import side_name

if TYPE_CHECKING:
    from thermocline_client.answer import StatementAnswer
    from thermocline_client.connection import Connection

_CUT_CHARS = 14


@dataclass(frozen=True)
class AnswerFacts:
    """Rows that the statement's tables had on each side; None: the server does not tell.

    ``newest_age_s`` is of the newest record in Kafka alone, when the answer was there.
    """

    cold_rows: int | None = None
    hot_rows: int | None = None
    newest_age_s: float | None = None


def facts_of(answer: StatementAnswer, connection: Connection) -> AnswerFacts:
    """Ask for them; what the server refuses, or no longer has, is left out."""
    if not answer.cut:
        return AnswerFacts()
    try:
        plan = connection.ask(f"EXPLAIN {answer.sql}", cut=answer.cut).arrow().to_pylist()
        cold = [row["records"] for row in plan if row["side"] == "cold"]
        names = [side_name(row["table"], "tail") for row in plan if row["side"] == "tail"]
        tails = [name for name in names if name is not None]
        if None in cold or len(tails) < len(names):
            return AnswerFacts()
        if not tails:
            return AnswerFacts(sum(cold), 0)
        [hot] = connection.ask(_hot_sql(tails), cut=answer.cut).arrow().to_pylist()
    except AnswerError:
        return AnswerFacts()
    age_us = hot["age_us"]
    later_s = time.monotonic() - answer.ended_s
    age_s = None if age_us is None else max(0.0, age_us / 1_000_000 - later_s)
    return AnswerFacts(sum(cold), hot["n"], age_s)


def quiet_line(answer: StatementAnswer, facts: AnswerFacts) -> str:
    """As ``20,100,000 rows = 20,000,000 cold + 100,000 hot, 41 ms, newest 38 ms old, cut c:…``."""
    if facts.cold_rows is None or facts.hot_rows is None:
        said = [_counted(len(answer))]
    else:
        whole = facts.cold_rows + facts.hot_rows
        said = [f"{_counted(whole)} = {facts.cold_rows:,} cold + {facts.hot_rows:,} hot"]
    said.append(duration(answer.seconds))
    if facts.newest_age_s is not None:
        said.append(f"newest {duration(facts.newest_age_s)} old")
    if answer.cut:
        more = "…" if len(answer.cut) > _CUT_CHARS else ""
        said.append(f"cut {answer.cut[:_CUT_CHARS]}{more}")
    return ", ".join(said)


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:,.0f} min"


def _counted(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _hot_sql(tails: Sequence[str]) -> str:
    newest = "count(*) AS n, max(kafka_timestamp) AS newest"
    sides = " UNION ALL ".join(f"SELECT {newest} FROM {tail}" for tail in tails)  # noqa: S608 - quoted names
    return f"SELECT sum(n)::BIGINT AS n, epoch_us(now()) - epoch_us(max(newest)) AS age_us FROM ({sides})"  # noqa: S608

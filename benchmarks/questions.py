"""Forty statements as people and their tools write them, over ``{t}``, a table of ``benchmarks.shapes.events``."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass

_HOUR_S = 3_600
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Question:
    """``sql`` over ``{t}``. ``is_any``: which rows answer it is not determined, only how many.

    ``follows_clock``: two who ask one after the other may be answered differently.
    """

    kind: str
    sql: str
    is_any: bool = False
    follows_clock: bool = False


@dataclass(frozen=True, slots=True)
class Times:
    """The ids of a table and when they are: ``id`` is of ``base_us + id * step_us``."""

    cold_rows: int
    hot_rows: int
    base_us: int
    step_us: int

    @property
    def rows(self) -> int:
        return self.cold_rows + self.hot_rows

    def at(self, number: int) -> str:
        """The time of a record as SQL, to the second."""
        moment = dt.datetime.fromtimestamp(
            (self.base_us + number * self.step_us) // 1_000_000, dt.UTC
        )
        return f"TIMESTAMPTZ '{moment:%Y-%m-%d %H:%M:%S}+00'"

    def before_end(self, seconds: int) -> str:
        return self.at(self.rows - seconds * 1_000_000 // self.step_us)


def questions(times: Times, seed: int) -> tuple[Question, ...]:
    """The forty; ids that are looked for are drawn from all rows."""
    chance = random.Random(seed)
    ids = ", ".join(str(chance.randrange(times.rows)) for _ in range(500))
    middle = times.cold_rows // 2
    day_start, day_end = (
        times.at(middle),
        times.at(middle + _DAY_S * 1_000_000 // times.step_us),
    )
    minute, hour = times.before_end(60), times.before_end(_HOUR_S)
    new = "\"at\" > now() - INTERVAL '1 hour'"
    make: list[Question] = []

    def add(kind: str, sql: str, *, is_any: bool = False, follows_clock: bool = False) -> None:
        make.append(Question(kind, sql, is_any, follows_clock))

    _scans(add)
    _groups(add)
    add("point, cold key", f"SELECT * FROM {{t}} WHERE id = {middle}")
    add("point, hot key", f"SELECT * FROM {{t}} WHERE id = {times.rows - 1}")
    add("a text's newest rows", "SELECT id, bytes FROM {t} WHERE src = '10.3.7.99'")
    add("500 ids", f"SELECT id, src, bytes FROM {{t}} WHERE id IN ({ids})")
    add(
        "last minute",
        f'SELECT count(*), sum(bytes), avg(duration_s) FROM {{t}} WHERE "at" >= {minute}',
    )
    add(
        "last hour by now()",
        f"SELECT protocol, count(*), sum(duration_s) FROM {{t}} WHERE {new} GROUP BY protocol",
        follows_clock=True,
    )
    add(
        "last day by now()",
        'SELECT count(*), sum(bytes) FROM {t} WHERE "at" > now() - INTERVAL 1 DAY',
        follows_clock=True,
    )
    add(
        "today by date_trunc",
        "SELECT count(*) FROM {t} WHERE date_trunc('day', \"at\") = date_trunc('day', now())",
    )
    add(
        "all rows of a day",
        f'SELECT id, "at", src, bytes FROM {{t}} WHERE "at" >= {day_start} AND "at" < {day_end}',
    )
    add("LIMIT 100, all columns", "SELECT * FROM {t} LIMIT 100", is_any=True)
    add("LIMIT 100, one column", "SELECT id FROM {t} LIMIT 100", is_any=True)
    add("newest 100", 'SELECT * FROM {t} ORDER BY "at" DESC, id DESC LIMIT 100')
    add("ten longest", "SELECT id, duration_s FROM {t} ORDER BY duration_s DESC, id LIMIT 10")
    add("ten best scores", "SELECT id, score FROM {t} ORDER BY score DESC, id LIMIT 10")
    add(
        "newest of each group",
        'SELECT protocol, id FROM {t} WHERE "at" >= ' + hour + " QUALIFY row_number() OVER "
        '(PARTITION BY protocol ORDER BY "at" DESC, id DESC) = 1',
    )
    add(
        "window that returns rows",
        f'SELECT id, bytes - lag(bytes) OVER (PARTITION BY src ORDER BY id) FROM {{t}} WHERE "at" >= {hour}',
    )
    add(
        "self-join of the last hour",
        f'SELECT count(*), sum(b.bytes) FROM {{t}} a JOIN {{t}} b ON a.src = b.src WHERE a."at" >= {minute} '
        f'AND b."at" >= {hour}',
    )
    add(
        "join with a list",
        "SELECT p.name, count(*), sum(e.bytes) FROM {t} e JOIN (VALUES (22, 'ssh'), (53, 'dns'), (443, 'https')) "
        "p(port, name) ON e.dst_port = p.port GROUP BY p.name",
    )
    add(
        "above the average of the last hour",
        f'SELECT count(*) FROM {{t}} WHERE "at" >= {hour} AND bytes > '
        f'(SELECT avg(bytes) FROM {{t}} WHERE "at" >= {hour})',
    )
    return tuple(make)


def _scans(add: Callable[..., None]) -> None:
    add("count", "SELECT count(*) FROM {t}")
    add("count and sum of a long", "SELECT count(*), sum(bytes) FROM {t}")
    add("count and sum of a double", "SELECT count(*), sum(duration_s) FROM {t}")
    add(
        "average of a column with NaN",
        "SELECT count(*), avg(score) FROM {t} WHERE NOT isnan(score)",
    )
    add("average of a column of NULLs", "SELECT count(loss), avg(loss) FROM {t}")
    add("sum of a decimal", "SELECT sum(price) FROM {t}")
    add("first and last time", 'SELECT min("at"), max("at") FROM {t}')
    add("smallest and largest double", "SELECT min(duration_s), max(duration_s) FROM {t}")
    add("filter on a double", "SELECT count(*) FROM {t} WHERE duration_s > 59.9")
    add("filter on a struct's field", "SELECT count(*) FROM {t} WHERE device.cores = 8")
    add("filter on a list", "SELECT count(*) FROM {t} WHERE list_contains(labels, 'site-7')")
    add("filter on a rare text", "SELECT count(*) FROM {t} WHERE note IS NOT NULL")
    add("LIKE", "SELECT count(*) FROM {t} WHERE src LIKE '10.3.7.%'")
    add(
        "counts by condition",
        "SELECT count(*) FILTER (blocked), sum(CASE WHEN protocol = 'tcp' THEN bytes END) FROM {t}",
    )


def _groups(add: Callable[..., None]) -> None:
    add(
        "group by a text, sum of a double",
        "SELECT protocol, count(*), sum(duration_s) FROM {t} GROUP BY protocol ORDER BY protocol",
    )
    add(
        "group by two, HAVING",
        "SELECT protocol, dst_port, avg(bytes) AS mean FROM {t} GROUP BY ALL HAVING count(*) > 10 ORDER BY ALL",
    )
    add(
        "by hour",
        "SELECT date_trunc('hour', \"at\") AS hour, count(*) FROM {t} GROUP BY 1 ORDER BY 1",
    )
    add(
        "ten largest senders",
        "SELECT src, sum(bytes) AS total FROM {t} GROUP BY src ORDER BY total DESC, src LIMIT 10",
    )
    add("by a struct's field", "SELECT device.os, count(*) FROM {t} GROUP BY 1 ORDER BY 1")
    add("distinct", "SELECT DISTINCT protocol, dst_port FROM {t}")
    add("count of distinct", "SELECT count(DISTINCT dst) FROM {t}")

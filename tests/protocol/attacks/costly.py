"""Statements that only a limit ends, drawn by a seed: rows, memory, long values, work on one row."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.protocol.attacks.statements import TABLE, Draw, count


def costly(rng: random.Random) -> str:
    """One of them; one in five as the inner side of more."""
    sql = rng.choice(_COSTLY)(rng)
    if rng.random() < 0.2:
        sql = f"SELECT count(*) FROM ({sql}) x, range({_rows(rng)}) y"
    return sql


def _rows(rng: random.Random) -> int:
    return 10 ** rng.randint(6, 10)


def _aggregate(rng: random.Random) -> str:
    call = rng.choice((
        "list(i)", "string_agg(i::VARCHAR, ',')", "histogram(i)", "array_agg(i ORDER BY hash(i))", "count(DISTINCT i)",
        "mode(i)", "quantile_cont(i, [0.1, 0.5, 0.9])", "json_group_array(i)", "map_from_entries(list((i, i)))",
        "list({'x': i, 'y': i::VARCHAR})", "list(DISTINCT i)", "median(hash(i))", "listagg(repeat('x', 100), ',')",
    ))  # fmt: skip
    group = rng.choice(("", " GROUP BY i % 10", " GROUP BY i % 100000", " GROUP BY i"))
    return f"SELECT {call} AS a FROM range({_rows(rng)}) t(i){group}"


def _hash_join(rng: random.Random) -> str:
    on = rng.choice(
        (
            "a.i = b.i",
            "a.i % 1000 = b.i % 1000",
            "a.i < b.i",
            "hash(a.i) = hash(b.i)",
            "a.i <> b.i",
        )
    )
    how = rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "SEMI JOIN"))
    return f"SELECT count(*) AS a FROM range({_rows(rng)}) a(i) {how} range({_rows(rng)}) b(i) ON {on}"


def _sorted(rng: random.Random) -> str:
    order = rng.choice(("hash(i)", "i::VARCHAR", "repeat('x', 50) || hash(i)", "-i"))
    return f"SELECT i AS a FROM range({_rows(rng)}) t(i) ORDER BY {order}"


def _window(rng: random.Random) -> str:
    call = rng.choice(("sum(i)", "list(i)", "median(i)", "count(DISTINCT i % 7)"))
    frame = rng.choice(
        (
            "",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN 1000 PRECEDING AND 1000 FOLLOWING",
        )
    )
    return f"SELECT {call} OVER (ORDER BY hash(i){frame}) AS a FROM range({_rows(rng)}) t(i)"


def _long_values(rng: random.Random) -> str:
    value = rng.choice((
        "sum(length(repeat('x', 10000)))", "max(md5(repeat('x', 10000) || i))", "max(len(range(10000)))",
        "max(levenshtein(repeat('a', 500), repeat('b', 500)))", "list(repeat('x', 10000))",
        "max(len(list_sort(list_transform(range(10000), x -> hash(x + i)))))",
        "max(len(string_split(repeat('a,', 5000), ',')))", "max(len(list_distinct(range(5000))))",
        "max(regexp_replace(repeat('ab', 5000), '(a*)*b', 'c', 'g'))",
    ))  # fmt: skip
    return f"SELECT {value} AS a FROM range({_rows(rng)}) t(i)"


def _doubled(rng: random.Random) -> str:
    step = rng.choice(
        ("s{0}.s || s{0}.s", "concat(s{0}.s, s{0}.s, s{0}.s)", "repeat(s{0}.s, 8)")
    )
    depth = count(rng, 18)
    steps = "".join(
        f", s{n + 1} AS (SELECT {step.format(n)} AS s FROM s{n})" for n in range(depth)
    )
    return f"WITH s0 AS (SELECT 'x' || count(*) AS s FROM {TABLE}){steps} SELECT length(s) AS a FROM s{depth}"


def _pivoted(rng: random.Random) -> str:
    groups = ",".join(map(str, range(count(rng, 200))))
    return f"PIVOT (SELECT i % 200 AS g, i AS v, i % 1000 AS h FROM range({_rows(rng)}) t(i)) ON g IN ({groups}) USING list(v), count(*) GROUP BY h"


def _recursive(rng: random.Random) -> str:
    step = rng.choice(
        (
            "SELECT n + 1 FROM r",
            "SELECT a.n FROM r a, r b, range(10)",
            "SELECT n * 2 + 1 FROM r, range(3)",
        )
    )
    return f"WITH RECURSIVE r AS (SELECT 1::HUGEINT AS n UNION {rng.choice(('', 'ALL '))}{step}) SELECT count(*) AS a FROM r"


def _many_rows(rng: random.Random) -> str:
    return f"SELECT i AS a, repeat('x', {rng.choice((1, 100, 5000))}) AS t FROM range({_rows(rng)}) t(i)"


def _crossed(rng: random.Random) -> str:
    tables: Iterable[str] = [
        f"range({_rows(rng)}) t{n}(i{n})" for n in range(rng.randint(2, 4))
    ]
    return f"SELECT count(*) AS a FROM {', '.join(tables)} WHERE i0 + i1 < 0"


_COSTLY: tuple[Draw, ...] = (
    *(_aggregate,) * 3,
    *(_hash_join,) * 2,
    _sorted,
    _window,
    _long_values,
    _doubled,
    _pivoted,
    _recursive,
    _many_rows,
    _crossed,
)

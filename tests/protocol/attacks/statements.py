"""Statements that mean harm before they run, drawn by a seed: long texts, wide and deep ones.

They name ``open`` (``TABLE``), which everybody may read. Sizes are drawn around the bounds that a server has, and beyond.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from planner.statement import expansion_limits, gate

Draw = Callable[[random.Random], str]

TABLE = "open"
COLUMNS = tuple("abcdefgh")
_TEXT_BYTES = gate.MAX_SQL_BYTES
#: Deeper nesting is the parser's to refuse; DuckDB's own bound is 1,000.
_DEPTH = 1_000


def count(rng: random.Random, bound: int) -> int:
    """So many that little, half, just enough and too much all come: small ones as often as large ones."""
    if rng.random() < 0.4:
        return max(1, rng.choice((bound // 2, bound - 1, bound, bound + 1, 2 * bound)))
    return max(1, int(bound ** rng.random()))


def long_text(rng: random.Random) -> str:
    """A text that is long in one place, which errors, logs and patterns meet."""
    return rng.choice(_LONG)(rng)


def wide(rng: random.Random) -> str:
    """A statement whose time is spent before it runs; one in four has another one inside."""
    sql = rng.choice(_WIDE)(rng)
    if rng.random() < 0.25 and sql.startswith(("SELECT", "WITH", "FROM")):
        sql = rng.choice(_AROUND).format(sql)
    return sql


def _repeat(rng: random.Random, bound: int, item: str, separator: str = ", ") -> str:
    return separator.join([item] * count(rng, bound))


def _numbered(rng: random.Random, bound: int, item: str, separator: str = ", ") -> str:
    return separator.join(item.format(n) for n in range(count(rng, bound)))


def _column(rng: random.Random) -> str:
    return rng.choice(COLUMNS)


def _filler(rng: random.Random) -> str:
    piece = rng.choice(
        (
            "a",
            "x1",
            "/a",
            "a/",
            "a:",
            "://",
            "s3:a",
            "\\",
            ".",
            "é",
            "🧊",
            "$",
            "%",
            "{}",
            "<",
            "a b",
        )
    )
    return piece * count(rng, _TEXT_BYTES // len(piece.encode()) // 2)


def _in_quotes(pattern: str) -> Draw:
    return lambda rng: pattern.format(_filler(rng).replace("{", "(").replace("}", ")"))


def _long_isolation(rng: random.Random) -> str:
    pad = rng.choice((" ", "\t", "\n", "/**/", " isolation", " read", " level", ","))
    return (
        f"BEGIN{pad * count(rng, 100_000)}ISOLATION LEVEL{pad * count(rng, 10_000)}SERIALIZABLE"
    )


def _long_comment(rng: random.Random) -> str:
    return (
        rng.choice(("--", "/*", "/* */", "/**", "*/", "-- \n")) * count(rng, 50_000)
        + "\nSELECT 1"
    )


def _long_setting(rng: random.Random) -> str:
    how = rng.choice(
        ("SET {} = 1", "SET time_zone = '{}'", "USE {}", "RESET {}", "SHOW {}", "DESCRIBE {}")
    )
    return how.format("x" * count(rng, 200_000))


_LONG: tuple[Draw, ...] = (
    _in_quotes('SELECT "{}"'),
    _in_quotes('SELECT * FROM "{}"'),
    _in_quotes("SELECT * FROM '{}'"),
    _in_quotes('SELECT 1 AS "{}"'),
    _in_quotes('SELECT "{}".b FROM open'),
    _in_quotes("SELECT '{}'::INTEGER"),
    _in_quotes("SELECT '{}'::TIMESTAMP"),
    _in_quotes("SELECT '{}' FROM nowhere"),
    _in_quotes("SELECT CAST('{}' AS INTEGER[])"),
    _in_quotes("SELECT error('{}')"),
    _in_quotes("SELECT nosuch('{}')"),
    _in_quotes("{}"),
    _in_quotes("SELECT regexp_matches(a, '{}') FROM open"),
    _in_quotes("SELECT a LIKE '{}' FROM open"),
    _in_quotes("SELECT strptime('{0}', '{0}')"),
    _in_quotes("SELECT * FROM open AT (VERSION => '{}')"),
    _in_quotes("SELECT * FROM open AT (TIMESTAMP => TIMESTAMP '{}')"),
    _in_quotes("SELECT '{}'::JSON"),
    _long_isolation,
    _long_comment,
    _long_setting,
    lambda rng: "SELECT " + "9" * count(rng, 200_000),
    lambda rng: "SELECT " + ".".join("x" * count(rng, 2_000)),
    lambda rng: "SELECT 1" + ";" * count(rng, 200_000),
)


def _nested(rng: random.Random, before: str, core: str, after: str) -> str:
    depth = count(rng, _DEPTH)
    return f"SELECT {before * depth}{core}{after * depth} FROM {TABLE}"


def _stars(rng: random.Random) -> str:
    star = rng.choice(
        (
            "*",
            "open.*",
            "COLUMNS(*)",
            "* EXCLUDE (a)",
            "* REPLACE (1 AS a)",
            "COLUMNS('a|b') + 1",
            "s.*",
        )
    )
    return f"SELECT {_repeat(rng, expansion_limits.MAX_COLUMNS // 10, star)} FROM {TABLE}"


def _values(rng: random.Random) -> str:
    row = (
        "("
        + ",".join(
            rng.choice(("1", "'x'", "NULL", "1.5", "[1]")) for _ in range(rng.randint(1, 8))
        )
        + ")"
    )
    return f"SELECT * FROM (VALUES {_repeat(rng, expansion_limits.MAX_CELLS // 4, row)}) v"


def _in_list(rng: random.Random) -> str:
    item = rng.choice(
        ("{}", "'{}'", "{} + 1", "DATE '2020-01-01' + {}", "({}, 1)", "NULL", "{}.5")
    )
    left = "(a, b)" if item.startswith("(") else _column(rng)
    how = rng.choice(("IN", "NOT IN"))
    return f"SELECT 1 FROM {TABLE} WHERE {left} {how} ({_numbered(rng, gate.MAX_LITERALS, item, ',')})"


def _joins(rng: random.Random) -> str:
    how = rng.choice(
        (
            "JOIN",
            "LEFT JOIN",
            "FULL JOIN",
            "NATURAL JOIN",
            "CROSS JOIN",
            "SEMI JOIN",
            "ASOF JOIN",
            "POSITIONAL JOIN",
        )
    )
    on = {"NATURAL JOIN": "", "CROSS JOIN": "", "POSITIONAL JOIN": ""}.get(
        how, rng.choice((" ON t{0}.a = t0.a", " USING (a, b)"))
    )
    if how == "ASOF JOIN":
        on = " ON t{0}.a >= t0.a"
    parts = [
        f"{how} {TABLE} t{n}{on.format(n)}"
        for n in range(1, 1 + count(rng, 3 * expansion_limits.MAX_JOINED))
    ]
    return f"SELECT count(*) FROM {TABLE} t0 {' '.join(parts)}"


def _aliases(rng: random.Random) -> str:
    depth = count(rng, 24)
    step = rng.choice(
        ("c{0} + c{0}", "concat(c{0}, c{0})", "[c{0}, c{0}]", "{{'x': c{0}, 'y': c{0}}}")
    )
    return (
        "SELECT a AS c0, "
        + ", ".join(f"{step.format(n)} AS c{n + 1}" for n in range(depth))
        + f" FROM {TABLE}"
    )


def _ctes(rng: random.Random) -> str:
    body = rng.choice(
        (
            "SELECT * FROM c{0}",
            "SELECT *, * FROM c{0}",
            "SELECT x.* FROM c{0} x JOIN c{0} y USING (a)",
            "FROM c{0} UNION ALL FROM c{0}",
        )
    )
    kind = rng.choice(("", "MATERIALIZED ", "NOT MATERIALIZED "))
    bound = gate.MAX_CLAUSES if "*, *" not in body and "c{0} x" not in body else 14
    clauses = [f"c{n + 1} AS {kind}({body.format(n)})" for n in range(count(rng, bound))]
    return (
        f"WITH c0 AS (FROM {TABLE}), {', '.join(clauses)} SELECT count(*) FROM c{len(clauses)}"
    )


def _windows(rng: random.Random) -> str:
    over = rng.choice(
        (
            "()",
            "(ORDER BY a)",
            "(PARTITION BY b ORDER BY a ROWS 3 PRECEDING)",
            "(ORDER BY {0} + a)",
        )
    )
    call = rng.choice(("sum(a)", "row_number()", "lag(a, {0})", "quantile_cont(a, 0.5)"))
    return f"SELECT {_numbered(rng, expansion_limits.MAX_WINDOWS, f'{call} OVER {over}')} FROM {TABLE}"


def _pivot(rng: random.Random) -> str:
    lists = [
        f"{column} IN ({','.join(map(str, range(count(rng, 40))))})"
        for column in rng.sample(COLUMNS, rng.randint(1, 3))
    ]
    using = ", ".join(
        rng.choice(("sum(g)", "list(h)", "max(g)", "first(h)")) + f" AS u{n}"
        for n in range(count(rng, 8))
    )
    return f"PIVOT {TABLE} ON {', '.join(lists)} USING {using}"


def _unpivot(rng: random.Random) -> str:
    return f"UNPIVOT (SELECT {_numbered(rng, expansion_limits.MAX_COLUMNS, '1 AS c{0}')}) ON COLUMNS(*)"


def _grouping(rng: random.Random) -> str:
    columns = ", ".join(COLUMNS[: rng.randint(1, 8)])
    sets = rng.choice((f"CUBE ({columns})", f"ROLLUP ({columns})", f"CUBE ({columns}), CUBE ({columns})",
                       f"GROUPING SETS ({_repeat(rng, gate.MAX_GROUPING_SETS, f'({columns})')})"))  # fmt: skip
    return f"SELECT {columns}, count(*) FROM {TABLE} GROUP BY {sets}"


def _lambdas(rng: random.Random) -> str:
    depth = count(rng, 4)
    body = "x0 + 1"
    for n in range(depth):
        body = f"list_transform([1, 2, 3], x{n} -> {body})"
    return f"SELECT {_repeat(rng, 300, body)} FROM {TABLE}"


def _literal(rng: random.Random) -> str:
    item = rng.choice(("{}", "[{}]", "{{'x': {}}}", "MAP {{'k{0}': {0}}}", "'{}'"))
    items = _numbered(rng, expansion_limits.MAX_COLUMNS, item, ",")
    shape = rng.choice(("[{}]", "unnest([{}])", "row({})"))
    return f"SELECT {shape.format(items)}"


def _struct(rng: random.Random) -> str:
    fields = ",".join(f"'f{n}': {n}" for n in range(count(rng, expansion_limits.MAX_COLUMNS)))
    return rng.choice(
        ("SELECT {{{0}}}", "SELECT unnest({{{0}}})", "SELECT x.* FROM (SELECT {{{0}}} AS x)")
    ).format(fields)


def _conditions(rng: random.Random) -> str:
    arm = rng.choice(
        (
            "a = {}",
            "(a = {0} AND b = {0})",
            "a BETWEEN {} AND 9",
            "NOT (a < {})",
            "a LIKE '%{}%'",
            "(a < {0} OR b > {0})",
        )
    )
    return f"SELECT 1 FROM {TABLE} WHERE {_numbered(rng, 6_000, arm, rng.choice((' OR ', ' AND ')))}"


def _unions(rng: random.Random) -> str:
    how = rng.choice(
        (" UNION ALL ", " UNION ", " UNION ALL BY NAME ", " EXCEPT ", " INTERSECT ")
    )
    return _numbered(rng, gate.MAX_TABLES, f"SELECT *, {{0}} AS n{{0}} FROM {TABLE}", how)


def _subqueries(rng: random.Random) -> str:
    query = rng.choice(
        (
            f"(SELECT max(a) FROM {TABLE})",
            f"(SELECT max(b) FROM {TABLE} i WHERE i.a = o.a)",
            f"EXISTS (FROM {TABLE} i WHERE i.a > o.b)",
        )
    )
    return f"SELECT {_repeat(rng, expansion_limits.MAX_SUBQUERIES, query)} FROM {TABLE} o"


def _deep(before: str, core: str, after: str) -> Draw:
    return lambda rng: _nested(rng, before, core, after)


def _deep_from(rng: random.Random) -> str:
    depth, inner = count(rng, 300), rng.choice(("*", "*, *", "count(*) AS a", "DISTINCT *"))
    depth = min(depth, 14) if inner == "*, *" else depth
    return f"SELECT * FROM {f'(SELECT {inner} FROM ' * depth}{TABLE}{')' * depth}"


_WIDE: tuple[Draw, ...] = (
    _stars,
    _values,
    _in_list,
    _joins,
    _aliases,
    _ctes,
    _windows,
    _pivot,
    _unpivot,
    _grouping,
    _lambdas,
    _literal,
    _struct,
    _conditions,
    _unions,
    _subqueries,
    _deep_from,
    _deep("(", "a", ")"),
    _deep("abs(", "a", ")"),
    _deep("CASE WHEN a > 1 THEN ", "a", " END"),
    _deep("[", "a", "]"),
    _deep("{'x': ", "a", "}"),
    _deep("replace(", "'a'", ", 'a', 'b')"),
    _deep("coalesce(a, ", "b", ")"),
    _deep("NOT ", "a > 1", ""),
    _deep("a + ", "a", ""),
    _deep("", "a", "::VARCHAR::BIGINT"),
    lambda rng: f"SELECT {_numbered(rng, expansion_limits.MAX_COLUMNS, 'a + {0} AS c{0}')} FROM {TABLE}",
    lambda rng: f"SELECT a FROM {TABLE} ORDER BY {_numbered(rng, 3_000, 'a + {0}')}",
    lambda rng: f"SELECT DISTINCT ON ({_numbered(rng, 2_000, 'a + {0}')}) a FROM {TABLE}",
    lambda rng: f"SELECT {_numbered(rng, 2_000, 'sum(a + {0}) FILTER (b > {0})')} FROM {TABLE}",
    lambda rng: f"SUMMARIZE SELECT {_numbered(rng, 500, '1 AS c{0}')}",
    lambda rng: f"SELECT {_numbered(rng, 3_000, '?')}",
)  # fmt: skip
_AROUND = (
    "EXPLAIN {}",
    "SELECT count(*) FROM ({}) q",
    "SELECT * FROM ({}) q ORDER BY ALL",
    "WITH q AS ({}) SELECT * FROM q, q AS r LIMIT 1",
    "SELECT * EXCLUDE (a) FROM ({}) q",
    "SUMMARIZE {}",
    "DESCRIBE {}",
)

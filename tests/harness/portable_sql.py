"""Statements that mean the same in Spark's SQL and in DuckDB's, and how their answers are compared.

They are over the columns that ``tests.harness.stories`` has at all times. ``{t}`` is the table, ``{u}`` what its columns may be called by,
``{s}`` the column of texts, whose name changes. Sums of floating numbers depend on their order, so there are none.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

_P = "kafka_partition AS p, kafka_offset AS o"
PORTABLE = (
    "SELECT count(*) AS c FROM {t}",
    "SELECT count(n) AS a, count(ratio) AS b, count({s}) AS c, count(tags) AS d FROM {t}",
    "SELECT kafka_partition AS p, count(*) AS c, min(kafka_offset) AS a, max(kafka_offset) AS b FROM {t} GROUP BY kafka_partition",
    "SELECT sum(n) AS a, sum(amount) AS b FROM {t}",
    "SELECT min(amount) AS a, max(amount) AS b, min(seen_at) AS c, max(seen_at) AS d FROM {t}",
    f"SELECT {_P}, n, amount, seen_at, kafka_timestamp AS k, {{s}} AS s, ratio AS r, tags AS g, place AS l FROM {{t}}",
    f"SELECT {_P} FROM {{t}} WHERE n > 0",
    f"SELECT {_P} FROM {{t}} WHERE n IS NULL OR amount IS NULL",
    f"SELECT {_P} FROM {{t}} WHERE n % 10 IN (1, 3, -5)",
    f"SELECT {_P} FROM {{t}} WHERE n BETWEEN -100 AND 500",
    f"SELECT {_P} FROM {{t}} WHERE NOT (n > 0)",
    f"SELECT {_P} FROM {{t}} WHERE n <> 0 AND amount < 0 OR n = 7",
    f"SELECT {_P}, ratio AS r FROM {{t}} WHERE ratio > 0.5",
    f"SELECT {_P}, ratio AS r FROM {{t}} WHERE ratio = 0.0",
    "SELECT max(ratio) AS r FROM {t}",
    f"SELECT {_P}, amount * 2 AS a, amount + n AS b, n - 1 AS c FROM {{t}}",
    f"SELECT {_P}, -n AS a, abs(n) AS b, n % 7 AS c FROM {{t}}",
    "SELECT CASE WHEN n > 0 THEN 'more' WHEN n < 0 THEN 'less' ELSE 'none' END AS k, count(*) AS c FROM {t} GROUP BY 1",
    f"SELECT {_P}, coalesce({{s}}, 'none') AS a, length({{s}}) AS b FROM {{t}}",
    f"SELECT {_P}, lower({{s}}) AS a, substr({{s}}, 2, 3) AS b, {{s}} || 'x' AS c FROM {{t}}",
    f"SELECT {_P} FROM {{t}} WHERE {{s}} LIKE 'gr%'",
    f"SELECT {_P} FROM {{t}} WHERE {{s}} = ''",
    "SELECT {s} AS s, count(*) AS c FROM {t} GROUP BY {s} HAVING count(*) > 1",
    f"SELECT {_P}, place.x AS x, place.y AS y FROM {{t}} WHERE place.y > 4",
    f"SELECT {_P} FROM {{t}} WHERE place IS NULL",
    "SELECT DISTINCT kafka_partition AS p, n % 3 AS m FROM {t}",
    "SELECT count(DISTINCT n) AS a, count(DISTINCT {s}) AS b FROM {t}",
    "SELECT count(*) AS c, sum(a.n - b.n) AS d FROM {t} a JOIN {t} b ON a.kafka_partition = b.kafka_partition AND a.kafka_offset = b.kafka_offset",
    "SELECT a.kafka_offset AS o, b.n AS m FROM {t} a LEFT JOIN (SELECT kafka_offset, n FROM {t} WHERE n > 0 AND kafka_partition = 0) b ON a.kafka_offset = b.kafka_offset",
    f"SELECT {_P} FROM {{t}} WHERE kafka_offset IN (SELECT kafka_offset FROM {{t}} WHERE n < -500)",
    f"SELECT {_P} FROM {{t}} a WHERE NOT EXISTS (SELECT 1 FROM {{t}} b WHERE b.kafka_partition = a.kafka_partition AND b.kafka_offset = a.kafka_offset + 1)",
    "WITH c AS (SELECT * FROM {t} WHERE n IS NOT NULL) SELECT x.k AS a, y.k AS b FROM (SELECT count(*) AS k FROM c) x, (SELECT max(kafka_offset) AS k FROM c) y",
    "SELECT n FROM {t} WHERE n > 0 UNION ALL SELECT n + 1 FROM {t} WHERE n < 0",
    "SELECT kafka_offset AS o FROM {t} WHERE kafka_partition = 0 EXCEPT SELECT kafka_offset FROM {t} WHERE kafka_partition = 2",
    "SELECT kafka_offset AS o FROM {t} WHERE kafka_partition = 0 INTERSECT SELECT kafka_offset FROM {t} WHERE kafka_partition = 2",
    f"SELECT {_P}, n FROM {{t}} WHERE n IS NOT NULL ORDER BY n DESC, kafka_partition, kafka_offset LIMIT 5",
    f"SELECT {_P}, row_number() OVER (PARTITION BY kafka_partition ORDER BY kafka_offset) AS r FROM {{t}}",
    f"SELECT {_P}, lag(n) OVER (PARTITION BY kafka_partition ORDER BY kafka_offset) AS l, sum(n) OVER (PARTITION BY kafka_partition ORDER BY kafka_offset) AS s FROM {{t}}",
    f"SELECT {_P}, greatest(n, 0) AS g, nullif(n % 2, 0) AS h, CAST(n AS BIGINT) AS b FROM {{t}}",
    "SELECT year(seen_at) AS y, hour(seen_at) AS h, count(*) AS c FROM {t} GROUP BY 1, 2",
)


def bag(table: pa.Table) -> Counter[str]:
    """Rows without order, and without the names of columns; numbers by their value, whatever their type."""
    return Counter(repr([_plain(value) for value in row.values()]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | Decimal):
        return f"{Decimal(value).normalize():f}"
    if isinstance(value, float):
        # -0.0 and NaN as they are.
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return str(value)

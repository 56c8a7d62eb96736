"""Shapes of the records that benchmarks produce: the table's columns, and the SQL that makes the JSON.

A record is a function of (seed, id): the same options give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from planner.schema import TIMESTAMPTZ, Column

#: Ids of background traffic start here, and are even: nobody asks for them.
TRAFFIC_ID = 1_000_000_000_000
#: Microseconds between two records of the background, at the usual rate of 5,000 a second.
_TRAFFIC_STEP_US = 200

#: DuckDB makes 700,000 flows a second on one core, several times what Python does. ``a`` and ``b`` are 63 random bits.
_NUMBERS = """
FROM (
  SELECT id, (hash(id, $seed) >> 1)::BIGINT AS a, (hash($seed, id) >> 1)::BIGINT AS b
  FROM (SELECT $first + n * $step AS id FROM range($count) AS numbers(n))
)"""
_TIME = "'%Y-%m-%dT%H:%M:%S.%f+00:00'"


@dataclass(frozen=True, slots=True)
class Shape:
    """``generate`` makes a value for each id ``$first + n * $step``, ``0 <= n < $count``."""

    columns: tuple[Column, ...]
    generate: str


#: JSON of about 200 bytes and 10 fields. A record's time is its id, in milliseconds.
FLOWS = Shape(
    (
        Column(0, "id", pa.int64()),
        Column(0, "at", TIMESTAMPTZ),
        Column(0, "src", pa.string()),
        Column(0, "dst", pa.string()),
        Column(0, "protocol", pa.string()),
        Column(0, "src_port", pa.int32()),
        Column(0, "dst_port", pa.int32()),
        Column(0, "bytes", pa.int64()),
        Column(0, "duration_s", pa.float64()),
        Column(0, "blocked", pa.bool_()),
    ),
    f"""
SELECT '{{"id":' || id
  || ',"at":"' || strftime(make_timestamp(1767225600000000 + id * 1000 + a % 1000), {_TIME})
  || '","src":"10.' || (a >> 10) % 16 || '.' || (a >> 20) % 256 || '.' || (a >> 30) % 256
  || '","dst":"172.16.' || (a >> 40) % 256 || '.' || (a >> 48) % 256
  || '","protocol":"' || ['tcp', 'tcp', 'tcp', 'udp', 'udp', 'icmp'][1 + (b % 6)::INTEGER]
  || '","src_port":' || 1024 + (b >> 8) % 64512
  || ',"dst_port":' || [22, 53, 80, 443, 3389, 8443][1 + ((b >> 24) % 6)::INTEGER]
  || ',"bytes":' || 40 + (b >> 28) % 5000000000
  || ',"duration_s":' || ((b >> 16) % 60000) / 1000
  || ',"blocked":' || CASE WHEN (a >> 56) % 20 = 0 THEN 'true' ELSE 'false' END
  || '}}'
{_NUMBERS}""",
)


def events(base_us: int, step_us: int) -> Shape:
    """What people have: texts, doubles with NULLs and with NaN, a struct, a list, mostly-NULL notes; 15 fields.

    Record ``id`` is of ``base_us + id * step_us``, in microseconds of the epoch; the background's records are of now.
    """
    time_us = (
        f"CASE WHEN id < {TRAFFIC_ID} THEN {base_us} + id * {step_us} "
        f"ELSE epoch_us(now()) + (id - {TRAFFIC_ID}) // 2 * {_TRAFFIC_STEP_US} % 1000000 END"
    )
    return Shape(
        (
            Column(0, "id", pa.int64()),
            Column(0, "at", TIMESTAMPTZ),
            Column(0, "src", pa.string()),
            Column(0, "dst", pa.string()),
            Column(0, "protocol", pa.string()),
            Column(0, "dst_port", pa.int32()),
            Column(0, "bytes", pa.int64()),
            Column(0, "duration_s", pa.float64()),
            Column(0, "score", pa.float64(), doc="NaN in one of a thousand"),
            Column(0, "loss", pa.float64(), doc="NULL in nine of ten"),
            Column(0, "price", pa.decimal128(12, 2)),
            Column(0, "blocked", pa.bool_()),
            Column(0, "note", pa.string(), doc="NULL in 49 of 50"),
            Column(0, "device", pa.struct([("os", pa.string()), ("cores", pa.int32())])),
            Column(0, "labels", pa.list_(pa.string())),
        ),
        f"""
SELECT '{{"id":' || id
  || ',"at":"' || strftime(make_timestamp({time_us}), {_TIME})
  || '","src":"10.' || (a >> 10) % 16 || '.' || (a >> 20) % 256 || '.' || (a >> 30) % 256
  || '","dst":"172.16.' || (a >> 40) % 256 || '.' || (a >> 48) % 256
  || '","protocol":"' || ['tcp', 'tcp', 'tcp', 'udp', 'udp', 'icmp'][1 + (b % 6)::INTEGER]
  || '","dst_port":' || [22, 53, 80, 443, 3389, 8443][1 + ((b >> 24) % 6)::INTEGER]
  || ',"bytes":' || 40 + (b >> 28) % 5000000000
  || ',"duration_s":' || ((b >> 16) % 60000) / 1000
  || ',"score":' || CASE WHEN (a >> 5) % 1000 = 0 THEN '"NaN"' ELSE (((b >> 5) % 10000) / 100)::VARCHAR END
  || CASE WHEN (a >> 15) % 10 = 0 THEN ',"loss":' || ((b >> 3) % 1000) / 1000 ELSE '' END
  || ',"price":"' || (b >> 33) % 100000 || '.' || 10 + (b >> 11) % 90
  || '","blocked":' || CASE WHEN (a >> 56) % 20 = 0 THEN 'true' ELSE 'false' END
  || CASE WHEN (a >> 25) % 50 = 0 THEN ',"note":"seen again by rule ' || (a >> 35) % 100 || '"' ELSE '' END
  || ',"device":{{"os":"' || ['linux', 'windows', 'macos'][1 + ((a >> 3) % 3)::INTEGER]
  || '","cores":' || [2, 4, 8, 16][1 + ((a >> 7) % 4)::INTEGER]
  || '}},"labels":["' || ['edge', 'core', 'guest'][1 + ((b >> 7) % 3)::INTEGER] || '","site-' || (b >> 9) % 40
  || '"]}}'
{_NUMBERS}""",
    )

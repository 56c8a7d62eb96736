"""Answers of GetSqlInfo: one row per code, in the union member the drivers read it from.

Which member is not what FlightSql.proto says everywhere: JDBC casts limits to long, ODBC reads cases and null
order from ``bigint_value``. JDBC 18 fails on a code it knows that is missing between 515 and 576, and on one
it does not know; so the unfiltered answer is the whole enum and nothing else (docs/internals/protocol.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from proxy.flightsql.metadata.like import ESCAPE
from proxy.flightsql.metadata.schemas import SQL_INFO, SQL_INFO_VALUE

Value = str | bool | int | list[str] | dict[int, list[int]]


class Member(IntEnum):
    """Type codes of the union."""

    STRING = 0
    BOOL = 1
    BIGINT = 2
    INT32 = 3
    STRINGS = 4
    MAP = 5


@dataclass(frozen=True, slots=True)
class Product:
    """Who is serving. ``keywords`` and functions are what the statement gate lets through."""

    name: str
    version: str
    keywords: tuple[str, ...] = ()
    numeric_functions: tuple[str, ...] = ()
    string_functions: tuple[str, ...] = ()
    system_functions: tuple[str, ...] = ()
    datetime_functions: tuple[str, ...] = ()


_CASE_INSENSITIVE = 1
_NULLS_AT_END = 3


def _each(codes: str, member: Member, value: Value) -> dict[int, tuple[Member, Value]]:
    return dict.fromkeys(map(int, codes.split()), (member, value))


# Bit positions are the ordinals of the enums in FlightSql.proto.
_CONSTANTS: dict[int, tuple[Member, Value]] = {
    # Read only, SQL, cancel, all tables selectable, column aliases, NULL plus anything is NULL, table aliases,
    # expressions in ORDER BY (two), LIKE ... ESCAPE, NOT NULL columns.
    **_each("3 4 9 506 515 516 518 520 521 523 524 532 539 556", Member.BOOL, True),
    # Substrait, bulk ingestion (two), DDL of catalogs, schemas and tables; 563: transactions.
    **_each("5 10 11 500 501 502 519 527 536 537 563 565 566", Member.BOOL, False),
    **_each("572 573 574 575 576", Member.BOOL, False),
    **_each("6 7 514", Member.STRING, ""),  # 6 and 7: versions of Substrait
    # Transactions; 100 and 101: statement timeouts, of which the protocol sets none.
    **_each("8 100 101 533 534 535 568 570 571", Member.INT32, 0),
    **_each("503 505", Member.BIGINT, _CASE_INSENSITIVE),
    504: (Member.STRING, '"'),
    507: (Member.BIGINT, _NULLS_AT_END),
    513: (Member.STRING, ESCAPE),
    517: (Member.MAP, {}),
    522: (Member.INT32, 0b11),  # GROUP BY
    525: (Member.INT32, 0b111),  # grammar
    526: (Member.INT32, 0b1),  # SQL-92 entry level
    528: (Member.INT32, 0b110),  # outer joins
    529: (Member.STRING, "schema"),
    530: (Member.STRING, "procedure"),
    531: (Member.STRING, "catalog"),  # ODBC takes an empty term for "no catalogs"
    538: (Member.INT32, 0b1111),  # subqueries
    540: (Member.INT32, 0b11),  # UNION, UNION ALL
    **dict.fromkeys((*range(541, 556), *range(557, 562)), (Member.BIGINT, 0)),  # no limit
    562: (Member.BIGINT, 0),  # isolation level: the one value all three readings share
    564: (Member.INT32, 0b1),
    **_each("567 569", Member.INT32, 0b10),  # forward-only results, read-only
}


def sql_info(product: Product, codes: Sequence[int]) -> pa.RecordBatch:
    """Answer for ``codes``, in their order; all codes if there are none. Unknown codes are left out."""
    values = _CONSTANTS | {
        0: (Member.STRING, product.name),
        1: (Member.STRING, product.version),
        2: (Member.STRING, pa.__version__),
        508: (Member.STRINGS, list(product.keywords)),
        509: (Member.STRINGS, list(product.numeric_functions)),
        510: (Member.STRINGS, list(product.string_functions)),
        511: (Member.STRINGS, list(product.system_functions)),
        512: (Member.STRINGS, list(product.datetime_functions)),
    }
    requested = (
        [code for code in dict.fromkeys(codes) if code in values] if codes else sorted(values)
    )
    return pa.RecordBatch.from_arrays(
        [pa.array(requested, pa.uint32()), _union([values[code] for code in requested])],
        schema=SQL_INFO,
    )


def _union(values: list[tuple[Member, Value]]) -> pa.Array:
    # ``UnionArray.from_dense`` makes nullable children, which is another schema; hence the buffers.
    children: dict[Member, list[Value]] = {member: [] for member in Member}
    offsets = []
    for member, value in values:
        offsets.append(len(children[member]))
        children[member].append(value)
    codes = pa.array([member for member, _ in values], pa.int8())
    return pa.Array.from_buffers(
        SQL_INFO_VALUE,
        len(values),
        [None, codes.buffers()[1], pa.array(offsets, pa.int32()).buffers()[1]],
        children=[
            pa.array(children[member], SQL_INFO_VALUE.field(member).type) for member in Member
        ],
    )

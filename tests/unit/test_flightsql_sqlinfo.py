"""SqlInfo: every code of the enum, each in the union member the drivers read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from proxy.flightsql import messages
from proxy.flightsql.metadata.schemas import SQL_INFO
from proxy.flightsql.metadata.sqlinfo import Member, Product, sql_info

PRODUCT = Product("Thermocline", "1.2.3", keywords=("QUALIFY", "PIVOT"))


def _members(batch: pa.RecordBatch) -> dict[int, Member]:
    codes = batch.column("value").type_codes.to_pylist()
    return {
        name: Member(code)
        for name, code in zip(batch.column("info_name").to_pylist(), codes, strict=True)
    }


def test_the_unfiltered_answer_is_the_whole_enum_and_nothing_else() -> None:
    enum = messages._POOL.FindEnumTypeByName("arrow.flight.protocol.sql.SqlInfo")
    batch = sql_info(PRODUCT, [])
    assert batch.column("info_name").to_pylist() == sorted(v.number for v in enum.values)
    assert batch.schema.equals(SQL_INFO)
    batch.validate(full=True)


#: docs/internals/protocol.md: not what FlightSql.proto says everywhere, but what JDBC, ODBC and ADBC read.
READ_AS = {
    Member.STRING: {0, 1, 2, 6, 7, 504, 513, 514, 529, 530, 531},
    Member.BOOL: {
        *(3, 4, 5, 9, 10, 11, 500, 501, 502, 506, 515, 516, 518, 519, 520, 521, 523, 524, 527),
        *(532, 536, 537, 539, 556, 563, 565, 566, 572, 573, 574, 575, 576),
    },
    Member.BIGINT: {503, 505, 507, *range(541, 556), *range(557, 563)},
    Member.INT32: {
        *(8, 100, 101, 522, 525, 526, 528, 533, 534, 535, 538, 540, 564, 567, 568, 569),
        *(570, 571),
    },
    Member.STRINGS: {508, 509, 510, 511, 512},
    Member.MAP: {517},
}


@pytest.mark.parametrize("member", list(Member))
def test_each_code_is_in_the_member_drivers_read(member: Member) -> None:
    result = _members(sql_info(PRODUCT, []))
    assert {code for code, value in result.items() if value is member} == READ_AS[member]


def test_terms_that_odbc_takes_for_support_are_not_empty() -> None:
    terms = sql_info(PRODUCT, [529, 530, 531, 504]).column("value").to_pylist()
    assert all(terms)


def test_asking_only_for_unknown_codes_is_answered_with_nothing() -> None:
    assert sql_info(PRODUCT, [12_345]).num_rows == 0


def test_lists_hold_what_the_product_says() -> None:
    assert sql_info(PRODUCT, [508, 509]).column("value").to_pylist() == [
        ["QUALIFY", "PIVOT"],
        [],
    ]

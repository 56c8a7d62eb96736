"""Patterns that callers send, in statements and to browse: their cost is bounded."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.fixtures.server import SqlServer
from tests.harness.wire import fetched, packed


@pytest.mark.parametrize("source", ["", "FROM net.flows WHERE id = 1"])
@pytest.mark.parametrize("operator", ["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
def test_wildcards_are_matched_in_linear_time(
    iceberg_server: SqlServer, operator: str, source: str
) -> None:
    # DuckDB's own matcher would try every position for every wildcard: for years.
    pattern = "%a%_a%a%_a%a%a%a%a%b"
    with flight.connect(iceberg_server.uri) as client:
        [row] = fetched(
            client, f"SELECT repeat('a', 10000) {operator} '{pattern}' AS m {source}"
        )
    assert row == {"m": operator.startswith("NOT")}


def test_a_pattern_longer_than_any_name_is_refused_by_the_number(
    iceberg_server: SqlServer,
) -> None:
    def tables(pattern: str) -> int:
        request = packed("CommandGetTables", table_name_filter_pattern=pattern)
        with flight.connect(iceberg_server.uri) as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_command(request))
            return int(client.do_get(info.endpoints[0].ticket).read_all().num_rows)

    assert tables("%" * 4_096) > 0
    with pytest.raises(
        pa.ArrowInvalid,
        match="a pattern of 4,097 characters; names have fewer, and patterns at most 4,096",
    ):
        tables("%" * 4_097)

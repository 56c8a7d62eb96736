"""What is asked comes back unchanged as Arrow, pandas, Polars and HTML; what is refused comes as one sentence."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
import time
from decimal import Decimal
from typing import Any

import pytest
from markup import Markup

import thermocline_client
from thermocline_client import AnswerError, Connection

#: SQL of a value, as Python has it, and as it is read in a cell. None: Python has no such value.
VALUES: list[tuple[str, Any, str]] = [
    ("9007199254740993::BIGINT", 2**53 + 1, "9007199254740993"),
    ("('-9223372036854775808')::BIGINT", -(2**63), "-9223372036854775808"),
    ("18446744073709551615::UBIGINT", 2**64 - 1, "18446744073709551615"),
    (f"'{'12' * 19}'::DECIMAL(38, 0)", Decimal("12" * 19), "12" * 19),
    (f"'0.{'12' * 19}'::DECIMAL(38, 38)", Decimal(f"0.{'12' * 19}"), f"0.{'12' * 19}"),
    ("0.1::DOUBLE", 0.1, "0.1"),
    ("'-infinity'::DOUBLE", float("-inf"), "-Infinity"),
    ("DATE '0001-01-01'", dt.date(1, 1, 1), "0001-01-01"),
    ("DATE '9999-12-31'", dt.date(9999, 12, 31), "9999-12-31"),
    ("DATE '20000-02-29'", None, "20000-02-29"),
    ("DATE '0044-03-15 (BC)'", None, "-0043-03-15"),
    (
        "TIMESTAMP '9999-12-31 23:59:59.999999'",
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        "9999-12-31 23:59:59.999999",
    ),
    ("TIMESTAMP '0001-01-01 00:00:00'", dt.datetime(1, 1, 1), "0001-01-01 00:00:00.000000"),
    (
        "TIMESTAMPTZ '2024-02-29 12:00:00+05:00'",
        dt.datetime(2024, 2, 29, 7, tzinfo=dt.timezone.utc),
        "2024-02-29 07:00:00.000000Z",
    ),
    ("'infinity'::TIMESTAMP", None, "infinity"),
    ("TIME '23:59:59.000001'", dt.time(23, 59, 59, 1), "23:59:59.000001"),
    ("'\\x00\\xFF'::BLOB", b"\x00\xff", "00ff"),
    ("true", True, "true"),
    ("{'a': [1, NULL], 'b': MAP {'k': 'v'}}", None, "{a: [1, NULL], b: {k: v}}"),
    ("['x', 'y']", ["x", "y"], "[x, y]"),
    ("'<b>&\"'''", "<b>&\"'", "<b>&\"'"),
]


@pytest.mark.parametrize(("sql", "value", "text"), VALUES, ids=[sql for sql, _, _ in VALUES])
def test_a_value_comes_back_as_it_is(lake: Connection, sql: str, value: Any, text: str) -> None:
    answer = lake.ask(f"SELECT {sql} AS v")
    if value is not None:
        assert answer.arrow()["v"][0].as_py() == value
    assert Markup(answer._repr_html_()).cells == [text]


def test_nan_is_no_null(lake: Connection) -> None:
    answer = lake.ask("SELECT 'nan'::DOUBLE AS v UNION ALL SELECT NULL ORDER BY 1")
    assert sorted(Markup(answer._repr_html_()).cells) == ["NULL", "NaN"]


def test_whole_numbers_stay_whole_in_pandas_also_beside_nulls(lake: Connection) -> None:
    frame = lake.ask(
        "SELECT * FROM (VALUES (9007199254740993::BIGINT, 18446744073709551615::UBIGINT, 'a', 1::TINYINT),"
        " (NULL, NULL, NULL, 2)) AS v(n, u, t, s)"
    ).pandas()
    assert [str(kind) for kind in frame.dtypes[["n", "u", "s"]]] == ["Int64", "UInt64", "int8"]
    assert (int(frame["n"][0]), int(frame["u"][0])) == (2**53 + 1, 2**64 - 1)
    assert frame["n"].isna().tolist() == [False, True]


def test_far_years_come_through_pandas(lake: Connection) -> None:
    frame = lake.ask(
        "SELECT TIMESTAMP '9999-12-31 23:59:59' AS t, TIMESTAMP '0001-01-01' AS u"
    ).pandas()
    assert (frame["t"][0].year, frame["u"][0].year) == (9999, 1)


def test_an_answer_as_polars(lake: Connection) -> None:
    polars = pytest.importorskip(
        "polars", reason="an extra that the oldest versions come without"
    )
    frame = lake.ask("SELECT id FROM lake.net.flows ORDER BY id").polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame["id"].to_list() == [1, 2, 3]


SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def test_markup_in_values_and_names_is_text(lake: Connection) -> None:
    page = Markup(
        lake.ask(
            f"SELECT '{SCRIPT}' AS \"{SCRIPT}\", ['{SCRIPT}'] AS l, {{'{SCRIPT}': 1}} AS s"
        )._repr_html_()
    )
    assert page.is_harmless
    assert page.cells == [SCRIPT, f"[{SCRIPT}]", f"{{{SCRIPT}: 1}}"]


def test_markup_in_an_error_is_text_of_one_sentence(lake: Connection) -> None:
    with pytest.raises(AnswerError) as refusal:
        lake.ask(f'SELECT * FROM lake.net."{SCRIPT}"')
    assert "is not a table of this server" in str(refusal.value)
    assert SCRIPT in str(refusal.value)
    assert "Detail:" not in str(refusal.value)
    assert (refusal.value.status, refusal.value.is_passing) == ("InvalidArgument", False)


def test_what_turns_text_around_is_not_printed(lake: Connection) -> None:
    (cell,) = Markup(
        lake.ask("SELECT 'a' || chr(8238) || 'b' || chr(27) AS v")._repr_html_()
    ).cells
    assert cell == "a\ufffdb\ufffd"


def test_a_cell_of_ten_megabytes_is_short_in_html_and_whole_in_arrow(
    lake: Connection, wide_table: str
) -> None:
    answer = lake.ask(f"SELECT * FROM {wide_table}")
    table = answer.arrow()
    assert len(table["text"][0].as_py()) == 10_000_000
    assert len(table["bytes"][0].as_py()) == 10_000_000
    text = answer._repr_html_()
    assert len(text) < 10_000
    cells = Markup(text).cells
    assert all(len(cell) <= 201 and cell.endswith("…") for cell in cells[:3])
    assert cells[3].startswith("{s: {s: {s: ")


def test_of_a_long_answer_the_first_and_last_rows_are_drawn(lake: Connection) -> None:
    answer = lake.ask("SELECT range AS n FROM range(100000)")
    cells = Markup(answer._repr_html_()).cells
    assert cells == [*map(str, range(10)), "…", *map(str, range(99_990, 100_000))]
    assert "100,000 rows" in Markup(answer._repr_html_()).text


def test_of_many_columns_the_first_are_drawn(lake: Connection) -> None:
    columns = ", ".join(f"{number} AS c{number}" for number in range(300))
    page = Markup(lake.ask(f"SELECT {columns}")._repr_html_())
    assert len(page.cells) == 50
    assert "and 250 more columns" in page.text


def test_an_answer_without_rows_or_columns_of_one_name(lake: Connection) -> None:
    answer = lake.ask("SELECT 1 AS a, 2 AS a WHERE false")
    assert len(answer) == 0
    assert Markup(answer._repr_html_()).cells == []


def test_the_quiet_line_says_rows_of_each_side_time_and_cut(lake: Connection) -> None:
    answer = lake.ask("SELECT count(*) FROM lake.net.flows")
    text = Markup(answer._repr_html_()).text
    assert "3 rows = 3 cold + 0 hot, " in text
    assert f"cut {answer.cut[:14]}…" in text


def test_a_cut_gives_the_same_rows_again(lake: Connection) -> None:
    first = lake.ask("SELECT * FROM lake.net.flows")
    again = lake.ask("SELECT * FROM lake.net.flows", cut=first.cut)
    assert again.arrow().equals(first.arrow())
    assert again.cut == first.cut
    with pytest.raises(AnswerError, match="the cut is not one a server gave out"):
        lake.ask("SELECT * FROM lake.net.flows", cut="c:x")
    # Of one statement alone.
    assert len(lake.ask("SELECT * FROM lake.net.flows")) == 3


def test_a_keyword_that_means_nothing_is_refused(lake: Connection) -> None:
    with pytest.raises(TypeError, match="takes freshness, cut, wait_for, and not fresh"):
        lake.ask("SELECT 1", fresh="live")


@pytest.mark.parametrize(
    "uri",
    ["ftp://x", "grpc://", "grpc://h:port", "grpc://h:99999", "grpc://h/lake", "grpc://h?x"],
)
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"is not a server's address; write grpc://HOST:PORT"):
        thermocline_client.connect(uri)


@pytest.mark.parametrize(
    "uri", ["grpc://ada:secret@h:1", "ada:secret@h", "grpc://secret@h:99999"]
)
def test_an_address_holds_no_password_and_the_error_does_not_repeat_it(uri: str) -> None:
    with pytest.raises(ValueError, match="address names no user") as refusal:
        thermocline_client.connect(uri)
    assert "secret" not in str(refusal.value)


ADDRESSES = [
    ("h", "grpc://h:31337"),
    ("grpc+tls://h/", "grpc+tls://h:31337"),
    ("grpc://[::1]", "grpc://[::1]:31337"),
    ("grpc://127.0.0.1:1/", "grpc://127.0.0.1:1"),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES)
def test_an_address_has_a_scheme_and_a_port(text: str, address: str) -> None:
    with thermocline_client.connect(text) as lake:
        assert lake.uri == address


def test_an_answer_is_drawn_after_its_connection_was_closed(uri: str) -> None:
    with thermocline_client.connect(uri) as lake:
        answer = lake.ask("SELECT id FROM lake.net.flows ORDER BY id")
    assert Markup(answer._repr_html_()).cells == ["1", "2", "3"]
    with pytest.raises(AnswerError, match=r"^this connection is closed; connect again\.$"):
        lake.ask("SELECT 1")


def test_a_name_tells_a_terminal_nothing(lake: Connection) -> None:
    answer = lake.ask('SELECT 1 AS "a\x1b[31m"')
    assert repr(answer).endswith(r"a\x1b[31m int32>")


def test_a_user_and_a_token_are_not_both_taken() -> None:
    with pytest.raises(ValueError, match="not both"):
        thermocline_client.connect("grpc://h", user="ada", token="t")


def test_where_no_server_answers_the_sentence_says_so() -> None:
    with (
        pytest.raises(AnswerError) as refusal,
        thermocline_client.connect("grpc://127.0.0.1:1") as lake,
    ):
        lake.ask("SELECT 1")
    assert str(refusal.value) == (
        "no Thermocline server answers at grpc://127.0.0.1:1; try again, or look whether it runs."
    )
    assert refusal.value.is_passing


def test_settings_are_of_the_session(uri: str) -> None:
    with thermocline_client.connect(uri, settings={"schema": "net"}) as lake:
        assert len(lake.ask("SELECT * FROM flows")) == 3


ENDLESS = (
    "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 3"
)


def test_an_interrupt_ends_the_statement_and_the_connection_goes_on(lake: Connection) -> None:
    seconds: list[float] = []

    def progress(rows: int, elapsed_s: float) -> None:
        seconds.append(elapsed_s)
        assert rows == 0
        # As a notebook's kernel is interrupted.
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lake.ask(ENDLESS, progress=progress)
    assert seconds
    assert lake.ask("SELECT 1 AS n").arrow()["n"].to_pylist() == [1]
    assert not [thread for thread in threading.enumerate() if thread.name == "driver"]


def test_progress_counts_rows_while_they_come(lake: Connection) -> None:
    counts: list[int] = []

    def slowly(rows: int, _: float) -> None:
        counts.append(rows)
        time.sleep(0.01)

    answer = lake.ask(
        "SELECT range, repeat('x', 100) AS t FROM range(2000000)", progress=slowly
    )
    assert len(answer) == 2_000_000
    assert counts == sorted(counts)

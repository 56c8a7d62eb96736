"""SQLAlchemy's dialect on the version that is installed: what it reads, reflects and compiles."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

sa = pytest.importorskip("sqlalchemy")

from sqlalchemy import exc  # noqa: E402
from sqlalchemy.dialects import registry  # noqa: E402
from sqlalchemy.engine import URL, make_url  # noqa: E402

from thermocline_client.sqlalchemy_dialect import ThermoclineDialect  # noqa: E402

# The wheel says so by an entry point, which a folder on the path has not.
registry.register("thermocline", "thermocline_client.sqlalchemy_dialect", "ThermoclineDialect")


def url_of(uri: str, **query: str) -> URL:
    address = uri.removeprefix("grpc://")
    return make_url(f"thermocline://{address}/lake").set(query={"tls": "false", **query})


@pytest.fixture(scope="module")
def engine(uri: str) -> Iterator[sa.engine.Engine]:
    engine = sa.create_engine(url_of(uri))
    yield engine
    engine.dispose()


@pytest.fixture
def flows(engine: sa.engine.Engine) -> sa.Table:
    return sa.Table("flows", sa.MetaData(), autoload_with=engine, schema="net")


def test_a_table_is_reflected_with_types_and_comments(
    engine: sa.engine.Engine, flows: sa.Table
) -> None:
    assert [(column.name, str(column.type)) for column in flows.columns] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
        ("price", "NUMERIC(18, 4)"),
        ("at", "DATETIME"),
    ]
    assert flows.c.at.type.timezone
    assert (flows.comment, flows.c.id.comment) == ("what went by", "the key")
    inspector = sa.inspect(engine)
    assert {"net", "net.eu"} <= set(inspector.get_schema_names())
    assert inspector.get_table_names("net") == ["flows"]
    assert inspector.get_table_names("net.eu") == ['Odd "é"']
    assert inspector.get_view_names("net") == []
    assert (
        inspector.get_indexes("flows", "net")
        == inspector.get_foreign_keys("flows", "net")
        == []
    )
    assert inspector.get_pk_constraint("flows", "net")["constrained_columns"] == []
    assert not inspector.has_table("absent", "net")
    with pytest.raises(exc.NoSuchTableError):
        inspector.get_columns("absent", "net")


def test_odd_names_are_quoted(engine: sa.engine.Engine) -> None:
    odd = sa.Table('Odd "é"', sa.MetaData(), autoload_with=engine, schema="net.eu")
    with engine.connect() as connection:
        assert connection.execute(sa.select(odd.c.id)).scalars().all() == [1]


def test_rows_and_parameters_come_through(engine: sa.engine.Engine, flows: sa.Table) -> None:
    statement = sa.select(flows).where(flows.c.id > 1, flows.c.name.ilike("%Ü%"))
    with engine.connect() as connection:
        assert [tuple(row) for row in connection.execute(statement)] == [
            (3, "ü", Decimal("-2.0000"), dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc))
        ]
        counted = sa.select(sa.func.count()).select_from(flows).where(flows.c.id.in_([1, 2, 9]))
        assert connection.execute(counted).scalar_one() == 2
        page = sa.select(flows.c.id).order_by(flows.c.id.desc()).limit(1).offset(1)
        assert connection.execute(page).scalar_one() == 2
        # Nothing is there to undo, and no error either.
        connection.rollback() if hasattr(connection, "rollback") else None


ESCAPED = [
    (lambda text: text.contains("50% (a.b)", autoescape=True), "x50% (a.b)\ny", "50 (a.b)"),
    (lambda text: text.startswith("a_", autoescape=True), "a_c", "abc"),
    (lambda text: text.endswith(r"\d/%", autoescape=True), r"1\d/%", "11/%"),
    (lambda text: text.contains("b#%c%e", escape="#"), "ab%cdef", "abcdef"),
    (lambda text: text.like("_#_%", escape="#"), "é_\nx", "éx_"),
    (lambda text: text.ilike("Ü#%", escape="#"), "ü%", "ü%."),
    (lambda text: ~text.contains("%", autoescape=True), "100", "100 %"),
]


@pytest.mark.parametrize(("condition", "fits", "other"), ESCAPED)
def test_a_pattern_with_an_escape_character_is_that_of_sql(
    engine: sa.engine.Engine,
    condition: Callable[[sa.sql.ColumnElement], sa.sql.ColumnElement],
    fits: str,
    other: str,
) -> None:
    """As a parameter, of a statement that was compiled for another value, and written in."""
    for text, expected in ((fits, True), (other, False)):
        chosen = sa.select(condition(sa.literal(text, sa.String())).label("v"))
        written = str(chosen.compile(engine, compile_kwargs={"literal_binds": True}))
        with engine.connect() as connection:
            assert connection.execute(chosen).scalar_one() is expected
            assert (
                connection.execute(sa.text(written.replace(":", r"\:"))).scalar_one()
                is expected
            )


def test_a_literal_column_in_a_pattern_is_part_of_it(engine: sa.engine.Engine) -> None:
    """The server refuses such a pattern by name: SQLAlchemy sends the value beside the column."""
    pattern = sa.literal("a#_", sa.String()) + sa.literal_column("'%'")
    chosen = sa.select(sa.literal("a_c", sa.String()).like(pattern, escape="#"))
    with (
        engine.connect() as connection,
        pytest.raises(exc.DBAPIError, match="ESCAPE"),
    ):
        connection.execute(chosen)


VALUES = [
    (2**53 + 1, sa.BigInteger()),
    (-(2**63), sa.BigInteger()),
    (Decimal("12" * 19), sa.Numeric(38, 0)),
    (0.1, sa.Float()),
    (1 / 3, sa.Float(53)),
    (dt.date(1, 1, 1), sa.Date()),
    (dt.date(9999, 12, 31), sa.Date()),
    (dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), sa.DateTime()),
    (dt.time(23, 59, 59, 1), sa.Time()),
    (b"\x00\xff", sa.LargeBinary()),
    ("é", sa.Unicode()),
    ("%(x)s :y ? \\ ' \" é", sa.String()),
    (True, sa.Boolean()),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[str(value) for value, _ in VALUES])
def test_a_value_goes_there_and_back(
    engine: sa.engine.Engine, value: object, kind: sa.types.TypeEngine
) -> None:
    bound = sa.select(sa.cast(sa.bindparam("v", value, type_=kind), kind).label("v"))
    with engine.connect() as connection:
        back = connection.execute(bound).scalar_one()
    assert (back, type(back)) == (value, type(value))


LITERALS = ["\\'", "50%", ":name", "?", "<b>'", '"']


@pytest.mark.parametrize("text", LITERALS)
def test_a_literal_is_the_text_it_was(engine: sa.engine.Engine, text: str) -> None:
    """Superset sends statements with their values written in."""
    statement = sa.select(sa.literal(text, sa.String()).label("v"))
    sql = str(statement.compile(engine, compile_kwargs={"literal_binds": True}))
    with engine.connect() as connection:
        assert connection.exec_driver_sql(sql).scalar_one() == text


def test_operators_mean_what_they_mean_in_sqlalchemy(engine: sa.engine.Engine) -> None:
    text = sa.literal("flows", sa.String())
    statement = sa.select(
        text.regexp_match("low").label("matches"),
        sa.not_(text.regexp_match("x")).label("does_not"),
        sa.cast("0.123456", sa.Numeric()).label("decimals"),
        (text + "!").label("joined"),
    )
    with engine.connect() as connection:
        assert tuple(connection.execute(statement).one()) == (
            True,
            True,
            Decimal("0.1234560000"),
            "flows!",
        )


def test_an_error_is_sqlalchemys_and_the_connection_goes_on(engine: sa.engine.Engine) -> None:
    with engine.connect() as connection:
        with pytest.raises(exc.ProgrammingError, match=r"there is no table net\.absent"):
            connection.exec_driver_sql("SELECT * FROM net.absent")
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_a_store_that_only_reads_says_so(engine: sa.engine.Engine) -> None:
    absent = sa.Table("t", sa.MetaData(), sa.Column("n", sa.Integer))
    with engine.connect() as connection, pytest.raises(exc.DBAPIError):
        connection.execute(absent.insert().values(n=1))


def test_the_session_is_set_up_by_the_url(uri: str) -> None:
    engine = sa.create_engine(url_of(uri, schema="net", time_zone="Europe/Zurich"))
    try:
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM flows").scalar_one() == 3
            zone = "SELECT strftime(TIMESTAMPTZ '2024-07-01 00:00:00Z', '%H')"
            assert connection.exec_driver_sql(zone).scalar_one() == "02"
    finally:
        engine.dispose()


ARGUMENTS = [
    ("thermocline://h/lake", ("grpc+tls://h:31337",)),
    ("thermocline://ada:p%40ss@h:1/lake?tls=false", ("grpc://h:1",)),
    ("thermocline://[::1]:1/?tls=false", ("grpc://[::1]:1",)),
]


@pytest.mark.parametrize(("url", "address"), ARGUMENTS)
def test_a_url_says_where_the_server_is(url: str, address: tuple[str]) -> None:
    arguments, options = ThermoclineDialect().create_connect_args(make_url(url))
    assert arguments == address
    login = options["db_kwargs"].get("adbc.flight.sql.authorization_header")
    assert login == ("Basic YWRhOnBAc3M=" if "ada" in url else None)


def test_a_token_is_a_password_without_a_user_and_shown_as_little() -> None:
    url = make_url("thermocline://:of%2Fada@h/lake")
    _, options = ThermoclineDialect().create_connect_args(url)
    assert options["db_kwargs"]["adbc.flight.sql.authorization_header"] == "Bearer of/ada"
    assert "ada" not in repr(url) + repr(sa.create_engine(url))


@pytest.mark.skipif(not hasattr(sa, "Uuid"), reason="SQLAlchemy 1.4 has no such type")
def test_a_uuid_is_one_in_a_condition_and_in_an_answer(engine: sa.engine.Engine) -> None:
    one = uuid.UUID(int=2**127 + 5)
    stored = sa.literal_column(f"'{one}'::UUID", sa.Uuid())
    statement = sa.select(stored.label("v")).where(stored == one)
    as_text = sa.select(sa.cast(str(one), sa.Uuid(as_uuid=False)))
    with engine.connect() as connection:
        assert connection.execute(statement).scalar_one() == one
        assert connection.execute(as_text).scalar_one() == str(one)


def test_an_inspector_remembers_whether_a_table_is_there(engine: sa.engine.Engine) -> None:
    """As it does what it reflects; until ``clear_cache``, which 1.4 has not for this."""
    inspector = sa.inspect(engine)
    assert inspector.has_table("flows", "net")
    statements: list[str] = []

    def note(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        assert inspector.has_table("flows", "net")
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    assert len(statements) == (1 if sa.__version__.startswith("1.4") else 0)


@pytest.mark.parametrize("query", ["tls=maybe", "tsl=false", "token=t"])
def test_what_a_url_may_not_say_is_refused(query: str) -> None:
    with pytest.raises(exc.ArgumentError, match=r"in the URL: it takes"):
        ThermoclineDialect().create_connect_args(make_url(f"thermocline://ada:p@h/?{query}"))

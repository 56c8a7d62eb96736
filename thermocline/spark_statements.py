"""``thermocline sql --engine spark``: Spark's SQL at a cut that is decided as always, run by a Spark of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connectors.spark.errors import statement_errors
from connectors.spark.session import session_of_process
from planner.errors import BadConfig
from planner.names import Side
from planner.seam.freshness import parse_freshness
from thermocline import spark as tc
from thermocline.config.settings import Settings, load
from thermocline.connect import ServerChoice
from thermocline.spark_session import configured_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SparkAnswer:
    """The rows of one statement, collected by Spark's driver."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        yield from self.table.to_batches()


@dataclass(frozen=True, slots=True)
class SparkStatements:
    """Runs statements, each at a cut of its own. ``contract`` are arguments of ``at``; ``max_rows``: no more are collected."""

    session: SparkSession
    lake: tc.Lake | tc.ServerLake
    contract: Mapping[str, Any]
    max_rows: int | None = None

    @contextlib.contextmanager
    def ask(self, sql: str) -> Iterator[SparkAnswer]:
        """Run one statement.

        Raises:
            BadStatement: Spark refuses it.
            FederationError: as ``at`` and ``sql`` of a cut.
        """
        with statement_errors():
            frame = self.frame(sql)
            # One more shows that there are more.
            rows = frame if self.max_rows is None else frame.limit(self.max_rows + 1)
            answer = SparkAnswer(rows.toArrow())
        yield answer

    def frame(self, sql: str) -> DataFrame:
        """Return what a statement answers; its rows are collected on request.

        Raises:
            FederationError: as ``at`` and ``sql`` of a cut.
        """
        names = self.lake.named(sql)
        if not names:
            return self.session.sql(sql)
        return self.lake.at(*map(str, names), **self.contract).sql(sql)


@contextlib.contextmanager
def spark_statements(
    config: str | None, *, password: str | None, max_rows: int | None = None, **options: Any
) -> Iterator[SparkStatements]:
    """Attach to the Spark session of this process, or start one as the tierer's settings say, and stop it again.

    ``options`` are those of ``ServerChoice``; ``uri`` is an address.

    Raises:
        BadConfig: no catalog is configured, and no server named; or Spark does not start as configured.
        BadParameter: the freshness is none, or one side.
    """
    chosen = ServerChoice(**options)
    uri, user, token = chosen.uri, chosen.user, chosen.token
    contract = arguments_of(chosen)
    settings = load(config)
    if uri is None:
        settings.require_catalogs()
        if user is not None or token is not None:
            raise BadConfig("--user and --token are for a server; name it with --server.")
    with _session(settings) as session:
        if uri is not None:
            served = tc.connect(session, server=uri, user=user, password=password, token=token)
            yield SparkStatements(session, served, contract, max_rows)
            return
        with tc.connect(session, config) as lake:
            yield SparkStatements(session, lake, contract, max_rows)


def arguments_of(options: ServerChoice) -> dict[str, str]:
    """Return the arguments of ``at`` that mean what the options of the commands say.

    Raises:
        BadConfig: the freshness is that of one side.
        BadParameter: it is none.
    """
    arguments = options.contract
    staleness = _staleness(arguments.pop("freshness", None))
    return arguments if staleness is None else {**arguments, "max_staleness": staleness}


@contextlib.contextmanager
def _session(settings: Settings) -> Iterator[SparkSession]:
    if (session := session_of_process()) is not None:
        yield session
        return
    with configured_session(settings) as started:
        yield started


def _staleness(freshness: str | None) -> str | None:
    """Return the part of a freshness behind max_staleness; None: it is live."""
    if freshness is None:
        return None
    contract = parse_freshness(freshness)
    if contract.side is not Side.BOTH:
        raise BadConfig(
            f"--engine spark reads both sides; {contract.side.value} rows alone are those of cut.table(name, "
            f"side={contract.side.value!r}) in thermocline.spark."
        )
    return None if contract.max_staleness_s is None else str(contract).partition(" ")[2]

"""Answers of a Thermocline server for Spark: planned once, read by tasks. The server applies its user's grants.

A plan is the server's ticket, and the cut it stands for. When the ticket's time is over, the statement is planned again at
that cut, so every action on a DataFrame reads the same rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from connectors.spark.errors import packing
from connectors.spark.remote.types import in_spark
from connectors.spark.shipping import SentReader
from planner.errors import BadConfig, FederationError, RequestError, StalePlan, Unavailable

if TYPE_CHECKING:
    from types import ModuleType

    import adbc_driver_flightsql.dbapi as flight_sql

_HEADER = "adbc.flight.sql.rpc.call_header.thermocline-"
#: Keys in the metadata of an answer's schema: a cut's text, and the name of the split whose shares its endpoints are.
_CUT, _SPLIT = b"thermocline.cut", b"thermocline.split"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, and as whom it is asked. ``root_certificates``: PEM, for one that no public authority signed."""

    uri: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    root_certificates: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        uri: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        tls_root_certificates: str | os.PathLike[str] | None = None,
    ) -> ServerAddress:
        """``tls_root_certificates`` is a file of this machine.

        Raises:
            BadConfig: the address is none, user and token contradict each other, or the file cannot be read.
        """
        if user is not None and token is not None:
            raise BadConfig("user and token contradict each other; give one of them.")
        if password is not None and user is None:
            raise BadConfig("a password is given without a user; name the user.")
        roots = None
        if tls_root_certificates is not None:
            try:
                roots = Path(tls_root_certificates).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise BadConfig(
                    f"tls_root_certificates: {tls_root_certificates} cannot be read as PEM text."
                ) from error
        return cls(_client().server_uri(uri), user, password, token, roots)

    @contextlib.contextmanager
    def connected(self) -> Iterator[flight_sql.Connection]:
        """Connect; errors of the driver within the block are raised as ours.

        Raises:
            FederationError: no server answers, or it does not let this user in; and what the server refuses.
        """
        client = _client()
        try:
            with client.connect(
                self.uri,
                user=self.user,
                password=self.password,
                token=self.token,
                root_certificates=self.root_certificates,
            ) as connection:
                yield connection
        except (client.DriverError, pa.ArrowException, OSError) as error:
            ours = client.to_ours(error)
            if isinstance(ours, FederationError):
                raise ours from error
            raise Unavailable(
                "the server's answer broke off; try again.", uri=self.uri
            ) from error


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """A planned statement. ``settings``: freshness, wait_for, cut, by name; ``cut`` is "" where the user may not know it.

    ``endpoints`` are disjoint shares of the answer, of ``split`` where there are several; ``max_endpoints`` were asked for.
    """

    address: ServerAddress
    sql: str
    settings: Mapping[str, str]
    schema: pa.Schema
    endpoints: tuple[bytes, ...]
    cut: str
    split: str = ""
    max_endpoints: int = 1

    @classmethod
    def of(
        cls,
        address: ServerAddress,
        sql: str,
        settings: Mapping[str, str] | None = None,
        max_endpoints: int = 1,
    ) -> ServedPlan:
        """Have a server plan a statement; nothing is read. It decides whether its answer has shares to read side by side.

        Raises:
            FederationError: the server's sentence, in the family its status stands for.
        """
        with address.connected() as connection, connection.cursor() as cursor:
            return _planned(cursor, address, sql, settings or {}, max_endpoints)

    def rows(self, share: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an endpoint, as Spark holds them; the driver reads a few batches ahead.

        Raises:
            FederationError: as ``of``; a ticket whose time is over, without a cut to plan it again.
            StalePlan: planned again, the answer has other columns or other shares.
        """
        with self.address.connected() as connection, connection.cursor() as cursor:
            for batch in self._opened(cursor, share):
                yield in_spark(batch)

    def _opened(self, cursor: flight_sql.Cursor, share: int) -> pa.RecordBatchReader:
        try:
            return _reader(cursor, self.endpoints[share])
        except _client().DriverError as error:
            ours = _client().to_ours(error)
            # Over, or of a server that began again with another secret.
            if not isinstance(ours, RequestError | Unavailable):
                raise
            if not self.cut:
                raise type(ours)(
                    f"{ours.message} If the statement was planned some minutes ago, its ticket is over: load() it again."
                ) from error
        settings = settings_at(self.cut, self.settings)
        again = _planned(cursor, self.address, self.sql, settings, self.max_endpoints)
        if not again.schema.equals(self.schema):
            raise StalePlan(
                "the statement has other columns now than when it was loaded; load() it again."
            )
        # One part of another split would have rows of other tasks, or lack rows that none has.
        if (again.split, len(again.endpoints)) != (self.split, len(self.endpoints)):
            raise StalePlan(
                "the server shares the answer's rows out in another way than when it was loaded; load() it again."
            )
        return _reader(cursor, again.endpoints[share])


def settings_at(cut: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a statement reads at a cut what it read with ``settings`` when that was taken.

    A freshness stays: it may say which side a table's name means. No record is waited for again.
    """
    freshness = {name: text for name, text in settings.items() if name == "freshness"}
    return freshness | {"cut": cut}


def _client() -> ModuleType:
    """The driver takes a fifth of a second to load, in each process of Spark's, and most loads are not of a server."""
    from connectors import flight_server

    return flight_server


def _planned(
    cursor: flight_sql.Cursor,
    address: ServerAddress,
    sql: str,
    settings: Mapping[str, str],
    max_endpoints: int,
) -> ServedPlan:
    headers = {**settings, "max_endpoints": str(max_endpoints)}
    cursor.adbc_statement.set_options(
        **{f"{_HEADER}{name.replace('_', '-')}": value for name, value in headers.items()}
    )
    endpoints, schema = cursor.adbc_execute_partitions(sql)
    cut, split = (((schema.metadata or {}).get(key) or b"").decode() for key in (_CUT, _SPLIT))
    return ServedPlan(
        address, sql, settings, schema, tuple(endpoints), cut, split, max_endpoints
    )


def _reader(cursor: flight_sql.Cursor, endpoint: bytes) -> pa.RecordBatchReader:
    cursor.adbc_read_partition(endpoint)
    return cursor.fetch_record_batch()


class ServedShare(InputPartition):
    """The rows of one endpoint of a plan; ``value`` is its number."""


@dataclass(frozen=True, slots=True)
class ServedTask:
    """Reads a plan on an executor. Pickled to it."""

    plan: ServedPlan

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            RuntimeError: with an error of ``planner.errors`` in its text.
        """
        with packing():
            yield from self.plan.rows(share.value)


class ServedReader(SentReader, DataSourceReader):
    """Reads a plan, each endpoint in a task of its own."""

    def __init__(self, plan: ServedPlan) -> None:
        self._tasks = ServedTask(plan)

    def partitions(self) -> list[InputPartition]:
        return [ServedShare(number) for number in range(len(self._tasks.plan.endpoints))]

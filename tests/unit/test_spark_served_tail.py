"""When a server's tail is taken for that of a cut, and when the log is read instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from connectors.spark.lake.tail import TailKeeper
from connectors.spark.remote import load as served_tail
from connectors.spark.remote.load import ServedTails
from connectors.spark.remote.plan import ServedPlan, ServerAddress
from planner.errors import FederationError, LimitExceeded, NotAllowed, StalePlan, Unavailable
from planner.seam.cut import TableCut, plan_cut
from planner.seam.time_travel import format_cut
from tests.harness.builders import FLOWS, bounds, pin

ADDRESS = ServerAddress("grpc://server:1")
CUT = plan_cut(pin(3), bounds((0, 5)))


def text_of(cut: TableCut) -> str:
    return format_cut({(FLOWS, None): cut})


class Answering:
    """Stands for the plans of a server that is at a cut; keeps what it was asked."""

    def __init__(self, cut: str, schema: pa.Schema) -> None:
        self.cut = cut
        self.schema = schema
        self.plans: list[tuple[str, Mapping[str, str]]] = []

    def of(self, address: ServerAddress, sql: str, settings: Mapping[str, str]) -> ServedPlan:
        self.plans.append((sql, settings))
        return ServedPlan(address, sql, settings, self.schema, (b"",), self.cut)


def answering(
    monkeypatch: pytest.MonkeyPatch, cut: str, schema: pa.Schema | None = None
) -> Answering:
    planner = Answering(cut, CUT.cold.schema.arrow if schema is None else schema)
    monkeypatch.setattr(served_tail, "ServedPlan", planner)
    return planner


def test_a_tail_of_the_same_seam_and_end_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # A server sends other names of UTC.
    sent = pa.schema(
        pa.field(each.name, pa.timestamp("us", "Etc/UTC"))
        if pa.types.is_timestamp(each.type)
        else each
        for each in CUT.cold.schema.arrow
    )
    planner = answering(monkeypatch, text_of(CUT), sent)
    plans: list[ServedPlan] = []

    def read(plan: ServedPlan, _part: int = 0) -> Iterator[pa.RecordBatch]:
        plans.append(plan)
        yield pa.RecordBatch.from_pylist([{"kafka_offset": 4, "kafka_timestamp": 7}], sent)

    monkeypatch.setattr(ServedPlan, "rows", read)
    rows = ServedTails(ADDRESS).rows(CUT)
    assert rows is not None
    (batch,) = rows
    assert batch.schema.types == [each.type for each in CUT.cold.schema.columns]
    assert batch["kafka_offset"].to_pylist() == [4]
    assert planner.plans == [
        ('SELECT * FROM "lake"."net"."flows$tail"', {"whole": "true", "cut": text_of(CUT)})
    ]
    # It would be planned again on another snapshot, where the seam may be elsewhere.
    assert [plan.cut for plan in plans] == [""]


OTHERS = (
    "",
    text_of(dataclasses.replace(CUT, cold=dataclasses.replace(CUT.cold, snapshot_id=2))),
    text_of(plan_cut(pin(3), bounds((0, 6)))),
    text_of(dataclasses.replace(CUT, table_uuid="another")),
)


@pytest.mark.parametrize("cut", OTHERS, ids=["hidden", "snapshot", "end", "table"])
def test_a_tail_of_another_seam_or_end_is_not(
    monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    answering(monkeypatch, cut)
    assert ServedTails(ADDRESS).rows(CUT) is None


def test_a_tail_of_other_columns_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, text_of(CUT), pa.schema([("kafka_offset", pa.int64())]))
    assert ServedTails(ADDRESS).rows(CUT) is None


class Server:
    """Gives some rows, and then what is amiss."""

    def __init__(self, error: FederationError | None, is_at: bool = True) -> None:
        self.error = error
        self.is_at = is_at

    def rows(self, _: TableCut) -> Generator[pa.RecordBatch, None, None] | None:
        return self._rows() if self.is_at else None

    def _rows(self) -> Generator[pa.RecordBatch, None, None]:
        yield pa.record_batch({"n": [1]})
        if self.error is not None:
            raise self.error


class Keeper(TailKeeper):
    def _of_log(self, cut: TableCut) -> Generator[pa.RecordBatch, None, None]:
        assert cut is CUT
        yield pa.record_batch({"n": [2]})
        yield pa.record_batch({"n": [3]})


def fetched(server: Server, local_bytes: int = 1 << 20) -> list[Any] | None:
    nobody = cast("Any", None)
    keeper = Keeper(
        nobody,
        nobody,
        nobody,
        nobody,
        folder=Path("/"),
        local_bytes=local_bytes,
        served=cast("ServedTails", server),
    )
    batches = keeper._fetched(CUT)
    return None if batches is None else [batch["n"][0].as_py() for batch in batches]


def test_what_a_server_does_not_give_whole_comes_from_the_log() -> None:
    assert fetched(Server(None)) == [1]
    assert fetched(Server(None, is_at=False)) == [2, 3]
    for kind in (Unavailable, StalePlan, LimitExceeded):
        assert fetched(Server(kind("amiss"))) == [2, 3]
    # A tail that is large is large in either.
    assert fetched(Server(None), local_bytes=0) is None
    with pytest.raises(NotAllowed):
        fetched(Server(NotAllowed("a part of it only")))

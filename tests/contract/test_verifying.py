"""The process that verifies tables: when another one goes on."""

from __future__ import annotations

import os
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from connectors.verification.run import Silent
from planner.errors import FederationError, InternalError, UnknownTable
from planner.names import TableName
from thermocline import verifying
from thermocline.config.settings import Settings
from thermocline.verifying import VerifyRequest, verify_tables

TABLES = tuple(TableName.parse(f"lake.net.{name}") for name in ("one", "two"))


def failing(request: VerifyRequest, messages: Connection, _spill: Path) -> None:
    """Stands for a process whose engine refuses all work."""
    messages.send(list(request.names))
    for _ in request.names:
        messages.send(InternalError("the engine failed", process=os.getpid()))


def sound(request: VerifyRequest, messages: Connection, _spill: Path) -> None:
    messages.send(list(request.names))
    for _ in request.names:
        messages.send(UnknownTable("there is no such table", process=os.getpid()))


@pytest.mark.parametrize(("target", "processes"), [(failing, 2), (sound, 1)])
def test_a_table_after_an_error_of_the_engine_itself_gets_another_process(
    target: object, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "_verify", target)
    request = VerifyRequest(
        Settings(), TABLES, with_values=True, since_ms=None, bound_only=False
    )
    outcomes = list(verify_tables(request, lambda _title: nullcontext(Silent())))
    errors = [outcome for outcome in outcomes if isinstance(outcome, FederationError)]
    assert len(errors) == len(outcomes) == 2
    assert len({error.facts["process"] for error in errors}) == processes

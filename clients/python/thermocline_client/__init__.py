"""Asks a Thermocline server: ``connect(uri).ask(sql).pandas()``, cells of notebooks, SQLAlchemy.

Importing this loads neither pyarrow nor a driver: ``connect`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thermocline_client.connecting import connect
from thermocline_client.errors import AnswerError

if TYPE_CHECKING:
    from thermocline_client.answer import StatementAnswer
    from thermocline_client.connection import Connection

__all__ = ["AnswerError", "Connection", "StatementAnswer", "connect"]


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext thermocline_client`` calls."""
    from thermocline_client import magics

    magics.register(shell)


def __getattr__(name: str) -> Any:
    """StatementAnswer and Connection, loaded with Arrow when they are first named."""
    if name == "StatementAnswer":
        from thermocline_client.answer import StatementAnswer

        return StatementAnswer
    if name == "Connection":
        from thermocline_client.connection import Connection

        return Connection
    raise AttributeError(name)

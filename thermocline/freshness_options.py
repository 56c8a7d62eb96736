"""Options that say how new an answer must be: settings of the session a command asks in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from thermocline.client import Client


def contract_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; what they give goes to ``agree``."""
    for option in reversed(
        (
            click.option(
                "--freshness",
                metavar="CONTRACT",
                help="live, 'max_staleness 5s', cold or tail.  [default: live]",
            ),
            click.option(
                "--cut",
                metavar="TEXT",
                help="Read what another statement read: the text its thermocline_cut() gave.",
            ),
            click.option(
                "--wait-for",
                metavar="RECORDS",
                help="Answer once these records are committed: topic/partition:offset, several with commas.",
            ),
        )
    ):
        command = option(command)
    return command


def agree(
    client: Client, *, freshness: str | None, cut: str | None, wait_for: str | None
) -> None:
    """Set in the session what was given.

    Raises:
        RequestError: the server does not take it.
    """
    options = {"freshness": freshness, "cut": cut, "wait_for": wait_for}
    for name, value in options.items():
        if value is not None:
            client.set(name, value)

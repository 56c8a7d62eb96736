"""Options that say how new an answer must be: settings of the session a command asks in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def contract_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; ``connect_server`` takes what they give."""
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

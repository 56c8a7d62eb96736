"""``thermocline``: the command line. Each command lives in ``thermocline.commands`` and loads when asked for.

What users read of it as a whole is docs/cli.md.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import version

import click
from click.shell_completion import CompletionItem

from planner.errors import (
    FederationError,
    Inconsistent,
    LimitExceeded,
    RequestError,
    StalePlan,
    Unavailable,
)

#: By what a user wants; in this order they are listed.
_GROUPS: dict[str, dict[str, str]] = {
    "Ask": {
        "sql": "Run statements: one, a file, or at a prompt.",
        "explain": "Show what a statement would read of each side, and why.",
        "tail": "Follow the new rows of a statement, each exactly once.",
    },
    "Look after tables": {
        "create": "Create an Iceberg table bound to a Kafka topic.",
        "status": "Show watermark, log and lag of every bound table.",
        "verify": "Compare cold with what Kafka retains: a proof, as far as it can be had.",
        "gap": "Go on without records that were lost before they were tiered.",
        "skip": "Give up a record that does not decode.",
        "accept": "Let rows that another writer appended stay.",
        "shape": "Go on tiering with another way to decode.",
        "schemas": "Show and follow the schemas of Avro records.",
        "covers": "Say what a table covers, where its history was expired.",
        "rebuild": "Replace all rows of a keyed table by those of its log.",
    },
    "Set up": {
        "config": "Show or check the settings in force.",
        "doctor": "Try the set-up out, part by part, and say how to fix it.",
        "password": "Make a user for the credentials file.",
        "token": "Make a bearer token for the credentials file.",
        "completion": "Print a script that completes commands in your shell.",
    },
    "Run": {
        "serve": "Serve all tables over Arrow Flight SQL.",
        "console": "Serve pages for people: tables, the seam drawn live, statements.",
        "tier": "Move log rows into Iceberg and advance the watermark.",
        "maintain": "Keep tables fast: compact files, expire snapshots, remove orphans.",
        "demo": "Run everything on this machine: Kafka, Iceberg, Spark, Flight SQL.",
    },
}
#: Modules that have more than one command, each by its name. Any other command is ``command`` of a module with its name.
_MODULES = {
    **dict.fromkeys(("gap", "skip", "accept", "shape", "covers"), "repair"),
    **dict.fromkeys(("password", "token"), "credentials"),
}
_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}
#: What every command ends with.
EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "a check found a difference",
    2: "the request or the configuration is wrong",
    3: "a system does not answer; try again later",
    4: "what was planned on is gone; try again",
    5: "a limit is exceeded",
    6: "stored state is inconsistent; a person must look",
    70: "a bug of Thermocline's",
    78: "`serve` cannot start as configured",
    130: "ended by Ctrl-C",
    141: "nobody reads the output any more",
}
_OF_FAMILY = {RequestError: 2, Unavailable: 3, StalePlan: 4, LimitExceeded: 5, Inconsistent: 6}


class _Lazy(click.Group):
    """Imports a command's module when it is run: ``--help`` loads none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        name, attribute = _MODULES.get(cmd_name, cmd_name), "command"
        module = importlib.import_module(f"thermocline.commands.{name}")
        command: click.Command = getattr(
            module, cmd_name if cmd_name in _MODULES else attribute
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names without importing the commands."""
        names = [
            CompletionItem(name, help=text)
            for name, text in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names or click.Command.shell_complete(self, ctx, incomplete)


_EPILOG = """\b
Examples:
  thermocline demo                                     see it work, on this machine
  thermocline create lake.net.flows --topic flows --infer
  thermocline sql "FROM lake.net.flows LIMIT 5"
  thermocline COMMAND --help                           options and examples of one command

\b
Exit codes: 0 done, 1 a difference was found, 2 wrong request or configuration,
3 no answer, 6 a person must look. docs/cli.md lists all.
"""


@click.group(
    cls=_Lazy,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--config",
    metavar="FILE",
    help="Settings; else $THERMOCLINE_CONFIG, else ./thermocline.toml.",
)
@click.version_option(version("thermocline"))
@click.pass_context
def app(ctx: click.Context, config: str | None) -> None:
    """One SQL table over a Kafka topic and an Iceberg table, up to the last committed record."""
    ctx.obj = config


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command (of ``sys.argv``); a known failure is one sentence on standard error and an exit code."""
    try:
        app.main(arguments, prog_name="thermocline", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(130)
    except FederationError as error:
        click.echo(f"thermocline: {error.message}", err=True)
        sys.exit(exit_code(error))


def exit_code(error: FederationError) -> int:
    return next((code for family, code in _OF_FAMILY.items() if isinstance(error, family)), 70)

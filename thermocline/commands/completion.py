"""``thermocline completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
#: The variable by which the script asks for completions; click's own name for this program.
_VARIABLE = "_THERMOCLINE_COMPLETE"

EXAMPLES = """\b
Examples:
  thermocline completion bash > ~/.local/share/bash-completion/completions/thermocline
  thermocline completion zsh > "${fpath[1]}/_thermocline"
  thermocline completion fish > ~/.config/fish/completions/thermocline.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL: put it where the shell looks, or source it."""
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"this version of click has no completion for {shell}.")
    root = ctx.find_root().command
    script = completion(root, {}, "thermocline", _VARIABLE)
    click.echo(script.source_template % script.source_vars())

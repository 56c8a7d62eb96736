"""``thermocline password`` and ``thermocline token``: entries for the credentials file."""

from __future__ import annotations

import sys

import click

_user = click.argument("user")
_groups = click.option(
    "--group", "groups", multiple=True, help="A group of the user; repeat for more."
)


@click.command(epilog="Example: thermocline password alice >> credentials.toml")
@_user
@_groups
@click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the password from standard input."
)
def password(user: str, groups: tuple[str, ...], from_stdin: bool) -> None:
    """Ask for a password and print the user's entry: its argon2 hash, not the password."""
    from proxy.access.authentication.credentials import entry
    from proxy.access.authentication.hashes import make_hash

    if from_stdin:
        text = sys.stdin.readline().rstrip("\n")
    else:
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not text:
        raise click.UsageError("the password is empty.")
    click.echo(entry("users", user, "password", make_hash(text), groups), nl=False)


@click.command(epilog="Example: thermocline token dashboards >> credentials.toml")
@_user
@_groups
def token(user: str, groups: tuple[str, ...]) -> None:
    """Make a random token; print its entry, and the token itself on standard error. It is shown only once."""
    from proxy.access.authentication.credentials import entry, make_token

    text, digest = make_token()
    click.echo(entry("tokens", user, "sha256", digest, groups), nl=False)
    click.echo(f"token: {text}", err=True)

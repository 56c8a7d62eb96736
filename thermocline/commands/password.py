"""``thermocline password``: a user for the credentials file."""

from __future__ import annotations

import sys

import click


@click.command(epilog="Example: thermocline password alice >> credentials.toml")
@click.argument("user")
@click.option("--group", "groups", multiple=True, help="A group of the user; repeat for more.")
@click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the password from standard input."
)
def command(user: str, groups: tuple[str, ...], from_stdin: bool) -> None:
    """Ask for a password and print the user's entry: its argon2 hash, not the password."""
    from proxy.access.authentication.credentials import entry
    from proxy.access.authentication.hashes import make_hash

    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise click.UsageError("the password is empty.")
    click.echo(entry("users", user, "password", make_hash(password), groups), nl=False)

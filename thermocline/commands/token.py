"""``thermocline token``: a bearer token and its entry for the credentials file."""

from __future__ import annotations

import click


@click.command(epilog="Example: thermocline token dashboards >> credentials.toml")
@click.argument("user")
@click.option("--group", "groups", multiple=True, help="A group of the user; repeat for more.")
def command(user: str, groups: tuple[str, ...]) -> None:
    """Make a random token; print its entry, and the token itself on standard error. It is shown only once."""
    from proxy.access.authentication.credentials import entry, make_token

    token, digest = make_token()
    click.echo(entry("tokens", user, "sha256", digest, groups), nl=False)
    click.echo(f"token: {token}", err=True)

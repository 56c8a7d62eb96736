"""Makes from settings the policy that decides who may read what."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from planner.errors import BadConfig, BadStatement, UnsupportedStatement
from planner.permissions import ANY, Grant, GrantList, RowExpression, TablePattern
from proxy.access.policy import AccessPolicy
from proxy.engine.engine import Engine
from thermocline.config.settings import Granted, Settings

Expression = Callable[[str], RowExpression]


def policy(settings: Settings, expression: Expression) -> GrantList | None:
    """Return the policy of ``[permissions.*]``; None where there is no such section: all is open.

    Raises:
        BadConfig: a grant names no user or no table, contradicts itself, or has an invalid expression.
    """
    if settings.permissions is None:
        return None
    grants = settings.permissions.items()
    return GrantList(tuple(_grant(name, granted, expression) for name, granted in grants))


@contextlib.contextmanager
def reading_grants() -> Iterator[AccessPolicy]:
    """Yield an engine that reads grants, apart from any server."""
    with tempfile.TemporaryDirectory(prefix="thermocline-") as spill:
        engine = Engine(storage_roots=(), spill_dir=Path(spill), threads=1)
        with contextlib.closing(engine):
            yield AccessPolicy(engine)


def mistakes(settings: Settings) -> Iterator[BadConfig]:
    """Yield the errors of each grant that can be told without a catalog."""
    if not settings.permissions:
        return
    with reading_grants() as grants:
        for name, granted in settings.permissions.items():
            try:
                grant = _grant(name, granted, grants.expression)
            except BadConfig as error:
                yield error
                continue
            for pattern in grant.tables:
                catalog = pattern.parts[0]
                if catalog not in (ANY, *settings.catalogs):
                    yield BadConfig(
                        f"permissions.{name}.tables: there is no catalog {catalog}; there are "
                        f"{', '.join(settings.catalogs)}.",
                        key=f"{name}.tables",
                    )


def _grant(name: str, granted: Granted, expression: Expression) -> Grant:
    try:
        tables = tuple(map(TablePattern.parse, granted.tables))
    except BadConfig as error:
        key = f"{name}.tables"
        raise BadConfig(f"permissions.{key}: {error.message}", key=key) from None
    return Grant(
        name=name,
        tables=tables,
        users=frozenset(granted.users),
        groups=frozenset(granted.groups),
        columns=granted.columns,
        without=granted.without,
        rows=None if granted.rows is None else _read(f"{name}.rows", granted.rows, expression),
        masks=tuple(
            (column, _read(f"{name}.masks.{column}", mask, expression))
            for column, mask in granted.masks.items()
        ),
        files=granted.files,
    )


def _read(key: str, text: str, expression: Expression) -> RowExpression:
    try:
        return expression(text)
    except (BadStatement, UnsupportedStatement) as error:
        raise BadConfig(
            f"permissions.{key} is not an expression that may stand there: {error.message.rstrip('.')}; see "
            f"docs/security.md.",
            key=key,
        ) from error

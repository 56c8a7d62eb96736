"""Grants against the tables they name: a grant that does not fit closes its table to those it is for."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import PermissionsMismatch
from planner.names import TableName
from planner.permissions import Identity
from planner.schema import TableSchema
from planner.statement.references import ResolvedTable
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Findings, fail, ok, warn
from thermocline.serve.permissions import policy, reading_grants

#: Types of an expression do not depend on who asks.
_SOMEBODY = Identity("somebody", frozenset({"some group"}))


def permissions(
    settings: Settings, tables: Sequence[tuple[TableName, TableSchema]]
) -> Findings:
    """Try every grant on every table it covers; nothing where no permissions are configured."""
    if settings.permissions is None:
        return
    with reading_grants() as grants:
        grant_list = policy(settings, grants.expression)
        if grant_list is None:
            return
        fits = 0
        for grant in grant_list.grants:
            covered = [entry for entry in tables if grant.covers(entry[0])]
            if not covered:
                yield warn(
                    f"permissions.{grant.name}",
                    "it covers no table there is",
                    "correct its tables; case counts",
                )
            for table, schema in covered:
                try:
                    grants.fit(grant, _SOMEBODY, ResolvedTable(table), schema)
                    fits += 1
                except PermissionsMismatch as error:
                    yield fail(
                        f"permissions.{grant.name}",
                        f"on {table}: {error.facts['why']}",
                        "correct the grant; until then it closes the table to those it names",
                    )
        if fits:
            yield ok("permissions", f"grants fit in {fits} cases of grant and table")

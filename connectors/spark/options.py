"""Options of the registered source and arguments of cuts: which there are, and what they choose.

The settings of a lake as plain values, which tasks on executors can be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from connectors.store.catalog_roots import CatalogRoots
from planner.errors import BadParameter
from planner.names import TableName, did_you_mean
from planner.schema import TableSchema


def check_cut_arguments(
    cut: str | None, timestamp: object, max_staleness: str | None, wait_for: str | None
) -> None:
    """Refuse arguments of ``at`` that contradict each other; None is as if it were not there.

    Raises:
        BadParameter: they do.
    """
    if sum(way is not None for way in (cut, timestamp, max_staleness)) > 1:
        raise BadParameter(
            "cut, timestamp and max_staleness contradict each other; give one of them."
        )
    if cut is not None and wait_for is not None:
        raise BadParameter("a cut that was taken does not wait; leave wait_for out.")


def check_options(options: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Refuse options that are not ``names`` (in small letters).

    Raises:
        BadParameter: one is unknown, or the table lies in a catalog that loses them.
    """
    if any(key.lower().startswith("option.") for key in options):
        raise BadParameter(
            "CREATE TABLE ... USING thermocline loses its options in Spark's catalog; write CREATE TEMPORARY VIEW ... "
            "USING thermocline OPTIONS (...) instead, or attach the server's Iceberg REST catalog, whose tables have names."
        )
    for key in options:
        name = key.lower()
        if name not in names:
            hint = did_you_mean(name, names, f"options are {', '.join(names)}.", most=1)
            raise BadParameter(f"option {key} is unknown here; {hint}", option=key)


def check_side(side: str | None) -> None:
    """Raises BadParameter for an option ``side`` that is none."""
    if side not in (None, "cold", "tail"):
        raise BadParameter(
            f"option side is cold or tail, not {str(side)[:80]!r}.", option="side"
        )


def chosen_columns(table: TableName, schema: TableSchema, text: str | None) -> TableSchema:
    """Return the columns named in ``text``, separated by commas, in its order; all without one.

    Raises:
        BadParameter: one is unknown, or there are none.
    """
    if text is None:
        return schema
    by_name = {column.name: column for column in schema.columns}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name)
            raise BadParameter(
                f"{table}: there is no column {name}; {hint}", table=str(table), column=name
            )
    if not names:
        raise BadParameter(f"{table}: option columns names none.", table=str(table))
    return TableSchema(schema.schema_id, tuple(by_name[name] for name in dict.fromkeys(names)))


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """``catalogs``: pyiceberg's properties by name; ``clusters``: librdkafka's; ``secrets``: DuckDB's, for stores.

    ``registries``: confluent's options of each schema registry. Tasks get neither catalogs nor registries.
    """

    catalogs: Mapping[str, Mapping[str, str]]
    clusters: Mapping[str, Mapping[str, str]]
    roots: CatalogRoots | None = None
    secrets: tuple[str, ...] = ()
    registries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

"""The settings of a lake as plain values, which tasks on executors can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.catalog_roots import CatalogRoots


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """``catalogs``: pyiceberg's properties by name; ``clusters``: librdkafka's; ``secrets``: DuckDB's, for stores."""

    catalogs: Mapping[str, Mapping[str, str]]
    clusters: Mapping[str, Mapping[str, str]]
    roots: CatalogRoots | None = None
    secrets: tuple[str, ...] = ()

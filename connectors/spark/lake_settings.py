"""The settings of a lake as plain values, which tasks on executors can be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """``catalogs``: pyiceberg's properties by name; ``clusters``: librdkafka's; ``secrets``: DuckDB's, for stores."""

    catalogs: Mapping[str, Mapping[str, str]]
    clusters: Mapping[str, Mapping[str, str]]
    catalog_roots: Mapping[str, Sequence[str]] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()

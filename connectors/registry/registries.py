"""The schema registries of an installation, by name. A registry's client is loaded when one is first used: half a second."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from connectors.registry.options import GRACE, UNKNOWN_ID_GRACE_S, section_of
from planner.errors import SchemaRegistryUnavailable

if TYPE_CHECKING:
    from connectors.registry.client import SchemaRegistry


@dataclass(frozen=True, slots=True)
class RegistryState:
    """What was asked of one registry. ``name`` is empty for ``[schema_registry]``; ``silent_s`` counts from its last answer."""

    name: str
    requests: int
    failures: int
    silent_s: float


class SchemaRegistries:
    """Thread-safe. The caller closes it."""

    def __init__(self, sections: Mapping[str, Mapping[str, str]]) -> None:
        """``sections`` are the options of each registry; that of tables that name none has an empty name."""
        self._sections = sections
        self._registries: dict[tuple[str, str], SchemaRegistry] = {}
        self._lock = threading.Lock()

    def of(self, name: str, memory: str = "") -> SchemaRegistry:
        """Return a registry, the same for the same name and ``memory``: what it answered in one is not answered in another.

        Raises:
            SchemaRegistryUnavailable: the settings have none of this name.
            BadConfig: its options, or the content of a file that they name.
        """
        if name not in self._sections:
            raise SchemaRegistryUnavailable(
                f"no schema registry can be asked: the settings have no [{section_of(name)}]; add it, with url."
            )
        from connectors.registry.client import SchemaRegistry

        with self._lock:
            if (name, "") not in self._registries:
                options = dict(self._sections[name])
                grace_s = float(options.pop(GRACE, UNKNOWN_ID_GRACE_S))
                self._registries[name, ""] = SchemaRegistry(
                    options, name=name, unknown_id_grace_s=grace_s
                )
            if (name, memory) not in self._registries:
                self._registries[name, memory] = self._registries[name, ""].without_memory()
            return self._registries[name, memory]

    def states(self) -> tuple[RegistryState, ...]:
        """Return the state of each registry that was asked, sorted by name."""
        with self._lock:
            used = {
                name: each for (name, memory), each in self._registries.items() if not memory
            }
        return tuple(
            RegistryState(name, *each.counts, each.silent_s)
            for name, each in sorted(used.items())
        )

    def close(self) -> None:
        with self._lock:
            for registry in self._registries.values():
                registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""The values of each field over all samples: what a column's type is inferred from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.json.parsing import kind_of
from planner.field_path import FieldPath

#: Deeper values are not looked into: ``planner.typetext`` reads no deeper types either.
MAX_NESTING = 32
#: Objects with so many members together, of which one has few, have data for names.
_MANY_MEMBERS = 200
_FEW_OF_THEM = 0.25


@dataclass(slots=True)
class FieldValues:
    """One field: its values that are not null, and the fields inside its objects and arrays.

    ``members`` come in the order their names first appear.
    """

    path: FieldPath
    values: list[Any]
    nulls: int
    members: dict[str, FieldValues] = field(default_factory=dict)
    element: FieldValues | None = None

    @classmethod
    def of(cls, path: FieldPath, values: Sequence[Any]) -> FieldValues:
        present = [value for value in values if value is not None]
        node = cls(path, present, len(values) - len(present))
        if len(path) > MAX_NESTING:
            return node
        members: dict[str, list[Any]] = {}
        elements: list[Any] = []
        arrays = False
        for value in present:
            if isinstance(value, dict):
                for name, member in value.items():
                    members.setdefault(name, []).append(member)
            elif isinstance(value, list):
                arrays = True
                elements += value
        node.members = {name: cls.of((*path, name), inside) for name, inside in members.items()}
        if arrays:
            node.element = cls.of((*path, "element"), elements)
        return node

    @property
    def kinds(self) -> Counter[str]:
        """How often each kind occurs: ``a string``, ``an object``."""
        return Counter(map(kind_of, self.values))

    @property
    def is_too_deep(self) -> bool:
        return len(self.path) > MAX_NESTING and any(
            isinstance(value, dict | list) for value in self.values
        )

    @property
    def names_are_data(self) -> bool:
        """Whether the names inside its objects vary as values do, such as ids."""
        many = len(self.members)
        return many >= _MANY_MEMBERS and (
            sum(map(len, self.values)) < _FEW_OF_THEM * many * len(self.values)
        )

    def inside(self, name: str) -> FieldValues | None:
        """Return the member of this name, or the element."""
        return self.members.get(name) or (self.element if name == "element" else None)

    def all_inside(self) -> Iterator[FieldValues]:
        """Return every field inside, at any depth."""
        for node in (*self.members.values(), *([self.element] if self.element else ())):
            yield node
            yield from node.all_inside()

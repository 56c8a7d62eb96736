"""Which catalog a place is of: the one with the deepest root above it.

A catalog's roots are what the operator says of it: its ``warehouse`` where that is a place, and ``server.catalog_roots``.
What its service or its tables say of places may name those of others (docs/decisions/0037-whose-a-place-is.md).

What is common to the ways that pyiceberg's and Iceberg's own clients read a catalog's properties. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlsplit

from connectors.store.locations import canonical, is_below, is_location, real_location
from connectors.store.object_store import is_object_store
from planner.errors import BadConfig

Keys = TypeVar("Keys")


@dataclass(frozen=True, slots=True)
class CatalogRoots:
    """Roots of each catalog, as written. ``own``: its tables may read all below them.

    ``inherited`` are storage roots that no catalog names: the keys of one catalog count there, and its tables read below
    their location alone. ``closed`` are places of ours, of which no table reads anything.
    """

    own: Mapping[str, tuple[str, ...]]
    inherited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    #: Catalogs with keys and no place, where several could inherit.
    heirs: tuple[str, ...] = ()
    #: Every root with its catalog, "" for a closed one, as ``place`` and ``real_location`` return it.
    _forms: tuple[tuple[str, str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        listed = [
            (name, root)
            for roots in (self.own, self.inherited, {"": self.closed})
            for name, each in roots.items()
            for root in each
        ]
        forms = {
            (name, form(root)) for name, root in listed for form in (canonical, real_location)
        }
        object.__setattr__(self, "_forms", tuple(sorted(forms)))

    @classmethod
    def of(
        cls,
        catalogs: Mapping[str, Mapping[str, str]],
        more: Mapping[str, Sequence[str]] | None = None,
        storage_roots: Iterable[str] = (),
        closed: Sequence[str] = (),
    ) -> CatalogRoots:
        """``catalogs``: properties by name; ``more`` is ``server.catalog_roots``."""
        warehouses = {name: options.get("warehouse", "") for name, options in catalogs.items()}
        own = {
            name: (*([text] if is_location(text) else ()), *(more or {}).get(name, ()))
            for name, text in warehouses.items()
        }
        named = [canonical(root) for roots in own.values() for root in roots]
        rest = tuple(
            root
            for root in storage_roots
            if is_object_store(root) and not is_below(canonical(root), named)
        )
        heirs = _heirs(catalogs, own) if rest else ()
        if len(heirs) == 1:
            return cls(own, {heirs[0]: rest}, tuple(closed))
        return cls(own, {}, tuple(closed), heirs)

    def check_heir(self) -> None:
        """Raises BadConfig: storage roots could be those of several catalogs with keys."""
        if self.heirs:
            raise BadConfig(
                f"catalogs: {' and '.join(self.heirs)} have s3 properties and no location; say in server.catalog_roots "
                f"where the files of each lie."
            )

    def on_s3(self, catalog: str) -> list[str]:
        """Return where on S3 the files of a catalog are."""
        roots = (*self.own[catalog], *self.inherited.get(catalog, ()))
        return [root for root in roots if is_object_store(root)]

    def owners(self, location: str) -> frozenset[str]:
        """Return the catalogs with the deepest root above a location: several where they have one root; "" for a closed place.

        What is below no root is the only catalog's, if there is but one.
        """
        path = canonical(location)
        above = [(name, root) for name, root in self._forms if is_below(path, (root,))]
        if not above:
            return frozenset(self.own) if len(self.own) == 1 else frozenset()
        deepest = max(len(root) for _, root in above)
        return frozenset(name for name, root in above if len(root) == deepest)

    def own_below(self, catalog: str, prefix: str) -> list[str]:
        """Return where keys count that a catalog hands out for what begins with a prefix: no place of another's.

        A prefix is text: ``s3`` is all stores on S3, and ``s3://b/a`` begins ``s3://b/ab`` too. So folders are returned.
        """
        roots = (*self.own[catalog], *self.inherited.get(catalog, ()))
        text = canonical(f"{prefix}x")[:-1]
        below = [_folder(root) for root in roots if canonical(root).startswith(text)]
        names_bucket = bool(prefix.partition("://")[2])
        if catalog not in self.owners(prefix) or (below and not names_bucket):
            return below
        return [_folder(prefix) if names_bucket else prefix]

    def by_location(
        self, catalog: str, by_prefix: Iterable[tuple[str, Keys]]
    ) -> dict[str, Keys]:
        """Return by own place what a catalog hands out by prefix: where several count in one, that of the longest."""
        longest: dict[str, tuple[str, Keys]] = {}
        for prefix, keys in by_prefix:
            for root in self.own_below(catalog, prefix):
                if root not in longest or len(longest[root][0]) < len(prefix):
                    longest[root] = prefix, keys
        return {root: keys for root, (_, keys) in longest.items()}


def _folder(location: str) -> str:
    return f"{location.rstrip('/')}/"


def _heirs(
    catalogs: Mapping[str, Mapping[str, str]], own: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return whose the storage roots are that no catalog names: several where these have keys and no place."""
    placed = {name for name, roots in own.items() if any(map(is_object_store, roots))}
    keyed = {name for name in catalogs if any(key.startswith("s3.") for key in catalogs[name])}
    placeless = tuple(name for name in catalogs if name in keyed - placed)
    if placeless:
        return placeless
    # Keys come with its tables.
    vending = [
        name
        for name, options in catalogs.items()
        if not own[name] and catalog_type(options) == "rest"
    ]
    heirs = vending or [name for name in catalogs if name in placed]
    return (heirs[0],) if len(heirs) == 1 else ()


#: What pyiceberg takes a catalog without ``type`` for, by the scheme of its ``uri``.
_TYPE_OF_SCHEME = {
    **dict.fromkeys(("http", "https"), "rest"),
    **dict.fromkeys(("sqlite", "postgresql", "postgres"), "sql"),
    "thrift": "hive",
}
REST_CONNECT_TIMEOUT = "rest.client.connection-timeout-ms"
REST_SOCKET_TIMEOUT = "rest.client.socket-timeout-ms"
#: How long requests to a REST catalog may take where its properties do not say: to connect, and between two pieces of
#: an answer. Neither client has a limit of its own.
REST_TIMEOUTS_MS = MappingProxyType(
    {REST_CONNECT_TIMEOUT: "10000", REST_SOCKET_TIMEOUT: "60000"}
)


def catalog_type(options: Mapping[str, str]) -> str | None:
    """The type as given, else the one pyiceberg takes from the scheme of ``uri``."""
    if "type" in options:
        return options["type"].lower()
    return _TYPE_OF_SCHEME.get(urlsplit(options.get("uri", "")).scheme.partition("+")[0])

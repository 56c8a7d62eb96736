"""Where live files go: beside each catalog's warehouse, or where the settings say. Never where tables lie."""

from __future__ import annotations

from connectors.store.locations import is_below, is_location, local_path, real_location
from planner.errors import BadConfig
from thermocline.config.settings import Settings

_KEY = "iceberg_rest.live_location"


def live_locations(settings: Settings) -> dict[str, str]:
    """Return the place of live files by catalog; a catalog without a warehouse of its own has none.

    Raises:
        BadConfig: it is inside the place of tables, relative, or the machine's root.
    """
    folders = unchecked_locations(settings)
    roots = settings.warehouses.union(
        settings.storage_roots, *settings.server.catalog_roots.values()
    )
    tables = [real_location(root) for root in roots if is_location(root)]
    for location in set(folders.values()):
        path = local_path(location)
        is_relative = path is not None and not path.is_absolute()
        if is_relative or ".." in location.split("/"):
            raise BadConfig(f"{_KEY} is not an absolute path or an address.", key=_KEY)
        if is_below(real_location(location), tables):
            raise BadConfig(
                f"{_KEY} lies inside a place of tables: whoever removes orphans there would remove live files; name "
                f"another folder or prefix.",
                key=_KEY,
            )
    return folders


def unchecked_locations(settings: Settings) -> dict[str, str]:
    """Return where live files would go, by catalog."""
    named = settings.iceberg_rest.live_location
    folders = {
        name: named if named is not None else _beside(options.get("warehouse", ""))
        for name, options in settings.catalogs.items()
    }
    return {name: location for name, location in folders.items() if location}


def _beside(warehouse: str) -> str | None:
    """The warehouse of a REST catalog may be a name and no place; and beside a whole bucket there is none."""
    plain = warehouse.rstrip("/")
    scheme, mark, rest = plain.removeprefix("file://").partition("://")
    path = rest if mark else scheme
    return f"{plain}-live" if "/" in path.strip("/") or (not mark and "/" in path) else None

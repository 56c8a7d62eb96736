"""The roots of the catalogs in force, as settings say them."""

from __future__ import annotations

from connectors.store.catalog_roots import CatalogRoots
from thermocline.config.settings import Settings
from thermocline.serve.live_location import unchecked_locations


def catalog_roots(settings: Settings) -> CatalogRoots:
    """Live files are closed to all tables: they are rows of a catalog's, in a place beside its own."""
    is_live = settings.iceberg_rest.port is not None
    return CatalogRoots.of(
        settings.catalogs,
        settings.server.catalog_roots,
        settings.storage_roots,
        tuple(unchecked_locations(settings).values()) if is_live else (),
    )

"""What DuckDB needs to read the files of the catalogs in force. Not a part of settings: it loads Arrow, and with it threads."""

from __future__ import annotations

from connectors import object_store
from thermocline.config.settings import Settings


def engine_secrets(settings: Settings) -> tuple[str, ...]:
    """Return a CREATE SECRET for each catalog on S3.

    Raises:
        BadConfig: half a key, or no URL.
    """
    return object_store.secrets(
        settings.catalogs, settings.server.catalog_roots, settings.storage_roots
    )

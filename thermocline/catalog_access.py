"""What DuckDB needs to read the files of the catalogs in force. Not a part of settings: it loads Arrow, and with it threads."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi

from connectors.store import object_store
from connectors.store.catalog_roots import CatalogRoots
from planner.errors import BadConfig
from thermocline.config.settings import Settings
from thermocline.serve.live_location import unchecked_locations


def engine_secrets(settings: Settings) -> tuple[str, ...]:
    """Return a CREATE SECRET for each catalog on S3. Raises BadConfig: half a key, or no URL."""
    roots = catalog_roots(settings)
    roots.check_heir()
    places = {
        name: roots.on_s3(name)
        for name, options in settings.catalogs.items()
        if roots.on_s3(name) or any(key.startswith("s3.") for key in options)
    }
    return object_store.secrets(settings.catalogs, places)


def engine_ca_file(settings: Settings, folder: Path) -> Path | None:
    """Write the authorities that the catalogs name, and the public ones, to a file in ``folder``: DuckDB takes one for all.

    None where no catalog names any: then DuckDB trusts what the machine does.

    Raises:
        BadConfig: a file cannot be read, or holds no certificates.
    """
    key = object_store.CA_BUNDLE
    bundles = {name: each[key] for name, each in settings.catalogs.items() if key in each}
    if not bundles:
        return None
    texts = [Path(ssl.get_default_verify_paths().cafile or certifi.where()).read_text()]
    for name, bundle in bundles.items():
        try:
            ssl.create_default_context(cafile=bundle)
            texts.append(Path(bundle).read_text())
        except (OSError, ValueError) as error:
            raise BadConfig(
                f"catalogs.{name}.{key}: {bundle} cannot be read, or holds no certificates as PEM.",
                key=f"{name}.{key}",
            ) from error
    file = folder / "authorities.pem"
    file.write_text("\n".join(texts))
    return file


def catalog_roots(settings: Settings) -> CatalogRoots:
    """Live files are closed to all tables: they are rows of a catalog's, in a place beside its own."""
    is_live = settings.iceberg_rest.port is not None
    return CatalogRoots.of(
        settings.catalogs,
        settings.server.catalog_roots,
        settings.storage_roots,
        tuple(unchecked_locations(settings).values()) if is_live else (),
    )

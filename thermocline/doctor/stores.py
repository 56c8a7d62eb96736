"""The stores: what this process may do with files where each catalog has them, and what time it is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from connectors.iceberg.probe import probe_store
from connectors.iceberg.store import IcebergStore
from connectors.store.catalog_roots import catalog_type
from connectors.store.locations import is_location
from planner.errors import BadConfig, FederationError
from planner.names import TableName
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Findings, fail, ok, refused, warn
from thermocline.doctor.systems import clock

#: So many tables are loaded to find one that lies in a place: rights may be those to tables' folders alone.
_TRIES = 3
_KEYS = ("s3.access-key-id", "client.access-key-id")


def stores(settings: Settings, tables: Mapping[str, Sequence[TableName]]) -> Findings:
    """Write, read and remove a file in each place data may be: in the folder of a table, where one lies there.

    ``tables`` are those of each catalog that answered.
    """
    try:
        every = catalog_roots(settings)
        every.check_heir()
    except BadConfig as error:
        yield refused("stores", error, end="; ")
        return
    for name, options in settings.catalogs.items():
        warehouse = options.get("warehouse", "")
        own = [warehouse] if is_location(warehouse) else []
        roots = list(dict.fromkeys((*own, *every.on_s3(name))))
        with closing(IcebergStore({name: options}, roots=every)) as store:
            folders = _folders(store, options, tables.get(name, ()))
            yield from _of_catalog(name, options, roots, folders)
        yield from _readable(name, own, settings.storage_roots)


def is_within(location: str, root: str) -> bool:
    """Whether a place in a store is below another one."""
    location, root = (
        text.removeprefix("file://").removeprefix("file:").rstrip("/") + "/"
        for text in (location, root)
    )
    return location.startswith(root)


def _of_catalog(
    name: str,
    options: Mapping[str, str],
    roots: Sequence[str],
    folders: Iterable[tuple[str, Mapping[str, str]]],
) -> Findings:
    check = f"store of {name}"
    tried: dict[str, tuple[str, Mapping[str, str]]] = {}
    for location, properties in folders:
        root = next((root for root in roots if is_within(location, root)), location)
        tried.setdefault(root, (location, properties))
    if not tried and catalog_type(options) == "rest" and not any(k in options for k in _KEYS):
        yield warn(
            check,
            "not tried: no key is configured, and there is no table that one could come with",
            "run doctor again when there is a table",
        )
        return
    for root in dict.fromkeys((*roots, *tried)):
        location, properties = tried.get(root, (root, options))
        yield from _tried(check, properties, location)


def _folders(
    store: IcebergStore, options: Mapping[str, str], tables: Sequence[TableName]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield folders of tables, and the properties to read them by: with the keys that came with them, if any did."""
    for table in tables[:_TRIES]:
        try:
            pin = store.pin(table)
        except FederationError:
            continue  # tables are checked by themselves
        location = pin.metadata_location.rpartition("/metadata/")[0]
        keys, by_location = store.files.vended(pin)
        fitting = [each for prefix, each in by_location if location.startswith(prefix)]
        yield location, {**options, **(fitting[0] if fitting else keys)}


def _readable(name: str, own: Sequence[str], roots: Sequence[str]) -> Findings:
    """Whether a server reads what is there."""
    check = f"store of {name}"
    if not own and not roots:
        what = "where its files lie is not known; a server reads none of them"
        yield warn(check, what, "add their place to server.storage_roots")
    for root in own:
        if roots and not any(is_within(root, allowed) for allowed in roots):
            fix = f"add {root} to server.storage_roots; files elsewhere are not read"
            yield fail(check, "its warehouse is outside server.storage_roots", fix)


def _tried(check: str, properties: Mapping[str, str], root: str) -> Findings:
    try:
        facts = probe_store(properties, root)
    except FederationError as error:
        yield refused(check, error, end="; ")
        return
    if facts.may_write:
        yield ok(check, "a probe file was written, read and removed")
    else:
        yield warn(
            check,
            "files may be read there, and not written",
            "nothing, where these are the settings of a server; a tierer and `create` need a key that writes",
        )
    if facts.ahead_s is not None:
        yield from clock(f"clock of the {check}", facts.ahead_s)

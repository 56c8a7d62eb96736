"""The systems: each bootstrap server, each catalog, each store, and their clocks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from connectors.iceberg.probe import catalog_skew, probe_store
from connectors.iceberg.store import IcebergStore
from connectors.kafka.probe import bootstrap_servers, reach
from connectors.kafka.settings import section_of
from planner.errors import FederationError
from planner.names import TableName
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Findings, fail, ok, warn

#: Beyond it, ages and retention are told wrongly; signatures of object stores fail at minutes.
MAX_SKEW_S = 5.0


def brokers(settings: Settings) -> Findings:
    """Ask each bootstrap server by itself: one that is wrong hides behind the others until they fail."""
    if not settings.clusters:
        yield warn(
            "Kafka",
            "no broker is configured; only cold tables answer",
            "set bootstrap.servers in [kafka]",
        )
        return
    for name, options in settings.clusters.items():
        yield from _brokers(name, options)


def _brokers(name: str, options: Mapping[str, str]) -> Findings:
    of_cluster = f" of {name}" if name else ""
    try:
        servers = bootstrap_servers(options)
    except FederationError as error:
        yield fail(
            f"Kafka{of_cluster}",
            error.message.rstrip("."),
            f"correct the section [{section_of(name)}]",
        )
        return
    reached = [reach(options, server) for server in servers]
    state = warn if any(outcome.why is None for outcome in reached) else fail
    for outcome in reached:
        check = f"broker {outcome.server}{of_cluster}"
        if outcome.why is None:
            yield ok(check, f"answers, cluster {outcome.cluster_id}")
        else:
            yield state(check, outcome.why, outcome.fix)
    clusters = {outcome.cluster_id for outcome in reached if outcome.cluster_id}
    if len(clusters) > 1:
        yield fail(
            f"Kafka cluster{of_cluster}",
            f"the bootstrap servers belong to different clusters: {', '.join(sorted(clusters))}",
            "name servers of one cluster; offsets of one mean nothing on the other",
        )


def catalogs(settings: Settings, tables: dict[str, list[TableName]]) -> Findings:
    """List each catalog by itself, into ``tables``; try its store; compare its clock."""
    if not settings.catalogs:
        yield fail("catalog", "none is configured", "add a section [catalogs.<name>]")
    for name, options in settings.catalogs.items():
        check = f"catalog {name}"
        try:
            with closing(IcebergStore({name: options})) as store:
                tables[name] = list(store.tables())
        except FederationError as error:
            yield fail(
                check,
                error.message.rstrip("."),
                "look at its address and credentials, and whether it runs",
            )
            continue
        yield ok(check, f"answers, {len(tables[name])} tables")
        skew_s = catalog_skew(options.get("uri", ""))
        if skew_s is not None:
            yield from _clock(f"clock of catalog {name}", skew_s)


def stores(settings: Settings) -> Findings:
    """Write, read and remove a file in each place data may be: servers read there, tierers write."""
    roots = settings.storage_roots
    for name, options in settings.catalogs.items():
        for root in [options["warehouse"]] if "warehouse" in options else []:
            if "/" not in root:
                continue
            check = f"store of {name}"
            try:
                skew_s = probe_store(options, root)
            except FederationError as error:
                cause = error.__cause__
                kind = f" ({type(cause).__name__})" if cause is not None else ""
                yield fail(
                    check,
                    f"a file cannot be written, read and removed in its warehouse{kind}",
                    "give this user those rights there, or look at the store's credentials; a server alone "
                    "needs to read only",
                )
                continue
            yield ok(check, "a probe file was written, read and removed")
            if skew_s is not None:
                yield from _clock(f"clock of the store of {name}", skew_s)
            if roots and not any(is_within(root, allowed) for allowed in roots):
                yield fail(
                    check,
                    "its warehouse is outside server.storage_roots",
                    f"add {root} to server.storage_roots; files elsewhere are not read",
                )


def is_within(place: str, root: str) -> bool:
    """Whether a place in a store is below another one."""
    place, root = (
        text.removeprefix("file://").removeprefix("file:").rstrip("/") + "/"
        for text in (place, root)
    )
    return place.startswith(root)


def _clock(check: str, skew_s: float) -> Findings:
    if abs(skew_s) <= MAX_SKEW_S:
        yield ok(check, f"within {MAX_SKEW_S:g} s of this machine's")
        return
    direction = "ahead of" if skew_s > 0 else "behind"
    yield warn(
        check, f"{abs(skew_s):.0f} s {direction} this machine's", "run a time service on both"
    )

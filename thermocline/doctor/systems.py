"""The systems: each bootstrap server, each schema registry, each catalog, and its clock."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from connectors.iceberg.probe import catalog_skew, may_commit
from connectors.iceberg.store import IcebergStore
from connectors.kafka.probe import bootstrap_servers, reach
from connectors.kafka.settings import section_of
from connectors.registry.options import urls
from connectors.registry.registries import SchemaRegistries
from planner.errors import FederationError
from planner.names import TableName
from thermocline.catalog_access import catalog_roots
from thermocline.config.masking import masked
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Findings, fail, ok, refused, warn

#: Beyond it, ages and retention are told wrongly; signatures of object stores fail at minutes.
MAX_SKEW_S = 5.0
#: How long a schema registry has for its answer.
_REGISTRY_S = 5.0


def brokers(settings: Settings) -> Findings:
    """Ask each bootstrap server by itself: one that is wrong hides behind the others until they fail."""
    if not settings.clusters:
        what = "no broker is configured; only cold tables answer"
        yield warn("Kafka", what, "set bootstrap.servers in [kafka]")
    for name, options in settings.clusters.items():
        yield from _brokers(name, options)


def _brokers(name: str, options: Mapping[str, str]) -> Findings:
    of_cluster = f" of {name}" if name else ""
    try:
        servers = bootstrap_servers(options)
    except FederationError as error:
        fix = f"correct the section [{section_of(name)}]"
        yield refused(f"Kafka{of_cluster}", error, fix)
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


def registries(settings: Settings) -> Findings:
    """Ask each URL of each schema registry by itself, as bootstrap servers; nothing where none is configured."""
    for name, options in settings.registries.items():
        yield from _registry(name, options)


def _registry(name: str, options: Mapping[str, str]) -> Findings:
    check = f"schema registry {name}".rstrip()
    addresses = urls(options)
    findings = []
    for url in addresses:
        at = f"{check} at {masked('url', url)}" if len(addresses) > 1 else check
        try:
            with SchemaRegistries({name: {**options, "url": url}}) as every:
                subjects = every.of(name).subjects(timeout_s=_REGISTRY_S)
        except FederationError as error:
            what, _, fix = error.message.rstrip(".").rpartition("; ")
            findings.append(fail(at, what, fix))
        else:
            findings.append(ok(at, f"answers, {len(subjects)} subjects"))
    # One that answers does for all, until it does not.
    is_reached = any(finding.state == "ok" for finding in findings)
    for finding in findings:
        is_warning = is_reached and finding.state == "fail"
        yield replace(finding, state="warn") if is_warning else finding


def catalogs(settings: Settings, tables: dict[str, list[TableName]]) -> Findings:
    """List each catalog by itself, into ``tables``; compare its clock."""
    if not settings.catalogs:
        yield fail("catalog", "none is configured", "add a section [catalogs.<name>]")
    for name, options in settings.catalogs.items():
        check = f"catalog {name}"
        try:
            with closing(IcebergStore({name: options}, roots=catalog_roots(settings))) as store:
                tables[name] = list(store.tables())
        except FederationError as error:
            fix = "look at its address and credentials, and whether it runs"
            yield refused(check, error, fix)
            continue
        yield ok(check, f"answers, {len(tables[name])} tables")
        if may_commit(options) is False:
            yield warn(
                f"rights in catalog {name}",
                "tables may be read, and nothing committed",
                "nothing, where these are the settings of a server; a tierer needs UPDATE ON iceberg_tables",
            )
        skew_s = catalog_skew(options)
        if skew_s is not None:
            yield from clock(f"clock of catalog {name}", skew_s)


def clock(check: str, skew_s: float) -> Findings:
    """Compare a clock with this machine's; ``skew_s``: how far it is ahead."""
    if abs(skew_s) <= MAX_SKEW_S:
        yield ok(check, f"within {MAX_SKEW_S:g} s of this machine's")
        return
    direction = "ahead of" if skew_s > 0 else "behind"
    yield warn(
        check, f"{abs(skew_s):.0f} s {direction} this machine's", "run a time service on both"
    )

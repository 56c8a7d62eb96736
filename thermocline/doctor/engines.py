"""Settings of Iceberg engines for this server's live tables, ready to paste; and whether those that are here read them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

from planner.errors import BadConfig
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Finding, fail, ok, warn
from thermocline.doctor.live_files import LiveAddress, first_table, trials

_PASSWORD = "…"  # noqa: S105  what is printed in its place
#: Of a foreign error's text: one line, and no more.
_MAX_CHARS = 300


def address_of(settings: Settings, user: str | None, password: str) -> LiveAddress:
    """Return where the configured server serves live tables.

    Raises:
        BadConfig: it serves none, or on a port that is unknown before it starts.
    """
    rest = settings.iceberg_rest
    if not rest.port:
        raise BadConfig(
            "iceberg_rest.port is not set, so no live tables are served; set it and start the server.",
            key="iceberg_rest.port",
        )
    scheme = "http" if settings.access.tls_certificate is None else "https"
    host = "localhost" if rest.host in ("0.0.0.0", "::") else rest.host  # noqa: S104  compared
    catalog = next(iter(settings.catalogs))
    return LiveAddress(f"{scheme}://{host}:{rest.port}", catalog, user, password)


def settings_text(address: LiveAddress) -> str:
    """Return settings for each engine. The password is not in it."""
    public = replace(address, password=_PASSWORD)
    properties = public.properties()
    spark = {"": "org.apache.iceberg.spark.SparkCatalog"}
    spark |= {f".{key}": value for key, value in properties.items()}
    spark[".cache-enabled"] = "false"
    if address.user is not None:
        spark[".token-refresh-enabled"] = "false"
    return "\n".join(
        (
            "# Spark: spark-defaults.conf. Its catalog's cache would keep a table that is in use from moving on.",
            *(f"spark.sql.catalog.live{key} {value}" for key, value in spark.items()),
            "",
            "# pyiceberg: live.load_table('namespace.table')",
            f"live = load_catalog('live', **{properties!r})",
            "",
            "# Polars",
            "polars.scan_iceberg(live.load_table('namespace.table'))",
            "",
            "# DuckDB: live.namespace.table",
            f"{public.attach};",
            "",
        )
    )


def engines(address: LiveAddress) -> Iterator[Finding]:
    """Read a table with every engine that is installed here; Spark is not started for it."""
    try:
        table = first_table(address)
    except Exception as error:  # noqa: BLE001  pyiceberg's, requests', or the server's
        yield fail(
            "live tables",
            f"{address.uri} does not answer as it should: {_short(error)}",
            "start `thermocline serve`, or give --user and $THERMOCLINE_PASSWORD",
        )
        return
    if table is None:
        fix = "create one, or look at the grants"
        yield warn("live tables", "there is no table to try", fix)
        return
    for name, count in trials().items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = count(address, table)
        except Exception as error:  # noqa: BLE001  engines raise errors of many kinds
            yield fail(name, f"{'.'.join(table)}: {_short(error)}", "see docs/engines.md")
        else:
            yield ok(name, f"read {rows:,} rows of {'.'.join(table)}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_CHARS] or type(error).__name__

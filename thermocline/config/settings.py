"""Settings: one TOML file and ``THERMOCLINE_*`` variables, validated once and handed down as plain values.

Order: flag, variable, file, default. Unknown keys are refused: a typing error in a limit must not silently
leave the default in force. ``thermocline.example.toml`` shows every key.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationError,
)

from connectors.kafka.settings import checked
from connectors.registry import options as registry_options
from planner.errors import BadConfig
from planner.names import CLUSTER_NAME
from thermocline.config.catalog_types import catalog_mistake
from thermocline.config.masking import Options
from thermocline.config.sources import Written, read


def _texts(value: object) -> object:
    """Vendor options are text to their libraries; TOML may spell them as numbers, booleans or lists.

    ``bootstrap.servers = "…"`` without quotes around the key is a table in a table to TOML; it is the option
    that was meant.
    """
    return dict(_flattened("", value)) if isinstance(value, dict) else value


def _flattened(prefix: str, value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict):
            yield from _flattened(f"{name}.", item)
        elif isinstance(item, list):
            yield name, ",".join(str(part) for part in item)
        else:
            yield name, str(item).lower() if isinstance(item, bool) else str(item)


VendorOptions = Annotated[
    dict[str, str],
    BeforeValidator(_texts),
    AfterValidator(Options),
    PlainSerializer(lambda entry: Options(entry).masked()),
]


class _Section(BaseModel):
    # Inputs are hidden in errors: one may be a credential in the wrong place.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Server(_Section):
    """The Flight SQL server. Times are seconds, sizes bytes."""

    host: str = "127.0.0.1"
    port: int = Field(default=31337, ge=0, le=65535)
    #: Health, readiness and metrics over HTTP; None: not served.
    http_port: int | None = Field(default=None, ge=0, le=65535)
    max_tail_rows: int = Field(default=5_000_000, ge=1)
    max_tail_bytes: int = Field(default=2 * 1024**3, ge=1)
    statement_timeout_s: float = Field(default=300.0, gt=0)
    fetch_timeout_s: float = Field(default=30.0, gt=0)
    pin_refresh_s: float = Field(default=5.0, gt=0)
    ticket_ttl_s: float = Field(default=300.0, gt=0)
    #: How long running statements may go on once the server is told to stop.
    drain_s: float = Field(default=10.0, ge=0)
    ticket_secret: SecretStr | None = None
    memory_limit_bytes: int | None = Field(default=None, ge=64 * 1024**2)
    max_process_bytes: int | None = Field(default=None, ge=256 * 1024**2)
    threads: int | None = Field(default=None, ge=1)
    max_streams: int = Field(default=32, ge=1)
    #: Statements that wait for one of those places, and how long.
    max_queued: int = Field(default=256, ge=0)
    queue_wait_s: float = Field(default=10.0, gt=0)
    #: Of one answer; a slow reader's time counts.
    answer_timeout_s: float | None = Field(default=3600.0, gt=0)
    #: How long a client may send nothing of an upload, and read nothing of an answer.
    upload_idle_s: float = Field(default=30.0, gt=0)
    reader_idle_s: float | None = Field(default=600.0, gt=0)
    max_result_rows: int | None = Field(default=None, ge=1)
    max_result_bytes: int | None = Field(default=None, ge=1)
    #: A line of JSON per statement: ``stderr``, ``off``, or a file. ``audit_text``: with the statement's text.
    audit_log: str = Field(default="stderr", min_length=1)
    audit_text: bool = False
    users: dict[str, SecretStr] = Field(default_factory=dict)
    storage_roots: tuple[str, ...] = ()
    #: Places below which a catalog's tables may read, beside its warehouse and their own location.
    catalog_roots: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    #: Whether the process gives up the file system but for what it needs, and what it reads besides.
    landlock: Literal["auto", "required", "off"] = "auto"
    landlock_readable: tuple[str, ...] = ()

    @property
    def secret(self) -> bytes | None:
        return (
            None
            if self.ticket_secret is None
            else self.ticket_secret.get_secret_value().encode()
        )


class AdminSettings(_Section):
    """Who sees and cancels the statements of all."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class AccessSettings(_Section):
    """Who may call, and over what. Files are PEM, but for the credentials; see docs/security.md."""

    credentials_file: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    certificate_users: bool = False
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_keys_url: str | None = None
    jwt_keep_keys_s: float = Field(default=3600.0, ge=300)
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256")
    jwt_user_claim: str = "sub"
    jwt_groups_claim: str | None = None
    admins: AdminSettings = AdminSettings()
    allow_insecure_public: bool = False
    session_idle_s: float = Field(default=1800.0, gt=0)
    max_sessions_per_user: int = Field(default=1000, ge=1)
    max_streams_per_user: int | None = Field(default=None, ge=1)
    max_calls_per_s_per_user: float | None = Field(default=None, gt=0)
    max_failures_per_s_per_user: float = Field(default=20.0, gt=0)

    @property
    def tls_files(self) -> tuple[str, ...]:
        """The files of the server's certificate, those that are configured."""
        return tuple(filter(None, (self.tls_certificate, self.tls_key, self.tls_client_ca)))


class Limits(_Section):
    """What some users may take, by name or group; a key left out is as for all."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: Not more than ``server.statement_timeout_s``.
    statement_timeout_s: float | None = Field(default=None, gt=0)
    answer_timeout_s: float | None = Field(default=None, gt=0)
    max_result_rows: int | None = Field(default=None, ge=1)
    max_result_bytes: int | None = Field(default=None, ge=1)
    max_sessions: int | None = Field(default=None, ge=1)
    max_streams: int | None = Field(default=None, ge=1)
    max_calls_per_s: float | None = Field(default=None, gt=0)
    max_failures_per_s: float | None = Field(default=None, gt=0)


class Granted(_Section):
    """What some users read of some tables; ``masks`` by column. See docs/security.md."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()
    rows: str | None = None
    masks: dict[str, str] = Field(default_factory=dict)
    #: They may read whole files, beside what this leaves out.
    files: bool = False


class IcebergRest(_Section):
    """The Iceberg REST catalog of live tables; without ``port`` there is none. See docs/engines.md.

    ``live_location``: where the tail is written as files, a folder or prefix that no table lies in; None: beside each
    catalog's warehouse, with ``-live`` after its name. An answer and its files are good for ``live_ttl_s``; those of
    all tables have ``max_live_bytes`` at most, of which cuts that readers name have a sixteenth, and each user a share.
    ``credentials`` are properties handed out with the tables of a catalog; of those in ``vended``, what the catalog itself
    hands out with each table. Without either an engine brings its own.
    """

    host: str = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65535)
    live_location: str | None = Field(default=None, min_length=1)
    live_ttl_s: float = Field(default=3600.0, ge=1)
    max_live_bytes: int = Field(default=64 * 1024**3, ge=1024**2)
    credentials: dict[str, VendorOptions] = Field(default_factory=dict)
    vended: tuple[str, ...] = ()


class Tail(_Section):
    """Following of topics. ``follow`` names tables followed from the start; others are while they are in use.

    ``ready_when_read``: ``/readyz`` waits until the tails of ``follow`` were read once, up to the log's end of then.
    ``idle_s`` after its last statement a table's tail is dropped; at most ``max_tables`` are followed. All tails
    together take ``max_memory_bytes`` of memory, and then ``max_disk_bytes`` of the temporary folder's disk.
    Unless it has an ``own_process`` for that, the server's process reads and decodes.
    """

    follow: tuple[str, ...] = ()
    ready_when_read: bool = False
    idle_s: float = Field(default=600.0, gt=0)
    max_tables: int = Field(default=64, ge=0)
    max_memory_bytes: int = Field(default=2 * 1024**3, ge=16 * 1024**2)
    max_disk_bytes: int = Field(default=8 * 1024**3, ge=0)
    own_process: bool = True


class Cold(_Section):
    """Reading Iceberg. ``max_memory_bytes`` bounds decoded manifests.

    ``catalog_timeout_s``: how long a statement waits for a catalog it cannot do without.
    """

    #: Without effect, like ``max_cache_bytes``: files of earlier versions name them.
    cache_dir: Path | None = None
    max_cache_bytes: int = Field(default=2 * 1024**3, ge=0)
    max_memory_bytes: int = Field(default=512 * 1024**2, ge=0)
    catalog_timeout_s: float = Field(default=10.0, gt=0)


class Tier(_Section):
    """The tiering job. Times are seconds; docs/tiering.md says what starts a publish.

    ``max_age_s`` shortens the tables' own. ``max_rows`` bounds one publish; without it, Spark's cores do.
    """

    master: str = "local[*]"
    #: A virtual environment, packed, for executors that lack ours.
    environment: Path | None = None
    driver_memory: str = "2g"
    max_age_s: float | None = Field(default=None, gt=0)
    max_rows: int | None = Field(default=None, ge=1)
    split_rows: int = Field(default=500_000, ge=1)
    at_once: int = Field(default=2, ge=1)
    poll_s: float = Field(default=2.0, gt=0)
    #: About how long a publish of ``tier --once`` takes at most: what it published is a restart point.
    max_publish_s: float = Field(default=30.0, gt=0)
    #: The greatest age of the list of tables, and of what is known of each.
    refresh_s: float = Field(default=60.0, gt=0)
    stop_s: float = Field(default=10.0, ge=0)
    #: Health and metrics over HTTP; None: not served.
    http_host: str = "127.0.0.1"
    http_port: int | None = Field(default=None, ge=0, le=65535)
    conf: VendorOptions = Field(default_factory=Options)


class Settings(_Section):
    """All settings of one installation.

    ``catalogs`` hold pyiceberg's own property names per catalog, ``kafka`` librdkafka's, ``schema_registry`` those of
    confluent-kafka's client.
    """

    catalogs: dict[str, VendorOptions] = Field(default_factory=dict)
    kafka: VendorOptions = Field(default_factory=Options)
    #: More clusters, as ``kafka``; a table's property ``thermocline.kafka`` names one.
    kafka_clusters: dict[str, VendorOptions] = Field(default_factory=dict)
    schema_registry: VendorOptions = Field(default_factory=Options)
    #: More registries, as ``schema_registry``; a table's property ``thermocline.registry`` names one.
    schema_registries: dict[str, VendorOptions] = Field(default_factory=dict)
    server: Server = Server()
    iceberg_rest: IcebergRest = IcebergRest()
    access: AccessSettings = AccessSettings()
    #: The first that names a user or one of his groups holds.
    limits: dict[str, Limits] = Field(default_factory=dict)
    #: The first that names a user, or one of his groups, and a table holds. None: everything is open.
    permissions: dict[str, Granted] | None = None
    cold: Cold = Cold()
    tail: Tail = Tail()
    tier: Tier = Tier()

    @property
    def clusters(self) -> dict[str, dict[str, str]]:
        """Properties of each configured Kafka cluster by name; that of ``[kafka]`` has an empty one. Secrets are plain."""
        own = {"": self.kafka} if self.kafka else {}
        return {name: dict(options) for name, options in (own | self.kafka_clusters).items()}

    @property
    def registries(self) -> dict[str, dict[str, str]]:
        """Options of each configured schema registry by name, as ``clusters``. Secrets are plain."""
        own = {"": self.schema_registry} if self.schema_registry else {}
        return {name: dict(options) for name, options in (own | self.schema_registries).items()}

    def require_clusters(self) -> dict[str, dict[str, str]]:
        """Return ``clusters``, at least one. Raises BadConfig: there is none."""
        return self.clusters or {"": checked(self.kafka)}

    @property
    def storage_roots(self) -> tuple[str, ...]:
        """Where the engine may read files: as configured, else every catalog's warehouse."""
        return self.server.storage_roots or tuple(sorted(self.warehouses))

    @property
    def warehouses(self) -> set[str]:
        return {each["warehouse"] for each in self.catalogs.values() if "warehouse" in each}

    def require_catalogs(self) -> Self:
        """Return these settings, or refuse them where they name no catalog: no command could find a table.

        Raises:
            BadConfig: there is no ``[catalogs.<name>]``.
        """
        if not self.catalogs:
            raise BadConfig("no catalog is configured; add a section [catalogs.<name>].")
        return self


def own_sections() -> dict[str, type[BaseModel]]:
    """The sections whose keys are ours, in the file's order."""
    return {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with what is written. ``key`` is the dotted name; ``origin`` where it was written."""

    severity: Literal["error", "warning"]
    key: str
    what: str
    fix: str
    origin: str | None = None

    @property
    def sentence(self) -> str:
        where = f"{self.origin}: " if self.origin is not None else ""
        end = "" if self.fix.endswith("?") else "."
        return f"{where}{self.key}: {self.what}; {self.fix}{end}"


def load(path: str | None = None) -> Settings:
    """Read the file at ``path``, else ``$THERMOCLINE_CONFIG``, else ``./thermocline.toml`` if it exists.

    Raises:
        BadConfig: the file is missing or not TOML, a key is unknown, a value does not fit, a catalog cannot
            exist as described. The message has the first problem and the number of others.
    """
    written = read(path)
    settings, problems = validate(written)
    errors = [entry for entry in problems if entry.severity == "error"]
    if settings is None or errors:
        more = len(errors) - 1
        rest = f" ({more} more: `thermocline config check` lists all.)" if more else ""
        raise BadConfig(errors[0].sentence + rest, key=errors[0].key)
    return settings


def validate(written: Written) -> tuple[Settings | None, tuple[Problem, ...]]:
    """Turn what is written into settings and say all that is wrong; None when it cannot be settings."""
    try:
        settings = Settings.model_validate(written.document)
    except ValidationError as error:
        return None, tuple(
            _problem(dict(entry), written)
            for entry in error.errors(include_input=False, include_url=False)
        )
    problems = []
    for section in ("kafka_clusters", "schema_registries"):
        for name in getattr(settings, section):
            if not CLUSTER_NAME.fullmatch(name):
                key = f"{section}.{name}"
                problems.append(Problem("error", key, "its name has other characters than letters, digits, _ and -",
                                        "rename it", written.origin(key)))  # fmt: skip
    for name, options in settings.registries.items():
        try:
            registry_options.checked(options)
        except BadConfig as error:
            key = f"{registry_options.section_of(name)}.{error.facts['key']}"
            what, _, fix = error.message.rstrip(".").partition(": ")[2].rpartition("; ")
            problems.append(Problem("error", key, what, fix, written.origin(key)))
    for name, options in settings.catalogs.items():
        mistake = catalog_mistake(options)
        if mistake is not None:
            key = ".".join(filter(None, ("catalogs", name, mistake.option)))
            origin = written.origin(key)
            problems.append(Problem("error", key, mistake.what, mistake.fix, origin))
    return settings, tuple(problems)


def _problem(error: dict[str, Any], written: Written) -> Problem:
    location = tuple(str(part) for part in error["loc"])
    key = ".".join(location)
    origin = written.origin(key)
    if error["type"] == "extra_forbidden":
        return Problem("error", key, "unknown key", _meant(location), origin)
    what = str(error["msg"]).replace("Input should be a valid dictionary", "it must be a table")
    what = what[0].lower() + what[1:]
    return Problem("error", key, what, "correct the value, or leave the key out", origin)


def _meant(location: tuple[str, ...]) -> str:
    """Suggest the known key nearest to an unknown one, in its own section first."""
    sections = {"": list(Settings.model_fields)}
    sections |= {name: list(model.model_fields) for name, model in own_sections().items()}
    own = ".".join(location[:-1])
    for section in (own, *(name for name in sections if name != own)):
        for close in difflib.get_close_matches(location[-1], sections.get(section, ()), n=1):
            full = close if not section or section == own else f"{section}.{close}"
            return f"did you mean {full}?"
    return f"known keys are {', '.join(sections.get(own, sections['']))}"

"""Starts the Spark session a tierer works in, from catalogs given as pyiceberg properties.

Certificates of one's own authorities for the driver's JVM, which talks to catalogs and stores.

Java reads no PEM. Its own authorities and ours go into a store that it does read, in Spark's temporary folder, before
its first connection over TLS. Executors on other machines talk to object stores only, and trust what those machines do.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connectors.spark.catalogs import catalog_conf
from connectors.spark.errors import SparkLost
from connectors.spark.shipping import PACKED_PYTHON, UNPACKED, ship_sources
from connectors.store.object_store import CA_BUNDLE
from planner.errors import BadConfig, Unavailable

_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"

#: Spark hides the values of these keys in its UI, its event log and its plans. Its own default knows secret,
#: password, token and access.key; the rest are names of Iceberg, Hadoop and the object stores.
REDACTED = (
    "(?i)secret|passw|passphrase|token|credential|authorization|access[._-]?key|account[._-]?key|sas|"
    "private|jdbc\\.user|\\.header\\.|key\\.pem"
)

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

#: Pools of Spark's scheduler, in ``pools.xml``. Tables that are tiered share one, fairly.
_POOLS = Path(__file__).with_name("pools.xml")
TIERING_POOL, MAINTENANCE_POOL = "tiering", "maintenance"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``conf`` is passed to Spark as it stands and wins over everything decided here.

    ``environment`` is a packed virtual environment (venv-pack, conda-pack) for executors that lack ours.
    """

    master: str = "local[*]"
    driver_memory: str = "2g"
    environment: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def session_conf(
    settings: SparkSettings,
    catalogs: Mapping[str, Mapping[str, str]],
    jars: Sequence[Path],
) -> dict[str, str]:
    """Return the whole Spark configuration. Pure.

    Raises:
        BadConfig: as ``catalog_conf``; or Spark would take one catalog's settings for those of another.
    """
    for name, other in itertools.permutations(catalogs, 2):
        if other.startswith(f"{name}."):
            raise BadConfig(
                f"catalogs.{other}: Spark takes its settings for properties of catalog {name}; give one of them a name "
                f"without a dot.",
                catalog=other,
            )
    conf = {
        "spark.master": settings.master,
        "spark.app.name": "thermocline",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}",
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # kafka_timestamp is a UTC instant; day and hour partitions must not depend on the machine.
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        # Tables share the cores; one with a long backfill must not make the others wait.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": _POOLS.as_uri(),
        # A speculative copy of a task would read its split from the brokers twice.
        "spark.speculation": "false",
        # The tail of a cut is a task of its own before every shuffle. By default Spark has each such task open a file for
        # every partition, 200 of them, which takes a small tail several times as long as its rows do; sorting takes one.
        "spark.shuffle.sort.bypassMergeThreshold": "1",
    }
    if settings.master.startswith("local"):
        conf["spark.driver.host"] = "127.0.0.1"
        conf["spark.driver.bindAddress"] = "127.0.0.1"
    for name, properties in catalogs.items():
        conf |= catalog_conf(name, properties)
    conf |= settings.conf
    if settings.environment is not None:
        archives = (conf.get("spark.archives"), f"{settings.environment}#{UNPACKED}")
        conf["spark.archives"] = ",".join(filter(None, archives))
    return conf


def start_session(
    settings: SparkSettings,
    catalogs: Mapping[str, Mapping[str, str]],
    jars: Sequence[Path],
) -> SparkSession:
    """Start Spark in this process, which can hold one session; the caller stops it.

    ``jars`` are the Iceberg runtime and the JDBC driver (``connectors.jars.resolve("iceberg")``).

    Raises:
        BadConfig: as ``session_conf``.
        Unavailable: the master does not take the application, or Spark's JVM ends while it starts.
    """
    conf = session_conf(settings, catalogs, jars)
    # Which Python runs on executors is read by pyspark from the environment only.
    if settings.environment is not None:
        os.environ["PYSPARK_PYTHON"] = PACKED_PYTHON
    else:
        # Executors on this machine run this interpreter: it has the decoder that readers run too.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Keeps py4j from logging tracebacks when the JVM ends, to the root logger; the caller gets an exception.
    logging.getLogger().addFilter(_is_ours)
    try:
        with tempfile.TemporaryDirectory(prefix="thermocline-spark-") as folder:
            _launch(conf, Path(folder) / "spark.conf")
        session = SparkSession.builder.config(
            conf=SparkConf().setAll(list(conf.items()))
        ).getOrCreate()
        keys = ("ssl.cabundle", CA_BUNDLE)
        bundles = [each[key] for each in catalogs.values() for key in keys if each.get(key)]
        trust(session, bundles)
        if not settings.master.startswith("local"):
            ship_sources(session.sparkContext)
    except (Py4JError, PySparkException, OSError) as error:
        raise Unavailable(
            f"Spark did not start with master {settings.master}: is it reachable, and has it room for the job? "
            f"Spark's own words are above.",
            master=settings.master,
        ) from error
    _without_printed_traces(session)
    return session


def session_of_process() -> SparkSession | None:
    """Return the session that was started in this process, if there is one that lives."""
    return SparkSession.getActiveSession()


def _without_printed_traces(session: SparkSession) -> None:
    """Keep pyspark's server for accumulators from printing tracebacks when the JVM ends, as its base class does.

    A job whose updates did not arrive fails on Java's side.
    """
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _is_ours(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def check_alive(session: SparkSession) -> None:
    """Check that Spark can still run jobs: its JVM may have died, or its cluster removed the application.

    Raises:
        Unavailable: it cannot, and will not again in this process.
    """
    try:
        stopped = bool(session.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):
        stopped = True
    if stopped:
        raise SparkLost("Spark has ended under the tierer; start it again.")


def stop_session(session: SparkSession) -> None:
    """Stop Spark. If its JVM is gone it has stopped already, and the failed call reports why."""
    with warnings.catch_warnings(), contextlib.suppress(Py4JError, OSError):
        # pyspark warns that it could not stop the JVM.
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()


def _launch(conf: Mapping[str, str], file: Path) -> None:
    """Start the JVM with ``conf`` in a file that only this user reads.

    pyspark hands a configuration over as arguments, which every user of the machine sees (``ps``), credentials
    of catalogs included.
    """
    if SparkContext._gateway is not None:
        return
    file.touch(mode=0o600)
    file.write_text("".join(f"{_escaped(key)}={_escaped(conf[key])}\n" for key in conf))
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    os.environ[_SUBMIT_ARGUMENTS] = f"--properties-file {shlex.quote(str(file))} pyspark-shell"
    try:
        SparkContext._ensure_initialized()
    finally:
        if before is None:
            del os.environ[_SUBMIT_ARGUMENTS]
        else:
            os.environ[_SUBMIT_ARGUMENTS] = before


def _escaped(text: str) -> str:
    """Write a key or a value as ``java.util.Properties`` reads it back: every UTF-16 unit by its number."""
    units = text.encode("utf-16-be")
    return "".join(
        f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2)
    )


_STORE = "javax.net.ssl.trustStore"

#: Java's own: it protects nothing, certificates are public.
_PASSWORD = "changeit"  # noqa: S105


def trust(session: SparkSession, bundles: Sequence[str]) -> None:
    """Trust what the PEM files sign, beside Java's own authorities. An explicit trust store wins.

    Raises:
        BadConfig: a file cannot be read, or holds no certificates.
    """
    gateway = session.sparkContext._gateway
    if not bundles or gateway is None:
        return
    jvm = gateway.jvm
    if jvm.java.lang.System.getProperty(_STORE) is not None:
        return
    password = gateway.new_array(jvm.char, len(_PASSWORD))
    for index, letter in enumerate(_PASSWORD):
        password[index] = letter
    home = jvm.java.lang.System.getProperty("java.home")
    authorities = jvm.java.io.File(f"{home}/lib/security/cacerts")
    store = jvm.java.security.KeyStore.getInstance(authorities, password)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for bundle in dict.fromkeys(bundles):
        try:
            content = Path(bundle).read_bytes()
            certificates = factory.generateCertificates(
                jvm.java.io.ByteArrayInputStream(content)
            )
        except (OSError, Py4JError) as error:
            raise BadConfig(
                f"ssl.cabundle or s3.cabundle: {bundle} cannot be read, or holds no certificates as PEM.",
                key="ssl.cabundle",
            ) from error
        for number, certificate in enumerate(certificates):
            store.setCertificateEntry(f"thermocline-{bundle}-{number}", certificate)
    file = Path(session.sparkContext._temp_dir, "authorities.p12")
    stream = jvm.java.io.FileOutputStream(str(file))
    store.store(stream, password)
    stream.close()
    jvm.java.lang.System.setProperty(_STORE, str(file))
    jvm.java.lang.System.setProperty(f"{_STORE}Password", _PASSWORD)

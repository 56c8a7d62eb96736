"""JVMs that commands which end by themselves run Spark in, one after the other: the second one costs a tenth.

pyspark goes to a JVM that lives where the environment names one, and a command's context ends with the command. A JVM
that still has one is thrown away, and so is one that trusts an authority of somebody's own. Whoever kills Spark, or
looks at its processes, starts the command as a process of its own (``CliSite.start``) and has a JVM of its own.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from py4j.protocol import Py4JError
from pyspark.java_gateway import launch_gateway

from connectors import jars
from connectors.spark.session import SparkSettings, session_conf
from tests.fixtures.object_store import SUMS

SETS = ("iceberg", "s3", "postgresql")
_idle: list[Any] = []


@contextmanager
def warm_jvm() -> Iterator[dict[str, str]]:
    """What the environment of a command needs; until the end of the block the JVM is that command's alone."""
    gateway = _idle.pop() if _idle else _start()
    try:
        yield {
            "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
        }
    finally:
        if _is_as_new(gateway):
            _idle.append(gateway)
        else:
            _stop(gateway)


def _start() -> Any:
    classes = [path for name in SETS for path in jars.resolve(name)]
    conf = session_conf(SparkSettings(), {}, classes)
    options = ("--driver-memory", "1g", "--driver-class-path", ":".join(map(str, classes)))
    java = ("--driver-java-options", conf["spark.driver.extraJavaOptions"])
    arguments = {"PYSPARK_SUBMIT_ARGS": " ".join((*options, *java, "pyspark-shell"))}
    with mock.patch.dict(os.environ, arguments | {SUMS[0]: SUMS[1]}):
        return launch_gateway()


def _is_as_new(gateway: Any) -> bool:
    try:
        context = getattr(getattr(gateway.jvm.org.apache.spark, "SparkContext$"), "MODULE$")
        trust = gateway.jvm.java.lang.System.getProperty("javax.net.ssl.trustStore")
        return bool(context.getActive().isEmpty()) and trust is None
    except (Py4JError, OSError):
        return False


def _stop(gateway: Any) -> None:
    gateway.shutdown()
    # It ends with its standard input.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(5)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@atexit.register
def _stop_all() -> None:
    while _idle:
        _stop(_idle.pop())

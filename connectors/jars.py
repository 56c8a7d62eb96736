"""Jar sets from Maven coordinates, resolved once into the user's cache.

The resolver is the Ivy jar inside pyspark, with its default repository settings: nothing else needs to be
installed, and no registry is named here. A set's folder is named by its coordinates and appears by one
rename, so a folder that exists is complete; a change of coordinates is a new folder. ``python -m
connectors.jars`` resolves every set.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from connectors import child_guard
from planner.errors import BadConfig, FederationError, Unavailable

#: The Java that Spark 4.1 and the Kafka 4 broker both run on, and the oldest they accept.
MIN_JAVA = 17
# A slow network needs minutes for 100 MB; Ivy itself gives up on one artifact much sooner.
RESOLVE_TIMEOUT_S = 900
_PROGRESS_S = 0.2
#: For ``tarfile``: Pythons before 3.11.4 know no filters.
EXTRACT: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One artifact of a Maven repository, with or without what it depends on."""

    organisation: str
    module: str
    revision: str
    transitive: bool = False
    classifier: str = ""
    #: ``tar.gz``: a whole program, unpacked into the set's folder.
    packaging: str = "jar"

    def __str__(self) -> str:
        return ":".join(
            filter(None, (self.organisation, self.module, self.revision, self.classifier))
        )

    @property
    def file(self) -> str:
        name = "-".join(filter(None, (self.module, self.revision, self.classifier)))
        return f"{name}.{self.packaging}"


#: Versions that work together. The JDBC driver and the Iceberg runtime are shaded: they bring
#: everything they need in one jar. Kafka's jars log through slf4j but bring no back end; slf4j-simple writes
#: to the standard error and needs no configuration file.
SETS: dict[str, tuple[Coordinate, ...]] = {
    "kafka": (
        Coordinate("org.apache.kafka", "kafka_2.13", "4.3.1", transitive=True),
        Coordinate("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    "iceberg": (
        Coordinate("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
        Coordinate("org.xerial", "sqlite-jdbc", "3.54.1.0"),
    ),
    "s3": (Coordinate("org.apache.iceberg", "iceberg-aws-bundle", "1.12.0"),),
    "postgresql": (Coordinate("org.postgresql", "postgresql", "42.7.8"),),
    "flight-jdbc": (Coordinate("org.apache.arrow", "flight-sql-jdbc-driver", "18.3.0"),),
    "schema-registry": (
        Coordinate(
            "io.apicurio",
            "apicurio-registry-app",
            "3.3.3",
            classifier="all",
            packaging="tar.gz",
        ),
    ),
}

#: How much a set's download is, so that progress has an end: bytes, and a wait for each file that Ivy asks for.
# For Kafka it reads the descriptions of a hundred artifacts first, one after the other: most of the time.
SET_SIZES = {
    "kafka": 92_000_000,
    "iceberg": 63_000_000,
    "s3": 72_000_000,
    "postgresql": 1_100_000,
    "flight-jdbc": 46_000_000,
    "schema-registry": 159_000_000,
}
_FILE_SIZE = 150_000

#: Called with the share done, from 0 to 1, several times a second.
Progress = Callable[[float], None]

# Maven's packaging "bundle" is a jar with OSGi headers; without it snappy and snakeyaml would be missing.
_TYPES = ("jar", "bundle", "tar.gz")
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


def resolve(
    set_name: str,
    coordinates: tuple[Coordinate, ...] | None = None,
    *,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Return the jars of a set, sorted by name; downloads them on first use: one of several processes, the others wait. Of a
    program, those beside its folders.

    ``coordinates`` are those of a set that is none of ``SETS``. ``progress`` is called only while something is downloaded.

    Raises:
        BadConfig: no such set, no Java 17, or pyspark is not installed.
        Unavailable: the artifacts could not be downloaded. Retry with a network.
    """
    coordinates = coordinates or SETS.get(set_name)
    if coordinates is None:
        raise BadConfig(f"there is no jar set {set_name!r}; there are {', '.join(SETS)}.")
    folder = _folder(set_name, coordinates)
    if not folder.is_dir():
        with _locked(folder.with_suffix(".lock")):
            if not folder.is_dir():
                java()
                _download(set_name, coordinates, folder, progress)
    return tuple(sorted(folder.glob("*.jar")))


def is_resolved(set_name: str) -> bool:
    """Whether ``resolve`` would download nothing."""
    return _folder(set_name, SETS[set_name]).is_dir()


@functools.cache
def java() -> str:
    """Return the Java to run: that of ``JAVA_HOME``, otherwise the first on the path.

    Raises BadConfig: there is none, it does not run, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = "JAVA_HOME" if home else "the search path"
    if path is None:
        raise BadConfig(f"Thermocline needs Java {MIN_JAVA}: install it, or set JAVA_HOME.")
    try:
        # A heap of a quarter of the memory, the default, may be more than an address space limit leaves.
        command = [path, "-Xmx32m", "-version"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"the Java of {where} does not run; it must be Java {MIN_JAVA}."
        raise BadConfig(why) from error
    # 'openjdk version "17.0.15" 2025-04-15'; before Java 9 it read "1.8.0_402".
    version = re.search(r'version "(\d+)', result.stderr)
    if result.returncode or version is None or int(version[1]) < MIN_JAVA:
        raise BadConfig(
            f"the Java of {where} is {version[1] if version else 'of an unknown version'}; "
            f"Thermocline needs Java {MIN_JAVA} or newer."
        )
    return path


def cache_folder() -> Path:
    # XDG Base Directory Specification: a relative or empty value is ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "thermocline" / "jars"


def _folder(set_name: str, coordinates: tuple[Coordinate, ...]) -> Path:
    text = "\n".join(f"{item} {item.transitive}" for item in coordinates)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache_folder() / f"{set_name}-{digest}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the kernel drops it with the process, so none is ever left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(
    set_name: str, coordinates: tuple[Coordinate, ...], folder: Path, progress: Progress | None
) -> None:
    # The lock is ours, so such a folder belongs to a process that was killed.
    for left in folder.parent.glob(f".{set_name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{set_name}-") as name:
        work = Path(name)
        log, jars = work / "ivy.log", work / "jars"
        (work / "ivy.xml").write_text(_ivy_file(set_name, coordinates))
        # Ivy's own cache is not safe between processes, so each download has one of its own.
        command = [java(), "-jar", str(_ivy_jar()), "-cache", "ivy-cache", "-ivy", "ivy.xml"]
        command += ["-confs", "default", "-types", *_TYPES, "-retrieve", f"jars/{_PATTERN}"]
        code = _run_ivy(set_name, command, log, progress)
        names = {path.name for path in jars.glob("*")}
        missing = [str(item) for item in coordinates if item.file not in names]
        if code or missing:
            raise _unavailable(set_name, _reason(log) or ", ".join(missing))
        for archive in jars.glob("*.tar.gz"):
            with tarfile.open(archive) as program:
                program.extractall(jars, **EXTRACT)  # noqa: S202 (filtered where Python can)
            archive.unlink()
        jars.rename(folder)


def _run_ivy(set_name: str, command: list[str], log: Path, progress: Progress | None) -> int:
    """Run it beside ``log`` and return its exit code. It ends with this process, however that ends."""
    deadline = time.monotonic() + RESOLVE_TIMEOUT_S
    with child_guard.start(log, command, folder=log.parent) as running:
        while True:
            try:
                return running.wait(_PROGRESS_S)
            except subprocess.TimeoutExpired as error:
                if time.monotonic() > deadline:
                    why = f"gave up after {RESOLVE_TIMEOUT_S} s"
                    raise _unavailable(set_name, why) from error
            if progress is not None:
                done = _size(log.parent / "ivy-cache") / SET_SIZES[set_name]
                progress(min(done, 1.0))


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size + _FILE_SIZE
    return total


def _ivy_file(set_name: str, coordinates: tuple[Coordinate, ...]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(item.organisation)} name={quoteattr(item.module)} "
        f'rev={quoteattr(item.revision)} transitive="{str(item.transitive).lower()}" '
        f'conf="default->default">{_artifact(item)}</dependency>'
        for item in coordinates
    )
    return (
        f'<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="thermocline" module={quoteattr(set_name)}/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _artifact(item: Coordinate) -> str:
    if not item.classifier:
        return ""
    kind = quoteattr(item.packaging)
    return f"<artifact name={quoteattr(item.module)} type={kind} ext={kind} m:classifier={quoteattr(item.classifier)}/>"


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    roots = spec.submodule_search_locations if spec else None
    jars = [jar for root in roots or () for jar in Path(root).glob("jars/ivy-*.jar")]
    if not jars:
        raise BadConfig("pyspark, whose Ivy resolves the jars, is not installed.")
    return jars[0]


def _reason(log: Path) -> str:
    """What Ivy could not find, as coordinates; its report has one such line for each."""
    output = log.read_text(errors="replace")
    if "No space left on device" in output:
        return "the disk is full"
    missing = re.findall(r":: ([\w.-]+)#([\w.-]+);([\w.-]+): not found", output)
    return ", ".join(sorted({":".join(parts) for parts in missing}))


def _unavailable(set_name: str, reason: str) -> Unavailable:
    return Unavailable(
        f"the {set_name} jars could not be downloaded ({reason}); check that this machine reaches a Maven "
        f"repository, then run it again.",
        jar_set=set_name,
    )


def main(names: Sequence[str]) -> int:
    """Resolve these sets, every one if there is no name, one line each; 1 when any fails."""
    unknown = sorted(set(names) - set(SETS))
    if unknown:
        print(f"no set is called {unknown[0]}; there are {', '.join(SETS)}", file=sys.stderr)  # noqa: T201
        return 1
    code = 0
    for set_name in names or SETS:
        try:
            if not is_resolved(set_name):
                print(f"downloading the {set_name} jars, once")  # noqa: T201
            jars = resolve(set_name)
        except FederationError as error:
            code = 1
            print(error.message, file=sys.stderr)  # noqa: T201
        else:
            size_mb = sum(file.stat().st_size for file in jars[0].parent.rglob("*")) / 1e6
            print(f"{set_name}: {len(jars)} jars, {size_mb:.0f} MB")  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

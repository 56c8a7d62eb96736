"""This machine: Python, packages, Java, jars, memory, disk, the server's port. Asks nothing over a network.

Whether the kernel locks the file system of a server: by starting one as far as that, and having it try.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version

from connectors import jars
from connectors.spark.catalogs import jar_sets
from planner.errors import BadConfig, FederationError
from proxy.process.memory import free_memory
from thermocline.config.settings import Settings
from thermocline.doctor.findings import Finding, Findings, fail, ok, refused, warn

#: Below these a busy server or a tierer runs into walls; demos and tests need less.
LOW_MEMORY_BYTES, LOW_DISK_BYTES = 2_000_000_000, 5_000_000_000

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)(.*)")

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)


def machine(settings: Settings, config: str | None = None) -> Findings:
    """Check everything. ``config`` as on the command line."""
    yield python(sys.version_info[:2])
    yield from packages()
    yield _java()
    yield from _jars(settings)
    yield _memory(settings)
    yield _disk()
    yield _port(settings)
    yield file_system_lock(settings, config)


def python(version_info: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version_info[:2]))
    tried = f"{'.'.join(map(str, OLDEST_PYTHON))} to {'.'.join(map(str, NEWEST_PYTHON))}"
    if version_info < OLDEST_PYTHON:
        return fail("Python", f"{text}; Thermocline runs on {tried}", "install a newer Python")
    if version_info > NEWEST_PYTHON:
        return warn("Python", f"{text} is not tried", f"use one of {tried}")
    return ok("Python", f"{text} (runs on {tried})")


def packages() -> Findings:
    """Each library Thermocline asks for, against the versions it asks for."""
    matches = filter(None, map(_REQUIREMENT.match, requires("thermocline") or ()))
    needed = [(m[1], m[2].replace(" ", "")) for m in matches if "extra" not in m[3]]
    wrong = []
    for name, bounds in needed:
        try:
            installed = version(name)
        except PackageNotFoundError:
            what = f"{name} is not installed"
        else:
            if fits(installed, bounds):
                continue
            what = f"{name} is {installed}, supported is {bounds}"
        wrong.append(fail("packages", what, f"pip install '{name}{bounds}'"))
    what = (
        f"thermocline {version('thermocline')}, {len(needed)} libraries of supported versions"
    )
    yield from wrong or [ok("packages", what)]


def fits(installed: str, bounds: str) -> bool:
    """Whether a version lies within bounds as we write them: ``>=``, ``<`` and ``==``, comma between."""
    have = _numbers(installed)
    for bound in filter(None, bounds.split(",")):
        operator, required = bound.rstrip("0123456789."), _numbers(bound.lstrip("><=!~"))
        fitting = {">=": have >= required, "<": have < required, "==": have == required}
        if not fitting.get(operator, True):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.findall(r"\d+", text.split("+")[0])]
    return tuple([*numbers, 0, 0, 0, 0][:4])


def _java() -> Finding:
    try:
        jars.java()
    except FederationError as error:
        fix = f"install Java {jars.MIN_JAVA}; only `tier` and `demo` need it"
        return refused("Java", error, fix)
    return ok("Java", f"runs, {jars.MIN_JAVA} or newer")


def _jars(settings: Settings) -> Findings:
    try:
        names = jar_sets(settings.catalogs)
    except BadConfig as error:
        yield warn("jars", error.message.rstrip("."), "it is served, but `tier` will refuse it")
        return
    missing = [name for name in names if not jars.is_resolved(name)]
    if not missing:
        yield ok("jars", f"in the cache: {', '.join(names)}")
        return
    size_mb = sum(jars.SET_SIZES[name] for name in missing) / 1e6
    yield warn(
        "jars",
        f"not in the cache: {', '.join(missing)}; the first `tier` downloads {size_mb:.0f} MB",
        f"run `python -m connectors.jars {' '.join(missing)}` where there is a network",
    )


def _memory(settings: Settings) -> Finding:
    free = free_memory()
    if free is None:
        return warn("memory", "this machine does not say how much is free", "look for yourself")
    required = settings.server.memory_limit_bytes or LOW_MEMORY_BYTES
    if free < required:
        fix = "give it more, or set server.memory_limit_bytes and max_tail_bytes lower"
        return warn("memory", f"{_gb(free)} free, below {_gb(required)}", fix)
    return ok("memory", f"{_gb(free)} free")


def _disk() -> Finding:
    check, free = "disk for spilling", shutil.disk_usage(tempfile.gettempdir()).free
    if free < LOW_DISK_BYTES:
        return warn(check, f"{_gb(free)} free", "make room, or set TMPDIR to a larger disk")
    return ok(check, f"{_gb(free)} free")


def _port(settings: Settings) -> Finding:
    server = settings.server
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            reason = (error.strerror or "it cannot be used").lower()
            return warn(
                "server port",
                f"{server.host}:{server.port}: {reason}",
                "if a server of yours runs there, all is well; else end who does, or set server.port",
            )
    return ok("server port", f"{server.host}:{server.port} is free")


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


#: A server loads its libraries in a second or two, on a busy machine in many.
_PATIENCE_S = 120.0


def file_system_lock(settings: Settings, config: str | None) -> Finding:
    """Start what ``thermocline serve`` starts, in the same order, and report what was refused to it.

    ``settings`` are those that ``config`` names, as on the command line.
    """
    check, chosen = "file system lock", settings.server.landlock
    if chosen == "off":
        return ok(check, "server.landlock is off: a server may reach all its user's files")
    holds, says = _tried(config)
    if holds:
        return ok(check, f"tried by starting a server: {says}")
    if chosen == "required":
        fix = "run it where Landlock is, or set server.landlock to auto"
        return fail(check, says.rstrip("."), fix)
    return warn(
        check,
        f"a server may reach all its user's files: {says}",
        "run it where Landlock is, or in a container that holds nothing else",
    )


def _tried(config: str | None) -> tuple[bool, str]:
    chosen = ["--config", config] if config else []
    command = [sys.executable, "-m", "thermocline", *chosen, "serve", "--try-lock"]
    try:
        nothing = subprocess.DEVNULL
        done = subprocess.run(
            command, stdin=nothing, capture_output=True, timeout=_PATIENCE_S, check=True
        )
        said = json.loads(done.stdout)
        return bool(said["holds"]), str(said["says"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return False, "a server that was started to try it did not say"

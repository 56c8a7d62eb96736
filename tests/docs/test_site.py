"""The pages build to a site without a warning, and the site needs nothing from elsewhere."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

BUILDER = ROOT / ".venv-docs" / "bin" / "sphinx-build"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not BUILDER.exists():
        pytest.skip("the site's tools are not installed: run `make docs`")
    folder = tmp_path_factory.mktemp("site")
    # Broken links and anchors are warnings, and -W makes a warning fail.
    command = [
        str(BUILDER),
        "-q",
        "-W",
        "--keep-going",
        "-n",
        "-E",
        "-c",
        "docs",
        ".",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_docs_is_on_the_site(site: Path) -> None:
    written = [page for page in pages() if page.parent == ROOT / "docs"]
    assert written
    for page in written:
        assert (site / "docs" / f"{page.stem}.html").is_file(), page.name
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")


def test_the_configuration_page_shows_every_key(site: Path) -> None:
    page = (site / "docs" / "configuration.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    # That the example has every key is tested in tests/unit/test_config.py.
    assert (ROOT / "thermocline.example.toml").read_text(encoding="utf-8") in text


def test_a_reader_s_browser_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(
        r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\brel=["']?(?:stylesheet|preload|"""
        r"""preconnect)[^>]*\bhref=["']?(?:https?:)?//"""
    )
    built = list(site.rglob("*.html"))
    assert built
    assert not [page.name for page in built if fetched.search(page.read_text(encoding="utf-8"))]
    styles = [sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css")]
    assert styles
    assert not [
        sheet for sheet in styles if re.search(r"@import|url\([\"']?(?:https?:)?//", sheet)
    ]

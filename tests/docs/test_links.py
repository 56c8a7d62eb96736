"""Links and anchors between the pages hold. Nothing outside this folder is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, linked_pages, links


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", linked_pages(), ids=named)
def test_links_lead_to_a_file_and_a_heading_of_it(page: Path) -> None:
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        if path.startswith(("https://", "http://")):
            continue
        result = (page.parent / path).resolve() if path else page
        if not result.exists() or (anchor and anchor not in anchors(result)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", linked_pages(), ids=named)
def test_external_links_are_encrypted(page: Path) -> None:
    assert not [target for target in links(page) if target.startswith("http://")]

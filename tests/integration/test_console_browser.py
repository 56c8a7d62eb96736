"""The console in a real browser, over the running demo: what a person sees is what the server says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest

from tests.harness.environments import python_with_browser

pytestmark = [pytest.mark.tools, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
START_S = 300.0


@dataclass(frozen=True)
class Site:
    """A running demo: where its pages are, and its server."""

    pages: str
    uri: str

    def does(self, name: str, *options: str) -> dict[str, Any]:
        """Do one of ``tests.harness.console_program``; return what it met. No fault of a page is let pass."""
        program = ROOT / "tests" / "harness" / "console_program.py"
        done = subprocess.run(
            [python_with_browser(), program, name, self.pages, *options],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["faults"] == []
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    python_with_browser()
    folder = tmp_path_factory.mktemp("demo")
    output = folder / "output"
    command = [sys.executable, "-u", "-m", "thermocline", "demo", "--rate", "200"]
    with output.open("w") as sink:
        demo = subprocess.Popen(
            [*command, "--seconds", "3000", "--tier-every", "5"],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline_s = time.monotonic() + START_S
        while not re.search(r"\.flows: \S+ rows = [1-9]\S* cold", text := output.read_text()):
            assert demo.poll() is None, text
            assert time.monotonic() < deadline_s, text
            time.sleep(0.2)
        [pages] = re.findall(r"the console, in a browser: (\S+)", text)
        yield Site(pages, re.findall(r"grpc://\S+", text)[0])
    finally:
        demo.terminate()
        demo.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_seam_moves_at_a_publish_to_where_sql_has_it(site: Site) -> None:
    answer = site.does("seam")
    before, after = (
        [int(text.replace(",", "")) for text in answer[name]] for name in ("before", "after")
    )
    assert all(new >= old for old, new in zip(before, after, strict=True))
    assert sum(after) > sum(before)
    # That of the table's creation, and the publish that the demo began with.
    assert answer["snapshots"] >= 2
    assert answer["table"] == answer["after"]
    with (
        contextlib.closing(adbc.connect(site.uri, autocommit=True)) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            f'SELECT watermark FROM lake.edr."flows$seam" AT (VERSION => {answer["snapshot"]}) ORDER BY kafka_partition'
        )
        assert [row[0] for row in cursor.fetchall()] == after
        assert [int(row["watermark"]) for row in answer["seam"]] == after


def test_no_markup_of_others_becomes_an_element(site: Site) -> None:
    answer = site.does("markup")
    assert answer["pwned"] is None
    assert len(answer["cells"]) > 20
    assert [cell for cell in answer["cells"] if cell[0]] == []
    assert "onerror" in "".join(cell[1] for cell in answer["cells"])


def test_a_hundred_thousand_rows_are_few_elements_and_whole_numbers(site: Site) -> None:
    answer = site.does("grid")
    assert answer["status"].startswith("the first 100,000 rows; the console keeps no more")
    assert answer["rows"] < 100
    assert (answer["value"], answer["last"]) == ("9007199254840992", "0001-01-01")
    assert (answer["lines"], answer["line"]) == (100_001, "0,9007199254740993,nan,0001-01-01")


def test_cancel_error_and_completion_by_keys(site: Site) -> None:
    answer = site.does("cancel")
    assert answer["mark"] == "nothing"
    assert answer["text"] == "FROM lake.edr.flows"


def test_a_page_that_is_come_back_to_has_one_question_open(site: Site) -> None:
    assert site.does("waking")["questions"] <= 1


def test_who_logs_out_leaves_nothing_in_the_tab(site: Site) -> None:
    answer = site.does("leaving")
    assert (answer["hash"], answer["text"]) == ("", "")


def test_axe_has_no_serious_fault_and_a_phone_is_wide_enough(site: Site) -> None:
    answer = site.does("access")
    assert answer["serious"] == []
    assert {width for width in answer["widths"].values() if width > 360} == set()


def test_the_picture_of_the_documentation_is_of_a_running_demo(
    site: Site, tmp_path: Path
) -> None:
    """``THERMOCLINE_PICTURES=docs/_static make tools`` takes it anew."""
    folder = Path(os.environ.get("THERMOCLINE_PICTURES", tmp_path)).resolve()
    site.does("picture", f"file={folder / 'console.png'}")
    assert (folder / "console.png").read_bytes().startswith(b"\x89PNG")

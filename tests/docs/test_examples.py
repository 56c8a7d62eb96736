"""Every example of the README and the docs is run, or says in the source why it is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import jars
from tests.docs.pages import NOT_RUN, PRINTS, ROOT, Block, blocks, pages
from tests.docs.walk import Walk
from tests.fixtures.kafka import Kafka
from tests.fixtures.rest_catalog import RestCatalog
from tests.harness.forked_python import Programs, forked_programs
from tests.harness.ports import lasting_port

QUICKSTART = ROOT / "docs" / "quickstart.md"
ON_S3 = ROOT / "docs" / "quickstart-s3.md"
BLOCKS = [block for page in pages() for block in blocks(page)]
OTHERS = sorted(
    {block.page for block in BLOCKS if block.directive not in (NOT_RUN, PRINTS)}
    - {page.relative_to(ROOT).as_posix() for page in (QUICKSTART, ON_S3)}
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Forty commands and examples: to load what each of them loads was most of what they cost."""
    with forked_programs(tmp_path_factory.mktemp("programs")) as made:
        yield made


@pytest.fixture(scope="module")
def quickstart_run(
    kafka: Kafka, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Walk]:
    """The folder in which the quickstart was followed to its end; its server still runs."""
    port = lasting_port()
    replaced = {"localhost:9092": kafka.bootstrap, "31337": str(port)}
    folder = tmp_path_factory.mktemp("reader")
    for jar in jars.resolve("flight-jdbc"):
        (folder / jar.name).symlink_to(jar)
    with contextlib.closing(Walk(folder, replaced, port, programs)) as walk:
        walk.follow(blocks(QUICKSTART))
        yield walk


@pytest.mark.kafka
@pytest.mark.spark
def test_the_quickstart_works_as_written(quickstart_run: Walk) -> None:
    assert {path.name for path in quickstart_run.folder.iterdir()} >= {
        "thermocline.toml",
        "lake",
    }


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("page", OTHERS)
def test_the_examples_of_a_page_work_after_the_quickstart(
    quickstart_run: Walk, page: str
) -> None:
    quickstart_run.follow(blocks(ROOT / page))


@pytest.mark.kafka
@pytest.mark.spark
def test_the_quickstart_on_s3_and_rest_works_as_written(
    kafka: Kafka, rest_catalog: RestCatalog, programs: Programs, tmp_path: Path
) -> None:
    port, store = lasting_port(), rest_catalog.store
    replaced = {
        "localhost:9092": kafka.bootstrap,
        "localhost:8181": f"127.0.0.1:{rest_catalog.port}",
        "http://localhost:9000": store["s3.endpoint"],
        '"trial"': f'"{store["s3.access-key-id"]}"',
        "trial-secret": store["s3.secret-access-key"],
        "s3://lake/warehouse": rest_catalog.root,
        "31337": str(port),
    }
    with contextlib.closing(Walk(tmp_path, replaced, port, programs)) as walk:
        walk.follow(blocks(ON_S3))


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    if block.directive == NOT_RUN:
        assert block.why, f"{block}: say why it is not run"
    elif block.directive != PRINTS:
        assert block.language in ("bash", "java", "python", "sql", "toml"), (
            f"{block}: cannot be run"
        )

"""The README's first example prints what it shows, over a table with as many cold and hot rows."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT, blocks
from tests.harness.lake import FLOWS, Lake
from tests.harness.records import GOOD

TEXTS = [block for block in blocks(ROOT / "README.md") if block.language in ("python", "text")]
COLD, HOT = 1000, 27


def statement(example: str) -> str:
    """The value that the example gives to ``sql``."""
    for node in ast.parse(example).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="sql")], value=ast.Constant(value=str(sql))):
                return sql
    raise AssertionError(example)


def test_the_first_example_prints_cold_and_hot_rows_of_one_answer() -> None:
    example, output = TEXTS[:2]
    lake = Lake()
    try:
        for number in range(COLD + HOT):
            if number == COLD:
                target, plan = lake.plan_tiering(FLOWS, COLD)
                lake.publish(lake.stage(FLOWS, target, plan))
            lake.produce(lake.topics["flows"], number % 2, GOOD)
        answer = lake.ask(statement(example.text).replace("lake.edr.", "lake.net."))
    finally:
        lake.stop_server()
    assert f"{answer.to_pylist()}\n" == output.text


def test_the_file_that_make_example_runs_asks_the_same() -> None:
    file = (ROOT / "examples" / "both_sides.py").read_text(encoding="utf-8")
    (written,) = re.findall(r'SQL = """(.*?)"""', file, re.DOTALL)
    assert written == statement(TEXTS[0].text)

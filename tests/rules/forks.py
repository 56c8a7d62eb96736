"""Tests with one rule removed, each run in a fork of one pytest that has loaded and collected everything.

To load the product and to collect its tests takes longer than most of these tests. A fork changes what is loaded: the
functions that stand otherwise in the text without the rule get the code it gives them. The files stay as they are.

The argument is an empty folder. Standard input has a line with all switches, then one for each run: the number of a
switch, or nothing for a run of one test of each file as it is. Standard output has one line of JSON for each run.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TextIO

import pytest

ROOT = Path(__file__).parents[2]
#: A fork writes into a file of its own, so pytest captures nothing.
OPTIONS = [
    "-q",
    "-s",
    "--tb=line",
    "--timeout=120",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
]
Functions = Mapping[tuple[str, str, int], list[FunctionType]]


def loaded() -> Functions:
    """All functions there are, by file, qualified name and first line."""
    functions: dict[tuple[str, str, int], list[FunctionType]] = {}
    for value in gc.get_objects():
        if isinstance(value, FunctionType):
            functions.setdefault(_place(value.__code__), []).append(value)
    return functions


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _nested(code: CodeType) -> list[CodeType]:
    return [value for value in code.co_consts if isinstance(value, CodeType)]


def _steps(code: CodeType, *, deep: bool) -> tuple[object, ...]:
    """What the code does, whatever line it stands on; with ``deep`` also what the code in it does."""
    constants = [
        (_steps(value, deep=deep) if deep else value.co_qualname)
        if isinstance(value, CodeType)
        else (type(value), value)
        for value in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _differing(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions of a module, or of a class, that its two texts have otherwise, and how."""
    assert _steps(before, deep=False) == _steps(after, deep=False), (
        f"a switch changes {before.co_qualname} outside of its functions, which are all that can be changed"
    )
    for old, new in zip(_nested(before), _nested(after), strict=True):
        if not old.co_flags & inspect.CO_OPTIMIZED:  # a class's
            yield from _differing(old, new)
        elif _steps(old, deep=True) != _steps(new, deep=True):
            yield old, new


def remove(switch: Mapping[str, str], functions: Functions) -> None:
    path = ROOT / switch["file"]
    text = path.read_text()
    assert text.count(switch["fragment"]) == 1, f"{path} does not hold the fragment once"
    before, after = (
        compile(each, str(path), "exec", dont_inherit=True)
        for each in (text, text.replace(switch["fragment"], switch["instead"]))
    )
    changed = [
        (function, new)
        for old, new in _differing(before, after)
        for function in functions[_place(old)]
    ]
    assert changed, f"{path} is the same without the fragment"
    for function, code in changed:
        function.__code__ = code


class Forks:
    """In place of the run of all that was collected: a fork for each line, which runs some of it."""

    def __init__(
        self, switches: Sequence[dict[str, Any]], answers: TextIO, output: Path
    ) -> None:
        self.is_fork = False
        self._switches, self._answers, self._output = switches, answers, output

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """None, in a fork, leaves the tests to pytest."""
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        functions = loaded()
        gc.freeze()  # forks collect what they make, not what was loaded here
        assert threading.active_count() == 1, f"no fork has the threads {threading.enumerate()}"
        for line in sys.stdin:
            if (child := os.fork()) == 0:
                self.is_fork = True
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                descriptor = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                if line.strip():
                    switch = self._switches[int(line)]
                    session.items = [items[test] for test in switch["tests"]]
                    remove(switch, functions)
                else:
                    session.items = list({item.path: item for item in session.items}.values())
                return None
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answer = {"code": code, "output": self._output.read_text()}
            print(json.dumps(answer), file=self._answers, flush=True)
        return True


def main() -> None:
    folder = Path(sys.argv[1])
    switches = json.loads(sys.stdin.readline())
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what pytest says of the collection
    forks = Forks(switches, answers, folder / "output")
    code = 70
    try:
        tests = sorted({test for switch in switches for test in switch["tests"]})
        code = int(pytest.main([*OPTIONS, f"--basetemp={folder}/tests", *tests], [forks]))
    finally:
        sys.stdout.flush()
        if forks.is_fork:  # a run's threads may still wait for something
            os._exit(code)


if __name__ == "__main__":
    main()

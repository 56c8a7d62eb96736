"""Tests with one rule removed, run in forks of a process that has all installed packages loaded.

Loading those packages takes longer than most of the tests. Nothing of this project is loaded before the fork: a run
loads the changed text as if it stood in the file. The files stay as they are.

The argument is an empty folder, for bytecode. Standard input has one line for each run, the number of a switch or
nothing; standard output one line of JSON for it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("planner", "connectors", "proxy", "thermocline", "tests")
OPTIONS = ["-q", "--tb=line", "--durations=0", "--timeout=120", "-p", "no:randomly"]
#: What is already loaded cannot be rewritten for asserts, and need not be: it is not ours.
OPTIONS += ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Changed(SourceFileLoader):
    """Loads a file as if ``fragment`` were ``instead`` in it."""

    def __init__(self, name: str, path: str, fragment: str, instead: str) -> None:
        super().__init__(name, path)
        self._fragment, self._instead = fragment, instead

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        assert text.count(self._fragment) == 1, f"{self.path} does not hold the fragment once"
        text = text.replace(self._fragment, self._instead)
        return compile(text, self.path, "exec", dont_inherit=True)


class Finder:
    """Finds one module of ours, changed."""

    def __init__(self, file: str, fragment: str, instead: str) -> None:
        self._module = file.removesuffix(".py").replace("/", ".")
        self._change = (fragment, instead)

    def find_spec(
        self, name: str, path: Sequence[str] | None, _: Any = None
    ) -> ModuleSpec | None:
        if name != self._module:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = Changed(name, spec.origin, *self._change)
        return spec


def forked(arguments: Sequence[str], change: Sequence[str] | None = None) -> dict[str, Any]:
    """Run pytest in a fork, with ``change`` (file, fragment, instead); say how it ended and what it loaded."""
    with tempfile.TemporaryDirectory() as folder:
        output, modules = Path(folder) / "output", Path(folder) / "modules"
        if (child := os.fork()) == 0:
            code = 70
            try:
                with output.open("w") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
                if change is not None:
                    sys.meta_path.insert(0, Finder(*change))
                code = int(pytest.main([*OPTIONS, f"--basetemp={folder}/tests", *arguments]))
                modules.write_text("\n".join(sys.modules))
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        loaded = modules.read_text().split() if modules.exists() else []
        return {"code": code, "output": output.read_text(), "loaded": loaded}


def load(names: Sequence[str]) -> None:
    """Load what a run loaded and is not ours."""
    for name in names:
        if name.split(".")[0] not in OURS and name not in sys.modules:
            # Some are names that only their package can make.
            with warnings.catch_warnings(), contextlib.suppress(ImportError):
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def main() -> None:
    switches = json.loads(sys.stdin.readline())
    tests = sorted({test for switch in switches for test in switch["tests"]})
    load(forked(["--collect-only", *tests])["loaded"])
    # Ours alone, in a folder of this run: what the environment says of bytecode would have each fork compile it again.
    sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[1]
    # Forks collect what they make, not what was loaded here.
    gc.freeze()
    for line in sys.stdin:
        if line.strip():
            switch = switches[int(line)]
            change = (switch["file"], switch["fragment"], switch["instead"])
            run = forked(switch["tests"], change)
        else:
            run = forked(tests)
        print(json.dumps({"code": run["code"], "output": run["output"]}), flush=True)


if __name__ == "__main__":
    main()

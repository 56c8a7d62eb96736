"""Which failures `make test` may ask once more."""

from __future__ import annotations

import pytest

from tests.fixtures.exact import WRONG


@pytest.mark.parametrize(
    ("file", "statement", "code"),
    [
        ("properties/test_it.py", "assert 1 == 2", WRONG),
        ("properties/test_it.py", "raise TimeoutError", 1),
        ("properties/test_it.py", "assert 1 == 1", 0),
        ("integration/test_it.py", "assert 1 == 2", 1),
        ("integration/test_replicas.py", "assert 1 == 2, 'of all rows'", WRONG),
        ("integration/test_replicas.py", "assert time.monotonic() < 0, 'late'", 1),
        ("integration/test_replicas.py", "assert Popen(['false']).wait(9) == 0", 1),
    ],
)
def test_a_wrong_answer_has_an_exit_code_of_its_own(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    statement: str,
    code: int,
) -> None:
    # Plug-ins of others take longer to load than all the rest does.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = pytester.path / "tests" / file
    path.parent.mkdir(parents=True)
    imports = "import time\nfrom subprocess import Popen\n"
    path.write_text(f"{imports}def test_it():\n    {statement}\n")
    ran = pytester.runpytest_inprocess(
        "-q", "-p", "no:cacheprovider", "-p", "tests.fixtures.exact"
    )
    assert ran.ret == code
    is_named = f"WRONG ANSWER tests/{file}::test_it" in ran.stdout.str()
    assert is_named == (code == WRONG)

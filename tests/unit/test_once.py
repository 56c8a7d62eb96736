"""What is kept of statements is bounded by their number and by their length."""

from __future__ import annotations

import pytest

from proxy.engine import statement_cache as once
from proxy.engine.statement_cache import StatementCache


def is_kept(held: StatementCache, key: str) -> bool:
    return held.cached(key, str) is not None


def test_the_least_recently_used_is_forgotten() -> None:
    held = StatementCache(2)
    for key in ("a", "b", "a", "c"):
        assert held.get(key, lambda key=key: key.upper()) == key.upper()  # type: ignore[misc]
    assert [is_kept(held, key) for key in "abc"] == [True, False, True]


def test_long_statements_make_room_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "MAX_CHARS", 100)
    held = StatementCache()
    held.keep("none", "counts nothing")
    held.keep("short", "kept", chars=30)
    held.keep("longer", "kept", chars=60)
    assert all(is_kept(held, key) for key in ("none", "short", "longer"))
    held.keep("longer", "again", chars=70)  # counted once
    assert all(is_kept(held, key) for key in ("none", "short", "longer"))
    held.keep("one more", "kept", chars=1)
    assert [is_kept(held, key) for key in ("short", "longer", "one more")] == [
        False,
        True,
        True,
    ]
    held.keep("too long", "the newest stays", chars=1_000)
    assert [is_kept(held, key) for key in ("longer", "one more", "too long")] == [
        False,
        False,
        True,
    ]
    held.keep("short", "kept", chars=30)
    assert [is_kept(held, key) for key in ("too long", "short")] == [False, True]

"""What is kept of statements is bounded by their number and by their length."""

from __future__ import annotations

import pytest

from proxy.engine import statement_cache
from proxy.engine.statement_cache import StatementCache


def is_cached(cache: StatementCache, key: str) -> bool:
    return cache.cached(key, str) is not None


def test_the_least_recently_used_is_forgotten() -> None:
    value = StatementCache(2)
    for key in ("a", "b", "a", "c"):
        assert value.get(key, lambda key=key: key.upper()) == key.upper()  # type: ignore[misc]
    assert [is_cached(value, key) for key in "abc"] == [True, False, True]


def test_long_statements_make_room_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_cache, "MAX_CHARS", 100)
    value = StatementCache()
    value.keep("none", "counts nothing")
    value.keep("short", "kept", chars=30)
    value.keep("longer", "kept", chars=60)
    assert all(is_cached(value, key) for key in ("none", "short", "longer"))
    value.keep("longer", "again", chars=70)  # counted once
    assert all(is_cached(value, key) for key in ("none", "short", "longer"))
    value.keep("one more", "kept", chars=1)
    assert [is_cached(value, key) for key in ("short", "longer", "one more")] == [
        False,
        True,
        True,
    ]
    value.keep("too long", "the newest stays", chars=1_000)
    assert [is_cached(value, key) for key in ("longer", "one more", "too long")] == [
        False,
        False,
        True,
    ]
    value.keep("short", "kept", chars=30)
    assert [is_cached(value, key) for key in ("too long", "short")] == [False, True]

import threading
from pathlib import Path

import pytest

from connectors import failpoints


def test_a_point_that_is_not_named_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failpoints.reach("after_stage")
    monkeypatch.setenv("THERMOCLINE_FAILPOINT", "after_publish")
    monkeypatch.setenv("THERMOCLINE_FAILPOINT_FILE", str(tmp_path / "hit"))
    failpoints.reach("after_stage")
    assert not (tmp_path / "hit").exists()


def test_a_barrier_shows_that_it_was_reached_and_waits_for_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hit = tmp_path / "hit"
    monkeypatch.setenv("THERMOCLINE_FAILPOINT", "before_publish:barrier")
    monkeypatch.setenv("THERMOCLINE_FAILPOINT_FILE", str(hit))
    waiting = threading.Thread(target=failpoints.reach, args=("before_publish",), daemon=True)
    waiting.start()
    for _ in range(500):
        if hit.exists():
            break
        waiting.join(0.01)
    assert hit.exists()
    assert waiting.is_alive()
    (tmp_path / "hit.release").touch()
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_point_can_be_armed_while_the_process_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hit, armed = tmp_path / "hit", tmp_path / "hit.armed"
    monkeypatch.setenv("THERMOCLINE_FAILPOINT", "armed")
    monkeypatch.setenv("THERMOCLINE_FAILPOINT_FILE", str(hit))
    failpoints.reach("after_stage")
    armed.write_text("after_stage#1")
    failpoints.reach("before_publish")
    assert not hit.exists()
    waiting = threading.Thread(target=failpoints.reach, args=("after_stage",), daemon=True)
    waiting.start()
    for _ in range(500):
        if hit.exists():
            break
        waiting.join(0.01)
    assert hit.exists()
    assert waiting.is_alive()
    # Armed anew, for the next to come: who waits since before goes on.
    armed.write_text("after_stage#2")
    waiting.join(5)
    assert not waiting.is_alive()

"""What a user who means harm sends, by generators: it is refused or answered in its time, and harms no other user.

``make soak`` has each family of attacks go on for its part of an hour (``THERMOCLINE_ATTACK_S``), with a quiet user's
latency beside what it was idle just before. Attackers run at the lowest priority: they have machines of their own.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from tests.protocol.attacks.attacker import Attacker, Tally
from tests.protocol.attacks.families import FAMILIES
from tests.protocol.siege import (
    ATTACKERS,
    RESTART_S,
    SOON_S,
    STATEMENTS,
    Attacks,
    Phase,
    Siege,
)

HOUR_S = 3_600.0
SECONDS = float(os.environ.get("THERMOCLINE_ATTACK_S", HOUR_S))
SEED = int(os.environ.get("THERMOCLINE_SEED", int(time.time()) % 100_000))
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "attacks"
MAX_RATIO = 5.0
#: Beyond the longest time that anything of a server's takes by default (``reader_idle_s``, ``queue_wait_s``,
#: ``statement_timeout_s``): what ends by this only was ended by nothing.
DEADLINE_S = 700.0
#: In `make test` the defaults would take all of a machine that others work on, too. The soak has the defaults.
MEMORY = f"memory_limit_bytes = {2 << 30}\nmax_process_bytes = {4 << 30}\n"


def besieged(folder: Path) -> closing[Siege]:
    return closing(Siege(folder, f"statement_timeout_s = 1.0\nqueue_wait_s = 2.0\n{MEMORY}"))


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with besieged(tmp_path_factory.mktemp("siege")) as siege:
        yield siege


def test_every_family_is_refused_or_answered_and_harms_nobody(siege: Siege) -> None:
    served, said = siege.server(), len(siege.said)
    options = ["--deadline", "60", "--threads", "3", "--idle", "40", "0.2"]
    options += [word for family in list(FAMILIES)[1:] for word in ("--family", family)]
    with siege.attacked(next(iter(FAMILIES)), *options, seconds=0.5, seed=1) as attacks:
        phase = siege.measure(lambda _: attacks.is_over())
    assert siege.server() == served
    assert not phase.failures
    assert not [line for line in siege.said[said:] if "internal error" in line]
    assert len(phase.took_s) > 10
    assert set(attacks.noted[-1]) == set(FAMILIES)
    assert attacks.starts == 1, "an attacker was ended by what it sent"
    for family, fields in attacks.noted[-1].items():
        assert not fields["leaks"], (family, fields["leaks"])
        assert not fields["faults"], (family, fields["faults"])
        assert not fields["ends"].get("late"), (family, fields["samples"]["late"])
        assert sum(fields["ends"].values()) > 0, family
    assert attacks.noted[-1]["idle callers"]["ends"]["calls left idle"] > 0


def test_mistakes_beyond_a_rate_are_told_later_and_only_to_who_makes_them(
    siege: Siege,
) -> None:
    """With the settings users get: 20 a second, five seconds' worth of them at once."""
    count = 140
    users = ("quiet", list(ATTACKERS.values())[-1])
    quiet, hostile = (
        Attacker(siege.port, user, siege.passwords[user], Tally(), DEADLINE_S) for user in users
    )
    with closing(hostile), closing(quiet):
        began_s = time.monotonic()
        for _ in range(count):
            _refusal_s(hostile)
        took_s = time.monotonic() - began_s
        assert _refusal_s(quiet) < SOON_S
    assert took_s >= (count - 1) / 20 - 5


def _refusal_s(attacker: Attacker) -> float:
    began_s = time.monotonic()
    with pytest.raises(pa.ArrowKeyError, match="nobody"):
        attacker.ask("SELECT * FROM nobody")
    return time.monotonic() - began_s


def test_what_is_looked_for_would_be_found(tmp_path: Path) -> None:
    """The controls: a text of another user's that arrives, and a process that ends under the quiet user."""
    tally = Tally()
    with besieged(tmp_path) as siege:
        attacker = Attacker(siege.port, "quiet", siege.passwords["quiet"], tally, 60.0)
        attacker.attempt("names", lambda: attacker.ask("SELECT name FROM flows LIMIT 1"))
        attacker.close()
        phase = _kill_the_server(siege)
    assert tally.leaks, "a canary that was read was not noticed"
    assert len(phase.ends) == 1
    assert phase.back_s[0] < SOON_S
    assert phase.lost
    assert not phase.refusals
    assert all(_says_again(text) for text in phase.lost), phase.lost


def _kill_the_server(siege: Siege) -> Phase:
    """Let the quiet user meet an end of the process, and the next one."""
    process = siege.server()
    assert process is not None

    def is_over(phase: Phase) -> bool:
        if len(phase.took_s) == 5 and not phase.ends and process.is_running():
            process.kill()
        return bool(phase.ends) and phase.back_s[0] != float("inf")

    return siege.measure(is_over)


@pytest.mark.soak
def test_a_quiet_user_is_answered_during_every_attack(tmp_path: Path) -> None:
    load, began = os.getloadavg()[0], time.time()
    rows, wrong = {}, []
    with closing(Siege(tmp_path)) as siege:
        siege.measure(
            lambda phase: len(phase.took_s) >= 200
        )  # what is new once is not measured
        for family in _chosen():
            rows[family], problems = _besiege(siege, family)
            wrong += problems
            print(_line(family, rows[family]), flush=True)
        end = _kill_the_server(siege)
        back_s = [round(back, 2) for back in end.back_s]
        print(f"process killed: answers again after {back_s} s, lost: {end.lost}", flush=True)
        wrong += [f"killed: {problem}" for problem in _problems_of_ends(end)]
    result = {
        "seconds": SECONDS,
        "seed": SEED,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "load_before": load,
        "cores": psutil.cpu_count(),
        "families": rows,
        "killed": {"back_s": back_s, "lost": end.lost, "refusals": end.refusals},
        "wrong": wrong,
    }
    if list(rows) == list(FAMILIES):
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"seed-{SEED}.json").write_text(json.dumps(result, indent=1) + "\n")
    assert not wrong, "\n".join(wrong)


def _chosen() -> list[str]:
    """All families, or those whose name has ``THERMOCLINE_ATTACK``."""
    return [family for family in FAMILIES if os.environ.get("THERMOCLINE_ATTACK", "") in family]


def _besiege(siege: Siege, family: str) -> tuple[dict[str, Any], list[str]]:
    part_s = SECONDS / len(FAMILIES)
    siege.recover()
    idle_until = time.monotonic() + part_s / 2
    idle = siege.measure(
        lambda phase: len(phase.took_s) >= STATEMENTS or time.monotonic() > idle_until
    )
    until = time.monotonic() + part_s - (time.monotonic() - idle_until + part_s / 2)
    said = len(siege.said)
    with siege.attacked(
        family, "--deadline", str(DEADLINE_S), seconds=2 * part_s, seed=SEED
    ) as attacks:
        phase = siege.measure(lambda _: time.monotonic() > until and not attacks.is_over())
    # An end in the last moments is part of it: the next process has to answer.
    if phase.ends and phase.back_s[-1] == float("inf"):
        _await_answer(siege, phase)
    fields = _together(attacks)
    row = {
        "user": ATTACKERS[family],
        "idle": _figures(idle),
        "attacked": _figures(phase),
        "ratio": round(phase.p99_ms / idle.p99_ms, 2),
        "refusals": phase.refusals[:20],
        "lost": dict(Counter(phase.lost).most_common(20)),
        "process_ends": len(phase.ends),
        "back_s": [round(back, 2) for back in phase.back_s],
        "why": [_placed(line) for line in siege.said[said:] if "server" in line][:20],
        "attacks": fields,
    }
    faults = [_placed(line) for line in siege.said[said:] if "internal error" in line]
    fields["faults"] += faults
    return row, [f"{family}: {problem}" for problem in _problems(idle, phase, fields)]


def _placed(line: str) -> str:
    """A line of the server's without this machine's own paths."""
    return line.strip().replace(f"{ROOT}/", "")


def _await_answer(siege: Siege, phase: Phase) -> None:
    later = siege.measure(lambda value: bool(value.took_s))
    phase.answers += later.answers
    phase.failures += later.failures


def _together(attacks: Attacks) -> dict[str, Any]:
    """What the processes of one family noted."""
    noted = [fields for each in attacks.noted for fields in each.values()]
    ends: Counter[str] = Counter()
    for fields in noted:
        ends.update(fields["ends"])
    longest: dict[str, Any] = max(
        noted, key=lambda fields: fields["longest_s"], default={"longest_s": 0, "longest": ""}
    )
    return {
        "ends": dict(ends),
        "leaks": [leak for fields in noted for leak in fields["leaks"]],
        "faults": [fault for fields in noted for fault in fields["faults"]],
        "longest_s": round(longest["longest_s"], 1),
        "longest": longest["longest"],
        "samples": {
            how: text
            for fields in noted
            for how, text in fields["samples"].items()
            if how not in ("answered", "ArrowInvalid")
        },
        "processes": attacks.starts,
    }


def _figures(phase: Phase) -> dict[str, Any]:
    return {
        "statements": len(phase.took_s),
        "p50_ms": round(phase.p50_ms, 1),
        "p99_ms": round(phase.p99_ms, 1),
        "longest_ms": round(1e3 * max(phase.took_s), 1),
        "load": [round(phase.load_before, 1), round(phase.load_after, 1)],
        "peak_rss_mb": phase.peak_rss >> 20,
    }


def _problems(idle: Phase, phase: Phase, fields: dict[str, Any]) -> Iterator[str]:
    ratio = phase.p99_ms / idle.p99_ms
    if ratio > MAX_RATIO:
        yield (
            f"p99 {phase.p99_ms:.0f} ms is {ratio:.1f} times the {idle.p99_ms:.0f} ms idle (load {phase.load_before:.1f} "
            f"before, {phase.load_after:.1f} after)"
        )
    if SECONDS >= HOUR_S and len(phase.took_s) < STATEMENTS:
        yield f"only {len(phase.took_s)} statements were answered"
    yield from _problems_of_ends(phase)
    for what in ("leaks", "faults"):
        if fields[what]:
            yield f"{what}: {fields[what][:3]}"
    if fields["ends"].get("late"):
        yield f"{fields['ends']['late']} calls were ended by nothing"


def _problems_of_ends(phase: Phase) -> Iterator[str]:
    if phase.refusals:
        yield f"refused while no process ended: {phase.refusals[:3]}"
    if any(back > RESTART_S for back in phase.back_s):
        yield f"answered again after {phase.back_s} s"
    if silent := [text for text in phase.lost if not _says_again(text)]:
        yield f"a lost statement does not say that it may be tried again: {silent[:3]}"


def _says_again(text: str) -> bool:
    """UNAVAILABLE is what a client may try again: gRPC says it of a connection that is gone, the server in a sentence."""
    return (
        text.startswith(("UNAVAILABLE", "IO: [FlightSQL]"))
        or "Retry" in text
        or "nauthenticated" in text
    )


def _line(family: str, row: dict[str, Any]) -> str:
    idle, attacked = row["idle"], row["attacked"]
    return (
        f"{family}: p50 {idle['p50_ms']} -> {attacked['p50_ms']} ms, p99 {idle['p99_ms']} -> {attacked['p99_ms']} ms, "
        f"ratio {row['ratio']}, {attacked['statements']} statements, refused {len(row['refusals'])}, process ends "
        f"{row['process_ends']} (back after {row['back_s']} s), load {attacked['load']}, peak {attacked['peak_rss_mb']} MB, "
        f"attacks {row['attacks']['ends']}"
    )

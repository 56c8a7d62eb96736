"""A process that attacks a server by one family for a while: ``python -m tests.protocol.attacks``.

What became of it is written every second, for it may be ended at any time, by its own lies too.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import threading
import time
from pathlib import Path

from tests.protocol.attacks.attacker import Attacker, Tally
from tests.protocol.attacks.families import FAMILIES, idle_callers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("notes", type=Path)
    parser.add_argument("--family", action="append", choices=FAMILIES, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start", type=int, default=0, help="how many processes there were before"
    )
    parser.add_argument("--seconds", type=float, required=True, help="for each family")
    parser.add_argument("--deadline", type=float, required=True, help="of one call")
    parser.add_argument("--threads", type=int, help="instead of as many as the family has")
    parser.add_argument(
        "--idle", type=float, nargs=2, help="how many calls are left idle, and for how long"
    )
    request = parser.parse_args()
    # Who attacks has a machine of its own, and gives this one's processors to those who are attacked.
    os.nice(19)
    tallies: dict[str, Tally] = {}
    for family in request.family:
        tallies[family] = Tally()
        _attack(request, family, tallies)
    _write(request.notes, tallies)
    os._exit(0)  # calls that nobody ends are left where they are


def _attack(options: argparse.Namespace, family: str, tallies: dict[str, Tally]) -> None:
    tally, until = tallies[family], time.monotonic() + options.seconds
    act, threads = FAMILIES[family]
    if act is idle_callers and options.idle:
        act = functools.partial(act, many=int(options.idle[0]), idle_s=options.idle[1])

    def work(number: int) -> None:
        attacker = Attacker(
            options.port, options.user, options.password, tally, options.deadline
        )
        seed = options.seed * 1_000_003 + options.start * 100_003 + number * 1_009
        # Once at least, however late it began.
        while True:
            act(attacker, random.Random(seed))
            seed += 1
            if time.monotonic() >= until:
                return

    workers = [
        threading.Thread(target=work, args=(number,), daemon=True)
        for number in range(min(threads, options.threads or threads))
    ]
    for worker in workers:
        worker.start()
    while time.monotonic() < until and any(worker.is_alive() for worker in workers):
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
        _write(options.notes, tallies)
    if options.threads:  # a few: what they are at is part of it
        for worker in workers:
            worker.join(options.deadline)


def _write(notes: Path, tallies: dict[str, Tally]) -> None:
    text = json.dumps(
        {
            family: {
                "ends": dict(tally.ends),
                "leaks": tally.leaks,
                "faults": tally.faults,
                "samples": dict(tally.samples),
                "longest_s": tally.longest_s,
                "longest": tally.longest,
            }
            for family, tally in tallies.items()
        }
    )
    beside = notes.with_suffix(".new")
    beside.write_text(text)
    beside.replace(notes)


if __name__ == "__main__":
    main()

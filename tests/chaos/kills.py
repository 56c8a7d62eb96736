"""Who is killed, where and when: a list made from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from connectors.failpoints import Failpoint

Victim = Literal["driver", "jvm", "executor", "worker", "broker", "catalog", "store"]
#: Drivers are what tiering is about; the rest is their weather. A kill of driver or JVM costs a start of Spark.
_WEIGHTS: dict[Victim, int] = {
    "driver": 4,
    "jvm": 1,
    "executor": 2,
    "worker": 2,
    "broker": 2,
    "catalog": 2,
    "store": 2,
}
#: At a random moment as often as at any one failpoint.
_POINTS: tuple[Failpoint | None, ...] = (*get_args(Failpoint), None)
#: What runs in executors knows of no other point.
_POINTS_OF_EXECUTORS: tuple[Failpoint | None, ...] = ("after_fetch", None)


@dataclass(frozen=True, slots=True)
class Kill:
    """``point``: the victim is struck while the tierer is held there. None: ``wait_s`` seconds after the kill before,
    or after the next publish if ``at_work``.

    ``outage_s``: how long broker, catalog or store are away.
    """

    victim: Victim
    point: Failpoint | None
    at_work: bool
    wait_s: float
    outage_s: float


def victims(*, executors: bool, store: bool = False) -> tuple[Victim, ...]:
    """Whom there is to kill. In one process (``local[n]``) the driver is its own executor; a folder is always there."""
    value: tuple[Victim, ...] = get_args(Victim)
    missing = {"executor": executors, "store": store}
    return tuple(victim for victim in value if missing.get(victim, True))


def schedule(seed: int, count: int, among: Sequence[Victim]) -> list[Kill]:
    """The first are one of each victim, so that a short run meets all of them."""
    chance = random.Random(seed)
    first = chance.sample(among, len(among))
    # Each victim meets all of its points, in an order of its own, before it meets one again.
    decks: dict[Victim, list[Failpoint | None]] = {victim: [] for victim in among}
    kills = []
    for number in range(count):
        victim = (
            first[number]
            if number < len(first)
            else chance.choices(among, [_WEIGHTS[victim] for victim in among])[0]
        )
        if not decks[victim]:
            decks[victim] = list(_points(victim))
            chance.shuffle(decks[victim])
        kills.append(
            Kill(
                victim,
                decks[victim].pop(),
                # Half of the random moments are of a tierer that works, half may be of one that starts.
                chance.random() < 0.5,
                chance.uniform(0.0, 2.0),
                chance.uniform(0.0, 1.0) if victim == "broker" else chance.uniform(1.0, 12.0),
            )
        )
    return kills


def _points(victim: Victim) -> tuple[Failpoint | None, ...]:
    return _POINTS_OF_EXECUTORS if victim in ("executor", "worker") else _POINTS

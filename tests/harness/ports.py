"""Ports for servers that tests stop and start again."""

from __future__ import annotations

import random

from thermocline.demo.broker import PORTS, free_ports


def lasting_port() -> int:
    """A free port that no outgoing connection of anybody takes while its server is down."""
    return next(free_ports(random.sample(PORTS, 100)))

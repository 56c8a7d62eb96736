"""Ports for servers that tests stop and start again."""

from __future__ import annotations

import random

from thermocline.demo.broker import PORTS, free_ports

_ports_in_use: set[int] = set()


def lasting_port() -> int:
    """A free port that no outgoing connection of anybody takes while its server is down, and none that was given before."""
    port = next(
        free_ports(port for port in random.sample(PORTS, 100) if port not in _ports_in_use)
    )
    _ports_in_use.add(port)
    return port

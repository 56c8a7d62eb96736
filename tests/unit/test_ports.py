"""Ports that another process still has are waited for, and no longer than that."""

from __future__ import annotations

import socket
import threading
import time

from proxy.process.sockets import await_free


def listening() -> tuple[socket.socket, tuple[str, int]]:
    other = socket.create_server(("127.0.0.1", 0))
    return other, other.getsockname()


def test_each_address_is_waited_for_and_named() -> None:
    one, first = listening()
    other, second = listening()
    said: list[str] = []

    def report(text: str) -> None:
        said.append(text)
        threading.Timer(0.3, one.close if len(said) == 1 else other.close).start()

    await_free({"a.port": first, "b.port": second}, 60.0, report, lambda: False)
    waiting = "is in use; waiting 60 s at most for a server that ends"
    assert said == [
        f"a.port: 127.0.0.1:{first[1]} {waiting}",
        f"b.port: 127.0.0.1:{second[1]} {waiting}",
    ]
    await_free({"a.port": first, "b.port": second}, 60.0, report, lambda: False)
    assert len(said) == 2


def test_a_port_of_another_program_is_not_waited_for_without_end() -> None:
    other, address = listening()
    with other:
        await_free({"a.port": address}, 0.2, lambda _: None, lambda: False)
        began_s = time.monotonic()
        await_free({"a.port": address}, 60.0, lambda _: None, lambda: True)
        assert time.monotonic() - began_s < 30


def test_an_address_that_cannot_be_listened_on_is_not_waited_for() -> None:
    said: list[str] = []
    await_free({"a.port": ("192.0.2.1", 31337)}, 60.0, said.append, lambda: False)
    assert said == []

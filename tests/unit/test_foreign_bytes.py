"""Every place that decodes what a caller sent: whatever comes, it is refused by name.

What guards each is in docs/security.md, "What is decoded". Arrow's format has tests of its own (``tests.protocol.test_uploads``,
``test_ingestion``), and so have watermarks and JSON records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from planner.errors import BadTicket, FederationError, RequestError
from planner.seam.freshness import parse_freshness, parse_wait_for
from planner.seam.incremental import parse_after
from planner.seam.time_travel import parse_cut
from planner.ticket import MAX_TICKET_BYTES, Ticket
from proxy.access.authentication.callers import Access, Caller, FixedUsers, identify
from proxy.flightsql import actions, messages
from proxy.flightsql import middleware as entry
from proxy.flightsql.messages import Malformed
from proxy.flightsql.state.client_session import SETTINGS, with_settings
from proxy.flightsql.state.tokens import SessionTokens
from proxy.query.tickets import TicketCipher, Tickets, parameter_values
from proxy.session import Session
from tests.harness.lying import LIES, Lie, lying_stream

SECRET = b"s" * 32
TICKETS = Tickets([SECRET])
TOKENS = SessionTokens(SECRET, lambda: 0.0)
ACCESS = Access(FixedUsers({"ada": "secret"}).verify)
TICKET = Ticket(
    sql="SELECT 1",
    tables=(),
    user="ada",
    time_zone="UTC",
    search_path=("lake", "net"),
    statement_time_us=0,
    expires_at_us=1,
)


def _options(body: bytes) -> None:
    parsed = messages.parse(messages.SetSessionOptionsRequest, body)
    for name in parsed.session_options:
        if name in SETTINGS:
            with_settings(Session("1"), [(name, actions._option(parsed.session_options[name]))])


def _some_options() -> bytes:
    request = messages.SetSessionOptionsRequest()
    request.session_options["time_zone"].string_value = "UTC"
    request.session_options["max_message_bytes"].double_value = float("inf")
    request.session_options["freshness"].int64_value = -1
    request.session_options["cut"].string_list_value.values.append("x")
    request.session_options["wait_for"].string_value = "tc-cut:"
    return bytes(request.SerializeToString())


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("latin-1"))


#: What decodes, by what it is; and something of the kind.
DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "command or ticket": (
        messages.unpack,
        messages.pack(messages.WRAPPED["CommandGetTables"](table_types=["TABLE"])),
    ),
    "action body": (
        lambda body: messages.parse(messages.CancelFlightInfoRequest, body),
        messages.RenewFlightEndpointRequest(
            endpoint={"ticket": {"ticket": b"1"}}
        ).SerializeToString(),
    ),
    "session options": (_options, _some_options()),
    "statement ticket": (
        lambda ticket: TICKETS.opened(ticket, user="ada", now_us=0),
        TICKETS.sealed(TICKET, is_encrypted=False),
    ),
    "veiled ticket": (
        lambda ticket: TICKETS.opened(ticket, user="ada", now_us=0),
        TICKETS.sealed(TICKET, is_encrypted=True),
    ),
    "authorization": (
        _text(lambda header: identify(header, ACCESS)),
        b"Basic YWRhOnNlY3JldA==",
    ),
    "session token": (_text(TOKENS.read), TOKENS.mint(Caller("ada"), {}).encode()),
    "cookie": (
        _text(lambda line: entry._cookie({"cookie": [line]})),
        b'a=b; thermocline_session="x"',
    ),
    "freshness": (_text(parse_freshness), b"10 s"),
    "wait_for": (_text(parse_wait_for), b"tca1:eJw="),
    "cut": (_text(parse_cut), b"tcc1:eJw="),
    "after": (_text(parse_after), b"tca1:eJw="),
}


def _sent(rng: random.Random, sample: bytes) -> Iterator[bytes]:
    yield sample
    yield b""
    yield b"[" * 5_000
    for prefix in (b"", b"tc\1", b"tv1", b"Basic ", b"Bearer ", b"tc1."):
        yield prefix + rng.randbytes(rng.randrange(100))
    for _ in range(300):
        items = bytearray(sample)
        for _ in range(rng.choice((1, 1, 2, 8))):
            items[rng.randrange(len(items))] = rng.choice((0, 1, 10, 127, 128, 255, 48, 91))
        yield bytes(items[: rng.choice((len(items), rng.randrange(len(items))))])


@pytest.mark.parametrize("of", DECODERS)
def test_whatever_comes_is_read_or_refused_by_name(of: str) -> None:
    decode, sample = DECODERS[of]
    for content in _sent(random.Random(of), sample):
        with suppress(FederationError):
            decode(content)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_message_bytes", "9" * 5_000),
        ("max_message_bytes", float("nan")),
        ("time_zone", ("UTC",)),
        ("freshness", "9" * 400 + " s"),
        ("cut", "[" * 5_000),
        ("wait_for", "tcc1:" + "A" * 10_000),
    ],
)
def test_an_odd_value_of_an_option_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError):
        with_settings(Session("1"), [(name, value)])


def test_what_is_larger_than_anything_of_its_kind_is_not_read() -> None:
    with pytest.raises(Malformed, match="is the limit"):
        messages.unpack(bytes(messages.MAX_BYTES + 1))
    # By its size alone: of a ticket that is sealed as it should be.
    veiled = TicketCipher([SECRET]).encrypt(bytes(MAX_TICKET_BYTES + 1))
    with pytest.raises(BadTicket):
        TicketCipher([SECRET]).decrypt(veiled)


@pytest.mark.parametrize("lie", [LIES[4], LIES[-1]], ids=str)
def test_parameters_that_lie_in_a_ticket_of_another_replica_are_refused(lie: Lie) -> None:
    with pytest.raises(BadTicket, match="not valid"):
        parameter_values(lying_stream(lie))

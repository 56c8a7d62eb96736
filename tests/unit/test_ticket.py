import dataclasses
import hashlib
import hmac
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import BadTicket, TicketExpired
from planner.names import Side, TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.reading.filters import EVERY_FILE, NO_FILE, POSITIONS, FileSpan
from planner.reading.plan import ReadShare
from planner.seam.cut import Increment, cold_cut, plan_cut
from planner.seam.time_travel import cut_until
from planner.statement.references import AtClause
from planner.ticket import MAX_TICKET_BYTES, Ticket, TicketTable, padded, seal, unseal
from tests.harness.builders import BINDING, bounds, pin, vector

SECRET = b"s" * 32
names = st.builds(TableName, st.text(), st.lists(st.text(), max_size=3).map(tuple), st.text())
offsets = st.integers(0, 2**63 - 1)
ranges = st.tuples(st.integers(0, 9), offsets, offsets).map(
    lambda item: OffsetRange(item[0], min(item[1:]), max(item[1:]))
)
tables = st.builds(
    TicketTable,
    table=names,
    table_uuid=st.text(),
    metadata_file=st.text(),
    snapshot_id=st.none() | offsets,
    schema_id=st.integers(0, 99),
    topic=st.none() | st.text(),
    topic_id=st.none() | st.text(),
    ranges=st.lists(ranges, max_size=3).map(tuple),
    increment=st.none()
    | st.builds(
        Increment,
        after=st.dictionaries(st.integers(0, 99), offsets, max_size=3).map(
            lambda stops: OffsetVector.of(stops.items())
        ),
        since_us=st.none() | offsets,
    ),
    decoding=st.none() | st.text(),
)
tickets = st.builds(
    Ticket,
    sql=st.text(),
    tables=st.lists(tables, max_size=3).map(tuple),
    user=st.text(),
    time_zone=st.text(),
    search_path=st.tuples(st.none() | st.text(), st.none() | st.text()),
    statement_time_us=offsets,
    expires_at_us=st.integers(1, 2**62),
    parameters=st.none() | st.binary(),
    answer=st.none() | st.binary(),
    cut=st.text(),
    share=st.none()
    | st.builds(
        ReadShare,
        files=st.tuples(st.integers(0, POSITIONS), st.integers(0, POSITIONS)).map(
            lambda ends: FileSpan(min(ends), max(ends))
        ),
        ranges=st.lists(ranges, max_size=3).map(tuple),
        split=st.text(),
    ),
    renewable_until_us=st.none() | offsets,
)


def ticket(**changes: object) -> Ticket:
    cut = plan_cut(pin(10, 20), bounds((0, 15), (5, 20)))
    value = Ticket(
        sql="SELECT 1",
        tables=(TicketTable.of(cut), TicketTable.of(plan_cut(pin(binding=None), None))),
        user="ada",
        time_zone="UTC",
        search_path=("lake", "net"),
        statement_time_us=5,
        expires_at_us=100,
    )
    return dataclasses.replace(value, **changes)  # type: ignore[arg-type]


def test_a_server_that_knows_no_parts_takes_no_ticket_of_one() -> None:
    """It would answer with the whole, as often as there are parts."""
    whole, part = (
        seal(ticket(share=each), SECRET) for each in (None, ReadShare(EVERY_FILE, ()))
    )
    assert (whole[2], part[2]) == (3, 4)
    for head, body in ((whole, part), (part, whole)):
        with pytest.raises(BadTicket):
            unseal(head[:3] + body[3:], [SECRET], user="ada", now_us=0)


@settings(max_examples=30)
@given(tickets)
def test_a_ticket_reads_back_equal(ticket: Ticket) -> None:
    assert unseal(seal(ticket, SECRET), [SECRET], user=ticket.user, now_us=0) == ticket


def test_a_ticket_holds_the_cut_and_no_path() -> None:
    sealed = seal(ticket(), SECRET)
    bound, unbound = unseal(sealed, [SECRET], user="ada", now_us=0).tables
    assert bound.ranges == (OffsetRange(0, 10, 15),)
    assert bound.metadata_file == "00001-a.metadata.json"
    assert (unbound.topic, unbound.ranges) == (None, ())
    assert b"warehouse" not in sealed


def test_any_replica_that_shares_a_secret_redeems_it() -> None:
    sealed = seal(ticket(), SECRET)
    assert unseal(sealed, [b"new", SECRET], user="ada", now_us=0) == ticket()
    with pytest.raises(BadTicket, match="signature is not this server's"):
        unseal(sealed, [b"new"], user="ada", now_us=0)


@pytest.mark.parametrize("position", range(0, 400, 7))
def test_an_altered_ticket_is_refused(position: int) -> None:
    sealed = bytearray(seal(ticket(), SECRET))
    sealed[position % len(sealed)] ^= 1
    with pytest.raises(BadTicket):
        unseal(bytes(sealed), [SECRET], user="ada", now_us=0)


@pytest.mark.parametrize(
    "data",
    [b"", b"tc", b"tc\x03", b"SELECT 1", b"x" * 100, b"tc\x03" + b"x" * MAX_TICKET_BYTES],
)
def test_bytes_that_are_no_ticket_are_refused(data: bytes) -> None:
    with pytest.raises(BadTicket):
        unseal(data, [SECRET], user="ada", now_us=0)


def test_another_version_is_named() -> None:
    sealed = seal(ticket(), SECRET)
    with pytest.raises(BadTicket, match="has version 5 and this server reads versions 3 and 4"):
        unseal(b"tc\x05" + sealed[3:], [SECRET], user="ada", now_us=0)


def test_another_user_cannot_redeem_it() -> None:
    with pytest.raises(BadTicket, match="belongs to another user"):
        unseal(seal(ticket(), SECRET), [SECRET], user="eve", now_us=0)


def test_it_expires_at_its_time_not_after() -> None:
    sealed = seal(ticket(), SECRET)
    assert unseal(sealed, [SECRET], user="ada", now_us=99)
    with pytest.raises(TicketExpired, match="plan the statement again"):
        unseal(sealed, [SECRET], user="ada", now_us=100)


def test_the_tag_covers_version_and_body() -> None:
    sealed = seal(ticket(), SECRET)
    assert sealed[3:35] == hmac.new(SECRET, sealed[:3] + sealed[35:], hashlib.sha256).digest()


def test_a_ticket_builds_its_cut_again_from_its_pin_and_no_other() -> None:
    bound, unbound = pin(10, 20), pin(binding=None)
    mark = bound.watermark
    assert mark is not None
    cut, plain = plan_cut(bound, bounds((0, 15), (5, 20))), plan_cut(unbound, None)
    assert TicketTable.of(cut).cut(bound) == cut
    assert TicketTable.of(plain).cut(unbound) == plain
    followed = dataclasses.replace(cut, increment=Increment(OffsetVector.of([(0, 12)]), 7))
    assert TicketTable.of(followed).cut(bound) == followed
    for other in (
        dataclasses.replace(bound, table_uuid="other"),
        dataclasses.replace(bound, snapshot_id=2),
        dataclasses.replace(bound, schema=dataclasses.replace(bound.schema, schema_id=9)),
        pin(11, 20),
        unbound,
        dataclasses.replace(bound, watermark=dataclasses.replace(mark, topic_id="other")),
        replace(bound, binding=replace(BINDING, on_error="skip")),
    ):
        with pytest.raises(ValueError, match=r"."):
            TicketTable.of(cut).cut(other)


def test_a_ticket_without_a_tail_or_of_an_older_server_asks_for_no_decoding() -> None:
    bound = pin(10, 20)
    other = replace(bound, binding=replace(BINDING, on_error="skip"))
    cut = plan_cut(bound, bounds((0, 10), (5, 20)))
    assert TicketTable.of(cut).cut(other).hot == cut.hot
    cut = plan_cut(bound, bounds((0, 15), (5, 20)))
    older = unseal(
        _older(ticket(tables=(TicketTable.of(cut),))), [SECRET], user="ada", now_us=0
    )
    (value,) = older.tables
    assert value == replace(TicketTable.of(cut), decoding=None)
    assert older.renewable_until_us is None
    assert value.cut(other).hot == cut.hot


def _older(ticket: Ticket) -> bytes:
    """Seal without what servers of version 0.1 did not write."""
    sealed = seal(ticket, SECRET)
    body = json.loads(sealed[35:])
    for table in body["tables"]:
        del table["decoding"]
    del body["last"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return sealed[:3] + tag(sealed[:3] + text) + text


def tag(text: bytes) -> bytes:
    return hmac.new(SECRET, text, hashlib.sha256).digest()


def test_a_ticket_for_cold_rows_alone_needs_no_log() -> None:
    bound = pin(10, 20)
    assert TicketTable.of(cold_cut(bound)).cut(bound) == cold_cut(bound)


def test_a_cut_of_the_past_comes_back_with_its_end_and_its_place() -> None:
    bound = pin(10, 20)
    past = cut_until(bound, vector(5, 25), bounds((0, 15), (5, 30)))
    at = AtClause("TIMESTAMP", '{"class":"CONSTANT"}')
    value = TicketTable.of(past, at)
    assert value.cut(bound) == past
    assert value.key == (bound.table, at)
    sealed = seal(replace(ticket(), tables=(value,), side=Side.TAIL), SECRET)
    again = unseal(sealed, [SECRET], user="ada", now_us=0)
    assert again.tables == (value,)
    assert again.side is Side.TAIL


@given(
    tickets, st.lists(st.lists(ranges, max_size=3).map(tuple), max_size=9), st.integers(1, 99)
)
def test_no_ticket_of_a_part_shows_that_it_has_nothing_to_read(
    ticket: Ticket, shares: list[tuple[OffsetRange, ...]], empty: int
) -> None:
    parts = [ReadShare(EVERY_FILE, share) for share in shares] + [
        ReadShare(NO_FILE, ())
    ] * empty
    every = padded([replace(ticket, share=share) for share in parts])
    sealed = [seal(each, SECRET) for each in every]
    assert len({len(data) for data in sealed}) == 1
    assert len(set(sealed)) == len(parts)
    for data, share in zip(sealed, parts, strict=True):
        assert unseal(data, [SECRET], user=ticket.user, now_us=0).share == share

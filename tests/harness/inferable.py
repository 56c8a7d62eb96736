"""Records of any shape as producers write them, and the options with which a table is created over them."""

from __future__ import annotations

import json
import shlex
from typing import cast

from hypothesis import strategies as st

from connectors.decoding.json.renames import read_renames
from connectors.decoding.json.wishes import Wishes
from planner.names import METADATA_COLUMNS
from planner.schema import EpochUnit
from planner.sql_text import read_path, split_name
from planner.type_text import parse_type

NAMES = (
    "a",
    "b",
    "A",
    "A_2",
    "id.orig_h",
    "É",
    "user-agent",
    "a b",
    "a:b",
    "a=b",
    'a"b.c',
    "😀",
    "$oid",
    "key",
    "element",
    "kafka_key",
    "",
)

_NUMBERS = st.one_of(
    st.integers(-10, 10).map(str),
    st.integers(-(2**63) - 2, 2**64 + 1).map(str),
    st.integers(-(10**39), 10**39).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1767225600000", "1767225600.309996", "1e400", "-0", "1.50", "1E3"]),
)
_STRINGS = st.one_of(
    st.text("aé\u0000", max_size=3).map(lambda text: text.replace("\u0000", "\\u0000")),
    st.sampled_from(["2026-01-05", "2026-01-05T10:00:00Z", "2026-01-05T10:00:00", "\\ud800"]),
).map(lambda text: f'"{text}"')
_NOTHING = st.sampled_from(["null", "{}", "[]"])


def _objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)
    return members.map(
        lambda inside: (
            "{" + ",".join(f"{json.dumps(key)}:{text}" for key, text in inside.items()) + "}"
        )
    )


VALUES: st.SearchStrategy[str] = st.recursive(
    st.one_of(st.sampled_from(["true", "false"]), _NUMBERS, _STRINGS, _NOTHING),
    lambda inner: st.one_of(
        _objects(inner), st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
    ),
    max_leaves=6,
)


@st.composite
def topics(draw: st.DrawFn) -> list[bytes]:
    """The values of a topic's records: like ones mostly, so that fields have one kind."""
    like = draw(st.lists(_objects(VALUES), min_size=1, max_size=2))
    records = draw(st.lists(st.sampled_from(like), min_size=1, max_size=4))
    return [record.encode() for record in records]


#: Options that may be refused, or not.
OPTIONS = st.lists(
    st.sampled_from(
        [
            "--json-mode lenient",
            "--epoch a=ms",
            "--epoch a.b=s",
            "--epoch a.element=ns",
            "--leave-out b",
            "--leave-out a.b",
            "--column a:string",
            "--column b:timestamptz --epoch b=us",
            "--column 'b:decimal(38,2)'",
            "--rename A=a_2",
            "--rename 'a b=B'",
            "--floor a",
        ]
    ),
    max_size=2,
    unique=True,
).map(" ".join)


#: Options that change no column of the record's value.
MORE = st.sampled_from(
    [
        "",
        "--on-error skip",
        "--on-error null",
        "--with-key --with-headers",
        "--partition-by 'day(kafka_timestamp)'",
        "--partition-by 'bucket(4, kafka_offset)' --sort-by 'kafka_timestamp desc'",
    ]
)


def wishes_of(options: str) -> Wishes:
    """Read options as the command does."""
    columns, leave_out, epochs, floors, renames = [], [], [], [], []
    words = shlex.split(options)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    for option, text in pairs:
        if option == "--leave-out":
            leave_out.append(read_path(text))
        elif option == "--column":
            path, kind = split_name(text, ":")
            assert kind is not None
            columns.append((path, parse_type(kind)))
        elif option == "--rename":
            renames.append(text)
        elif option == "--floor":
            floors.append(read_path(text))
        elif option == "--epoch":
            path, unit = split_name(text, "=")
            epochs.append((path, cast("EpochUnit", unit)))
    return Wishes(
        tuple(columns),
        tuple(leave_out),
        tuple(epochs),
        tuple(floors),
        renames=read_renames(renames),
        lenient=("--json-mode", "lenient") in pairs,
        reserved=frozenset(METADATA_COLUMNS),
    )

"""What a client may set in its session: by SetSessionOptions, by a header of its first call, or by SQL's SET.

Every value may come as text (Flight.proto asks for that); what is set is told back in its own type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from planner.errors import BadParameter
from planner.seam.freshness import parse_freshness, parse_wait_for
from planner.seam.time_travel import parse_cut
from proxy.flightsql.outgoing import HUGEINTS, MAX_MESSAGE_BYTES, PROFILES, UNITS
from proxy.session import OptionValue, Session

_LARGEST_MESSAGE_BYTES = 2**31 - 1


def _text(name: str, value: OptionValue) -> OptionValue:
    if not isinstance(value, str):
        raise BadParameter(f"The session option {name} takes a text.")
    return value


def _freshness(name: str, value: OptionValue) -> OptionValue:
    return str(parse_freshness(str(_text(name, value))))


def _wait_for(name: str, value: OptionValue) -> OptionValue:
    text = str(_text(name, value))
    parse_wait_for(text)
    return text


def _cut(name: str, value: OptionValue) -> OptionValue:
    text = str(_text(name, value))
    parse_cut(text)
    return text


def _one_of(*choices: str) -> Callable[[str, OptionValue], OptionValue]:
    def read(name: str, value: OptionValue) -> OptionValue:
        if not isinstance(value, str) or value.lower() not in choices:
            raise BadParameter(f"The session option {name} is one of {', '.join(choices)}.")
        return value.lower()

    return read


def _message_bytes(name: str, value: OptionValue) -> OptionValue:
    try:
        size = int(value) if isinstance(value, int | str) else 0
    except ValueError:
        size = 0
    if isinstance(value, bool) or not MAX_MESSAGE_BYTES <= size <= _LARGEST_MESSAGE_BYTES:
        raise BadParameter(
            f"The session option {name} is a number of bytes from {MAX_MESSAGE_BYTES} to {_LARGEST_MESSAGE_BYTES}."
        )
    return size


#: Settings the backend goes by; the others are of this layer and live in ``Session.options``.
_OF_THE_BACKEND = ("catalog", "schema", "time_zone", "freshness", "wait_for", "cut")

#: Headers that set something for their own call only, beside those of a session's first call.
OF_ONE_CALL = {
    "thermocline-freshness": "freshness",
    "thermocline-wait-for": "wait_for",
    "thermocline-cut": "cut",
}

#: In the order they take effect: a schema is looked for in the catalog set with it.
SETTINGS: Mapping[str, Callable[[str, OptionValue], OptionValue]] = {
    "catalog": _text,
    "schema": _text,
    "time_zone": _text,
    "freshness": _freshness,
    "wait_for": _wait_for,
    "cut": _cut,
    "profile": _one_of(*PROFILES),
    "hugeint": _one_of(*HUGEINTS),
    "timestamp_unit": _one_of(*UNITS),
    "max_message_bytes": _message_bytes,
}

#: Other names the same things go by: Power BI's connector sends a database, DuckDB and Postgres say TimeZone.
ALIASES = {"database": "catalog", "timezone": "time_zone", "search_path": "schema"}


#: More readers than this of one answer would be slower, and keep others waiting.
MAX_ENDPOINTS = 64


def endpoints(text: str | None) -> int:
    """Return how many endpoints the answer of a call may have.

    Raises:
        BadParameter: it is no number from 1 to ``MAX_ENDPOINTS``.
    """
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_ENDPOINTS):
        raise BadParameter(
            f"The header thermocline-max-endpoints is a number from 1 to {MAX_ENDPOINTS}."
        )
    return int(text)


def is_whole(text: str | None) -> bool:
    """Return whether a call asks for whole tables only.

    Raises:
        BadParameter: it is neither true nor false.
    """
    if text not in (None, "true", "false"):
        raise BadParameter("The header thermocline-whole is true or false.")
    return text == "true"


def with_settings(
    session: Session, changes: Iterable[tuple[str, OptionValue | None]]
) -> Session:
    """The session with settings changed, in the order of ``SETTINGS``; None sets back to the default.

    Raises:
        BadParameter: a value is not possible.
    """
    requested = dict(changes)
    for name, read in SETTINGS.items():
        if name not in requested:
            continue
        value = requested[name]
        session = _with(session, name, None if value is None else read(name, value))
    return session


def _with(session: Session, name: str, value: OptionValue | None) -> Session:
    if name == "catalog" and value != session.catalog:
        # The former catalog's schema means nothing in another one.
        session = dataclasses.replace(session, schema=None)
    if name in _OF_THE_BACKEND:
        changed: Session = dataclasses.replace(session, **{name: value})  # type: ignore[arg-type]
        return changed
    options = {key: option for key, option in session.options.items() if key != name}
    if value is not None:
        options[name] = value
    return dataclasses.replace(session, options=options)


def settings_of(session: Session) -> dict[str, OptionValue]:
    """What is set, defaults of the backend included."""
    settings = {name: getattr(session, name) for name in _OF_THE_BACKEND}
    return {name: value for name, value in settings.items() if value is not None} | dict(
        session.options
    )


def max_message_bytes(session: Session) -> int:
    value = session.options.get("max_message_bytes")
    return value if isinstance(value, int) else MAX_MESSAGE_BYTES

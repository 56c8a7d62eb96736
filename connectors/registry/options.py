"""Options of schema registries, by the names of confluent-kafka's client; looked at before anything is asked.

It loads neither that client, which takes half a second, nor Arrow: settings are checked with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from planner.errors import BadConfig

_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
#: Our own: how long an id is asked for again that the registry does not know, seconds. Ids that come late are those whose
#: schema was registered at another replica a moment before; a statement that meets one waits.
GRACE = "unknown_id_grace_s"
UNKNOWN_ID_GRACE_S = 10.0
_MAX_GRACE_S = 20.0
#: Options whose values are numbers; in settings all are texts.
NUMBERS = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms")
_SOURCE = "bearer.auth.credentials.source"
_USER_INFO = "basic.auth.user.info"
#: Where tokens come from, and what each source needs besides ``bearer.auth.logical.cluster``.
_BEARER: Mapping[str, tuple[str, ...]] = {
    "STATIC_TOKEN": ("bearer.auth.token",),
    "OAUTHBEARER": (
        "bearer.auth.client.id",
        "bearer.auth.client.secret",
        "bearer.auth.scope",
        "bearer.auth.issuer.endpoint.url",
    ),
    "OAUTHBEARER_AZURE_IMDS": (),
}
_OPTIONS = (
    *("url", "proxy", _USER_INFO, *_FILES, "ssl.key.password", *NUMBERS, _SOURCE),
    *("bearer.auth.logical.cluster", "bearer.auth.identity.pool.id"),
    *("bearer.auth.issuer.endpoint.query", *_BEARER["STATIC_TOKEN"], *_BEARER["OAUTHBEARER"]),
    GRACE,
)
#: Options of the client that have no meaning here.
_WITHOUT_EFFECT: Mapping[str, str] = {
    "cache.capacity": "each schema id is asked for once and kept",
    "cache.latest.ttl.sec": "each schema id is asked for once and kept",
    "bearer.auth.custom.provider.function": "settings hold no Python",
    "bearer.auth.custom.provider.config": "settings hold no Python",
}


def section_of(name: str) -> str:
    """Return the section of the settings that has the options of a registry; the nameless one has its own."""
    return f"schema_registries.{name}" if name else "schema_registry"


def urls(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses, in the order they are tried. They may hold a login."""
    return tuple(url.strip().rstrip("/") for url in options.get("url", "").split(","))


def checked(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options as they are.

    Raises:
        BadConfig: one is unknown, one is missing, or a value cannot be; ``key`` in its facts.
    """
    for key in options:
        if key in _WITHOUT_EFFECT:
            raise BadConfig(f"{key}: {_WITHOUT_EFFECT[key]}; remove it.", key=key)
        if key not in _OPTIONS:
            close = difflib.get_close_matches(key, _OPTIONS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_OPTIONS)}."
            raise BadConfig(f"{key}: unknown option of schema registries; {hint}", key=key)
    if not options.get("url"):
        raise BadConfig("url: it is missing; set it to the registry's URL.", key="url")
    for url in urls(options):
        _check_address("url", url, "it is no URL of a registry")
    if "proxy" in options:
        _check_address("proxy", options["proxy"], "it is no URL of a proxy")
    for key in NUMBERS:
        if key in options and not _is_number(options[key]):
            raise BadConfig(f"{key}: it is no number; write one, 0 or more.", key=key)
    if GRACE in options and not (
        _is_number(options[GRACE]) and float(options[GRACE]) <= _MAX_GRACE_S
    ):
        raise BadConfig(
            f"{GRACE}: it is no number of seconds up to {_MAX_GRACE_S:g}; write one, 0 or more.",
            key=GRACE,
        )
    for key in _FILES:
        # The client takes a folder of authorities, too.
        path = Path(options.get(key, ""))
        if key in options and not (path.is_file() or (key == _FILES[0] and path.is_dir())):
            raise BadConfig(f"{key}: there is no such file; name a file in PEM.", key=key)
    _check_login(options)
    return dict(options)


def _check_address(key: str, url: str, what: str) -> None:
    """Raises BadConfig, which does not quote it: it may hold a password."""
    try:
        parts = urlsplit(url)
        is_well = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_well = is_well and (parts.port is None or parts.port > 0)
    except ValueError:
        is_well = False
    if not is_well or any(letter.isspace() or not letter.isprintable() for letter in url):
        raise BadConfig(
            f"{key}: {what}; write http:// or https://, a host, and a port and path where there are any.",
            key=key,
        )


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < 1e9
    except ValueError:
        return False


def _check_login(options: Mapping[str, str]) -> None:
    if _USER_INFO in options:
        if ":" not in options[_USER_INFO]:
            raise BadConfig(
                f"{_USER_INFO}: it has no colon; write USER:PASSWORD.", key=_USER_INFO
            )
        if any(urlsplit(url).username is not None for url in urls(options)):
            raise BadConfig(f"{_USER_INFO}: url has a login, too; remove one.", key=_USER_INFO)
    for key in ("ssl.key.location", "ssl.key.password"):
        if key in options and "ssl.certificate.location" not in options:
            raise BadConfig(
                f"{key}: there is no certificate for it; set ssl.certificate.location.", key=key
            )
    source = options.get(_SOURCE)
    bearer = next((key for key in options if key.startswith("bearer.auth.")), None)
    if source is None:
        if bearer is not None:
            raise BadConfig(
                f"{bearer}: without {_SOURCE} it has no effect; set that to one of {', '.join(_BEARER)}.",
                key=bearer,
            )
        return
    if source not in _BEARER:
        raise BadConfig(
            f"{_SOURCE}: there is no such source of tokens; sources are {', '.join(_BEARER)}.",
            key=_SOURCE,
        )
    for key in ("bearer.auth.logical.cluster", *_BEARER[source]):
        if key not in options:
            raise BadConfig(f"{_SOURCE}: {source} needs {key}; set it.", key=_SOURCE)
    if source == "OAUTHBEARER_AZURE_IMDS" and not {
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.issuer.endpoint.query",
    } & set(options):
        raise BadConfig(
            f"{_SOURCE}: {source} needs bearer.auth.issuer.endpoint.query; set it.", key=_SOURCE
        )
    surplus = sorted(
        {key for keys in _BEARER.values() for key in keys}
        & options.keys() - {*_BEARER[source], "bearer.auth.issuer.endpoint.url"}
    )
    if surplus:
        raise BadConfig(
            f"{surplus[0]}: {_SOURCE} = {source} does not use it; remove it.", key=surplus[0]
        )

"""The public keys of an identity provider (a JWKS), kept through rotations and outages.

PyJWT's own client forgets its keys when one refresh fails (pyjwt #1162); here the last ones stay for ``keep_s``. Keys
are fetched when a token needs them, by the call that needs them; calls whose key is known do not wait for a refresh.
"""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import jwt

from planner.errors import BadConfig, Unavailable

_log = logging.getLogger(__name__)

_DISCOVERY = "/.well-known/openid-configuration"
_MAX_BYTES = 1 << 20
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
#: Nothing but HTTP: a redirect must not end at a file.
_HTTP = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.ProxyHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
):
    _HTTP.add_handler(_handler())

#: What no answer, and an answer that is not what it should be, may raise.
_NOT_KEYS = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_REFRESH_S = 300.0
#: Any caller can send tokens that name random keys.
_RETRY_S, _TIMEOUT_S = 10.0, 5.0


class Jwks:
    """Keys by their id. Thread-safe. Times in seconds.

    ``url`` is the JWKS itself; without it, ``issuer``'s OpenID configuration names it. Keys older than
    ``_REFRESH_S`` are fetched again; while that fails they are used up to ``keep_s``. An unknown key causes one
    look, not more often than every ``_RETRY_S``.

    Raises:
        BadConfig: the address is not https (http is accepted for this machine only).
    """

    def __init__(
        self,
        *,
        issuer: str,
        url: str | None,
        clock_s: Callable[[], float],
        keep_s: float = 3600.0,
    ) -> None:
        _require_https(url or issuer)
        self._issuer, self._url = issuer, url
        self._clock_s, self._keep_s = clock_s, keep_s
        self._fetching = threading.Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None

    def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return a key; None if the provider does not have it. Without an id, its only key.

        Raises:
            Unavailable: the provider does not answer, and no keys are held that are fresh enough.
        """
        key = self._find(key_id)
        if key is None or self._age_s() >= _REFRESH_S:
            # With the key at hand no call waits for another's refresh.
            if self._fetching.acquire(blocking=key is None):
                try:
                    self._refresh(key_id)
                finally:
                    self._fetching.release()
            key = self._find(key_id)
        if self._age_s() >= self._keep_s:
            raise Unavailable(
                "The identity provider's keys cannot be fetched, so tokens cannot be checked. Retry later."
            )
        return key

    def _find(self, key_id: str | None) -> jwt.PyJWK | None:
        keys = self._keys
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(key_id)

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock_s() - self._fetched_s

    def _refresh(self, key_id: str | None) -> None:
        now_s = self._clock_s()
        if self._tried_s is not None and now_s - self._tried_s < _RETRY_S:
            return
        if self._find(key_id) is not None and self._age_s() < _REFRESH_S:
            return  # another call has just fetched it
        self._tried_s = now_s
        try:
            self._keys = self._fetch()
        except (*_NOT_KEYS, jwt.PyJWTError) as error:
            # Not logged with a traceback: an outage repeats itself every ``_RETRY_S``.
            _log.warning("the identity provider's keys could not be fetched: %s", error)
            return
        self._fetched_s = self._clock_s()

    def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        url = self._url
        if url is None:
            url = self._get(self._issuer.rstrip("/") + _DISCOVERY)["jwks_uri"]
            _require_https(url)
        keys = jwt.PyJWKSet.from_dict(self._get(url))
        return {key.key_id: key for key in keys.keys if key.public_key_use in (None, "sig")}

    def _get(self, url: str) -> dict[str, Any]:
        with _HTTP.open(url, timeout=_TIMEOUT_S) as response:
            data = response.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError("the answer is too large")
        document = json.loads(data)
        if not isinstance(document, dict):
            raise ValueError("the answer is not a JSON object")  # noqa: TRY004  as any other bad answer
        return document


def _require_https(url: object) -> None:
    parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL):
        return
    raise BadConfig(
        f"the identity provider's address {parts.scheme}://{parts.netloc} is not https; anybody on the way could "
        f"answer with keys of their own."
    )

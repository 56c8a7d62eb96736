"""confluent-kafka's HTTP client of registries, with a deadline, a bound on answers, and errors of ours.

Its options, logins and failover between URLs are used as they are. Its class for callers is not: that one keeps versions
for ever, waits without end, and gives out any JSON.
"""

from __future__ import annotations

import json
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
from confluent_kafka.schema_registry.schema_registry_client import _RestClient

from connectors.registry.options import NUMBERS, checked, section_of, urls
from planner.errors import BadConfig, FederationError, SchemaRegistryUnavailable

#: A list of 10^5 subjects has some five. Texts of schemas are bounded by themselves.
MAX_ANSWER_BYTES = 32 << 20
_RETRIES = 3
_FIRST_WAIT_MS = 100
_LONGEST_WAIT_MS = 2_000

#: confluent's codes for a subject, version or schema that is not there, also where it was deleted.
_NOT_THERE = range(40401, 40407)
_REFUSED_LOGIN = (401, 403, 407)
#: What another attempt may cure: confluent's list, and the rest of 5xx.
_BUSY = (408, 429)
# SSL_ERROR_… of a certificate, by OpenSSL's X509_V_ERR_… number.
_EXPIRED = (9, 10)
_OTHER_HOST = (62, 64)

_Error = TypeVar("_Error", bound=BaseException)

# It logs each request at INFO.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class _Oversized(Exception):
    """An answer exceeds ``MAX_ANSWER_BYTES``."""


class RegistryHttp:
    """Asks one registry. Thread-safe. The caller closes it."""

    def __init__(
        self,
        options: Mapping[str, str],
        name: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``options`` are confluent's; no registry needs to answer yet.

        Raises:
            BadConfig: an option, or the content of a file.
        """
        self._section = section_of(name)
        self.who = f"the schema registry {name}" if name else "the schema registry"
        self._clock, self._sleep = clock, sleep
        self.requests = self.failures = 0
        self._counting = threading.Lock()
        #: By the clock; at first, when the first answer was waited for.
        self.answered_s = clock()
        try:
            self._client = _Client(checked(options), clock, self.strange)
        except BadConfig as error:
            raise BadConfig(f"[{self._section}]: {error.message}", **error.facts) from None
        except (ValueError, OSError):  # also ssl.SSLError; texts may quote what is secret
            raise BadConfig(
                f"[{self._section}]: the client of schema registries does not accept its options; see that the ssl.* "
                f"files are certificates and keys in PEM, with their password."
            ) from None
        numbers = _numbers(options)
        self._retries = int(numbers.get("max.retries", _RETRIES))
        self._waits_s = (
            numbers.get("retries.wait.ms", _FIRST_WAIT_MS) / 1000,
            numbers.get("retries.max.wait.ms", _LONGEST_WAIT_MS) / 1000,
        )

    def get(
        self, path: str, query: Mapping[str, Any] | None = None, *, timeout_s: float
    ) -> object:
        """Return an answer, or None where what is asked for is not there.

        Raises:
            SchemaRegistryUnavailable: no answer within the time, or one that another attempt may cure.
            BadConfig: login, certificate, or what answers is no registry.
        """
        end = self._clock() + timeout_s
        attempt = 0
        while True:
            try:
                token = _end.set(end)
                try:
                    answer = self._client.get(path, dict(query or {}))
                finally:
                    _end.reset(token)
                    self._count()
            except Exception as error:  # noqa: BLE001  all are translated
                translation = self._translated(error)
                if translation is None:
                    self.answered_s = self._clock()
                    return None
                self._count(failures=1)
                left = end - self._clock()
                is_last = attempt >= self._retries or left <= 0
                if is_last or not isinstance(translation, SchemaRegistryUnavailable):
                    raise translation from None
            else:
                self.answered_s = self._clock()
                return answer
            first, longest = self._waits_s
            wait = min(first * 2**attempt, longest) * (0.5 + random.random() / 2)  # noqa: S311
            self._sleep(min(wait, left))
            attempt += 1

    @property
    def silent_s(self) -> float:
        """Seconds since the last answer."""
        return self._clock() - self.answered_s

    def close(self) -> None:
        self._client.session.close()

    def _count(self, *, failures: int = 0) -> None:
        with self._counting:
            self.requests += not failures
            self.failures += failures

    def _translated(self, error: Exception) -> FederationError | None:
        """Return our error; None for what is not there. Texts of libraries may hold addresses and logins."""
        match error:
            case FederationError():
                return error
            case SchemaRegistryError():
                return self._of_status(error)
            case httpx2.TimeoutException():
                return self.unavailable("did not answer in time")
            case httpx2.TransportError():
                return self._of_tls(error) or self.unavailable(
                    f"does not answer ({type(error).__name__})"
                )
            case OAuthTokenError():
                return self._of_token(error)
            case _Oversized():
                return self.strange(f"answered more than {MAX_ANSWER_BYTES >> 20} MB")
            case httpx2.HTTPError() | httpx2.InvalidURL() | ValueError():
                return self.strange(f"gave no answer that can be read ({type(error).__name__})")
        raise error

    def _of_status(self, error: SchemaRegistryError) -> FederationError | None:
        status = error.http_status_code
        if status == 404 and error.error_code in _NOT_THERE:
            return None
        if status >= 500 or status in _BUSY:
            return self.unavailable(f"answers HTTP {status}", "is well again")
        if status in _REFUSED_LOGIN:
            return BadConfig(
                f"{self.who} refuses the login (HTTP {status}); check basic.auth.user.info or bearer.auth.* in "
                f"[{self._section}].",
                status=status,
            )
        return self.strange(f"answered HTTP {status}", status=status)

    def _of_tls(self, error: httpx2.TransportError) -> BadConfig | None:
        cause = _cause(error, ssl.SSLError)
        if cause is None:
            return None
        if isinstance(cause, ssl.SSLCertVerificationError):
            code = cause.verify_code
            if code in _EXPIRED:
                what, fix = "is not valid today", "renew it, or correct this machine's clock"
            elif code in _OTHER_HOST:
                what = "is of another host"
                fix = f"name a host of the certificate as url in [{self._section}]"
            else:
                what = "is signed by no authority that is trusted here"
                fix = (
                    f"set ssl.ca.location in [{self._section}] to that authority's certificate"
                )
            return BadConfig(f"the certificate of {self.who} {what}; {fix}.")
        return BadConfig(
            f"TLS with {self.who} fails ({cause.reason}); check url and the ssl.* options in [{self._section}]."
        )

    def _of_token(self, error: OAuthTokenError) -> FederationError:
        # HTTPError: no answer, or one of 5xx. authlib raises its own where the login is refused.
        if _cause(error, httpx2.HTTPError) is not None:
            return SchemaRegistryUnavailable(
                f"{self.who} cannot be asked: the issuer of its tokens does not answer; retry when it does."
            )
        return BadConfig(
            f"{self.who} cannot be asked: no token was issued for this login; check bearer.auth.* in "
            f"[{self._section}]."
        )

    def unavailable(self, what: str, when: str = "does") -> SchemaRegistryUnavailable:
        return SchemaRegistryUnavailable(f"{self.who} {what}; retry when it {when}.")

    def strange(self, what: str, **facts: object) -> BadConfig:
        return BadConfig(
            f"{self.who} {what}; is url in [{self._section}] the registry's URL?", **facts
        )


#: When the running call must be over, by its clock.
_end: ContextVar[float] = ContextVar("end")


class _Client(_RestClient):
    """One attempt for each URL, all within the deadline."""

    def __init__(
        self,
        options: Mapping[str, str],
        clock: Callable[[], float],
        strange: Callable[..., BadConfig],
    ) -> None:
        self._clock, self._strange = clock, strange
        # Else they are in the text of requests, and of errors.
        logins = {_without_login(url): _login(url) for url in urls(options)}
        self._logins = {url: login for url, login in logins.items() if login is not None}
        conf: dict[str, Any] = {**options, **_numbers(options), "max.retries": 0}
        conf["url"] = ",".join(map(_without_login, urls(options)))
        if "ssl.certificate.location" in options:
            # Without one OpenSSL asks for the password of an encrypted key on the terminal.
            conf.setdefault("ssl.key.password", "")
        super().__init__(conf)

    def send_http_request(
        self,
        base_url: str,
        url: str,
        method: str,
        headers: dict[str, str] | None,
        body: str | None = None,
        query: dict[str, Any] | None = None,
    ) -> httpx2.Response:
        """See ``_RestClient``, which goes on with the next URL when this raises or answers 5xx.

        Raises:
            BadConfig: the answer is not JSON, unless its status says enough.
        """
        end = _end.get()
        urls_left = len(self.base_urls) - self.base_urls.index(base_url)
        left = (end - self._clock()) / urls_left
        if left <= 0:
            raise httpx2.ReadTimeout("the time is over")
        request = self.session.build_request(
            *(method, f"{base_url}/{url}"),
            headers={**(headers or {}), "Accept-Encoding": "identity"},
            content=body,
            params=query,
            timeout=left if self.timeout is None else min(self.timeout, left),
        )
        auth = self._logins.get(base_url, httpx2.USE_CLIENT_DEFAULT)
        response = self.session.send(request, stream=True, auth=auth)
        try:
            content = self._content(response, end)
        finally:
            response.close()
        kind = response.headers.get("content-type", "")
        if not _says_enough(response.status_code) and not _is_json(content):
            what = _what_came(response.status_code, kind)
            raise self._strange(what, status=response.status_code)
        return httpx2.Response(response.status_code, content=content, request=request)

    def _content(self, response: httpx2.Response, end: float) -> bytes:
        content = bytearray()
        for piece in response.iter_bytes():
            content += piece
            if len(content) > MAX_ANSWER_BYTES:
                raise _Oversized
            if self._clock() > end:
                raise httpx2.ReadTimeout("the time is over")
        return bytes(content)


def _says_enough(status: int) -> bool:
    return status >= 500 or status in _BUSY or status in _REFUSED_LOGIN


def _what_came(status: int, content_type: str) -> str:
    kind = content_type.partition(";")[0].strip().lower()
    if 300 <= status < 400:
        return f"answered with a redirect (HTTP {status})"
    if not kind or "json" in kind or len(kind) > 60 or not kind.isprintable():
        return "answered what is not JSON"
    return f"answered {kind}, not JSON"


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _numbers(options: Mapping[str, str]) -> dict[str, float]:
    return {key: float(options[key]) for key in NUMBERS if key in options}


def _login(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _cause(error: BaseException, kind: type[_Error]) -> _Error | None:
    """Return the first of this kind among an error and those it was raised from."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, kind):
        at = at.__cause__ or at.__context__
    return at

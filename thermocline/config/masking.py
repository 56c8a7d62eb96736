"""Which settings are secret, and how they are shown. Errs towards hiding: a masked number does no harm."""

from __future__ import annotations

import re

MASK = "********"

# Words of option names whose values are credentials, over pyiceberg, librdkafka, confluent-kafka, Spark and Hadoop:
# `credential`, `token`, `s3.secret-access-key`, `adls.account-key`, `sasl.password`, `ssl.key.pem`,
# `sasl.oauthbearer.config`, `basic.auth.user.info`, `fs.s3a.secret.key`, `header.Authorization` …
_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|authorization|cookie|signature|private|jaas|\bsas\b|"
    r"connection-string|account[.-]key|access[.-]key(?![.-]id)|api[.-]?key|key\.pem|keystore\.pem|"
    r"oauthbearer\.config|auth\.user\.info|assertion(?!\.(algorithm|file|claim|jose))|^header\.",
    re.IGNORECASE,
)
# Names with one of those words that say where or how, not what.
_PLAIN = re.compile(
    r"(uri|url|enabled|-ms|\.ms|algorithm|provider|\.class|location|type)$", re.IGNORECASE
)
#: ``scheme://user:password@host``: the part before the ``@``.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s@]*(?::[^/?#\s]*)?@")
_QUERY = re.compile(r"([?&;]([^=&;?\s]+)=)([^&;\s]*)")


def is_secret(key: str) -> bool:
    """Whether values of the option ``key`` (without its section) are hidden."""
    return _SECRET.search(key) is not None and _PLAIN.search(key) is None


def masked(key: str, value: str) -> str:
    """Return ``value`` as it may be printed: masked as a whole, or the credentials of an address in it."""
    if is_secret(key):
        return MASK
    return _QUERY.sub(_masked_parameter, _USER_INFO.sub(f"{MASK}@", value))


def _masked_parameter(match: re.Match[str]) -> str:
    return f"{match[1]}{MASK}" if is_secret(match[2]) else match[0]


class Options(dict[str, str]):
    """Options of another library. A plain dict to that library; masked wherever it is printed."""

    def masked(self) -> dict[str, str]:
        return {key: masked(key, value) for key, value in self.items()}

    def __repr__(self) -> str:
        return repr(self.masked())

    __str__ = __repr__

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        """Pickled as the dict it is: Spark's executors have no ``thermocline``."""
        return dict, (dict(self),)

"""Why an object store did not give or take a file, from the words of the three clients that there are. Pure.

Arrow names Amazon's errors in capitals (``AWS Error ACCESS_DENIED``) and curl's by number (``curlCode: 60``); DuckDB's
httpfs gives the HTTP status, the store's own name for the error (``SignatureDoesNotMatch``) and curl's words. Amazon's
library for Java (Spark) gives the store's sentence and ``Status Code: 403``.
Names of errors: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
"""

from __future__ import annotations

import errno
import re

#: The first that fits. Each text ends with what to do.
_CAUSES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("ExpiredToken", "EXPIRED_TOKEN", "TokenRefreshRequired", "provided token has expired"),
        "the catalog's session token has expired; renew s3.session-token",
    ),
    (
        ("RequestTimeTooSkewed", "REQUEST_TIME_TOO_SKEWED", "the server's time is too large"),
        "the clock of this machine is not the object store's; set it",
    ),
    (
        ("PermanentRedirect", "PERMANENT_REDIRECT", "AuthorizationHeaderMalformed", "HTTP 301", "HTTP status 301",
         "AUTHORIZATION_HEADER_MALFORMED", "while the bucket is located in", "Status Code: 301"),
        "the bucket lies in another region; correct s3.region",
    ),
    (
        ("NoSuchBucket", "NO_SUCH_BUCKET", "specified bucket does not exist"),
        "there is no such bucket; check the catalog's warehouse and the table's location",
    ),
    (
        ("(HTTP status 400) during HeadObject",),
        "the object store refuses the request and gives no reason; check whether s3.session-token has expired, and "
        "s3.region",
    ),
    (
        # The answer to a HEAD has no text that says more.
        ("ACCESS_DENIED during HeadObject",),
        "the object store refuses the catalog's key; check s3.access-key-id, s3.secret-access-key and what it may read, "
        "and this machine's clock",
    ),
    (
        ("AccessDenied", "ACCESS_DENIED", "InvalidAccessKeyId", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID",
         "SignatureDoesNotMatch", "SIGNATURE_DOES_NOT_MATCH", "HTTP 401", "HTTP 403", "Status Code: 403"),
        "the object store refuses the catalog's key; check s3.access-key-id, s3.secret-access-key and what it may read",
    ),
    (
        ("curlCode: 60", "SSL peer certificate"),
        "the certificate of s3.endpoint is of another host, or of an authority that is not trusted here; set s3.cabundle",
    ),
    (
        ("curlCode: 35", "SSL connect error"),
        "the object store speaks no TLS that we do; check whether s3.endpoint is http or https",
    ),
    (
        ("curlCode: 6,", "Could not resolve hostname"),
        "nobody knows the host of the object store; check s3.endpoint and s3.region",
    ),
    (
        ("NETWORK_CONNECTION", "Could not connect to server", "Could not establish connection"),
        "the object store does not answer; check s3.endpoint, or try again",
    ),
    (
        ("SlowDown", "SLOW_DOWN", "HTTP 429", "HTTP 503", "SERVICE_UNAVAILABLE", "Status Code: 503"),
        "the object store has too much to do; try again",
    ),
    (
        ("INTERNAL_FAILURE", "HTTP 500", "HTTP 502", "HTTP 504", "Status Code: 500"),
        "the object store failed; try again",
    ),
)  # fmt: skip
#: A key that the store knows may not do this one thing. Arrow's word, which it also has for an answer without a text.
_DENIED = ("AccessDenied", "ACCESS_DENIED")
#: Names of files are others' words, and an address names nothing that helps.
_QUOTED = re.compile(r"'[^']*'")
_MAX_READ = 4_000


def cause(error: BaseException) -> str | None:
    """Return what went wrong and what to do, without a full stop; None: these are not words of an object store's."""
    text = _words(error)
    return next(
        (sentence for marks, sentence in _CAUSES if any(mark in text for mark in marks)), None
    )


def is_denied(error: BaseException) -> bool:
    """Whether a right is missing: of a store, or of a file system, which may be mounted without writing."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return True
    text = _words(error)
    return any(mark in text for mark in _DENIED)


def _words(error: BaseException) -> str:
    return _QUOTED.sub("", str(error)[:_MAX_READ])

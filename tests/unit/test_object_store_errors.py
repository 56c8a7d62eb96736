"""Texts of errors as the three clients gave them, against s3proxy 3.0 where it has them (pyarrow 26.0, DuckDB 1.5, Iceberg 1.10)."""

from __future__ import annotations

import pytest

from connectors.store.errors import cause

ARROW = "When reading information for key 'x.parquet' in bucket 'bucket': AWS Error {} during HeadObject operation: {}"
DUCKDB = "HTTP Error: HTTP GET error reading 'http://127.0.0.1:1/b/t.parquet' in region 'us-east-1' (HTTP {})"
JAVA = "S3Exception: {} (Service: S3, Status Code: {}, Request ID: null) (SDK Attempt Count: 1)"

CASES = [
    (JAVA.format("The provided token has expired.", 400), "s3.session-token"),
    (JAVA.format("Access Denied", 403), "s3.access-key-id"),
    (
        JAVA.format(
            "The difference between the request time and the server's time is too large.", 403
        ),
        "clock",
    ),
    (JAVA.format("The specified bucket does not exist", 404), "no such bucket"),
    (JAVA.format("Please reduce your request rate.", 503), "too much to do"),
    (JAVA.format("null", 500), "the object store failed"),
    (ARROW.format("ACCESS_DENIED", "No response body."), "s3.access-key-id"),
    (DUCKDB.format("403 Forbidden\n\nSignatureDoesNotMatch: Forbidden"), "s3.access-key-id"),
    (DUCKDB.format("403 Forbidden\n\nInvalidAccessKeyId: Forbidden"), "s3.access-key-id"),
    (
        DUCKDB.format("403)\n\nExpiredToken: The provided token has expired."),
        "s3.session-token",
    ),
    (DUCKDB.format("403)\n\nRequestTimeTooSkewed: The difference"), "clock"),
    (
        ARROW.format("UNKNOWN (HTTP status 400)", "No response body."),
        "check whether s3.session-token has expired",
    ),
    (DUCKDB.format("301 Moved Permanently"), "s3.region"),
    (ARROW.format("NO_SUCH_BUCKET", "The specified bucket does not exist"), "no such bucket"),
    (
        ARROW.format("NETWORK_CONNECTION", "curlCode: 7, Could not connect"),
        "s3.endpoint, or try",
    ),
    (
        ARROW.format("NETWORK_CONNECTION", "curlCode: 6, Could not resolve"),
        "nobody knows the host",
    ),
    (ARROW.format("NETWORK_CONNECTION", "curlCode: 35, SSL connect error"), "http or https"),
    (ARROW.format("NETWORK_CONNECTION", "curlCode: 60, SSL peer certif"), "s3.cabundle"),
    (
        "IO Error: Could not connect to server error for HTTP HEAD to 'http://127.0.0.1:1/b'",
        "answer",
    ),
    ("IO Error: Could not resolve hostname error for HTTP HEAD to 'http://no'", "nobody knows"),
    (
        "IO Error: SSL connect error error for HTTP HEAD to 'https://127.0.0.1:1'",
        "http or https",
    ),
    (ARROW.format("SLOW_DOWN", "Please reduce your request rate."), "too much to do"),
    (DUCKDB.format("500 Internal Server Error"), "failed"),
]


@pytest.mark.parametrize(("text", "part"), CASES, ids=[part for _, part in CASES])
def test_what_went_wrong_is_known(text: str, part: str) -> None:
    sentence = cause(OSError(text))
    assert sentence is not None
    assert part in sentence
    assert not sentence.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Could not read from /w/x.parquet",
        "IO Error: cannot open 's3://b/HTTP 403/AccessDenied/curlCode: 60'",
        "x" * 5_000 + "HTTP 403",
    ],
)
def test_nothing_is_made_up(text: str) -> None:
    assert cause(OSError(text)) is None

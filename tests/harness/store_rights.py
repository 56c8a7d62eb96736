"""Which right of S3 a request needs, so that a gateway can let pass what was granted and nothing else.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html, and of uploads in parts
https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html#mpuAndPermissions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from tests.harness.store_gateway import Fault, StoreRequest

_OF_OBJECTS = {
    "GET": "s3:GetObject",
    "HEAD": "s3:GetObject",
    "PUT": "s3:PutObject",
    "POST": "s3:PutObject",
    "DELETE": "s3:DeleteObject",
}


def right_of(request: StoreRequest) -> tuple[str, str]:
    """The action, and what it is for: ``s3://bucket/key``, or the bucket alone."""
    parts = urlsplit(request.path)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    if key:
        is_part_of_upload = request.method == "DELETE" and "uploadId=" in parts.query
        action = "s3:AbortMultipartUpload" if is_part_of_upload else _OF_OBJECTS[request.method]
        return action, f"s3://{bucket}/{key}"
    # Of a bucket, a POST removes several objects.
    return (
        "s3:ListBucket" if request.method in ("GET", "HEAD") else "s3:DeleteObject"
    ), f"s3://{bucket}"


def allowing(folders: Mapping[str, list[str]]) -> Callable[[StoreRequest], Fault | None]:
    """Deny whatever is not granted below the folders; the list of a bucket is one for all of it."""

    def choose(request: StoreRequest) -> Fault | None:
        action, on = right_of(request)
        is_granted = any(
            action in actions and (f"{folder}/".startswith(f"{on}/") or on.startswith(folder))
            for folder, actions in folders.items()
        )
        return None if is_granted else Fault.DENIED

    return choose

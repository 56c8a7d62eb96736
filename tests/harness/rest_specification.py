"""Checks answers against the Iceberg REST specification: its OpenAPI file, as Apache Iceberg published it (Apache 2.0).

``data/iceberg-rest-catalog.yaml`` is ``open-api/rest-catalog-open-api.yaml`` of apache/iceberg at 7f879b11 (August 2026).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

_FILE = Path(__file__).with_name("data") / "iceberg-rest-catalog.yaml"
_URI = "urn:iceberg-rest"
#: What the specification says of a status that it does not list for a path.
_ERROR = "/components/schemas/IcebergErrorResponse"


def check(method: str, path: str, status: int, body: Any) -> None:
    """Raise jsonschema's error where an answer is not one of the specification's. 304 and 204 have no body."""
    if status in (204, 304) or method == "HEAD":
        assert body is None
        return
    where = _schema_of(method.lower(), path.partition("?")[0], status)
    _validator(where).validate(body)


def _schema_of(method: str, path: str, status: int) -> str:
    for template, operations in _specification()["paths"].items():
        pattern = re.sub(r"\{[^}]+\}", "[^/]+", template)
        if re.fullmatch(pattern, path) and method in operations:
            answers = operations[method]["responses"]
            answer = answers.get(status) or answers.get(str(status))
            if answer is None:
                return _ERROR
            place = answer.get("$ref", "").removeprefix("#")
            content = (_at(place) if place else answer)["content"]
            schema = content["application/json"]["schema"]
            return str(schema["$ref"]).removeprefix("#")
    return _ERROR


def _at(place: str) -> Any:
    value: Any = _specification()
    for part in place.strip("/").split("/"):
        value = value[part]
    return value


@cache
def _specification() -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with _FILE.open(encoding="utf-8") as file:
        value: dict[str, Any] = yaml.load(file, loader)
    return value


@cache
def _validator(place: str) -> Draft202012Validator:
    resource = Resource.from_contents(_specification(), default_specification=DRAFT202012)
    registry: Any = Registry().with_resource(_URI, resource)
    return Draft202012Validator({"$ref": f"{_URI}#{place}"}, registry=registry)

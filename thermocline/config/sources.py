"""Reads settings where they are written, the file and the environment, and remembers where each came from.

Not pydantic-settings: it makes reading settings a third slower to import, passes over variables that name no setting,
and does not say where a value came from.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import BadConfig

CONFIG_VARIABLE = "THERMOCLINE_CONFIG"
DEFAULT_FILE = "thermocline.toml"
PREFIX = "THERMOCLINE_"
#: The first words of variables that must name a setting.
SECTIONS = frozenset(
    [
        "catalogs",
        "kafka",
        "kafka_clusters",
        "schema_registry",
        "schema_registries",
        "server",
        "iceberg_rest",
        "access",
        "limits",
        "permissions",
        "cold",
        "tail",
        "tier",
    ]
)
#: Levels of tables and lists within each other. Settings need a handful; readers of more run out of stack.
MAX_DEPTH = 32
#: Sections whose keys are another library's names, and what one underscore of a variable stands for there.
VENDOR_SECTIONS = {
    ("kafka",): ".",
    ("kafka_clusters", "*"): ".",
    ("schema_registry",): ".",
    ("schema_registries", "*"): ".",
    ("catalogs", "*"): "-",
    ("tier", "conf"): ".",
    ("iceberg_rest", "credentials", "*"): "-",
}
#: Settings of ours in these sections.
_OWN_KEYS = frozenset({"unknown_id_grace_s"})


@dataclass(slots=True)
class Written:
    """What was found. ``document`` holds the file's values, overridden by variables.

    ``origins`` has every leaf of it by its dotted name, and where that was given: the file's name, or a variable's
    after ``$``. ``file`` is None when there is none.
    """

    file: str | None
    document: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def origin(self, key: str) -> str | None:
        """Where ``key`` was given: itself, something below it, or the section it is in."""
        while key:
            for key_, origin in self.origins.items():
                if key_ == key or key_.startswith(f"{key}."):
                    return origin
            key = key.rpartition(".")[0]
        return None


def chosen_file(path: str | None) -> Path:
    """Which file is read: the one at ``path``, else ``$THERMOCLINE_CONFIG``, else ``./thermocline.toml``."""
    return Path(path or os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)


def read(path: str | None) -> Written:
    """Read the file at ``path``, else ``$THERMOCLINE_CONFIG``, else ``./thermocline.toml`` if it exists.

    Raises:
        BadConfig: the file is missing or not TOML, or a variable names no setting.
    """
    written = Written(None)
    chosen = chosen_file(path)
    if path or os.environ.get(CONFIG_VARIABLE) or chosen.exists():
        _read_file(chosen, written)
    for name in sorted(os.environ):
        if not name.startswith(PREFIX):
            continue
        section, _, rest = name.removeprefix(PREFIX).partition("_")
        if "__" not in name and rest and section.lower() in SECTIONS:
            raise BadConfig(
                f"${name} names no setting: two underscores end a level; did you mean {PREFIX}{section}__{rest}?",
                key=name,
            )
        if "__" in name:
            origin = f"${name}"
            _put(written, _path_of(name), _value(os.environ[name], origin), origin)
    return written


def _read_file(file: Path, written: Written) -> None:
    try:
        written.document = _parsed(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise BadConfig(
            f"{file}: the configuration cannot be read ({error.strerror}); name another with --config.",
            file=str(file),
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(
            f"{file}: not valid TOML: {_position(error)}.", file=str(file)
        ) from None
    written.file = str(file)
    written.origins = {".".join(path): str(file) for path in _leaves(written.document)}


def _parsed(text: str, origin: str) -> dict[str, Any]:
    """Parse a document.

    Raises:
        tomllib.TOMLDecodeError: it is none.
        BadConfig: it is nested deeper than ``MAX_DEPTH``.
    """
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(origin) from None
    level: list[object] = [document]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _inside(value)]
        if not level:
            return document
    raise _too_deep(origin)


def _too_deep(origin: str) -> BadConfig:
    return BadConfig(
        f"{origin}: nested more than {MAX_DEPTH} levels deep; settings need fewer.", file=origin
    )


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _position(error: Exception) -> str:
    # A decoder's message may quote the text around the mistake, which may be a credential.
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    message = str(error)
    return message[message.rfind("(") :] if {"'", '"'} & set(message) else message


def _leaves(value: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict) or not value:
        return [path] if path else []
    return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]


def _path_of(variable: str) -> tuple[str, ...]:
    """``THERMOCLINE_CATALOGS__LAKE__S3__ACCESS_KEY_ID`` is catalogs, lake, ``s3.access-key-id``.

    Two underscores end a level. Inside a vendor's names they are a dot, and one is a hyphen for catalogs (as in
    pyiceberg's own variables) and a dot for librdkafka and Spark, whose names have no hyphens. A part that is
    not all upper case is taken as it stands.
    """
    parts = variable.removeprefix(PREFIX).split("__")
    for section, joint in VENDOR_SECTIONS.items():
        above = tuple(_lowered(part) for part in parts[: len(section)])
        below = parts[len(section) :]
        if below and all(
            name in ("*", part) for name, part in zip(section, above, strict=True)
        ):
            if below[0].lower() in _OWN_KEYS:
                return (*above, below[0].lower())
            return (*above, ".".join(_lowered(part.replace("_", joint)) for part in below))
    return tuple(_lowered(part) for part in parts)


def _lowered(part: str) -> str:
    return part.lower() if part == part.upper() else part


def _value(text: str, origin: str) -> object:
    """A list or table is written as in TOML; anything else is text, which is converted when validated."""
    if text[:1] in ("[", "{"):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            return _parsed(f"value = {text}", origin)["value"]
    return text


def _put(written: Written, path: tuple[str, ...], value: object, origin: str) -> None:
    if len(path) > MAX_DEPTH:
        raise _too_deep(origin)
    at = written.document
    for part in path[:-1]:
        below = at.get(part)
        at[part] = at = dict(below) if isinstance(below, dict) else {}
    at[path[-1]] = value
    key = ".".join(path)
    for overlapping in [h for h in written.origins if h == key or h.startswith(f"{key}.")]:
        del written.origins[overlapping]
    for leaf in _leaves(value) or [()]:
        written.origins[".".join((*path, *leaf))] = origin

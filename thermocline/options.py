"""A command's options as one value: each field says the option that fills it, its type which kind of option that is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import (
    Any,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import click

T = TypeVar("T")
Command = Callable[..., Any]


def option(*names: str, **attributes: Any) -> Any:
    """Return a field that ``click.option`` fills; without ``names`` the option is called like the field."""
    return field(metadata={"names": names, "attributes": attributes})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option,))
def options(chosen: type[T]) -> type[T]:
    return dataclass(frozen=True, slots=True, kw_only=True)(chosen)


def takes(chosen: type[Any]) -> Callable[[Command], Command]:
    """Have a command take its options as one ``chosen``, listed by --help in the order of the fields.

    A ``bool`` is a flag, a tuple an option that may be repeated, a ``Literal`` a choice.
    """
    hints = get_type_hints(chosen)

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def call(**values: Any) -> Any:
            own = {each.name: values.pop(each.name) for each in fields(chosen)}
            return command(chosen(**own), **values)

        for each in reversed(fields(chosen)):
            names = each.metadata["names"] or (f"--{each.name.replace('_', '-')}",)
            attributes = _kind(hints[each.name]) | each.metadata["attributes"]
            call = click.option(*names, each.name, **attributes)(call)
        return call

    return decorated


def _kind(hint: Any) -> dict[str, Any]:
    if hint is bool:
        return {"is_flag": True}
    if get_origin(hint) is tuple:
        return {"multiple": True}
    texts = [each for each in (hint, *get_args(hint)) if get_origin(each) is Literal]
    return {"type": click.Choice(get_args(texts[0]))} if texts else {}

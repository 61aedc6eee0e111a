"""TOML files and tables into frozen dataclasses, strictly: a misspelt key or a wrong type is an error."""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fundoscope.errors import FundoscopeError, nearest

Built = TypeVar("Built")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FundoscopeError(f"there is no file {path}", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise FundoscopeError(f"{path} is not TOML: {problem}", "compare it with a shipped recipe") from None


def build(cls: type[Built], table: Mapping[str, Any], *, where: str) -> Built:
    """Make `cls` (a dataclass) from `table`, checking every name and every type."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    wanted = typing.get_type_hints(cls)
    for name in table:
        if name not in fields:
            hint = f"use {nearest(name, fields)}"
            raise FundoscopeError(f"there is no setting in {where} called '{name}'", hint)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise FundoscopeError(f"{where} does not say '{name}'", f"add {name} = …")
    values = {name: _convert(value, wanted[name], f"'{name}' in {where}") for name, value in table.items()}
    try:
        return cls(**values)
    except ValueError as problem:  # a dataclass may check its values when it is made
        raise FundoscopeError(f"{where}: {problem}", "change that value") from None


def _convert(value: Any, wanted: Any, what: str) -> Any:
    """The value as the type the field asks for, or an error that says both."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(value, next(kind for kind in arguments if kind is not type(None)), what)
    if origin is typing.Literal:
        if value not in arguments:
            names = {str(choice): choice for choice in arguments}
            raise FundoscopeError(f"{what} cannot be '{value}'", f"use {nearest(str(value), names)}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(item, arguments[0], what) for item in value)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type) and isinstance(value, Mapping):
        return build(wanted, value, where=what)
    if wanted is float and type(value) is int:
        return float(value)
    if wanted in (int, float, str, bool) and type(value) is not wanted:
        raise FundoscopeError(f"{what} is {value!r}, not {_ARTICLE[wanted]}", "correct its type")
    return value


_ARTICLE = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}

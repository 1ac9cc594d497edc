"""Decoders that need nothing but the value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.options import FLAG, choice
from consumer_sdk.schema_registry import read_message_indexes, read_schema_number

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from pydantic import ValidationError

__all__ = ["json_decoder", "msgspec_decoder", "protobuf_decoder", "pydantic_decoder"]

M = TypeVar("M", bound="Message")


def json_decoder() -> Callable[[bytes], Any]:
    """Returns a decoder of JSON in UTF-8, by the standard library. It refuses NaN and Infinity, which are no JSON."""

    def decode(data: bytes) -> Any:
        return json.loads(data.decode(), parse_constant=_refused)

    return decode


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def msgspec_decoder(
    kind: Any, *, form: Literal["json", "msgpack"] = "json"
) -> Callable[[bytes], Any]:
    """Returns a decoder of JSON or MessagePack, checked against a type: a ``msgspec.Struct``, a dataclass, ``list[int]``.

    Raises:
        MissingExtraError: the extra ``msgspec`` is not installed.
        ConfigurationError: msgspec cannot decode this type.
    """
    choice("json", "msgpack").check("form", form, "msgspec_decoder")
    try:
        import msgspec
    except ImportError as error:
        raise MissingExtraError("msgspec", "msgspec") from error
    module = msgspec.json if form == "json" else msgspec.msgpack
    try:
        made: Callable[[bytes], Any] = module.Decoder(kind).decode
    except TypeError as error:
        raise ConfigurationError(f"msgspec_decoder({kind!r}): {error}") from error
    return made


def pydantic_decoder(kind: Any) -> Callable[[bytes], Any]:
    """Returns a decoder of JSON, checked against a type: a ``pydantic.BaseModel``, a dataclass, ``list[int]``.

    Its errors are pydantic's, without the input, because they go to logs and dead letters.

    Raises:
        MissingExtraError: the extra ``pydantic`` is not installed.
        ConfigurationError: pydantic has no schema of this type.
    """
    try:
        from pydantic import TypeAdapter, ValidationError
        from pydantic.errors import PydanticUserError
    except ImportError as error:
        raise MissingExtraError("pydantic", "pydantic") from error
    try:
        validate: Callable[[bytes], Any] = TypeAdapter(kind).validate_json
    except PydanticUserError as error:
        raise ConfigurationError(f"pydantic_decoder({kind!r}): {error}") from error

    def decode(data: bytes) -> Any:
        try:
            return validate(data)
        except ValidationError as error:
            found = error
        raise _without_input(found)  # here, so that it has no context, whose text has the input

    return decode


def _without_input(error: ValidationError) -> ValidationError:
    from pydantic_core import InitErrorDetails, PydanticCustomError
    from pydantic_core import ValidationError as Made

    found: list[InitErrorDetails] = [
        {
            "type": PydanticCustomError(each["type"], _said(each["type"], each["msg"])),
            "loc": each["loc"],
            "input": None,
        }
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return Made.from_exception_data(error.title, found, "json", hide_input=True)


def _said(kind: str, text: str) -> str:
    """The text of an error of pydantic, without the input that one of its messages quotes."""
    return "The input's tag is none of the expected ones" if kind == "union_tag_invalid" else text


def protobuf_decoder(kind: type[M], *, has_head: bool = False) -> Callable[[bytes], M]:
    """Returns a decoder of messages of a generated class.

    Args:
        kind: the class.
        has_head: values begin with a schema registry's zero byte, schema id and message indexes.
            They are skipped, and the values are decoded as messages of this class.

    Raises:
        MissingExtraError: the extra ``protobuf`` is not installed.
        ConfigurationError: this is no class of a message.
    """
    try:
        from google.protobuf.message import Message
    except ImportError as error:
        raise MissingExtraError("google.protobuf", "protobuf") from error
    FLAG.check("has_head", has_head, "protobuf_decoder")
    given: object = kind
    if not (isinstance(given, type) and issubclass(given, Message)):
        raise ConfigurationError(f"protobuf_decoder({kind!r}): give a generated message class")

    def decode(data: bytes) -> M:
        made: M = kind.FromString(_without_head(data) if has_head else data)
        if not made.IsInitialized():
            raise ValueError(f"a required field of {kind.DESCRIPTOR.full_name} is missing")
        return made

    return decode


def _without_head(data: bytes) -> bytes:
    _number, begin = read_schema_number(data)
    _indexes, begin = read_message_indexes(data, begin)
    return data[begin:]

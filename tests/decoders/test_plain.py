"""Decoders that need nothing but the value: what they make, and what is said of mistakes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, UninterpretedOption
from google.protobuf.wrappers_pb2 import StringValue

from consumer_sdk import Message
from consumer_sdk.decoders import (
    json_decoder,
    msgspec_decoder,
    protobuf_decoder,
    pydantic_decoder,
)
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing import deliver


class Struct(msgspec.Struct):
    """A type of msgspec's."""

    amount: int


class Model(pydantic.BaseModel):
    """A type of pydantic's."""

    amount: int


@dataclass
class Order:
    """A type of nobody's."""

    amount: int


@pytest.mark.parametrize(
    "decode, value",
    [
        (json_decoder(), {"amount": 3}),
        (msgspec_decoder(Struct), Struct(3)),
        (msgspec_decoder(Order), Order(3)),
        (pydantic_decoder(Model), Model(amount=3)),
        (pydantic_decoder(Order), Order(3)),
    ],
)
def test_value_is_made_and_a_bad_one_rejected(decode: Any, value: Any) -> None:
    """With its raw bytes in the dead letter."""
    bodies: list[Any] = []

    async def handle(message: Message) -> None:
        bodies.append(message.body)

    bad = [b"", b"{", b"\xff", b'{"amount": NaN}', b'{"amount": 3} x']
    delivered = deliver(handle, {"amount": 3}, *bad, decode=decode)
    assert bodies == [value]
    assert sorted(each.value or b"" for each in delivered.dead) == sorted(bad)
    assert all(each.error.startswith("the value cannot be decoded: ") for each in delivered.dead)


class Cat(pydantic.BaseModel):
    """One of a union."""

    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    """Another one."""

    kind: Literal["dog"]


class Owner(pydantic.BaseModel):
    """Has one of them."""

    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pytest.mark.parametrize(
    "kind, value, words",
    [
        (Model, {"amount": "4929-secret"}, "amount"),
        (Model, '{"amount": "4929-secret"', "Invalid JSON: EOF"),
        (list[int], ["4929-secret {}"], "valid integer"),
        (Owner, {"pet": {"kind": "4929-secret"}}, "tag"),
    ],
)
def test_pydantics_errors_do_not_quote_the_input(
    kind: Any, value: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the dead letter nor in logs; what is wrong, and where, they say."""
    caplog.set_level(logging.DEBUG)

    async def handle(message: Message) -> None:
        _ = message.body

    (letter,) = deliver(handle, value, decode=pydantic_decoder(kind)).dead
    assert letter.error_type.endswith("ValidationError")
    assert words in letter.error
    assert "4929" not in letter.error + caplog.text


def test_msgspec_decodes_messagepack_too() -> None:
    """By its form."""
    decode = msgspec_decoder(Struct, form="msgpack")

    assert decode(msgspec.msgpack.encode(Struct(3))) == Struct(3)
    with pytest.raises(ConfigurationError, match="form='xml'"):
        msgspec_decoder(Struct, form="xml")  # type: ignore[arg-type]  # the mistake


def test_protobuf_message_is_read_with_a_registrys_head_or_without() -> None:
    """Whatever number and indexes the head has; bytes of something else are refused."""
    data = StringValue(value="x").SerializeToString()

    assert protobuf_decoder(StringValue)(data).value == "x"
    decode = protobuf_decoder(StringValue, has_head=True)
    assert decode(b"\0\0\0\0\x07\0" + data).value == "x"
    assert decode(b"\0\0\0\0\x07\x04\x02\0" + data).value == "x"
    with pytest.raises(ValueError, match="does not begin with a zero"):
        decode(data)
    with pytest.raises(Exception, match="parsing"):
        protobuf_decoder(DescriptorProto)(b"\xff")


def test_protobuf_message_without_a_required_field_is_refused() -> None:
    """The parser alone would take it."""
    decode = protobuf_decoder(UninterpretedOption.NamePart)

    with pytest.raises(ValueError, match=r"a required field of google\.protobuf\.Uninterpreted"):
        decode(b"")


@pytest.mark.parametrize(
    "make, kind",
    [
        (msgspec_decoder, msgspec.Struct | Struct | Order),
        (pydantic_decoder, object()),
        (protobuf_decoder, Order),
        (protobuf_decoder, StringValue()),
    ],
)
def test_type_that_cannot_be_decoded_is_refused_when_the_decoder_is_made(
    make: Any, kind: Any
) -> None:
    """And not with the first record."""
    with pytest.raises(ConfigurationError, match=f"{make.__name__}\\("):
        make(kind)


@pytest.mark.parametrize(
    "call, words",
    [
        ("msgspec_decoder(int)", "'msgspec' package is not installed"),
        ("pydantic_decoder(int)", "'pydantic' package is not installed"),
        ("protobuf_decoder(int)", "'google.protobuf' package is not installed"),
        ("avro_decoder('http://h:1')", "'fastavro' package is not installed"),
    ],
)
def test_missing_library_is_named_with_its_extra(call: str, words: str) -> None:
    """When the decoder is made; importing the package needs none of them."""
    code = f"""if True:
        import sys
        for name in ("msgspec", "pydantic", "google.protobuf.message", "fastavro"):
            sys.modules[name] = None
        from consumer_sdk import decoders
        try:
            decoders.{call}
        except ImportError as error:
            raise
        except Exception as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError ")
    assert words in done.stdout


def test_json_needs_utf8() -> None:
    """The standard library would guess UTF-16."""
    with pytest.raises(UnicodeDecodeError):
        json_decoder()(json.dumps("é", ensure_ascii=False).encode("utf-16"))

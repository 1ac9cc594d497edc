"""Decoders for ``Consumer(decode=…)``: `Message.body` from JSON, msgspec, pydantic, Avro and Protobuf.

A decoder is any function of bytes. Its errors become a `Reject`: the record goes to the dead
letters unchanged.
Importing this package imports none of the libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.decoders.plain import (
    json_decoder,
    msgspec_decoder,
    protobuf_decoder,
    pydantic_decoder,
)
from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.decoders.avro import avro_decoder

__all__ = [
    "avro_decoder",
    "json_decoder",
    "msgspec_decoder",
    "protobuf_decoder",
    "pydantic_decoder",
]

__getattr__ = lazy_names(__name__, {"avro_decoder": "consumer_sdk.decoders.avro"})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

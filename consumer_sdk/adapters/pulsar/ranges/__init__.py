"""Reads ranges of Pulsar topics, without a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.adapters.pulsar import client_support as _support  # noqa: F401 - is it there?
from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.pulsar.ranges.reader import PulsarRanges

__all__ = ["PulsarRanges"]

__getattr__ = lazy_names(__name__, {"PulsarRanges": "consumer_sdk.adapters.pulsar.ranges.reader"})


def __dir__() -> list[str]:
    return __all__

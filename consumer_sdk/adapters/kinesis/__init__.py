"""Amazon Kinesis, through aiobotocore.

Importing this package imports neither the client nor the adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.kinesis.adapter import KinesisAdapter
    from consumer_sdk.adapters.kinesis.service.rates import Limits

__all__ = ["KinesisAdapter", "Limits"]

__getattr__ = lazy_names(
    __name__,
    {
        "KinesisAdapter": "consumer_sdk.adapters.kinesis.adapter",
        "Limits": "consumer_sdk.adapters.kinesis.service.rates",
    },
)


def __dir__() -> list[str]:
    return __all__

"""Apache Pulsar, through pulsar-client.

Importing this package imports neither the client nor the adapter: a Spark task only reads ranges,
and an import costs time in each of Spark's processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.pulsar.adapter import PulsarAdapter
    from consumer_sdk.adapters.pulsar.details import PulsarDetails

__all__ = ["PulsarAdapter", "PulsarDetails"]

__getattr__ = lazy_names(
    __name__,
    {
        "PulsarAdapter": "consumer_sdk.adapters.pulsar.adapter",
        "PulsarDetails": "consumer_sdk.adapters.pulsar.details",
    },
)


def __dir__() -> list[str]:
    return __all__

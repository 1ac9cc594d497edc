"""Makes ``format("consumer_sdk")`` known to Spark, which imports every module named ``pyspark_*``.

Importing it does nothing, and asking it never fails: an error here would break the look-up of all
other Python sources too. `consumer_sdk.spark_bridge.read_stream` says what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource
    except Exception as error:
        raise AttributeError(f"{name}: {error}") from error
    return ConsumerSdkDataSource

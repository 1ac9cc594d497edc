"""Sees that the clients of Kinesis are installed; whatever needs them imports this first."""

from __future__ import annotations

from consumer_sdk.errors import MissingExtraError

try:
    import aiobotocore  # noqa: F401 - whether it is there
except ImportError as _error:
    raise MissingExtraError("aiobotocore", "kinesis") from _error

try:
    import orjson  # noqa: F401 - likewise
except ImportError as _error:
    raise MissingExtraError("orjson", "kinesis") from _error

"""Amazon Kinesis, through aiobotocore."""

from consumer_sdk.errors import MissingExtraError

try:
    import aiobotocore as _aiobotocore  # noqa: F401 - whether it is there
except ImportError as _error:
    raise MissingExtraError("aiobotocore", "kinesis") from _error

try:
    import orjson as _orjson  # noqa: F401 - likewise
except ImportError as _error:
    raise MissingExtraError("orjson", "kinesis") from _error

from consumer_sdk.adapters.kinesis.adapter import KinesisAdapter
from consumer_sdk.adapters.kinesis.service.rates import Limits

__all__ = ["KinesisAdapter", "Limits"]

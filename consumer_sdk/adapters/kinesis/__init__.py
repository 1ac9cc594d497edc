"""Amazon Kinesis, through aiobotocore."""

from consumer_sdk.errors import MissingExtraError

for _package in ("aiobotocore", "orjson"):
    try:
        __import__(_package)
    except ImportError as _error:
        raise MissingExtraError(_package, "kinesis") from _error

__all__: list[str] = []

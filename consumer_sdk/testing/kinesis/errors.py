"""What the fake refuses, under the names that AWS gives."""

from __future__ import annotations

from consumer_sdk.errors import ConsumerSdkError

__all__ = [
    "THROTTLED",
    "RefusedError",
    "expired",
    "invalid",
    "limited",
    "missing",
    "throttled",
    "used",
]

THROTTLED = "ProvisionedThroughputExceededException"


class RefusedError(ConsumerSdkError):
    """The fake's answer to a request that AWS would refuse.

    Attributes:
        code: AWS's name of the error, such as ``"ExpiredIteratorException"``.
        message: what was wrong.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def missing(message: str) -> RefusedError:
    """A stream, shard or consumer that is not there."""
    return RefusedError("ResourceNotFoundException", message)


def invalid(message: str) -> RefusedError:
    """An argument that cannot be."""
    return RefusedError("InvalidArgumentException", message)


def used(message: str) -> RefusedError:
    """A resource that is busy, or is there already."""
    return RefusedError("ResourceInUseException", message)


def limited(message: str) -> RefusedError:
    """More than an account may have."""
    return RefusedError("LimitExceededException", message)


def expired(message: str) -> RefusedError:
    """A shard iterator that is too old."""
    return RefusedError("ExpiredIteratorException", message)


def throttled(message: str) -> RefusedError:
    """More than a shard gives."""
    return RefusedError(THROTTLED, message)

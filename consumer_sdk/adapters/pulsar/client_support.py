"""Sees that pulsar-client is installed; whatever needs it imports this first."""

from __future__ import annotations

from consumer_sdk.errors import MissingExtraError

try:
    import pulsar  # noqa: F401 - whether it is there
except ImportError as _error:
    raise MissingExtraError("pulsar-client", "pulsar") from _error

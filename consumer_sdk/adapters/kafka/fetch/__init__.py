"""The fetch path of groups: sessions with leaders, cursors, and fetched bytes."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

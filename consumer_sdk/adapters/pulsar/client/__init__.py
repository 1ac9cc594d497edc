"""The native client and the broker's REST API."""

from consumer_sdk.adapters.pulsar import client_support as _support  # noqa: F401 - is it there?

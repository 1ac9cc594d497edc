"""Commits of a group: the request, the checkpoint in its metadata, and the limit of the metadata."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

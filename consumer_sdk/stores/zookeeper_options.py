"""The kazoo client that a store is configured with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from kazoo.client import KazooClient

from consumer_sdk.errors import ConfigurationError, MissingExtraError

__all__ = ["client_maker"]

LONGEST_BACKOFF = 1.0
"""Seconds between two tries to reconnect; kazoo's own limit is an hour."""

OURS = {
    "timeout": "session_timeout=",
    "handler": "nothing: kazoo's threads are bridged to the event loop",
    "client_id": "nothing: a session is the store's own",
    "read_only": "nothing: a store is written",
    "connection_retry": "nothing: it reconnects until it is closed",
    "command_retry": "nothing: the consumer tries again",
}
"""Options of kazoo's that the store sets itself → what to use."""


def client_maker(
    hosts: str, session_timeout: float, options: Mapping[str, Any]
) -> Callable[[], KazooClient]:
    """Makes clients that are not started; the first one is made now, to see that it works.

    Raises:
        ConfigurationError: an option that cannot work.
        MissingExtraError: what SASL needs is not installed.
    """
    for name in OURS.keys() & options.keys():
        raise ConfigurationError(f"{name}= is not for you to set here: use {OURS[name]}")
    if options.get("sasl_options") and find_spec("puresasl") is None:
        raise MissingExtraError("puresasl", "zookeeper-sasl")
    make = partial(
        KazooClient,
        hosts=hosts,
        timeout=session_timeout,
        connection_retry={"max_tries": -1, "max_delay": LONGEST_BACKOFF},
        **options,
    )
    try:
        make()
    except Exception as error:
        raise ConfigurationError(
            f"ZooKeeperStore({hosts!r}, …): {error!r}: give hosts as 'zk1:2181,zk2:2181', and "
            f"otherwise the options of kazoo.client.KazooClient"
        ) from error
    return make

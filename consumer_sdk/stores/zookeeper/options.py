"""The kazoo client that a store is configured with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from kazoo.client import KazooClient

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.options import NAME, unknown_option
from consumer_sdk.stores.zookeeper.tls import explainer, kazoo_options

__all__ = ["ClientMaker", "client_maker"]


def _are_hosts(value: str) -> bool:
    return all(len(host.split()) == 1 for host in value.partition("/")[0].split(","))


HOSTS = replace(
    NAME,
    wanted="hosts as 'zk1:2181,zk2:2181', not as a URL",
    accepts=lambda value: NAME.accepts(value) and "://" not in value and _are_hosts(value),
)

LONGEST_BACKOFF = 1.0
"""Seconds between two tries to reconnect; kazoo's own limit is an hour."""

OURS = {
    "timeout": "use session_timeout=",
    "handler": "kazoo's threads are bridged to the event loop",
    "client_id": "a session is the store's own",
    "read_only": "a store is written",
    "connection_retry": "it reconnects until it is closed",
    "command_retry": "the consumer tries again",
    "check_hostname": "use verify_hostname=",
}
"""Options of kazoo's that the store sets itself → what to do instead."""

KAZOOS = set(inspect.signature(KazooClient.__init__).parameters)
KNOWN = KAZOOS - {"self", "hosts", "kwargs", *OURS} | {"verify_hostname"}


class ClientMaker:
    """Makes kazoo clients that are not started.

    Attributes:
        explain: asks the servers why there is no connection.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = kazoo_options(options)
        self.explain = explainer(self._options)

    def __call__(self) -> KazooClient:
        return KazooClient(**self._options)


def client_maker(hosts: str, session_timeout: float, options: Mapping[str, Any]) -> ClientMaker:
    """Makes clients; the first one is made now, to see that it works.

    Raises:
        ConfigurationError: an option that cannot work.
        MissingExtraError: what SASL needs is not installed.
    """
    for name in OURS.keys() & options.keys():
        raise ConfigurationError(f"{name}= is not for you to set here: {OURS[name]}")
    HOSTS.check("hosts", hosts)
    for name in options.keys() - KNOWN:
        raise unknown_option(name, {"root", "session_timeout", "max_size", *KNOWN})
    if options.get("sasl_options") and find_spec("puresasl") is None:
        raise MissingExtraError("puresasl", "zookeeper-sasl")
    make = ClientMaker(
        {
            "hosts": hosts,
            "timeout": session_timeout,
            "connection_retry": {"max_tries": -1, "max_delay": LONGEST_BACKOFF},
            **options,
        }
    )
    try:
        make()
    except Exception as error:
        raise ConfigurationError(
            f"ZooKeeperStore({hosts!r}, …): {error!r}: give hosts as 'zk1:2181,zk2:2181', and "
            f"otherwise the options of kazoo.client.KazooClient"
        ) from error
    return make

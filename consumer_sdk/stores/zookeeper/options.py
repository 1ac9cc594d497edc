"""The kazoo client that a store is configured with: its options, its TLS, and why it does not connect."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from kazoo.client import KazooClient

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.options import COUNT, FLAG, NAME, SECONDS, TEXT, check_client_names, kinds_like
from consumer_sdk.tls_trouble import TlsOptions, find_trouble

__all__ = ["LARGEST", "OWN", "ClientMaker", "Explain", "client_maker", "explainer", "kazoo_options"]

QUESTION = b"srvr"
"""A word of four letters, which no session is made for; one that is forbidden is answered too."""

OPTIONS = TlsOptions(
    trust="give ca= the file of the authority that has signed it",
    hostname="give verify_hostname=False",
    certificate="give certfile= and keyfile=",
    on="give use_ssl=True, or the port without TLS",
    off="leave out use_ssl=, or give the secureClientPort",
)


class Explain:
    """Asks the servers why there is no connection.

    Attributes:
        tls: None if it is asked without.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls

    async def __call__(self, hosts: Sequence[tuple[str, int]]) -> str | None:
        """What is wrong with TLS at the first server that tells; None if none does."""
        for host, port in hosts:
            found = await find_trouble(host, port, QUESTION, self.tls, OPTIONS)
            if found is not None:
                return found
        return None


def kazoo_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The store's options as kazoo's: the name in the server's certificate counts.

    Raises:
        ConfigurationError: an option cannot work.
    """
    found = dict(options)
    checks = found.pop("verify_hostname", True)
    FLAG.check("verify_hostname", checks)
    if found.get("use_ssl"):
        found["check_hostname"] = checks and bool(found.get("verify_certs", True))
    elif not checks:
        raise ConfigurationError("verify_hostname=False has no effect without use_ssl=True")
    return found


def explainer(options: Mapping[str, Any]) -> Explain:
    """Asks with the TLS that kazoo would use.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    return Explain(_context(options) if options.get("use_ssl") else None)


def _context(options: Mapping[str, Any]) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_default_certs()
    made.check_hostname = options["check_hostname"]
    made.verify_mode = ssl.CERT_REQUIRED if options.get("verify_certs", True) else ssl.CERT_NONE
    files = {name: options.get(name) for name in ("ca", "certfile", "keyfile")}
    try:
        if files["ca"]:
            made.load_verify_locations(files["ca"])
        if files["certfile"] and files["keyfile"]:
            password = options.get("keyfile_password")
            made.load_cert_chain(files["certfile"], files["keyfile"], password)
    except (OSError, TypeError) as error:
        raise ConfigurationError(
            f"one of ca, certfile and keyfile {tuple(files.values())} cannot be used: {error}"
        ) from error
    return made


def _are_hosts(value: str) -> bool:
    return all(len(host.split()) == 1 for host in value.partition("/")[0].split(","))


HOSTS = replace(
    NAME,
    wanted="hosts as 'zk1:2181,zk2:2181', not as a URL",
    accepts=lambda value: NAME.accepts(value) and "://" not in value and _are_hosts(value),
)

LARGEST = 1_000_000
MAX_SIZE = replace(
    COUNT, wanted=f"1 to {LARGEST} bytes", accepts=lambda v: COUNT.accepts(v) and v <= LARGEST
)
OWN = {
    "hosts": HOSTS,
    "root": replace(TEXT, wanted="the absolute path of a znode, such as '/consumer-sdk'"),
    "session_timeout": SECONDS,
    "max_size": MAX_SIZE,
}
"""`ZooKeeperStore`'s own options."""

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

KNOWN = kinds_like(KazooClient.__init__).keys() - {"hosts"} | {"verify_hostname"}


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
    check_client_names(options, KNOWN, OURS, own=OWN.keys() - {"hosts"})
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

"""TLS of a ZooKeeper store: its options, and what keeps a connection from coming about."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import FLAG
from consumer_sdk.tls_trouble import TlsOptions, find_trouble

__all__ = ["Explain", "explainer", "kazoo_options"]

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

    Args:
        tls: None if it is asked without.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls

    async def __call__(self, hosts: Sequence[tuple[str, int]]) -> str | None:
        """What is wrong with TLS at the first server that tells; None if none does."""
        for host, port in hosts:
            found = await find_trouble(host, port, QUESTION, self._tls, OPTIONS)
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

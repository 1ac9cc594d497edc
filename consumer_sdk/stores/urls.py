"""Opens a store from a URL, for command lines and configuration files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import URL, shown

__all__ = ["store_from_url"]

FORMS = (
    "sqlite:///absolute/path/state.db, sqlite:relative/path/state.db or "
    "zookeeper://host:2181,host:2181/root"
)
MAKERS = {
    "sqlite": "LocalStore('/path/state.db', option=…)",
    "zookeeper": "ZooKeeperStore('host:2181', root='/root', option=…)",
}


def store_from_url(url: str, *, must_exist: bool = False) -> CheckpointStore:
    """The store that ``url`` names; not open yet.

    =======================================  =====================================================
    ``sqlite:///var/lib/state.db``           ``LocalStore("/var/lib/state.db")``
    ``sqlite:state.db``                      ``LocalStore("state.db")``
    ``zookeeper://zk1:2181,zk2:2181``        ``ZooKeeperStore("zk1:2181,zk2:2181")``
    ``zookeeper://zk1:2181/teams/billing``   ``ZooKeeperStore("zk1:2181", root="/teams/billing")``
    =======================================  =====================================================

    Whatever takes more options is made in Python: a URL is no place for credentials.

    Args:
        url: see above.
        must_exist: a SQLite file that is missing is an error, and not made when it is opened.

    Raises:
        ConfigurationError: it names no store; says what does.
        MissingExtraError: the store's client is not installed.
    """
    URL.check("url", url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _malformed(url) from error
    host, path = parts.netloc, unquote(parts.path)
    if parts.query and parts.scheme in MAKERS and "@" not in host:
        names = ", ".join(f"{name}=" for name, _ in parse_qsl(parts.query)) or "what follows '?'"
        raise ConfigurationError(
            f"{names} in {shown(url)}: the URL of a store takes no options; give them to "
            f"{MAKERS[parts.scheme]}"
        )
    if parts.query or parts.fragment or "@" in host:
        raise _malformed(url)
    if parts.scheme == "sqlite" and path.strip("/") and not host:
        return _local(path, must_exist=must_exist)
    if parts.scheme == "zookeeper" and host:
        return _zookeeper(host, path.rstrip("/"))
    raise _malformed(url)


def _local(path: str, *, must_exist: bool) -> CheckpointStore:
    from consumer_sdk.stores.sqlite.store import LocalStore

    if must_exist and not Path(path).exists():
        raise ConfigurationError(f"there is no file {path}: see that the path is right")
    return LocalStore(path)


def _zookeeper(hosts: str, root: str) -> CheckpointStore:
    from consumer_sdk.stores.zookeeper.store import ZooKeeperStore

    return ZooKeeperStore(hosts, root=root) if root else ZooKeeperStore(hosts)


def _malformed(url: str) -> ConfigurationError:
    return ConfigurationError(f"{shown(url)} names no store: write {FORMS}")

"""What a ZooKeeper store is configured with, and what is said before it is open."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, MissingExtraError
from consumer_sdk.records import Partition
from consumer_sdk.stores import ZooKeeperStore

FIRST = Partition("orders", "0")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hosts": ""}, "give hosts as 'zk1:2181,zk2:2181'"),
        ({"hosts": "zk:port"}, "give hosts as"),
        ({"root": "sdk"}, "absolute path"),
        ({"session_timeout": 0}, "session_timeout=0"),
        ({"session_timeout": float("nan")}, "session_timeout"),
        ({"max_size": 0}, "max_size=0"),
        ({"max_size": 2_000_000}, "max_size=2000000"),
        ({"timeout": 3}, "timeout= is not for you to set here: use session_timeout="),
        ({"handler": None}, "handler= is not for you"),
        ({"no_such_option": 1}, "no_such_option"),
        ({"check_hostname": True}, "check_hostname= is not for you .* use verify_hostname="),
        ({"verify_hostname": False}, "has no effect without use_ssl=True"),
        ({"verify_hostname": 1, "use_ssl": True}, "give True or False"),
        ({"use_ssl": True, "ca": "/no/such.pem"}, "ca, certfile and keyfile .*cannot be used"),
    ],
)
def test_option_that_cannot_work_is_a_configuration_error(
    options: dict[str, Any], message: str
) -> None:
    """Found when the store is built."""
    with pytest.raises(ConfigurationError, match=message):
        ZooKeeperStore(**{"hosts": "zk:2181", **options})


def test_missing_sasl_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be found out when kazoo connects, and only logged."""
    monkeypatch.setitem(sys.modules, "puresasl", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'consumer-sdk\[zookeeper-sasl\]'"):
        ZooKeeperStore("zk:2181", sasl_options={"mechanism": "DIGEST-MD5"})


def test_repr_names_the_place_and_no_secret() -> None:
    """What a log line shows."""
    store = ZooKeeperStore("zk:2181", root="/sdk", auth_data=[("digest", "alice:secret")])
    assert repr(store) == "ZooKeeperStore('zk:2181', root='/sdk')"


async def test_closed_store_is_a_clear_error() -> None:
    """Before open and after aclose."""
    store = ZooKeeperStore("zk:2181")
    with pytest.raises(ConsumerClosedError, match="is not open"):
        await store.save("g", [])
    with pytest.raises(ConsumerClosedError, match="is not open"):
        await store.peek("g", [FIRST])


def test_missing_client_names_the_extra() -> None:
    """Without kazoo the rest works, and asking for this store says what to install."""
    code = """
import sys
sys.modules["kazoo"] = None
import consumer_sdk.stores
from consumer_sdk.errors import MissingExtraError
try:
    consumer_sdk.stores.ZooKeeperStore
except MissingExtraError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'consumer-sdk[zookeeper]'" in found.stdout

"""What a ZooKeeper store is configured with, and what is said before it is open."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, MissingExtraError
from consumer_sdk.records import Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.stores.zookeeper.options import ClientMaker, client_maker, explainer
from consumer_sdk.testing.servers.ports import free_ports
from tests.test_tls_trouble import server

FIRST = Partition("orders", "0")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hosts": ""}, "give hosts as 'zk1:2181,zk2:2181'"),
        ({"hosts": "zk:port"}, "give hosts as"),
        ({"hosts": "zookeeper://zk:2181"}, "give hosts as 'zk1:2181,zk2:2181', not as a URL"),
        ({"hosts": "zk1:2181 zk2:2181"}, "give hosts as .* not as a URL"),
        ({"hosts": "zk1:2181,,zk2:2181"}, "give hosts as .* not as a URL"),
        ({"hosts": 2181}, "give hosts as .* not as a URL"),
        ({"root": "sdk"}, "absolute path"),
        ({"session_timeout": 0}, "session_timeout=0"),
        ({"session_timeout": float("nan")}, "session_timeout"),
        ({"max_size": 0}, "max_size=0"),
        ({"max_size": 1_000_001}, "max_size=1000001: give 1 to 1000000 bytes"),
        ({"timeout": 3}, "timeout= is not for you to set here: use session_timeout="),
        ({"handler": None}, "handler= is not for you"),
        ({"no_such_option": 1}, "no_such_option"),
        ({"sesion_timeout": 3}, "did you mean session_timeout="),
        ({"keyfil": "key.pem"}, "did you mean keyfile="),
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


def test_largest_checkpoint_may_have_a_million_bytes() -> None:
    """As much as a server takes by default, less what is around it."""
    ZooKeeperStore("zk:2181", max_size=1_000_000)


@pytest.mark.parametrize(
    "options, is_checked",
    [
        ({}, True),
        ({"verify_certs": True}, True),
        ({"verify_hostname": False}, False),
        ({"verify_certs": False}, False),
        ({"verify_certs": False, "verify_hostname": False}, False),
    ],
)
def test_name_in_the_certificate_counts_unless_it_is_told_not_to(
    options: dict[str, Any],
    is_checked: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Kazoo's own default takes the certificate of any host. A context that takes any refuses to check."""
    tls = ClientMaker({"hosts": "zk:2181", "use_ssl": True, **options}).explain.tls
    assert tls is not None
    assert tls.check_hostname is is_checked
    takes_any = options.get("verify_certs") is False
    assert tls.verify_mode is (ssl.CERT_NONE if takes_any else ssl.CERT_REQUIRED)


@pytest.mark.parametrize("missing", ["certfile", "keyfile"])
def test_certificate_needs_its_key(tmp_path: Path, missing: str) -> None:
    """Kazoo gives both or none; who asks why there is no connection does the same."""
    files = {name: str(tmp_path / name) for name in ("certfile", "keyfile")}
    with pytest.raises(ConfigurationError, match=r"certfile and keyfile .* cannot be used"):
        ClientMaker({"hosts": "zk:2181", "use_ssl": True, **files})
    ClientMaker({"hosts": "zk:2181", "use_ssl": True, **files, missing: None})


async def test_first_server_that_tells_what_is_wrong_is_heard() -> None:
    """The others may be down."""
    (closed,) = free_ports(1)
    async with server(answers_hello=True) as port:
        hosts = [("127.0.0.1", closed), ("127.0.0.1", port)]
        found = await explainer({})(hosts)
        assert found is not None
        assert found.startswith(f"127.0.0.1:{port} speaks TLS: give use_ssl=True")
        assert await explainer({})(hosts[:1]) is None


def test_client_connects_again_for_ever() -> None:
    """Kazoo gives up after a number of tries, and waits up to an hour between two."""
    retry = client_maker("zk:2181", 5, {})()._conn_retry
    assert (retry.max_tries, retry.max_delay) == (-1, 1.0)


def test_store_without_sasl_needs_no_package_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that has it miss it."""
    ZooKeeperStore("zk:2181", sasl_options={"mechanism": "DIGEST-MD5"})
    monkeypatch.setitem(sys.modules, "puresasl", None)
    ZooKeeperStore("zk:2181")


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

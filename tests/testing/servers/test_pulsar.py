"""Claims about the Pulsar server, on the real one."""

import sys

import pytest

from consumer_sdk.testing.servers import PulsarServer
from tests.testing.servers.listening import listening, only_loopback

pytestmark = pytest.mark.pulsar


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process listens on")
def test_server_listens_on_the_loopback_address_only(
    pulsar_server: PulsarServer,
) -> None:
    """Its bookie would listen on every address, on a port that nobody chose."""
    assert listening(pulsar_server.pid) == only_loopback(*pulsar_server.ports)

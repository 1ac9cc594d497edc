"""Claims about the Pulsar server, on the real one."""

import asyncio
import sys

import pytest

from consumer_sdk.testing.servers import PulsarEndpoint, PulsarServer, ServerStartError
from tests.testing.servers.listening import listening, only_loopback
from tests.testing.servers.processes import is_gone
from tests.testing.servers.pulsar.reading import redelivered_after_part_of_a_batch, values_of

pytestmark = pytest.mark.pulsar


def assert_only_loopback(server: PulsarServer) -> None:
    """Its bookie would take any port, and every address; /proc tells what it took."""
    if sys.platform == "linux":
        assert listening_of_a_jvm(server.pid) == only_loopback(*server.ports)


def listening_of_a_jvm(pid: int) -> list[tuple[str, int]]:
    """Look again when a file of the process closed between two looks: a JVM's often do."""
    while True:
        try:
            return listening(pid)
        except FileNotFoundError:
            assert not is_gone(pid)


@pytest.mark.campaign
async def test_messages_and_subscriptions_survive_kill_restart_and_pause(
    own_pulsar_server: PulsarServer,
) -> None:
    """A restart after SIGKILL has the data, the ports of 127.0.0.1 only, and another process."""
    server = own_pulsar_server
    assert_only_loopback(server)
    await server.create_subscription("kept", "readers")
    await server.produce("kept", [b"one", b"two"])
    before, addresses = server.pid, (server.service_url, server.admin_url)

    await server.kill()
    assert not server.is_running
    assert is_gone(before)
    await server.restart()
    assert (server.service_url, server.admin_url) == addresses
    assert_only_loopback(server)
    assert await server.backlog("kept", "readers") == 2
    assert await values_of(server, "kept") == [b"one", b"two"]

    server.pause()
    producing = asyncio.create_task(server.produce("kept", [b"three"]))
    assert await asyncio.wait({producing}, timeout=0.5) == (set(), {producing})
    server.resume()
    await producing
    assert await server.backlog("kept", "readers") == 3

    folder = server.directory
    await server.aclose()
    assert not folder.exists()


@pytest.mark.campaign
async def test_acks_inside_a_batch_are_on_and_can_be_switched_off(
    pulsar_server: PulsarEndpoint,
) -> None:
    """The default is what Pulsar 4.1 has; a setting of the caller's replaces ours."""
    assert await redelivered_after_part_of_a_batch(pulsar_server) == [b"4"]
    off = {"acknowledgmentAtBatchIndexLevelEnabled": "false"}
    async with PulsarServer(properties=off) as server:
        assert len(await redelivered_after_part_of_a_batch(server)) == 5


async def test_refused_setting_is_shown() -> None:
    """Pulsar's own words about a bad setting are in the error, and no process is left."""
    server = PulsarServer(properties={"numIOThreads": "many"})
    with pytest.raises(ServerStartError, match=r"(?s)ended at its start.*many"):
        await server.start()
    assert not server.is_running
    await server.aclose()

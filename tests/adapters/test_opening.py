"""Opening on a broker that is not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter, PulsarAdapter
from consumer_sdk.adapters.opening import FIRST_BACKOFF, keep_trying, unless_refused
from consumer_sdk.dead_letters import KafkaDeadLetters, KinesisDeadLetters
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.servers.ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Awaitable

SECONDS = 0.7


class Attempts:
    """Fails with each of the errors in turn, and works then."""

    def __init__(self, *errors: Exception, takes: float = 0.0) -> None:
        self.errors = list(errors)
        self.takes = takes
        self.told: list[float] = []

    async def __call__(self, left: float) -> str:
        """One attempt."""
        self.told.append(left)
        await asyncio.sleep(min(self.takes, left))
        if self.errors:
            raise self.errors.pop(0)
        return "open"


def tried(attempts: Attempts, seconds: float) -> tuple[str | Exception, Sequence[float], float]:
    """What came of it, what each attempt was told, and how long it took, in virtual time."""
    found: list[str | Exception] = []
    took = 0.0

    async def test(_simulation: Simulation) -> None:
        nonlocal took
        now = asyncio.get_running_loop().time
        began = now()
        try:
            found.append(await keep_trying(attempts, seconds))
        except ConsumerSdkError as error:
            found.append(error)
        took = now() - began

    simulate(test)
    return found[0], attempts.told, took


def test_broker_that_comes_back_in_time_is_opened(caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt is told what time is left; the waiting is logged once."""
    found, told, _took = tried(Attempts(*[TransientAdapterError("down")] * 6), 10.0)
    assert found == "open"
    assert [round(left, 6) for left in told] == [10.0, 9.9, 9.7, 9.3, 8.5, 7.5, 6.5]
    (record,) = caplog.records
    assert record.getMessage() == "cannot open yet, trying for 10.0 s more: down"


def test_broker_that_stays_away_is_given_up_in_time() -> None:
    """With the last attempt's error, and not before another could not end."""
    down = [TransientAdapterError(str(n)) for n in range(100)]
    found, told, took = tried(Attempts(*down), 10.0)
    assert isinstance(found, TransientAdapterError)
    assert str(found) == str(len(told) - 1)
    assert min(told) == pytest.approx(0.1)
    assert took == pytest.approx(9.9)


def test_attempt_that_uses_all_the_time_is_the_last_one() -> None:
    """A server that accepts and says nothing."""
    down = [TransientAdapterError("silent")] * 2
    _found, told, took = tried(Attempts(*down, takes=99.0), 10.0)
    assert len(told) == 1
    assert took == pytest.approx(10.0)


@pytest.mark.parametrize("seconds", [0.18, 0.25, 0.35, 10.0])
def test_broker_that_stays_away_is_told_by_its_reason(seconds: float) -> None:
    """No attempt is cut off because the time is up: it would say nothing but that."""

    async def attempt(left: float) -> None:
        try:
            async with asyncio.timeout(left):
                await asyncio.sleep(0.05)
        except TimeoutError:
            raise TransientAdapterError("no answer in time") from None
        raise TransientAdapterError("connection refused")

    async def test(_simulation: Simulation) -> None:
        with pytest.raises(TransientAdapterError, match="refused"):
            await keep_trying(attempt, seconds)

    simulate(test)


@pytest.mark.parametrize("error", [ConfigurationError("no topic"), AdapterError("no access")])
def test_what_time_does_not_mend_is_raised_at_once(error: Exception) -> None:
    """Nobody waits ten seconds to hear of a wrong password."""
    found, _told, took = tried(Attempts(error), 10.0)
    assert (found, took) == (error, 0.0)


@pytest.mark.parametrize(
    "takes, look_takes, why, refused, ends",
    [
        (0.5, 0.0, "no access", False, 0.5),
        (5.0, 0.0, "no access", True, 1.0),
        (5.0, 0.0, None, False, 5.0),
        (5.0, 9.0, "no access", False, 10.0),
    ],
    ids=["quick", "refused", "allowed", "open meanwhile"],
)
def test_opening_that_takes_long_is_given_up_if_the_broker_refuses(
    takes: float, look_takes: float, why: str | None, ends: float, *, refused: bool
) -> None:
    """It is asked after a second; what has opened by then is open."""

    async def test(_simulation: Simulation) -> None:
        now = asyncio.get_running_loop().time
        is_ended = False

        async def work() -> str:
            nonlocal is_ended
            try:
                await asyncio.sleep(takes)
            finally:
                is_ended = True
            return "open"

        async def look() -> str | None:
            assert now() == 1.0
            await asyncio.sleep(look_takes)
            return why

        if refused:
            with pytest.raises(AdapterError, match="no access"):
                await unless_refused(work(), look)
        else:
            assert await unless_refused(work(), look) == "open"
        assert (is_ended, now()) == (True, ends)

    simulate(test)


def test_opening_that_is_cancelled_ends_with_it() -> None:
    """Nothing of it goes on."""

    async def test(_simulation: Simulation) -> None:
        ended: list[float] = []

        async def work() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(2)
                ended.append(asyncio.get_running_loop().time())

        async def look() -> str | None:
            return None

        opening = asyncio.create_task(unless_refused(work(), look))
        await asyncio.sleep(5)
        opening.cancel()
        await asyncio.wait({opening})
        assert opening.cancelled()
        assert ended == [7.0]

    simulate(test)


AWS: dict[str, Any] = {
    "region_name": "eu-central-1",
    "aws_access_key_id": "a",
    "aws_secret_access_key": "b",
}
OPENINGS: dict[str, Callable[[int], Awaitable[None]]] = {
    "kafka": lambda port: KafkaAdapter(
        "t", bootstrap_servers=f"{HOST}:{port}", connect_timeout=SECONDS
    ).open(None),  # type: ignore[arg-type]  # never asked
    "kafka dead letters": lambda port: KafkaDeadLetters(
        "t", bootstrap_servers=f"{HOST}:{port}", creates_topics=False, connect_timeout=SECONDS
    ).open(),
    "kinesis": lambda port: KinesisAdapter(
        "s", endpoint_url=f"http://{HOST}:{port}", connect_timeout=SECONDS, **AWS
    ).open(None),  # type: ignore[arg-type]
    "kinesis dead letters": lambda port: KinesisDeadLetters(
        "s", endpoint_url=f"http://{HOST}:{port}", connect_timeout=SECONDS, **AWS
    ).open(),
    "pulsar": lambda port: PulsarAdapter(
        "t",
        service_url=f"pulsar://{HOST}:{port}",
        admin_url=f"http://{HOST}:{port}",
        subscription="s",
        connect_timeout=SECONDS,
    ).open(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", OPENINGS)
async def test_opening_goes_on_until_the_connect_timeout(kind: str) -> None:
    """A refused connection is what a broker that is restarted answers for a while."""
    (port,) = free_ports(1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(TransientAdapterError, match=str(port)):
        await OPENINGS[kind](port)
    assert asyncio.get_running_loop().time() - began >= SECONDS - 2 * FIRST_BACKOFF

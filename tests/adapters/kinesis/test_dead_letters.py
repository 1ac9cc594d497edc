"""Dead letters in a Kinesis stream: on a real server, and where one has to refuse, on a ready one."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.adapters.kinesis.service.client import ClientService, Connection
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, ThrottledError
from consumer_sdk.dead_letters import KinesisDeadLetters, decode_letter
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    TransientAdapterError,
)
from consumer_sdk.records import DeadLetter, Outcome, OutcomeKind, Partition
from tests.adapters.kinesis.answering import ARN, SUMMARY, Answering, answering, error

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KinesaliteServer, KinesisServer

LETTER = DeadLetter(
    partition=Partition("orders", "shardId-000000000002"),
    position="17.3",
    key=b"k",
    value=b"\xff not json",
    headers=[],
    timestamp=1_600_000_000_000,
    error="ValueError: no",
    error_type="builtins.ValueError",
    attempts=5,
    group="billing",
    failed_at=1_700_000_000.5,
)


def options(server: KinesisServer | KinesaliteServer) -> dict[str, Any]:
    """How to reach a server."""
    return {
        "endpoint_url": server.endpoint_url,
        "region_name": server.region,
        **server.credentials,
    }


def many(count: int, size: int = 0) -> list[DeadLetter]:
    """Letters that differ in their position."""
    return [replace(LETTER, position=str(number), value=b"v" * size) for number in range(count)]


def kinds(outcomes: list[Outcome]) -> set[OutcomeKind]:
    """Of all outcomes."""
    return {outcome.kind for outcome in outcomes}


async def read_all(stream: str, server: KinesisServer | KinesaliteServer) -> list[DeadLetter]:
    """All letters of a stream of one shard, in order, read with the adapter's own client."""
    service = ClientService(stream, Connection(**options(server)))
    await service.open()
    (shard,) = await service.shards()
    iterator = await service.iterator(shard.id, IteratorStart("TRIM_HORIZON"))
    page = await service.records(iterator, 10_000)
    await service.aclose()
    return [decode_letter(data) for data in page.data]


# -- a real server ----------------------------------------------------------------------------


@pytest.mark.kinesis
async def test_letters_are_written_with_their_key(kinesis_server: KinesisServer) -> None:
    """And come back as they were, in order."""
    stream = f"letters-{uuid.uuid4().hex[:8]}"
    await kinesis_server.create_stream(stream)
    letters = KinesisDeadLetters(stream, **options(kinesis_server))
    await letters.open()
    sent = [LETTER, replace(LETTER, key=None, value=None), replace(LETTER, headers=[("a", b"1")])]
    assert kinds(await letters.send(sent)) == {OutcomeKind.DURABLE}
    await letters.aclose()
    assert await read_all(stream, kinesis_server) == sent


@pytest.mark.kinesis
async def test_more_letters_than_one_request_takes_are_all_written(
    kinesalite_server: KinesaliteServer,
) -> None:
    """This server refuses a request of 501 records, and one of more than 5 MiB, as a whole."""
    stream = f"letters-{uuid.uuid4().hex[:8]}"
    await kinesalite_server.create_stream(stream)
    letters = KinesisDeadLetters(stream, **options(kinesalite_server))
    sent = many(1001) + many(12, 900_000)
    assert kinds(await letters.send(sent)) == {OutcomeKind.DURABLE}
    await letters.aclose()
    found = await read_all(stream, kinesalite_server)
    assert [letter.position for letter in found] == [letter.position for letter in sent]


@pytest.mark.kinesis
async def test_a_letter_that_is_too_large_is_retried_alone(
    kinesalite_server: KinesaliteServer,
) -> None:
    """Its error names its size and what to do; those beside it are written."""
    stream = f"letters-{uuid.uuid4().hex[:8]}"
    await kinesalite_server.create_stream(stream)
    letters = KinesisDeadLetters(stream, **options(kinesalite_server))
    large = replace(LETTER, value=b"v" * 1024 * 1024)
    before, refused, after = await letters.send([LETTER, large, LETTER])
    await letters.aclose()
    assert kinds([before, after]) == {OutcomeKind.DURABLE}
    assert refused.kind is OutcomeKind.RETRY
    assert "the stream takes 1,048,576" in str(refused.error)
    assert "UpdateMaxRecordSize" in str(refused.error)
    assert "dead_letters='sqlite:///" in str(refused.error)
    assert await read_all(stream, kinesalite_server) == [LETTER, LETTER]


@pytest.mark.kinesis
async def test_a_missing_stream_is_a_configuration_error(kinesis_server: KinesisServer) -> None:
    """Found when it is opened; no stream is ever created."""
    letters = KinesisDeadLetters("nowhere", **options(kinesis_server))
    with pytest.raises(ConfigurationError, match=r"no stream 'nowhere'.*create it"):
        await letters.open()
    (outcome,) = await letters.send([LETTER])
    assert isinstance(outcome.error, ConfigurationError)
    await letters.aclose()


# -- answers that have to be arranged ---------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[Answering]:
    """A server that knows the stream ``orders``."""
    async with answering() as server:
        yield server


@pytest.fixture
async def letters(server: Answering) -> AsyncIterator[KinesisDeadLetters]:
    """Dead letters that are open on it."""
    letters = KinesisDeadLetters(ARN, endpoint_url=server.url, **KEYS)
    await letters.open()
    yield letters
    await letters.aclose()


KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
WRITTEN = {"SequenceNumber": "1", "ShardId": "s"}


def written(count: int) -> dict[str, Any]:
    """The answer to a PutRecords that succeeds."""
    return {"Records": [WRITTEN] * count}


async def test_a_part_that_failed_is_retried_and_the_rest_is_not(
    server: Answering, letters: KinesisDeadLetters
) -> None:
    """A shard was busy for one letter: each letter has an answer of its own."""
    busy = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"}
    broken = {"ErrorCode": "InternalFailure"}
    server.on("PutRecords", {"FailedRecordCount": 2, "Records": [WRITTEN, busy, broken, WRITTEN]})
    outcomes = await letters.send(many(4))
    durable, retry = OutcomeKind.DURABLE, OutcomeKind.RETRY
    assert [outcome.kind for outcome in outcomes] == [durable, retry, retry, durable]
    assert isinstance(outcomes[1].error, ThrottledError)
    assert "slow down" in str(outcomes[1].error)
    assert isinstance(outcomes[2].error, TransientAdapterError)


async def test_a_letter_that_the_service_does_not_take_spoils_no_other(
    server: Answering, letters: KinesisDeadLetters
) -> None:
    """A request is refused as a whole: the letter is found by halves."""
    no = error("ValidationException", "member must not be such")
    # Of four: all; the first half; its one and other; the second half.
    server.on("PutRecords", no, no, no, written(1), written(2))
    outcomes = await letters.send(many(4))
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.RETRY, *[OutcomeKind.DURABLE] * 3]
    assert "member must not be such" in str(outcomes[0].error)


@pytest.mark.parametrize(
    "answer, kind",
    [
        (error("ProvisionedThroughputExceededException"), ThrottledError),
        (error("AccessDeniedException"), AdapterError),
        (error("InternalFailure", status=500), TransientAdapterError),
        ({"Records": [WRITTEN]}, TransientAdapterError),
        ({}, TransientAdapterError),
    ],
)
async def test_a_request_that_fails_is_a_retry_of_its_letters(
    server: Answering, letters: KinesisDeadLetters, answer: Any, kind: type[AdapterError]
) -> None:
    """In one request; those of another request are not concerned."""
    server.on("PutRecords", answer, written(1))
    outcomes = await letters.send(many(501))
    assert {type(outcome.error) for outcome in outcomes[:500]} == {kind}
    assert outcomes[500].kind is OutcomeKind.DURABLE
    assert server.count("PutRecords") == 2


async def test_a_larger_limit_is_noticed_without_a_restart(
    server: Answering, letters: KinesisDeadLetters
) -> None:
    """The stream is looked at again when a letter is too large."""
    large = many(1, 2 * 1024 * 1024)
    assert kinds(await letters.send(large)) == {OutcomeKind.RETRY}
    assert server.count("PutRecords") == 0
    raised = {**SUMMARY["StreamDescriptionSummary"], "MaxRecordSizeInKiB": 10_240}
    server.on("DescribeStreamSummary", {"StreamDescriptionSummary": raised})
    server.on("PutRecords", written(1))
    assert kinds(await letters.send(large)) == {OutcomeKind.DURABLE}


async def test_letters_need_no_opening(server: Answering) -> None:
    """And after an outage the next letter connects again."""
    server.on("DescribeStreamSummary", error("InternalFailure", status=500), SUMMARY)
    server.on("PutRecords", written(1))
    letters = KinesisDeadLetters(ARN, endpoint_url=server.url, **KEYS)
    assert kinds(await letters.send([LETTER])) == {OutcomeKind.RETRY}
    assert kinds(await letters.send([LETTER])) == {OutcomeKind.DURABLE}
    await letters.aclose()
    await letters.aclose()


async def test_no_letters_are_no_request(server: Answering, letters: KinesisDeadLetters) -> None:
    """Kinesis refuses an empty one."""
    assert await letters.send([]) == []
    assert server.count("PutRecords") == 0


def test_an_option_that_nobody_knows_is_a_configuration_error() -> None:
    """So is a name that is none."""
    with pytest.raises(ConfigurationError, match="regoin"):
        KinesisDeadLetters("orders", regoin="eu-central-1")
    with pytest.raises(ConfigurationError, match="a/b"):
        KinesisDeadLetters("a/b")

"""The operations of Kinesis on the model: from a request's body to an answer's. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis.errors import THROTTLED, RefusedError, invalid
from consumer_sdk.testing.kinesis.fanout import FakeConsumer, Subscription
from consumer_sdk.testing.kinesis.model import MOST_RECORDS, FakeKinesis
from consumer_sdk.testing.kinesis.shapes import (
    answer_shape,
    consumer_shape,
    shard_shape,
    stream_shape,
)
from consumer_sdk.testing.kinesis.shard import FakeShard

__all__ = ["Operations", "list_shards"]

PAGE = 1000
"""Shards in an answer, where the request does not say."""

TOKEN_LIFETIME = 300.0


def list_shards(kinesis: FakeKinesis, body: Mapping[str, Any], stream: str | None) -> Any:
    """Answers ListShards.

    Args:
        stream: the name in the request; a request with a token has none.
    """
    now = kinesis.clock.monotonic()
    after = body.get("ExclusiveStartShardId", "")
    filtered = body.get("ShardFilter") or {}
    if token := body.get("NextToken"):
        if stream is not None:
            raise invalid("NextToken and StreamName cannot be provided together")
        stream, after, filtered = _read_token(token, now)
    if stream is None:
        raise invalid("StreamName, StreamARN or NextToken is needed")
    shards = [each for each in _filtered(kinesis, stream, filtered) if each.id > after]
    size = body.get("MaxResults", PAGE)
    answer: dict[str, Any] = {"Shards": [shard_shape(shard) for shard in shards[:size]]}
    if len(shards) > size:
        answer["NextToken"] = _token(stream, shards[size - 1].id, filtered, now)
    return answer


def _filtered(kinesis: FakeKinesis, stream: str, wanted: Mapping[str, Any]) -> Sequence[FakeShard]:
    shards = kinesis.shards(stream)
    kind, time = wanted.get("Type", "FROM_TRIM_HORIZON"), float(wanted.get("Timestamp", 0))
    if kind in {"FROM_TRIM_HORIZON", "AT_TRIM_HORIZON"}:
        return _open_at(kinesis, shards) if kind == "AT_TRIM_HORIZON" else shards
    if kind == "AT_LATEST":
        return [each for each in shards if each.closed is None]
    if kind == "AFTER_SHARD_ID":
        return [each for each in shards if each.id > wanted["ShardId"]]
    if kind == "FROM_TIMESTAMP":
        return [each for each in shards if each.closed is None or each.closed >= time]
    if kind == "AT_TIMESTAMP":
        return [
            each
            for each in shards
            if each.created <= time and (each.closed is None or each.closed >= time)
        ]
    raise invalid(f"ShardFilter type {kind} is not known")


def _open_at(kinesis: FakeKinesis, shards: Sequence[FakeShard]) -> Sequence[FakeShard]:
    """Those that were open at the horizon: none of their parents is stored any more."""
    horizon = kinesis.clock.wall() - kinesis.retention
    known = {each.id for each in shards}
    return [each for each in shards if each.created <= horizon or not known & {*each.parents}]


def _token(stream: str, after: str, wanted: Mapping[str, Any], now: float) -> str:
    return base64.b64encode(json.dumps([stream, after, wanted, now]).encode()).decode()


def _read_token(token: str, now: float) -> tuple[str, str, Mapping[str, Any]]:
    try:
        stream, after, wanted, made = json.loads(base64.b64decode(token, validate=True))
    except (ValueError, TypeError):
        raise invalid("NextToken is not valid") from None
    if now - made > TOKEN_LIFETIME:
        raise RefusedError("ExpiredNextTokenException", "NextToken is older than 300 seconds")
    return stream, after, wanted


Body = Mapping[str, Any]
MOST_PUT = 500
"""Records of one PutRecords."""


class Operations:
    """Answers requests, all but SubscribeToShard, which is not one answer."""

    def __init__(self, kinesis: FakeKinesis) -> None:
        self._kinesis = kinesis
        self._known: Mapping[str, Callable[[Body], Any]] = {
            "CreateStream": self._create_stream,
            "DeleteStream": self._delete_stream,
            "DeregisterStreamConsumer": self._deregister,
            "DescribeStream": self._describe_stream,
            "DescribeStreamConsumer": self._describe_consumer,
            "DescribeStreamSummary": self._describe_summary,
            "GetRecords": self._get_records,
            "GetShardIterator": self._get_shard_iterator,
            "ListShards": self._list_shards,
            "ListStreamConsumers": self._list_consumers,
            "ListStreams": self._list_streams,
            "MergeShards": self._merge,
            "PutRecord": self._put_record,
            "PutRecords": self._put_records,
            "RegisterStreamConsumer": self._register,
            "SplitShard": self._split,
        }

    def answer(self, operation: str, body: Body) -> Any:
        """One request; None: the answer has no body.

        Raises:
            RefusedError: of the model; UnknownOperationException, or ValidationException where
                the request lacks something.
        """
        if operation not in self._known:
            raise RefusedError("UnknownOperationException", f"{operation} is not faked")
        try:
            return self._known[operation](body)
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError("ValidationException", f"{operation}: {error!r}") from error

    def subscribe(self, body: Body) -> Subscription:
        """SubscribeToShard."""
        position = body["StartingPosition"]
        start = _start(position["Type"], position.get("SequenceNumber"), position)
        return self._kinesis.fan_out.subscribe(body["ConsumerARN"], body["ShardId"], start)

    # Streams ---------------------------------------------------------------------------

    def _create_stream(self, body: Body) -> None:
        self._kinesis.create_stream(body["StreamName"], body.get("ShardCount", 1))

    def _delete_stream(self, body: Body) -> None:
        self._kinesis.delete_stream(_name(body))

    def _describe_summary(self, body: Body) -> Any:
        stream = self._kinesis.stream(_name(body))
        shape = stream_shape(stream, self._kinesis.retention)
        shape["ConsumerCount"] = len(self._kinesis.fan_out.consumers(stream.name))
        return {"StreamDescriptionSummary": shape}

    def _describe_stream(self, body: Body) -> Any:
        shape = stream_shape(self._kinesis.stream(_name(body)), self._kinesis.retention)
        del shape["OpenShardCount"]
        shape["Shards"] = [shard_shape(each) for each in self._kinesis.shards(_name(body))]
        return {"StreamDescription": shape | {"HasMoreShards": False}}

    def _list_streams(self, _: Body) -> Any:
        return {"StreamNames": self._kinesis.streams(), "HasMoreStreams": False}

    def _list_shards(self, body: Body) -> Any:
        is_named = "StreamName" in body or "StreamARN" in body
        return list_shards(self._kinesis, body, _name(body) if is_named else None)

    def _split(self, body: Body) -> None:
        at = int(body["NewStartingHashKey"])
        self._kinesis.split(_name(body), body["ShardToSplit"], at)

    def _merge(self, body: Body) -> None:
        pair = body["ShardToMerge"], body["AdjacentShardToMerge"]
        self._kinesis.merge(_name(body), *pair)

    # Records ---------------------------------------------------------------------------

    def _get_shard_iterator(self, body: Body) -> Any:
        start = _start(body["ShardIteratorType"], body.get("StartingSequenceNumber"), body)
        token = self._kinesis.shard_iterator(_name(body), body["ShardId"], start)
        return {"ShardIterator": token}

    def _get_records(self, body: Body) -> Any:
        limit = body.get("Limit", MOST_RECORDS)
        return answer_shape(self._kinesis.get_records(body["ShardIterator"], limit))

    def _put_record(self, body: Body) -> Any:
        explicit = body.get("ExplicitHashKey")
        shard, record = self._kinesis.put(
            _name(body),
            base64.b64decode(body["Data"]),
            body["PartitionKey"],
            hash_value=None if explicit is None else int(explicit),
        )
        return {"ShardId": shard.id, "SequenceNumber": str(record.sequence)}

    def _put_records(self, body: Body) -> Any:
        if not 1 <= len(body["Records"]) <= MOST_PUT:
            raise invalid(f"PutRecords takes 1 to {MOST_PUT} records")
        name = {"StreamName": _name(body)}
        answers = [self._put_entry(name | each) for each in body["Records"]]
        failed = sum("ErrorCode" in answer for answer in answers)
        return {"Records": answers, "FailedRecordCount": failed}

    def _put_entry(self, entry: Body) -> Any:
        """One record of many: those that are throttled do not hinder the others."""
        try:
            return self._put_record(entry)
        except RefusedError as error:
            if error.code != THROTTLED:
                raise
            return {"ErrorCode": error.code, "ErrorMessage": error.message}

    # Consumers -------------------------------------------------------------------------

    def _register(self, body: Body) -> Any:
        found = self._kinesis.fan_out.register(_name(body), body["ConsumerName"])
        return {"Consumer": self._consumer(found)}

    def _describe_consumer(self, body: Body) -> Any:
        found = self._found_consumer(body)
        stream = self._kinesis.stream(found.stream)
        return {"ConsumerDescription": self._consumer(found) | {"StreamARN": stream.arn}}

    def _list_consumers(self, body: Body) -> Any:
        found = self._kinesis.fan_out.consumers(_name(body))
        return {"Consumers": [self._consumer(each) for each in found]}

    def _deregister(self, body: Body) -> None:
        self._kinesis.fan_out.deregister(self._found_consumer(body).arn)

    def _found_consumer(self, body: Body) -> FakeConsumer:
        if "ConsumerARN" in body:
            return self._kinesis.fan_out.consumer(body["ConsumerARN"])
        return self._kinesis.fan_out.named(_name(body), body["ConsumerName"])

    def _consumer(self, consumer: FakeConsumer) -> Any:
        return consumer_shape(consumer, is_active=not self._kinesis.fan_out.creating(consumer))


def _name(body: Body) -> str:
    """The stream's name, which an ARN ends with."""
    name: str = body.get("StreamName") or body["StreamARN"].rsplit("/", 1)[-1]
    return name


def _start(kind: str, sequence: str | None, body: Body) -> IteratorStart:
    return IteratorStart(
        kind, None if sequence is None else int(sequence), time=body.get("Timestamp")
    )

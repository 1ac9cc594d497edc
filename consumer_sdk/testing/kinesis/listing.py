"""ListShards: its filters, its pages and its tokens. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from consumer_sdk.testing.kinesis.errors import RefusedError, invalid
from consumer_sdk.testing.kinesis.model import FakeKinesis
from consumer_sdk.testing.kinesis.shapes import shard_shape
from consumer_sdk.testing.kinesis.shard import FakeShard

__all__ = ["list_shards"]

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

"""Where we go past the client, at events that it documents.

``before-parse`` hooks are called with an answer before it is parsed. What they put into
``customized_response_dict`` is added to what the client returns; errors are left to the client.
``before-send`` hooks are called with a request that is signed.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

from consumer_sdk.adapters.kinesis.service.decoding import page_of_body
from consumer_sdk.adapters.kinesis.service.events import encode_event
from consumer_sdk.errors import AdapterError, TransientAdapterError

__all__ = ["PAGE", "STREAM", "hand_over_stream", "hooked", "read_records", "stream_large_body"]

PAGE = "Page"
"""Where the answer to GetRecords has its `Page`."""

STREAM = "EventStream"
"""Where the answer to SubscribeToShard has the HTTP response, to be read and closed."""

LARGE = 2**20
"""Bytes from which on aiohttp warns."""

FIRST_FRAME = encode_event({":message-type": "event", ":event-type": "initial-response"}, b"{}")


def read_records(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Makes a `Page` of an answer to GetRecords, and leaves the client nothing to parse.

    Raises:
        TransientAdapterError: it cannot be read.
    """
    if response_dict["status_code"] == HTTPStatus.OK:
        customized_response_dict[PAGE] = page_of_body(response_dict["body"])
        response_dict["body"] = b"{}"


def hand_over_stream(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Hands over the HTTP response itself, and gives the client the frame that it waits for."""
    if response_dict["status_code"] == HTTPStatus.OK:
        customized_response_dict[STREAM] = response_dict["body"]
        response_dict["body"] = _FirstFrame()


def stream_large_body(request: Any, **_: Any) -> None:
    """Has a large request written in pieces; aiohttp warns of one that would be written at once."""
    if len(request.body) > LARGE:
        request.body = io.BytesIO(request.body)


def hooked(answer: Mapping[str, Any], name: str) -> Any:
    """What a hook has put into an answer.

    Raises:
        TransientAdapterError: the answer has another status than the service gives; some proxy may
            have answered.
        AdapterError: the hook was not called.
    """
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", HTTPStatus.OK)
    if status != HTTPStatus.OK:
        raise TransientAdapterError(f"Kinesis sent an answer that cannot be read: status {status}")
    try:
        return answer[name]
    except KeyError as error:
        raise AdapterError(
            "this version of aiobotocore does not call before-parse hooks: take another, or, "
            "without enhanced fan-out, give fast_decode=False"
        ) from error


class _FirstFrame:
    """As much of an HTTP response as the client looks at."""

    @property
    def content(self) -> _FirstFrame:
        return self

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        yield FIRST_FRAME, True

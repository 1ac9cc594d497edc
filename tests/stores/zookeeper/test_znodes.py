"""What our znodes are called and hold: a person can read it, and hostile content is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores.fencing import Stamp
from consumer_sdk.stores.zookeeper.tree import (
    MAX_HEAD,
    check_root,
    checkpoint_path,
    decode_pin,
    decode_znode,
    encode_pin,
    encode_znode,
    escape,
    unescape,
)
from consumer_sdk.trackers import encode_checkpoint

ORDERS = Partition("orders", "0")
PATH = "/sdk/g/orders/0"
STAMP = Stamp("host/4711/abc.1", 7, 3)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
STAMPS = st.builds(Stamp, NAMES, st.none() | st.integers(0, 2**63), st.integers(0, 2**63))


def checkpoint_text() -> str:
    """What a flush would save."""
    checkpoint = Checkpoint(watermark=41, resume=42, ranges=((44, 50),), attempts={43: (2, 1.5)})
    text, _ = encode_checkpoint(checkpoint, broker="kafka", partition=ORDERS, encode_position=str)
    return text


def test_checkpoint_is_one_json_object() -> None:
    """Who wrote it, and what, with nothing but ``get`` in ZooKeeper's shell."""
    body = json.loads(encode_znode(STAMP, checkpoint_text()))
    assert {k: body[k] for k in ("version", "writer", "fence", "serial")} == {
        "version": 1,
        "writer": "host/4711/abc.1",
        "fence": 7,
        "serial": 3,
    }
    assert body["checkpoint"]["broker"] == "kafka"
    assert body["checkpoint"]["stream"] == "orders"
    assert body["checkpoint"]["partition"] == "0"
    assert body["checkpoint"]["resume"] == "42"


@given(STAMPS, st.none() | st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_is_written_is_read_back(stamp: Stamp, text: str | None) -> None:
    """Any writer, fence, serial and text, also one that is no JSON; None stays None."""
    assert decode_znode(encode_znode(stamp, text), PATH) == (stamp, text)


def test_text_that_looks_like_ours_is_still_text() -> None:
    """The first mark counts: a checkpoint may hold anything."""
    inner = encode_znode(STAMP, "{}").decode()
    assert decode_znode(encode_znode(STAMP, inner), PATH) == (STAMP, inner)
    sly = Stamp('","checkpoint":"', None, 0)
    assert decode_znode(encode_znode(sly, "text"), PATH) == (sly, "text")


@given(NAMES)
def test_any_name_is_an_element_of_a_path(name: str) -> None:
    """No slash, no dots alone, nothing that ZooKeeper refuses, and it can be read back."""
    element = escape(name)
    assert element.isascii()
    assert element.isprintable()
    assert element not in ("", ".", "..")
    assert not set(element) & set("/ ")
    assert unescape(element) == name


@pytest.mark.parametrize(
    "name, element",
    [
        ("orders", "orders"),
        ("a/b", "a%2Fb"),
        ("é", "%C3%A9"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("", "%"),
    ],
)
def test_name_is_percent_encoded(name: str, element: str) -> None:
    """What operators see in ZooKeeper's shell; every version has to find what another one has stored."""
    assert escape(name) == element


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_two_names_are_two_elements(names: list[str]) -> None:
    """No two groups, streams or partitions share a znode."""
    assert escape(names[0]) != escape(names[1])


@pytest.mark.parametrize("element", ["a b", "%2f", "%zz", "注文", ".", "", "%2Ex"])
def test_element_of_somebody_else_is_none_of_ours(element: str) -> None:
    """What `escape` never makes is left alone."""
    assert unescape(element) is None


def test_names_that_are_too_long_are_said() -> None:
    """A path leaves room for a checkpoint in the request."""
    longest = 8192 - len("/sdk//orders/0")
    assert checkpoint_path("/sdk", "g" * longest, ORDERS).endswith("g/orders/0")
    with pytest.raises(ConfigurationError, match="a path of 8193 characters, at most 8192"):
        checkpoint_path("/sdk", "g" * (longest + 1), ORDERS)


@pytest.mark.parametrize(
    "root",
    [
        None,
        7,
        "",
        "/",
        "sdk",
        "/sdk/",
        "//sdk",
        "/a/../b",
        "/.",
        "/zookeeper/sdk",
        "/a\0b",
        "/\ud800",
    ],
)
def test_root_that_cannot_be_is_a_configuration_error(root: Any) -> None:
    """Found when the store is built."""
    with pytest.raises(ConfigurationError, match="absolute path"):
        check_root(root)


@pytest.mark.parametrize("root", ["/sdk", "/a/b.c/d", "/zookeepers"])
def test_root_is_any_other_path(root: str) -> None:
    """It need not exist yet."""
    assert check_root(root) == root


def test_pin_is_json_and_comes_back() -> None:
    """A stream's znode says where the group starts; an empty one says nothing."""
    assert json.loads(encode_pin("time:1.5")) == {"version": 1, "start": "time:1.5"}
    assert decode_pin(encode_pin("time:1.5"), PATH) == "time:1.5"
    assert decode_pin(b"", PATH) is None


HOSTILE = {
    "nothing": b"",
    "no JSON": b"hello",
    "no object": b"[1]",
    "a number": b"1",
    "storm-kafka's": b'{"topology":{"id":"a","name":"b"},"offset":42,"partition":0,"topic":"t"}',
    "no version": b'{"writer":"w","fence":null,"serial":1}',
    "another version": b'{"version":2,"writer":"w","fence":null,"serial":1}',
    "a version that is true": b'{"version":true,"writer":"w","fence":null,"serial":1}',
    "no writer": b'{"version":1,"fence":null,"serial":1}',
    "a writer that is a number": b'{"version":1,"writer":1,"fence":null,"serial":1}',
    "no fence": b'{"version":1,"writer":"w","serial":1}',
    "a fence that is text": b'{"version":1,"writer":"w","fence":"7","serial":1}',
    "a fence that is true": b'{"version":1,"writer":"w","fence":true,"serial":1}',
    "no serial": b'{"version":1,"writer":"w","fence":null}',
    "a negative serial": b'{"version":1,"writer":"w","fence":null,"serial":-1}',
    "a fractional serial": b'{"version":1,"writer":"w","fence":null,"serial":1.5}',
    "deep nesting": b"[" * MAX_HEAD,
    "bytes": bytes(range(256)),
    "two megabytes": b"x" * 2_000_000,
    "two megabytes of JSON": b'{"version":1,"writer":"%b"}' % (b"x" * 2_000_000),
    "cut in the checkpoint": encode_znode(STAMP, "{}")[:-1] + b" ",
    "a checkpoint that is no UTF-8": encode_znode(STAMP, "{}").replace(b"{}", b"\xff"),
}


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_content_is_a_typed_error(content: str) -> None:
    """Whatever it is, it is refused with its path and a way out, and at once."""
    with pytest.raises(CheckpointFormatError, match=f"{PATH} holds no checkpoint that can be"):
        decode_znode(HOSTILE[content], PATH)


@pytest.mark.parametrize("content", [b"{}", b"x", b'{"version":1}', b'{"version":1,"start":1}'])
def test_hostile_pin_is_a_typed_error(content: bytes) -> None:
    """A pin that cannot be read never means "no pin"."""
    with pytest.raises(CheckpointFormatError):
        decode_pin(content, PATH)

"""What was stored once is read for good: each text here was written once, and stays as it is.

A new form gets a text of its own; none is taken away within a major version (docs/versions.md).
"""

from __future__ import annotations

import json

import pytest

from consumer_sdk.leases.table import LeaseTable
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.spark_bridge.feed.manifests import Manifest
from consumer_sdk.spark_bridge.pull.planning.offsets import Offsets
from consumer_sdk.trackers import decode_checkpoint, decode_checkpoint_bytes

ORDERS = Partition("orders", "0")
PLAIN = Checkpoint(5, 6, ((8, 9),), {7: (2, 1.5)}, identity="abc")
WITH_APPLICATION = Checkpoint(5, 6, ((8, 9),), identity="abc", application="v2")
WITH_TIME = Checkpoint(5, 6, attempts={7: (1, 5000.0)}, written=1400.0)
WITH_BOTH = Checkpoint(5, 6, attempts={7: (1, 5000.0)}, written=1400.0, application="v2")

TEXTS = {
    '{"attempts":{"7":[2,1.5]},"broker":"kafka","ended":false,"identity":"abc","partition":"0","ranges":[["8","9"]],"resume":"6","stream":"orders","version":1,"watermark":"5","crc32":701692440}': PLAIN,
    '{"application":"v2","attempts":{},"broker":"kafka","ended":false,"identity":"abc","partition":"0","ranges":[["8","9"]],"resume":"6","stream":"orders","version":1,"watermark":"5","crc32":3108631944}': WITH_APPLICATION,
    '{"attempts":{"7":[1,5000.0]},"broker":"kafka","ended":false,"identity":null,"partition":"0","ranges":[],"resume":"6","stream":"orders","version":1,"watermark":"5","written":1400.0,"crc32":258695293}': WITH_TIME,
    '{"application":"v2","attempts":{"7":[1,5000.0]},"broker":"kafka","ended":false,"identity":null,"partition":"0","ranges":[],"resume":"6","stream":"orders","version":1,"watermark":"5","written":1400.0,"crc32":2492694030}': WITH_BOTH,
}
BYTES = {
    "c501f2cca11b5d8c9bcb00036162630c00020a0204020204caf8424ef46e": PLAIN,
    "c502f2cca11b5d8c9bcb0003616263000276320c00020a02040280ad5602": WITH_APPLICATION,
    "c503f2cca11b5d8c9bcbffff1c00000a02e12ab9800202e1989680f334eaab": WITH_TIME,
    "c504f2cca11b5d8c9bcbffff000276321c00000a02e12ab9800202e198968031e0583d": WITH_BOTH,
}
MANIFEST = b'{"at":0,"bytes":100,"checksum":2722473011,"crc32":5,"number":7,"ranges":{"orders/0":[[1,3]]},"rows":3,"segment":"a-0.arrow","texts":{},"version":2,"writer":["",0,0]}\n'


@pytest.mark.parametrize("text, checkpoint", TEXTS.items())
def test_checkpoint_as_text_is_read(text: str, checkpoint: Checkpoint) -> None:
    """Version 1, with and without what was added to it."""
    found = decode_checkpoint(
        text, broker="kafka", partition=ORDERS, identity=None, decode_position=int
    )
    assert found == checkpoint


@pytest.mark.parametrize("text, checkpoint", BYTES.items())
def test_checkpoint_as_bytes_is_read(text: str, checkpoint: Checkpoint) -> None:
    """Versions 1 to 4."""
    data = bytes.fromhex(text)
    assert (
        decode_checkpoint_bytes(data, broker="kafka", partition=ORDERS, identity=None) == checkpoint
    )


def test_leases_are_read() -> None:
    """Version 1."""
    text = '{"version":1,"identity":"i","fence":2,"leases":{"a":{"fence":2,"ended":true},"b":{}}}'
    table = LeaseTable.decode(text, "here")
    assert (table.fence, table.leases["a"].ended, table.leases["b"].ended) == (2, True, False)


def test_offsets_of_spark_are_read() -> None:
    """Version 1."""
    offsets = json.loads('{"version": 1, "positions": {"orders": {"0": "7"}}}')
    assert Offsets.from_json(offsets, int).positions == {ORDERS: 7}


def test_manifest_of_a_feed_is_read() -> None:
    """Version 2."""
    found = Manifest.decode(MANIFEST, 7, "here")
    assert (found.segment, found.rows, found.ranges) == ("a-0.arrow", 3, {"orders/0": [(1, 3)]})

"""A scan of the KCL's lease table, and what becomes of it; the names are those of its sources."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from consumer_sdk.checkpoints.positions import BEGINNING, decode_sequence
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError, StoreError
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import Found, read_kcl_leases
from consumer_sdk.trackers import decode_checkpoint
from tests.stores.exchange_world import GROUP, SEQUENCE

S = [f"shardId-{number:012}" for number in range(8)]
MULTI = "123456789012:clicks:1700000000"


def lease(
    shard: str = S[0],
    checkpoint: str = str(SEQUENCE),
    sub: int = 0,
    *,
    stream: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A lease as KCL 2 writes it; ``more`` are attributes in DynamoDB's form."""
    several = {} if stream is None else {"streamName": {"S": stream}, "shardId": {"S": shard}}
    return {
        "leaseKey": {"S": shard if stream is None else f"{stream}:{shard}"},
        "leaseOwner": {"S": "host-1:0d2c"},
        "leaseCounter": {"N": "4711"},
        "ownerSwitchesSinceCheckpoint": {"N": "2"},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "170141183460469231731687303715884105727"},
        **several,
        **more,
    }


def kcl3(item: dict[str, Any]) -> dict[str, Any]:
    """The same of KCL 3.5."""
    return item | {
        "entityType": {"S": "LEASE"},
        "throughputKBps": {"N": "12.5"},
        "checkpointOwner": {"S": "host-2:77ff"},
    }


OTHERS: list[dict[str, Any]] = [
    {
        "leaseKey": {"S": "host-1:0d2c"},
        "entityType": {"S": "WORKER_METRIC_STATS"},
        "lut": {"N": "1700000000"},
        "sts": {"M": {"C": {"L": [{"N": "10"}]}}},
        "sup": {"N": "1"},
    },
    {"leaseKey": {"S": "Leader"}, "ownerName": {"S": "host-1"}, "entityType": {"S": "LEADER"}},
    {"leaseKey": {"S": "Leader"}, "ownerName": {"S": "host-1"}},
    {"leaseKey": {"S": "Migration3.0"}, "cv": {"S": "CLIENT_VERSION_3X"}},
    {"leaseKey": {"S": "TableMigration3.5"}, "tm": {"S": "COMPLETE"}},
    {"leaseKey": {"S": MULTI}, "streamId": {"S": "x"}, "entityType": {"S": "STREAM"}},
]
"""What KCL 3.5 keeps in the same table."""


def scan(*items: Any, **more: Any) -> str:
    """What ``aws dynamodb scan`` writes."""
    count = {"Count": len(items), "ScannedCount": len(items), "ConsumedCapacity": None}
    return json.dumps({"Items": items, **count, **more}, indent=4)


def listing(**parents: list[str]) -> str:
    """What ``aws kinesis list-shards`` writes."""
    names = "ParentShardId", "AdjacentParentShardId"
    rows = [
        {"ShardId": S[int(shard[1:])], **dict(zip(names, theirs, strict=False))}
        for shard, theirs in parents.items()
    ]
    return json.dumps({"Shards": rows})


def read(text: str, stream: str = "clicks", shards: str | None = None, **more: Any) -> Found:
    """What is found in a scan."""
    listed = None if shards is None else io.BytesIO(shards.encode())
    return read_kcl_leases(io.BytesIO(text.encode()), stream, group=GROUP, shards=listed, **more)


def checkpoints(found: Found) -> dict[str, Checkpoint]:
    """By shard."""
    return {
        entry.partition.id: decode_checkpoint(
            entry.text,
            broker="kinesis",
            partition=Partition("clicks", entry.partition.id),
            identity=None,
            decode_position=decode_sequence,
        )
        for entry in found.entries
    }


SETTLED = Checkpoint(watermark=(SEQUENCE, 3), resume=(SEQUENCE, 3))
ENDED = Checkpoint(ended=True)
BEGIN = Checkpoint(resume=BEGINNING)


@pytest.mark.parametrize("form", [lambda item: item, kcl3], ids=["kcl2", "kcl3.5"])
def test_leases_become_checkpoints_of_their_shards(form: Any) -> None:
    """Exact to the sub-sequence number; what is no lease is told apart."""
    parents: dict[str, Any] = {"parentShardId": {"SS": [S[0]]}}
    items = [
        lease(S[0], "SHARD_END", childShardIds={"SS": [S[1], S[2]]}),
        lease(S[1], str(SEQUENCE), 3, **parents),
        lease(S[2], "TRIM_HORIZON", **parents),
    ]
    others = OTHERS if form is kcl3 else []
    found = read(scan(*map(form, items), *others))
    assert checkpoints(found) == {S[0]: ENDED, S[1]: SETTLED, S[2]: BEGIN}
    assert (found.skipped, list(found.notes)) == ({}, [])


def test_attribute_that_is_null_is_one_that_is_missing() -> None:
    """As the library reads it."""
    null = {"NULL": True}
    found = read(scan(lease(sub=3) | {"pendingCheckpoint": null, "parentShardId": null}))
    assert checkpoints(found) == {S[0]: SETTLED}
    assert (found.skipped, list(found.notes)) == ({}, [])


def test_lease_without_a_sub_sequence_number_is_at_0() -> None:
    """As the library reads it."""
    item = lease()
    del item["checkpointSubSequenceNumber"]
    position = SEQUENCE, 0
    assert checkpoints(read(scan(item))) == {S[0]: Checkpoint(position, position)}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([lease(S[0]), lease(S[1])]),
        "\n".join(map(json.dumps, [lease(S[0]), lease(S[1])])) + "\n",
        "\n".join(json.dumps({"Item": item}) for item in [lease(S[0]), lease(S[1])]),
        scan(lease(S[0]), LastEvaluatedKey={"leaseKey": {"S": S[0]}}) + scan(lease(S[1])),
    ],
    ids=["a list", "lines", "an export", "pages"],
)
def test_items_are_found_in_every_form(text: str) -> None:
    """As ``--query Items``, ``jq -c`` and an export to S3 write them, and page by page."""
    assert checkpoints(read(text)).keys() == {S[0], S[1]}


@pytest.mark.parametrize("sentinel", ["LATEST", "AT_TIMESTAMP"])
def test_lease_of_which_nothing_was_read_is_for_the_operator_to_decide(sentinel: str) -> None:
    """Neither is guessed: one would repeat a whole shard, the other skip it."""
    text = scan(lease(S[0], sentinel), lease(S[1], str(SEQUENCE), 3))
    with pytest.raises(ConfigurationError, match=f"{S[0]}: LATEST or AT_TIMESTAMP.*--unread start"):
        read(text)
    left = read(text, unread="start")
    assert checkpoints(left) == {S[1]: SETTLED}
    assert list(left.skipped.values()) == [f"it is at {sentinel}"]
    assert checkpoints(read(text, unread="earliest")) == {S[0]: BEGIN, S[1]: SETTLED}


def test_parents_whose_leases_were_deleted_have_ended() -> None:
    """The library deletes them when all children are read; older ones only the stream knows."""
    text = scan(
        lease(S[4], str(SEQUENCE), 3, parentShardId={"SS": [S[2], S[3]]}),
        lease(S[5], str(SEQUENCE), 3),
    )
    without = read(text)
    assert checkpoints(without) == {S[2]: ENDED, S[3]: ENDED, S[4]: SETTLED, S[5]: SETTLED}
    assert "taken as ended" in without.notes[0]
    assert "--shards" in without.notes[1]

    shards = listing(
        s0=[], s1=[], s2=[S[0]], s3=[S[0]], s4=[S[2], S[3]], s5=[S[1]], s6=[S[5]], s7=[]
    )
    found = read(text, shards=shards)
    assert checkpoints(found) == {
        **dict.fromkeys(S[:4], ENDED),
        **dict.fromkeys(S[4:6], SETTLED),
        S[6]: BEGIN,
    }
    assert list(found.skipped) == [S[7]]
    assert not any("--shards" in note for note in found.notes)


def test_children_without_a_lease_begin_at_their_first_record() -> None:
    """Their parent was split after the last look of the library at the shards."""
    found = read(scan(lease(S[0], "SHARD_END", childShardIds={"SS": [S[1], S[2]]})))
    assert checkpoints(found) == {S[0]: ENDED, S[1]: BEGIN, S[2]: BEGIN}
    assert found.notes == [f"{S[1]}, {S[2]}: no lease yet; begins at the first record"]


def test_stream_of_several_is_told_by_its_name() -> None:
    """Others are left; where the name is there twice, the whole identifier decides."""
    other, twin = "123456789012:orders:1700000001", "123456789012:clicks:1700000002"
    text = scan(
        lease(S[0], str(SEQUENCE), 3, stream=MULTI, parentShardId={"SS": [S[1]]}),
        lease(S[0], "SHARD_END", stream=other),
    )
    assert checkpoints(read(text)) == {S[0]: SETTLED, S[1]: ENDED}
    assert checkpoints(read(text, MULTI)) == {S[0]: SETTLED, S[1]: ENDED}
    with pytest.raises(StoreError, match=f"no leases of the stream 'carts'; .*{other}"):
        read(text, "carts")
    both = scan(lease(S[0], stream=MULTI), lease(S[0], stream=twin))
    with pytest.raises(ConfigurationError, match=f"give one of {MULTI}, {twin}"):
        read(both)


def test_stream_may_be_given_by_its_arn() -> None:
    """Its account counts where the leases name one."""
    arn = "arn:aws:kinesis:eu-central-1:{}:stream/clicks"
    alone, several = scan(lease(S[0], str(SEQUENCE), 3)), scan(lease(stream=MULTI))
    assert checkpoints(read(alone, arn.format("1"))) == {S[0]: SETTLED}
    assert checkpoints(read(several, arn.format("123456789012"))).keys() == {S[0]}
    with pytest.raises(StoreError, match="no leases of the stream"):
        read(several, arn.format("210987654321"))
    with pytest.raises(ConfigurationError, match="give the name of a stream"):
        read(alone, "a stream")


def test_lease_that_names_no_stream_among_others_that_do_is_left() -> None:
    """It was written before the application read several, and nobody knows of which it is."""
    found = read(scan(lease(S[0], str(SEQUENCE), 3, stream=MULTI), lease(S[1])))
    assert checkpoints(found) == {S[0]: SETTLED}
    assert found.skipped == {f"the scan, item 2 ({S[1]})": "it names no stream"}


def test_checkpoint_that_was_announced_alone_is_not_imported() -> None:
    """The library goes on at the confirmed one."""
    found = read(scan(lease(S[0], str(SEQUENCE), 3, pendingCheckpoint={"S": str(SEQUENCE + 9)})))
    assert checkpoints(found) == {S[0]: SETTLED}
    assert found.notes == [
        f"{S[0]}: a checkpoint was announced and not confirmed; it is not imported"
    ]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "is empty"),
        ("nothing", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("42", "no object"),
        ("[42]", "no item of DynamoDB"),
        (scan(lease(), NextToken="abc"), "was cut off"),
        (scan(lease(), LastEvaluatedKey={}), "was cut off"),
        (scan(lease(), ScannedCount=2), "without a filter"),
        (scan(lease(), Count=2), "without a filter"),
        (scan(lease(), Count=2, ScannedCount=2), "without a filter"),
        (json.dumps({"Items": {}}), "no list"),
        (scan({"wid": {"S": "host-1"}}), "worker metrics"),
        (scan({"key": {"S": "Migration3.0"}}), "coordinator's state"),
        (scan(lease() | {"entityType": {"S": "SOMETHING"}}), "'SOMETHING' is not known"),
        (scan(lease("a shard")), "no shard's id"),
        (scan(lease(stream="clicks")), "not streamName:shardId"),
        (scan(lease(stream=MULTI) | {"shardId": {"S": S[1]}}), "not streamName:shardId"),
        (scan(lease(stream=MULTI) | {"shardId": {"NULL": True}}), "None is no shard's id"),
        (scan({"leaseKey": {"S": S[0]}}), "its checkpoint is None"),
        (scan(lease(checkpoint="")), "its checkpoint is ''"),
        (scan(lease(checkpoint="12x")), "its checkpoint is '12x'"),
        (scan(lease(checkpoint="0")), "its checkpoint is '0'"),
        (scan(lease(checkpointSubSequenceNumber={"N": "-1"})), "'-1'"),
        (scan(lease(checkpointSubSequenceNumber={"N": "9" * 19})), "9" * 19),
        (scan(lease(checkpointSubSequenceNumber={"S": "1"})), "no N of DynamoDB"),
        (scan(lease(checkpointSubSequenceNumber={"N": 1})), "is 1"),
        (scan(lease(checkpointSubSequenceNumber={"NULL": False})), "no N of DynamoDB"),
        (scan(lease(checkpointSubSequenceNumber="1")), "no N of DynamoDB"),
        (scan(lease() | {"checkpoint": {"S": 1}}), "its checkpoint"),
        (scan(lease(parentShardId={"SS": "x"})), "parentShardId is 'x'"),
        (scan(lease(parentShardId={"SS": [1]})), "no shard's id"),
    ],
)
def test_anything_else_is_refused_with_its_place(text: str, words: str) -> None:
    """Nothing of it is taken for a lease, or for none."""
    with pytest.raises(CheckpointFormatError) as caught:
        read(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"Shards":[1]}', '{"Shards":[{"ShardId":1}]}'])
def test_list_of_shards_that_is_none_is_refused(text: str) -> None:
    """It is not taken for one without shards."""
    with pytest.raises(CheckpointFormatError, match="the list of shards"):
        read(scan(lease()), shards=text)


def test_list_of_shards_that_was_cut_off_is_refused() -> None:
    """An ancestor that is missing in it would be read anew."""
    with pytest.raises(CheckpointFormatError, match="cut off"):
        read(scan(lease()), shards='{"Shards":[],"NextToken":"x"}')


@pytest.mark.parametrize(
    "count, more", [(10, "shard-9: a"), (11, "shard-9 and 1 more: a"), (12, " and 2 more: a")]
)
def test_note_names_ten_shards_and_counts_the_others(count: int, more: str) -> None:
    """An application may have thousands."""
    pending = {"pendingCheckpoint": {"S": str(SEQUENCE)}}
    names = [f"shard-{number:x}" for number in range(count)]
    (note,) = read(scan(*(lease(name) | pending for name in names))).notes
    assert more in note
    assert "shard-a" not in note


def test_item_that_calls_itself_a_lease_is_one() -> None:
    """Whatever its key; without that, some keys are of other items."""
    named = lease("Leader")
    assert checkpoints(read(scan(lease(), named | {"entityType": {"S": "LEASE"}}))).keys() == {
        S[0],
        "Leader",
    }
    assert checkpoints(read(scan(lease(), named))).keys() == {S[0]}

"""The lease table of the Kinesis Client Library, as a scan of it. No I/O but of the file.

A lease is an item of DynamoDB (KCL 1 to 3, its DynamoDBLeaseSerializer)::

    {"leaseKey":{"S":"shardId-000000000001"},"checkpoint":{"S":"4959…"},
     "checkpointSubSequenceNumber":{"N":"2"},"parentShardId":{"SS":["shardId-000000000000"]},…}

An application that reads several streams adds ``streamName``, ``account:stream:creation epoch``, and
``shardId``, and has both in the key. KCL 3.5 keeps other things in the same table, each with its
``entityType``; KCL 3.0 to 3.4 kept them in tables of their own, which have no ``leaseKey``.

==================  =============================================================================
``checkpoint``      here
==================  =============================================================================
digits              all up to that record is settled, of an aggregate up to that sub-sequence number
``SHARD_END``       ended
``TRIM_HORIZON``    begins at the shard's first record, whatever ``start=`` is
``LATEST``,         nothing was checkpointed, and where to begin is in the application's
``AT_TIMESTAMP``    configuration: whoever imports says what to do
==================  =============================================================================

That a lease is missing says something too. The library deletes the lease of an ended shard once its
children are read, and reads a shard whose parents have no lease: so they have ended. A child whose
lease was not made yet begins at its first record. Hence a scan has to be whole.

``pendingCheckpoint`` is what an application has announced and not confirmed: the library goes on at
``checkpoint``, and so does an import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

from consumer_sdk.checkpoints.positions import BEGINNING, decode_sequence, encode_sequence
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError, StoreError
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores.exchange.lines import Entry, Found
from consumer_sdk.strict_json import without_duplicates
from consumer_sdk.trackers import encode_checkpoint

__all__ = ["Unread", "read_kcl_leases"]

Unread: TypeAlias = Literal["earliest", "start"]

SHARD = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""The pattern of a shard's id in the Kinesis API."""
STREAM = re.compile(r"[0-9]+:(?P<name>[a-zA-Z0-9_.-]+):[0-9]+")
"""How an application that reads several streams names one."""

UNREAD = {"LATEST", "AT_TIMESTAMP"}
SENTINELS = {"SHARD_END", "TRIM_HORIZON", *UNREAD}

ARN = re.compile(r"arn:[^:]+:kinesis:[^:]+:(?P<account>[0-9]+):stream/(?P<name>.+)")

LEASE = "LEASE"
OTHERS = {"STREAM", "LEADER", "CLIENT_VERSION_MIGRATION", "TABLE_MIGRATION", "WORKER_METRIC_STATS"}
"""Values of ``entityType``."""
OTHER_KEYS = {"Leader", "Migration3.0", "TableMigration3.5"}
"""Keys of items that may be without an ``entityType``, and are no leases."""

SHOWN = 10
"""Names that one line quotes."""


class _Lease(NamedTuple):
    where: str
    stream: str | None
    shard: str
    checkpoint: str
    sub: int
    parents: Sequence[str]
    children: Sequence[str]
    is_pending: bool


def read_kcl_leases(
    file: BinaryIO,
    stream: str,
    *,
    group: str,
    shards: BinaryIO | None = None,
    unread: Unread | None = None,
    name: str = "the scan",
) -> Found:
    """The leases of the Kinesis Client Library, as checkpoints of broker ``kinesis``.

    Stop its workers, and scan the table, whole and unfiltered, after that.

    Args:
        file: what ``aws dynamodb scan --table-name APPLICATION --consistent-read`` has written; or
            the pages, or the items of it, one after the other.
        stream: its name or ARN; of an application that reads several, also
            ``account:stream:creation epoch``.
        group: that will go on.
        shards: what ``aws kinesis list-shards`` has written. Without it only the parents and
            children are known that leases name: older ancestors, whose leases were deleted, would
            be read from where ``start=`` says.
        unread: what becomes of leases at LATEST or AT_TIMESTAMP: ``"start"`` leaves them out, so
            that they start where the consumer's ``start=`` says; ``"earliest"`` begins at their
            first record.
        name: what errors call the file.

    Returns:
        the entries; skipped is what has none; notes say what was concluded from leases that are missing.

    Raises:
        CheckpointFormatError: an item is not what the library writes, or the scan is not whole.
        ConfigurationError: ``stream`` cannot be one; leases are at LATEST or AT_TIMESTAMP, and ``unread`` was not given; or
            two streams of that name are in the table.
        StoreError: there is no lease of the stream.
    """
    short = _name_of(stream)
    found = [lease for lease in _leases(file, name) if lease]
    leases = _of_stream(found, stream, name)
    lineage = _Lineage(leases, {} if shards is None else _listed(shards))
    unread_leases = [lease for lease in leases if lease.checkpoint in UNREAD]
    if unread_leases and unread is None:
        raise _undecided(unread_leases)
    left_out = {lease.where: f"it is at {lease.checkpoint}" for lease in unread_leases}
    if unread == "earliest":
        left_out.clear()
    known = {e.where: (e.shard, _checkpoint(e)) for e in leases if e.where not in left_out}
    known |= {f"{name}, no lease of {s}": (s, Checkpoint(ended=True)) for s in lineage.deleted}
    known |= {f"{name}, no lease of {s}": (s, _begin()) for s in lineage.later}
    return Found(
        [_entry(where, group, Partition(short, s), found) for where, (s, found) in known.items()],
        left_out
        | _nameless(found, leases)
        | dict.fromkeys(lineage.strangers, "it has no lease, and no relative that has one"),
        [*lineage.notes(is_listed=shards is not None), *_pending(leases)],
    )


def _undecided(leases: Sequence[_Lease]) -> ConfigurationError:
    return ConfigurationError(
        f"{_some([lease.shard for lease in leases])}: LATEST or AT_TIMESTAMP, so nothing was "
        f"checkpointed. Give unread='start' (--unread start) to begin these where the consumer's "
        f"start= says, or 'earliest' to begin at their first record"
    )


def _checkpoint(lease: _Lease) -> Checkpoint:
    """What it says; nothing but a place for one that has not been read."""
    if lease.checkpoint == "SHARD_END":
        return Checkpoint(ended=True)
    if not lease.checkpoint.isdigit():
        return _begin()
    position = decode_sequence(f"{lease.checkpoint}:{lease.sub}")
    return Checkpoint(watermark=position, resume=position)


def _begin() -> Checkpoint:
    return Checkpoint(resume=BEGINNING)


def _entry(where: str, group: str, partition: Partition, checkpoint: Checkpoint) -> Entry:
    text, _ = encode_checkpoint(
        checkpoint, broker="kinesis", partition=partition, encode_position=encode_sequence
    )
    return Entry(where, group, *partition, text)


def _pending(leases: Iterable[_Lease]) -> list[str]:
    pending = [lease.shard for lease in leases if lease.is_pending]
    if not pending:
        return []
    return [f"{_some(pending)}: a checkpoint was announced and not confirmed; it is not imported"]


def _some(names: Collection[str]) -> str:
    more = len(names) - SHOWN
    shown = ", ".join(sorted(names)[:SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


# -- which leases -----------------------------------------------------------------------------


def _name_of(stream: str) -> str:
    several, arn = STREAM.fullmatch(stream), ARN.fullmatch(stream)
    name = several["name"] if several else arn["name"] if arn else stream
    if not SHARD.fullmatch(name):
        raise ConfigurationError(
            f"stream={stream!r}: give the name of a stream, its ARN, or account:stream:epoch"
        )
    return name


def _is_named(lease: _Lease, stream: str) -> bool:
    """A lease of an application that reads several streams is of this one."""
    if lease.stream is None:
        return False
    account, name, _ = lease.stream.split(":")
    arn = ARN.fullmatch(stream)
    return (
        (account, name) == (arn["account"], arn["name"]) if arn else stream in {lease.stream, name}
    )


def _nameless(found: Sequence[_Lease], chosen: Sequence[_Lease]) -> dict[str, str]:
    """Where some name their stream, nobody knows whose the others are."""
    if chosen[0].stream is None:
        return {}
    return {each.where: "it names no stream" for each in found if each.stream is None}


def _of_stream(leases: Sequence[_Lease], stream: str, name: str) -> Sequence[_Lease]:
    streams = {lease.stream for lease in leases if lease.stream is not None}
    named = [lease for lease in leases if _is_named(lease, stream)]
    fitting = {str(lease.stream) for lease in named}
    if len(fitting) > 1:
        raise ConfigurationError(
            f"{name} has leases of several streams {stream!r}: give one of {_some(fitting)}"
        )
    found = named if streams else leases
    if not found:
        others = f"; it has those of {_some(streams)}" if streams else ""
        raise StoreError(
            f"{name} has no leases of the stream {stream!r}{others}: scan the table that is named "
            f"like the application"
        )
    return found


class _Lineage:
    """What follows for shards without a lease, from those that have one.

    Attributes:
        deleted: parents, of any generation, of shards that have a lease: they have ended.
        later: descendants: nothing of them was read.
        strangers: listed shards that are neither.
    """

    def __init__(self, leases: Sequence[_Lease], listed: Mapping[str, Sequence[str]]) -> None:
        parents = {shard: set(theirs) for shard, theirs in listed.items()}
        for lease in leases:
            parents.setdefault(lease.shard, set()).update(lease.parents)
            for child in lease.children:
                parents.setdefault(child, set()).add(lease.shard)
        children: dict[str, set[str]] = {}
        for child, theirs in parents.items():
            for parent in theirs:
                children.setdefault(parent, set()).add(child)
        leased = {lease.shard for lease in leases}
        self.deleted = sorted(_reached(leased, parents) - leased)
        self.later = sorted(_reached({*leased, *self.deleted}, children) - {*leased, *self.deleted})
        self.strangers = sorted(listed.keys() - {*leased, *self.deleted, *self.later})

    def notes(self, *, is_listed: bool) -> Iterator[str]:
        if self.deleted:
            yield f"{_some(self.deleted)}: no lease, but children that have one; taken as ended"
        if self.deleted and not is_listed:
            yield (
                "ancestors of these would be read from where start= says, if the stream still lists "
                "any: give what `aws kinesis list-shards` writes (--shards) to end them too"
            )
        if self.later:
            yield f"{_some(self.later)}: no lease yet; begins at the first record"


def _reached(shards: Collection[str], ways: Mapping[str, Collection[str]]) -> set[str]:
    """All that ways lead to, over any number of steps."""
    found: set[str] = set()
    ahead = list(shards)
    while ahead:
        news = set(ways.get(ahead.pop(), ())) - found
        found |= news
        ahead += news
    return found


# -- items of DynamoDB ------------------------------------------------------------------------


def _leases(file: BinaryIO, name: str) -> Iterator[_Lease | None]:
    """Each item in turn; None for what is no lease."""
    for number, item in enumerate(_items(file, name), 1):
        where = f"{name}, item {number}"
        if not isinstance(item, dict):
            raise CheckpointFormatError(f"{where} is no item of DynamoDB: {item!r:.80}")
        yield _Item(item, where).lease()


def _items(file: BinaryIO, name: str) -> Iterator[Any]:
    for document in _pages(file, name, "LastEvaluatedKey"):
        if isinstance(document, list):
            yield from document
        elif "Items" in document:
            _check_whole(document, name)
            yield from document["Items"]
        else:
            yield document.get("Item", document)  # as an export to S3 writes them


def _check_whole(page: Mapping[str, Any], name: str) -> None:
    """A lease that is missing has a meaning.

    Raises:
        CheckpointFormatError: some items were left out.
    """
    items = page["Items"]
    if not isinstance(items, list):
        raise CheckpointFormatError(f"{name}: its Items are {items!r:.80}, and no list")
    counted = page.get("Count", len(items))
    if counted != len(items) or page.get("ScannedCount", counted) != counted:
        raise CheckpointFormatError(
            f"{name}: {len(items)} items, {counted} were counted, and {page.get('ScannedCount')} "
            f"scanned: scan the table without a filter and a limit, since a lease that is missing "
            f"counts as that of a shard that has ended"
        )


def _listed(file: BinaryIO) -> dict[str, Sequence[str]]:
    """Parents by shard, of what ``aws kinesis list-shards`` has written."""
    name = "the list of shards"
    found: dict[str, Sequence[str]] = {}
    for page in _pages(file, name, "NextToken"):
        rows = page.get("Shards") if isinstance(page, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise CheckpointFormatError(f"{name} is not what `aws kinesis list-shards` writes")
        for row in rows:
            parents = (row.get("ParentShardId"), row.get("AdjacentParentShardId"))
            known = [_shard(p, name) for p in parents if p is not None]
            found[_shard(row.get("ShardId"), name)] = known
    return found


def _pages(file: BinaryIO, name: str, more: str) -> Iterator[Any]:
    """The JSON documents in a file; the last one may not say that there is more."""
    page: Any = None
    for page in _documents(file, name):
        if not isinstance(page, dict | list):
            raise CheckpointFormatError(f"{name} has {page!r:.80}, which is no object")
        yield page
    if page is None:
        raise CheckpointFormatError(f"{name} is empty")
    if isinstance(page, dict) and {"NextToken", more} & page.keys():
        raise CheckpointFormatError(f"{name} was cut off: there is more. Write all pages into it")


def _documents(file: BinaryIO, name: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(object_pairs_hook=without_duplicates)
    try:
        text = file.read().decode("utf-8-sig")
        at = _skip_space(text, 0)
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            yield document
            at = _skip_space(text, at)
    except (ValueError, RecursionError) as error:
        raise CheckpointFormatError(f"{name} is no JSON: {error}") from error


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _shard(value: object, where: str) -> str:
    if not isinstance(value, str) or not SHARD.fullmatch(value):
        raise CheckpointFormatError(f"{where}: {value!r:.80} is no shard's id")
    return value


@dataclass(frozen=True, slots=True)
class _Item:
    """Attributes by name, each ``{type: value}``."""

    body: Mapping[str, Any]
    where: str

    def lease(self) -> _Lease | None:
        """None for what is no lease.

        Raises:
            CheckpointFormatError: it is nothing that the library writes.
        """
        key = self._text("leaseKey")
        if key is None:
            raise self._foreign(
                "it has no leaseKey; scan the table that is named like the application, none of "
                "worker metrics (wid) or of the coordinator's state (key)"
            )
        kind = self._text("entityType")
        if kind in OTHERS or (kind is None and key in OTHER_KEYS):
            return None
        if kind not in {None, LEASE}:
            raise self._foreign(f"its entityType {kind!r:.80} is not known")
        return self._lease(key)

    def _lease(self, key: str) -> _Lease:
        stream = self._text("streamName")
        shard = _shard(key if stream is None else self._text("shardId"), self.where)
        if stream is not None and (not STREAM.fullmatch(stream) or key != f"{stream}:{shard}"):
            raise self._foreign(f"its leaseKey {key!r:.200} is not streamName:shardId")
        checkpoint, sub = self._text("checkpoint"), self._number("checkpointSubSequenceNumber")
        if checkpoint is None or (
            checkpoint not in SENTINELS and not self._is_place(checkpoint, sub)
        ):
            raise self._foreign(f"its checkpoint is {checkpoint!r:.200}, {sub}")
        return _Lease(
            f"{self.where} ({key})",
            stream,
            shard,
            checkpoint,
            sub,
            self._shards("parentShardId"),
            self._shards("childShardIds"),
            self._text("pendingCheckpoint") is not None,
        )

    @staticmethod
    def _is_place(checkpoint: str, sub: int) -> bool:
        try:
            return decode_sequence(f"{checkpoint}:{sub}") > BEGINNING
        except CheckpointFormatError:
            return False

    def _value(self, name: str, kind: str) -> Any:
        attribute = self.body.get(name)
        if attribute is None or attribute == {"NULL": True}:
            return None
        if not isinstance(attribute, dict) or attribute.keys() != {kind}:
            raise self._foreign(f"its {name} is {attribute!r:.80}, and no {kind} of DynamoDB")
        return attribute[kind]

    def _text(self, name: str) -> str | None:
        value = self._value(name, "S")
        if value is not None and not isinstance(value, str):
            raise self._foreign(f"its {name} is {value!r:.80}")
        return value

    def _number(self, name: str) -> int:
        """0 where it is missing, as the library reads it."""
        value = self._value(name, "N")
        if value is None:
            return 0
        if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,19}", value):
            raise self._foreign(f"its {name} is {value!r:.80}")
        return int(value)

    def _shards(self, name: str) -> Sequence[str]:
        value = self._value(name, "SS")
        if value is not None and not isinstance(value, list):
            raise self._foreign(f"its {name} is {value!r:.80}")
        return [_shard(each, f"{self.where}, {name}") for each in value or ()]

    def _foreign(self, what: str) -> CheckpointFormatError:
        return CheckpointFormatError(
            f"{self.where} is not what the Kinesis Client Library writes ({what}): nothing was imported"
        )

"""Receipts: they merge in any order, count once, and read back or are refused."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import zlib
from functools import reduce
from operator import or_

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk import HandlerError, Receipts, TokenFormatError
from consumer_sdk.records.tokens import Anchor, decode_token, encode_token, seal
from consumer_sdk.trackers.trees.receipts import LONGEST_REASON, RECEIPTS, Fate

# Few anchors, so that receipts of the same branch meet.
ANCHOR = st.builds(Anchor, st.integers(1, 2), st.integers(0, 2), st.integers(1, 3))
TOKEN = st.lists(ANCHOR, min_size=1, max_size=2, unique=True).map(encode_token)
STEP = st.tuples(st.sampled_from(["ack", "fail", "reject", "branch"]), TOKEN, st.text(max_size=3))


def made(steps: list[tuple[str, bytes, str]]) -> Receipts:
    """Receipts of some work."""
    receipts = Receipts()
    for what, token, reason in steps:
        if what in ("fail", "reject"):
            getattr(receipts, what)(token, reason)
        elif what == "ack":
            receipts.ack(token)
        elif not any(receipts._of(anchor).fate for anchor in decode_token(token)):
            receipts.branch(token)
    return receipts


SOME = st.lists(STEP, max_size=12).map(made)


def token(edge: int = 5, root: int = 3, table: int = 7) -> bytes:
    """A token with one anchor."""
    return encode_token([Anchor(table, root, edge)])


def facts(receipts: Receipts) -> list[tuple[int, Fate, str]]:
    """Edge, fate and reason of each."""
    return [(anchor.edge, got.fate, got.reason) for anchor, got in receipts.items()]


@settings(max_examples=50)
@given(SOME, SOME, SOME)
def test_merge_is_associative_commutative_and_idempotent(
    a: Receipts, b: Receipts, c: Receipts
) -> None:
    """However a driver folds them, and however often one comes, the result is the same."""
    assert (a | b) | c == a | (b | c)
    assert a | b == b | a
    assert a | a == a
    assert a | b | a == a | b
    assert bytes(a | b) == bytes(b | a)


@given(SOME)
def test_receipts_read_back(receipts: Receipts) -> None:
    """As bytes, as Spark's bytearray, and pickled."""
    data = bytes(receipts)

    assert Receipts.from_bytes(data) == Receipts.from_bytes(bytearray(data)) == receipts
    assert pickle.loads(pickle.dumps(receipts)) == receipts  # noqa: S301 - our own bytes
    assert len(Receipts.from_bytes(data)) == len(receipts)


def test_receipts_with_others_are_not_changed_by_a_merge() -> None:
    """``|`` makes a new one; ``|=`` adds to the first."""
    a, b = Receipts(), Receipts()
    a.ack(token(1))
    b.fail(token(2), "no")
    both = a | b
    assert (len(a), len(b), len(both)) == (1, 1, 2)
    a |= b

    assert a == both != b
    assert a != "receipts"
    assert repr(a) == "<Receipts of 2 branches>"
    assert facts(reduce(or_, [a, b, both], Receipts())) == facts(both)


def test_fail_wins_over_ack_and_reject_over_fail() -> None:
    """Whichever was said first: two runs of a task may disagree."""
    for order in (("ack", "fail", "reject"), ("reject", "fail", "ack"), ("fail", "reject", "ack")):
        receipts = Receipts()
        for what in order:
            getattr(receipts, what)(token())
        assert facts(receipts) == [(5, Fate.REJECTED, "rejected")]


def test_children_are_the_same_in_each_run_of_a_task() -> None:
    """Spark may run a task twice: both runs make the same tokens and the same receipts."""

    def task() -> tuple[list[bytes], Receipts]:
        receipts = Receipts()
        children = [receipts.branch(token()) for _ in range(3)]
        receipts.ack(token())
        return children, receipts

    (tokens, first), (again, second) = task(), task()
    assert tokens == again
    assert len(set(tokens)) == 3
    assert first == second == first | second


def test_ack_carries_the_children_that_were_made() -> None:
    """So that both are XORed at once, and no order can end the tree too early."""
    receipts = Receipts()
    (child,) = decode_token(receipts.branch(token()))
    receipts.ack(token())

    ((_, receipt),) = receipts.items()
    assert (receipt.children, receipt.value) == (1, 5 ^ child.edge)


def test_children_are_counted_on_after_a_round_trip() -> None:
    """The next child is another one, though the parent travels between its children."""
    receipts = Receipts()
    one = receipts.branch(token())
    receipts = Receipts.from_bytes(bytes(receipts))
    two = receipts.branch(token())

    assert one != two


def test_child_of_a_joined_branch_has_all_anchors() -> None:
    """Two of one tree too, and no two edges are equal."""
    anchors = [Anchor(1, 2, 3), Anchor(1, 2, 4), Anchor(9, 0, 3)]
    children = decode_token(Receipts().branch(encode_token(anchors)))

    assert [child[:2] for child in children] == [anchor[:2] for anchor in anchors]
    assert len({children[0].edge, children[1].edge, 3, 4}) == 4


@pytest.mark.parametrize("settle", [Receipts.ack, Receipts.fail, Receipts.reject])
def test_settled_branch_makes_no_children(settle: object) -> None:
    """A child of a tree that may be over would be waited for by nobody."""
    assert callable(settle)
    receipts = Receipts()
    settle(receipts, token())

    with pytest.raises(HandlerError, match="make its children before"):
        receipts.branch(token())


def test_long_or_unprintable_reason_is_cut_to_what_can_be_written() -> None:
    """A reason never makes receipts that cannot be sent."""
    receipts = Receipts()
    receipts.fail(token(1), "ä" * 10_000)
    receipts.fail(token(2), "\ud800")
    back = Receipts.from_bytes(bytes(receipts))

    assert [reason for _, _, reason in facts(back)] == ["ä" * (LONGEST_REASON // 2), "\\ud800"]


@given(SOME, st.data())
def test_damaged_receipts_are_refused(receipts: Receipts, data: st.DataObject) -> None:
    """A changed byte or a cut end is a typed error."""
    whole = bytearray(bytes(receipts))
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = bytes(whole[:at])
    whole[at] ^= data.draw(st.integers(1, 255))

    for damaged in (bytes(whole), cut):
        with pytest.raises(TokenFormatError):
            Receipts.from_bytes(damaged)


@given(st.binary(max_size=120))
def test_hostile_body_with_a_good_checksum_is_refused_or_read(body: bytes) -> None:
    """A checksum that was made to fit: a typed error, or receipts that write the same again."""
    try:
        receipts = Receipts.from_bytes(seal(RECEIPTS, body))
    except TokenFormatError:
        return
    assert Receipts.from_bytes(bytes(receipts)) == receipts


HEAD = struct.pack("<QQQIQ", 1, 2, 3, 0, 3)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xff\xff\xff",  # four thousand million receipts in no bytes
        b"\1\0\0\0" + HEAD,  # cut in the middle
        b"\1\0\0\0" + HEAD + b"\1\5\0abc",  # a reason that is shorter than it says
        b"\1\0\0\0" + HEAD + b"\1\1\0\xff",  # one that is no UTF-8
        b"\1\0\0\0" + HEAD + b"\x09\0\0",  # no such fate
        b"\0\0\0\0left over",
    ],
)
def test_body_that_does_not_add_up_is_refused(body: bytes) -> None:
    """In time and memory that do not depend on what it claims."""
    with pytest.raises(TokenFormatError, match="do not add up"):
        Receipts.from_bytes(seal(RECEIPTS, body))


def test_receipts_are_no_token_and_a_token_is_no_receipts() -> None:
    """Mixed up, each is named."""
    with pytest.raises(TokenFormatError, match="not a token"):
        Receipts().ack(bytes(Receipts()))
    with pytest.raises(TokenFormatError, match="not the bytes of receipts"):
        Receipts.from_bytes(token())


def test_import_is_light() -> None:
    """A Spark task needs neither the event loop nor a client of a broker or store."""
    code = (
        "import sys; from consumer_sdk import Receipts; Receipts();"
        "print(*{n.split('.')[0] for n in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    heavy = {b"asyncio", b"logging", b"aiokafka", b"kazoo", b"pulsar", b"pyspark", b"sqlite3"}
    assert not heavy & set(loaded.stdout.split())


def test_bytes_stay_what_they_are() -> None:
    """A task may be of another version of this package than the consumer."""
    receipts = Receipts()
    receipts.branch(token(1))
    receipts.ack(token(2))
    receipts.fail(token(3), "no")
    receipts.reject(token(4), "never")

    rows = [(1, 1, 0xA61488D29BCCF5C2, 0, 0), (2, 0, 2, 1, 0), (3, 0, 3, 2, 2), (4, 0, 4, 3, 5)]
    body = b"".join(struct.pack("<QQQIQBH", 7, 3, *row) for row in rows)
    body = b"\4\0\0\0" + body + b"nonever"
    assert bytes(receipts) == b"br\1" + body + struct.pack("<I", zlib.crc32(b"br\1" + body))
    assert token() == b"bt\1" + struct.pack("<QQQ", 7, 3, 5) + bytes.fromhex("559e5ae7")


def test_joined_tokens_are_one_branch_of_all_their_trees() -> None:
    """As `Branch.join` makes it; each parent waits for it, and it fails them all."""
    receipts, one, other = Receipts(), token(5, 3), encode_token([Anchor(7, 4, 6), Anchor(8, 1, 9)])
    joined = receipts.join([one, other])
    assert [anchor[:2] for anchor in decode_token(joined)] == [(7, 3), (7, 4), (8, 1)]
    again = Receipts()
    assert again.join(iter([one, other])) == joined
    assert again.join([one, one]) != again.join([one, one])

    receipts.fail(joined, "why")
    receipts.ack(one)
    receipts.ack(other)
    fates = [(anchor.root, got.children, got.fate) for anchor, got in receipts.items()]
    assert fates[:3] == [(3, 1, Fate.ACKED), (4, 1, Fate.ACKED), (1, 1, Fate.ACKED)]
    assert [(root, fate) for root, _, fate in fates[3:]] == [
        (3, Fate.FAILED),
        (4, Fate.FAILED),
        (1, Fate.FAILED),
    ]


def test_join_with_a_settled_branch_makes_no_child() -> None:
    """Of none of them: or the other's tree would wait for what nobody holds."""
    receipts = Receipts()
    receipts.ack(token(5, 3))
    with pytest.raises(HandlerError, match="settled"):
        receipts.join([token(6, 4), token(5, 3)])
    assert facts(receipts) == [(5, Fate.ACKED, "")]


def test_join_of_nothing_is_a_token_of_nothing() -> None:
    """Like `Branch.join([])`: nobody waits for it."""
    receipts = Receipts()
    receipts.ack(receipts.join([]))
    assert len(receipts) == 0

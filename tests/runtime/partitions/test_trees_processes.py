"""Branches that are settled in real other processes, forked and spawned."""

from __future__ import annotations

import functools
import operator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from consumer_sdk import Message, Receipts
from tests.runtime.bench import Bench, bench

RECORDS = 20
LINES = 5


def count_words(work: list[tuple[bytes, bytes]]) -> bytes:
    """A task: one child for each word of a line; a bad word fails the line's record."""
    receipts = Receipts()
    for token, line in work:
        for word in line.split():
            child = receipts.branch(token)
            if word == b"bad":
                receipts.fail(child, "a bad word")
            else:
                receipts.ack(child)
        receipts.ack(token)
    return bytes(receipts)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_lines_are_settled_in_worker_processes(method: str) -> None:
    """Every record is settled once all of its lines are, whatever comes back twice or merged."""

    async def test(b: Bench) -> None:
        b.append(*("one two three\n" * LINES for _ in range(RECORDS - 1)), "one\ntwo bad\nthree")
        async with b.consumer() as consumer:
            parts: list[list[tuple[bytes, bytes]]] = [[] for _ in range(4)]
            messages = aiter(consumer)
            for number in range(RECORDS):
                message: Message = await anext(messages)
                with message.tree() as tree:
                    for at, line in enumerate((message.value or b"").splitlines()):
                        parts[(number + at) % 4].append((tree.branch().token(), line))
            with ProcessPoolExecutor(2, get_context(method)) as pool:
                # Each part twice, as a scheduler that speculates does.
                results = list(pool.map(count_words, parts * 2))
            first, *rest = results
            assert consumer.settle(first) > 0
            assert consumer.settle(first) == 0
            merged = functools.reduce(operator.or_, map(Receipts.from_bytes, rest))
            assert consumer.settle(merged) > 0
            assert consumer.settle(merged) == 0
            stats = consumer.stats()
            assert (stats.in_flight, stats.failed, stats.retrying) == (1, 1, 1)
            again = await anext(messages)
            assert (again.attempt, again.value) == (2, b"one\ntwo bad\nthree")
            again.ack()
            await consumer.flush()
            assert b.committed() == {"0": RECORDS}

    bench(test)


def join_pairs(tokens: list[tuple[bytes, bytes]]) -> tuple[bytes, list[bytes]]:
    """One task: a page of two records each; the pages are printed elsewhere."""
    receipts = Receipts()
    pages = [receipts.join(pair) for pair in tokens]
    for pair in tokens:
        for token in pair:
            receipts.ack(token)
    return bytes(receipts), pages


def print_pages(pages: list[tuple[bytes, bool]]) -> bytes:
    """Another one."""
    receipts = Receipts()
    for page, fails in pages:
        if fails:
            receipts.fail(page, "no paper")
        else:
            receipts.ack(page)
    return bytes(receipts)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_records_are_joined_in_one_process_and_settled_by_another(method: str) -> None:
    """Both records wait for their page, and both are delivered again with it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(8)))
        async with b.consumer() as consumer:
            tokens = []
            for _ in range(8):
                with (await anext(consumer)).tree() as tree:
                    tokens.append(tree.branch().token())
            with ProcessPoolExecutor(1, get_context(method)) as one:
                joined, pages = one.submit(
                    join_pairs, list(zip(tokens[::2], tokens[1::2], strict=True))
                ).result()
            consumer.settle(joined)
            assert consumer.stats().in_flight == 8
            with ProcessPoolExecutor(1, get_context(method)) as other:
                work = [(page, at == 1) for at, page in enumerate(pages)]
                printed = other.submit(print_pages, work).result()
            consumer.settle(printed)
            assert consumer.settle(printed) == consumer.settle(joined) == 0
            stats = consumer.stats()
            assert (stats.in_flight, stats.retrying) == (2, 2)
            again = [await anext(consumer) for _ in range(2)]
            assert [(m.value, m.attempt) for m in again] == [(b"2", 2), (b"3", 2)]

    bench(test)

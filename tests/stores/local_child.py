"""A process that uses a local store, for tests that race it, kill it or fill its disk.

``python -m tests.stores.local_child ROLE PATH [ARGUMENT]``; it answers line by line.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import ConsumerClosedError, StoreError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore

FIRST = Partition("orders", "0")


def say(text: object) -> None:
    """Tells the parent."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def claim(store: LocalStore, partition: Partition) -> tuple[Assignment, int]:
    """Takes a partition over; its checkpoint is a number."""
    assignment = Assignment(partition, 1)
    text = (await store.claim("g", [assignment]))[assignment]
    assert not isinstance(text, Outcome)
    return assignment, int((text or "0").split()[0])


async def count_up(store: LocalStore, _: str) -> None:
    """Saves 1, 2, 3… in all of a hundred partitions, and says what is durable, for ever."""
    pairs = [await claim(store, Partition("orders", str(n))) for n in range(100)]
    number = pairs[0][1]
    while True:
        number += 1
        items = [StoreItem(assignment, f"{number} {'x' * 200}") for assignment, _ in pairs]
        outcomes = await store.save("g", items)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}
        say(number)


async def compete(store: LocalStore, rounds: str) -> None:
    """Reads a number with its claim and saves one more, against others that do the same."""
    durable = 0
    for _ in range(int(rounds)):
        assignment, number = await claim(store, FIRST)
        await asyncio.sleep(0)
        (outcome,) = await store.save("g", [StoreItem(assignment, str(number + 1))])
        assert outcome.kind in (OutcomeKind.DURABLE, OutcomeKind.FENCED), outcome
        durable += outcome.kind is OutcomeKind.DURABLE
    say(durable)


async def save_one(store: LocalStore, id_: str) -> None:
    """Saves one partition."""
    assignment, _ = await claim(store, Partition("orders", id_))
    (outcome,) = await store.save("g", [StoreItem(assignment, "1")])
    say(outcome.kind.value)


async def fill_up(store: LocalStore, limit: str) -> None:
    """Saves until files may not grow any more, then lets them grow again."""
    assignment, _ = await claim(store, FIRST)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
    number = await fill(store, assignment)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await go_on(store, assignment, number)


async def fill_disk(store: LocalStore, ballast: str) -> None:
    """Saves until the disk is full, then makes space by deleting a file."""
    assignment, _ = await claim(store, FIRST)
    number = await fill(store, assignment)
    Path(ballast).unlink()  # noqa: ASYNC240 - nobody waits for it
    await go_on(store, assignment, number)


async def fill(store: LocalStore, assignment: Assignment) -> int:
    """Saves until that fails, and says how; the last durable number."""
    number, outcome = 0, Outcome.durable()
    while outcome.kind is OutcomeKind.DURABLE:
        number += 1
        (outcome,) = await store.save("g", [StoreItem(assignment, f"{number} {'x' * 20_000}")])
    say(outcome.kind.value)
    say(outcome.error)
    say(number - 1)
    try:
        await store.claim("g", [Assignment(FIRST, 2)])
    except StoreError as error:
        say(type(error).__name__)
    return number - 1


async def go_on(store: LocalStore, assignment: Assignment, number: int) -> None:
    """There is space again."""
    (outcome,) = await store.save("g", [StoreItem(assignment, f"{number + 1} on")])
    say(outcome.kind.value)


async def fork(store: LocalStore, _: str) -> None:
    """Uses and closes the store in a forked child, then in the parent."""
    assignment, _number = await claim(store, FIRST)
    child = os.fork()
    if child == 0:
        try:
            await store.save("g", [StoreItem(assignment, "1 child")])
        except ConsumerClosedError as error:
            say(error)
        try:
            await store.open()
        except ConsumerClosedError:
            say("not opened")
        await store.aclose()
        os._exit(0)
    os.waitpid(child, 0)
    (outcome,) = await store.save("g", [StoreItem(assignment, "1 parent")])
    say(outcome.kind.value)


ROLES = {role.__name__: role for role in (count_up, compete, save_one, fill_up, fill_disk, fork)}


async def main(role: str, path: str, argument: str = "") -> None:
    """Opens the store and plays the role."""
    store = LocalStore(path, busy_timeout=30.0)
    await store.open()
    try:
        await ROLES[role](store, argument)
    finally:
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

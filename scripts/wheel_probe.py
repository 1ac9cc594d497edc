"""Checks an installed wheel: ``python -I wheel_probe.py OPTIONAL...``; `make wheel-test` runs it.

It runs on the interpreter that has the wheel and its base dependencies, and nothing else. The
arguments are the import names of the optional packages. Each line of output is a problem.
"""

import asyncio
import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version

import consumer_sdk
from consumer_sdk import Consumer, MissingExtraError
from consumer_sdk.testing.memory import MemoryBroker

# These need no client, so nothing in them may be missing. A name stands for what is below it too.
CORE = {
    "consumer_sdk.abc",
    "consumer_sdk.testing.memory",
    "consumer_sdk.adapters.urls",
    "consumer_sdk.cli",
    "consumer_sdk.errors",
    "consumer_sdk.records",
    "consumer_sdk.runtime",
    "consumer_sdk.stores.sqlite.store",
    "consumer_sdk.trackers",
}
# But for what draws a terminal, with an extra of its own.
NOT_CORE = {"consumer_sdk.cli.top.display"}
VALUES = [b"first", b"second", b"third"]


def import_problems(optional: set[str]) -> Iterator[str]:
    """Import all modules; yield those that fail, unless it is for want of an optional package.

    A package that cannot be imported hides its modules, which could not be imported either.
    """
    found: set[str] = set()
    walk = pkgutil.walk_packages(consumer_sdk.__path__, "consumer_sdk.", onerror=found.add)
    for name in (info.name for info in walk):
        found.add(name)
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a problem of that module
            if is_core(name) or not is_missing_extra(error, optional):
                yield f"import {name}: {type(error).__name__}: {error}"
    yield from (f"import {name}: no such module" for name in sorted(CORE - found))


def is_core(name: str) -> bool:
    """Return whether the module is one of `CORE`, or below one."""
    return name not in NOT_CORE and any(f"{name}.".startswith(f"{core}.") for core in CORE)


def is_missing_extra(error: Exception, optional: set[str]) -> bool:
    """Return whether the import failed because an optional package is not installed."""
    if isinstance(error, ModuleNotFoundError):
        return str(error.name).partition(".")[0] in optional
    return isinstance(error, MissingExtraError)


async def consume() -> list[bytes | None]:
    """Return what a consumer gets of a stream in memory, once it has acked and flushed all of it."""
    broker = MemoryBroker("wheel-test")
    broker.create_stream("orders")
    broker.append_all("orders", VALUES)
    seen: list[bytes | None] = []
    async with Consumer("memory://wheel-test/orders?group=billing") as consumer:
        async for message in consumer:
            seen.append(message.value)
            message.ack()
            if len(seen) == len(VALUES):
                break
        await consumer.flush()
    return seen


def main() -> int:
    """Print the problems; 1 when there is one."""
    problems = list(import_problems(set(sys.argv[1:])))
    if (seen := asyncio.run(asyncio.wait_for(consume(), 20))) != VALUES:
        problems.append(f"consume: {seen} came of {VALUES}")
    if (installed := version("consumer-sdk")) != consumer_sdk.__version__:
        problems.append(f"version: {consumer_sdk.__version__}, but the metadata says {installed}")
    print(*problems, sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())

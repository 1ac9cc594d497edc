"""Runs decoders on damaged input, each in a process of its own, so that a crash has a name too."""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from types import FrameType

from tests.fuzz.decoders import DECODERS, Decoder
from tests.stores.fuzz import fuzzed, mutated

__all__ = ["Finding", "Tally", "fuzz", "fuzz_apart"]

PATIENCE = 10
"""Seconds of processor time that one input may take."""
MEMORY = 1_500_000_000
"""Bytes that a decoder may add to what the process has."""
LARGEST = 4_000_000


class StuckError(BaseException):
    """An input takes too long."""


@dataclass(slots=True)
class Tally:
    """What became of inputs."""

    values: int = 0
    refused: int = 0

    @property
    def inputs(self) -> int:
        """All."""
        return self.values + self.refused


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that ended in neither a value nor the typed error."""

    decoder: str
    data: bytes
    error: str

    def __str__(self) -> str:
        return f"{self.decoder}: {self.error}\n  {self.data[:2000]!r}"


def damaged(decoder: Decoder, chaos: random.Random) -> bytes:
    """A sample that was damaged, half of the time with the checksum that fits the damage."""
    sample = chaos.choice(decoder.samples)
    data = fuzzed(sample, chaos) if _is_object(sample) else mutated(sample, chaos)
    if decoder.seal is not None and chaos.random() < 0.5:
        with suppress(ValueError, RecursionError):
            data = decoder.seal(data)
    return data


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def attempt(name: str, data: bytes, tally: Tally) -> Finding | None:
    """Decodes; None if that was as it should be."""
    decoder = DECODERS[name]
    try:
        with _patience():
            decoder.read(data)
    except MemoryError as error:
        return Finding(name, data, f"takes more than {MEMORY:,} bytes: {error!r}")
    except decoder.errors:
        tally.refused += 1
    except (Exception, StuckError) as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Finding(name, data, repr(error)[:300])
    else:
        tally.values += 1
    return None


@contextmanager
def _patience() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def fuzz(name: str, count: int, seed: int) -> tuple[Tally, Finding | None]:
    """So many inputs from one seed; ends with the first finding."""
    chaos, tally = random.Random(f"{name} {seed}"), Tally()
    with _stuck_noticed():
        for _ in range(count):
            finding = attempt(name, damaged(DECODERS[name], chaos), tally)
            if finding is not None:
                return tally, finding
    return tally, None


@contextmanager
def _stuck_noticed() -> Iterator[None]:
    def stuck(_number: int, _frame: FrameType | None) -> None:
        raise StuckError(f"takes more than {PATIENCE} s")

    before = signal.signal(signal.SIGVTALRM, stuck)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)


HEAD = struct.Struct("=QQQ")
"""Values, refusals, and the size of the input that is being decoded; then the input, or a report."""


def fuzz_apart(
    name: str, seconds: float, seed: int, most: float = inf
) -> tuple[Tally, Finding | None]:
    """For so long, or for so many inputs, in a child: what kills it is a finding too."""
    with mmap.mmap(-1, HEAD.size + LARGEST) as shared:
        child = os.fork()
        if not child:
            os._exit(_in_child(name, seconds, seed, most, shared))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        values, refused, size = HEAD.unpack_from(shared)
        data = shared[HEAD.size : HEAD.size + size]
    if not status:
        return Tally(values, refused), None
    tally = Tally()
    how = f"the process ended with {status}"
    finding = None if status < 0 else fuzz_one(name, data, tally)
    return Tally(values, refused), finding or Finding(name, data, how)


def fuzz_one(name: str, data: bytes, tally: Tally) -> Finding | None:
    """One input again."""
    with _stuck_noticed():
        return attempt(name, data, tally)


def _in_child(name: str, seconds: float, seed: int, most: float, shared: mmap.mmap) -> int:
    limit = _used() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # native parsers write a line for each input
    chaos, tally, until = random.Random(f"{name} {seed}"), Tally(), time.monotonic() + seconds
    with _stuck_noticed():
        while tally.inputs < most and time.monotonic() < until:
            data = damaged(DECODERS[name], chaos)
            HEAD.pack_into(shared, 0, tally.values, tally.refused, min(len(data), LARGEST))
            shared[HEAD.size : HEAD.size + min(len(data), LARGEST)] = data[:LARGEST]
            if attempt(name, data, tally) is not None:
                return 1
    HEAD.pack_into(shared, 0, tally.values, tally.refused, 0)
    return 0


def _used() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - one number
        return int(file.read().split()[0]) * resource.getpagesize()

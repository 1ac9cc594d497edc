"""The promises of the Kinesis adapter hold in every simulated life of a group."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.kinesis.seeds import RUNNER
from tests.sim.runner import environment

SEEDS = int(os.environ.get("SEEDS", "2000"))

DIGEST = (
    "import sys; from tests.sim.kinesis.seeds import RUNNER; "
    "print(*map(RUNNER.digest, map(int, sys.argv[1:])))"
)


@pytest.mark.sim
@pytest.mark.timeout(60 + SEEDS)
def test_every_seed_keeps_every_promise() -> None:
    """Kinesis traps 5, 6, 10, 12 to 15, 18, 20 to 23, 25 and 27, in seeded lives of groups."""
    failures: list[str] = []
    failed = RUNNER.run_seeds(0, SEEDS, os.cpu_count() or 1, failures.append)
    assert not failed, "\n".join(failures)


@pytest.mark.sim
def test_same_seed_gives_the_same_events_in_another_process() -> None:
    """A failing seed can be replayed: nothing depends on addresses, hashes or what ran before."""
    assert _digests(1, 2, 3, 4)[1:] == _digests(2, 3, 4)


def _digests(*seeds: int) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", DIGEST, *map(str, seeds)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    return found.stdout.split()

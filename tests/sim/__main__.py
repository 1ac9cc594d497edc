"""``python -m tests.sim``: replays a seed, or runs many."""

# ruff: noqa: T201 - a command-line program prints

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.sim.runner import describe, environment, run_seed, run_seeds, try_seed


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--verbose", action="store_true", help="print every event of the replay")
    parser.add_argument("--seeds", type=int, default=2000, help="run so many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--chunk", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of bytes keep their order from run to run only under a fixed hash seed.
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]], environment())  # noqa: S606 - itself, again
    if args.chunk:
        return _chunk(*args.chunk)
    if args.seed is not None:
        return _replay(args.seed, is_verbose=args.verbose)
    started = time.perf_counter()
    failed = run_seeds(args.first, args.seeds, args.jobs, print)
    print(f"{args.seeds} seeds, {failed} failed, {time.perf_counter() - started:.0f} s")
    return min(failed, 1)


def _replay(seed: int, *, is_verbose: bool) -> int:
    started = time.perf_counter()
    try:
        deliveries = run_seed(seed, print if is_verbose else None)
    except Exception as error:
        print(f"seed {seed} fails: {describe(error)}")
        if is_verbose:
            raise
        return 1
    print(f"seed {seed} passes: {deliveries} deliveries, {time.perf_counter() - started:.3f} s")
    return 0


def _chunk(first: int, count: int) -> int:
    failures = [failure for seed in range(first, first + count) if (failure := try_seed(seed))]
    for failure in failures:
        print(failure)
    return min(len(failures), 1)


if __name__ == "__main__":
    sys.exit(main())

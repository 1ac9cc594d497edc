"""The command line of a simulation: replays a seed, or runs many."""

# ruff: noqa: T201 - a command-line program prints

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.sim.runner import Runner, describe, environment

__all__ = ["main"]


def main(runner: Runner) -> int:
    """The exit status."""
    args = _parser(runner).parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of bytes keep their order from run to run only under a fixed hash seed.
        again = [sys.executable, "-m", runner.module, *sys.argv[1:]]
        os.execve(sys.executable, again, environment())  # noqa: S606 - itself, again
    if args.chunk:
        return _chunk(runner, *args.chunk)
    if args.seed is not None:
        return _replay(runner, args.seed, is_verbose=args.verbose)
    started = time.perf_counter()
    failed = runner.run_seeds(args.first, args.seeds, args.jobs, print)
    print(f"{args.seeds} seeds, {failed} failed, {time.perf_counter() - started:.0f} s")
    return min(failed, 1)


def _parser(runner: Runner) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {runner.module}", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument(
        "--verbose", "--trace", action="store_true", help="print every event of the replay"
    )
    parser.add_argument("--seeds", type=int, default=2000, help="run so many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--chunk", type=int, nargs=2, help=argparse.SUPPRESS)
    return parser


def _replay(runner: Runner, seed: int, *, is_verbose: bool) -> int:
    started = time.perf_counter()
    try:
        deliveries = runner.run_seed(seed, print if is_verbose else None)
    except Exception as error:
        print(f"seed {seed} fails: {describe(error)}")
        if is_verbose:
            raise
        return 1
    print(f"seed {seed} passes: {deliveries} deliveries, {time.perf_counter() - started:.3f} s")
    return 0


def _chunk(runner: Runner, first: int, count: int) -> int:
    seeds = range(first, first + count)
    failures = [failure for seed in seeds if (failure := runner.try_seed(seed))]
    for failure in failures:
        print(failure)
    return min(len(failures), 1)

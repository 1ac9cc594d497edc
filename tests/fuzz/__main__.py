"""Fuzzes every decoder for a while: ``python -m tests.fuzz --seconds 60``; 1 if something was found."""

# ruff: noqa: T201 - a command-line program prints

from __future__ import annotations

import argparse
import sys
import time
from math import inf

from tests.fuzz.decoders import DECODERS
from tests.fuzz.fuzzer import fuzz_apart


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="for all decoders together; default: 60")
    parser.add_argument("--inputs", type=int, help="for each decoder, however long that takes")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--only", default="", help="decoders whose name contains this")
    options = parser.parse_args()
    names = [name for name in DECODERS if options.only in name]
    share = inf if options.inputs and not options.seconds else (options.seconds or 60) / len(names)
    found, inputs = 0, 0
    for name in names:
        began = time.monotonic()
        tally, finding = fuzz_apart(name, share, options.seed, options.inputs or inf)
        rate = tally.inputs / (time.monotonic() - began)
        row = f"{name:24} {tally.values:9,} values {tally.refused:9,} refused {rate:9,.0f}/s"
        print(row, flush=True)
        if finding is not None:
            print(f"FOUND with seed {options.seed}: {finding}")
        found += finding is not None
        inputs += tally.inputs
    print(f"{len(names)} decoders, {inputs:,} inputs, {found} findings, seed {options.seed}")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())

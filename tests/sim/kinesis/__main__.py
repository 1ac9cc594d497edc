"""``python -m tests.sim.kinesis``: replays a seed, or runs many."""

import sys

from tests.sim.command import main
from tests.sim.kinesis.seeds import RUNNER

if __name__ == "__main__":
    sys.exit(main(RUNNER))

"""``python -m tests.sim``: replays a seed, or runs many."""

import sys

from tests.sim.command import main
from tests.sim.seeds import RUNNER

if __name__ == "__main__":
    sys.exit(main(RUNNER))

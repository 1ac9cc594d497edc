"""``python -m tests.sim.kafka_share``: replays a seed, or runs many."""

import sys

from tests.sim.command import main
from tests.sim.kafka_share.seeds import RUNNER

if __name__ == "__main__":
    sys.exit(main(RUNNER))

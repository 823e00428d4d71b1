"""The observer program: reads a sink again and again while it is written, and records what it finds.

``python -m tests.chaos.sinks_observer KIND FOLDER URL OUTPUT``; runs until it is killed. The output is a
sequence of pickled observations, each of which differs from the one before.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

from tests.chaos.sinks import Observation, Sink


def main(sink: Sink, output: Path) -> None:
    last: Observation | None = None
    with output.open("ab") as file:
        while True:
            # the table is created before the query starts
            if sink.planned() and (found := sink.observe()) != last:
                last = found
                pickle.dump(found, file)
                file.flush()
            time.sleep(0.1)


if __name__ == "__main__":
    kind, given, address, target = sys.argv[1:]
    main(Sink(kind, Path(given), address), Path(target))

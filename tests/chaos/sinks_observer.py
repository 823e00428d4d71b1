"""The observer program: reads every sink again and again while it is written, and records what it finds.

``python -m tests.chaos.sinks_observer FOLDER URL OUTPUT SINK …``; runs until it is killed. The output is a
sequence of pickled observations, each of which differs from the last one of its sink.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

import sqlalchemy.exc

from tests.chaos.sinks import Observation, Sinks


def main(folder: Path, url: str, output: Path, *names: str) -> None:
    sinks = Sinks(folder, url)
    last: dict[str, Observation] = {}
    with output.open("ab") as file:
        while True:
            for name in names:
                try:
                    found = sinks.observe(name)
                except (sqlalchemy.exc.NoSuchTableError, FileNotFoundError):
                    continue  # not created yet
                if found != last.get(name):
                    last[name] = found
                    pickle.dump(found, file)
                    file.flush()
            time.sleep(0.2)


if __name__ == "__main__":
    given, address, target, *chosen = sys.argv[1:]
    main(Path(given), address, Path(target), *chosen)

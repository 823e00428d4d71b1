"""Two writers replace slices of a Delta table on an object store, while others look whether it exists.

Looking keeps the GIL while deltalake waits for its own threads. A commit that needs the GIL in those threads
would never end, so this runs as a program, which can be given up.
"""

from __future__ import annotations

import sys
import threading

import deltalake

from tests.ingest.object_store_writer import SLICE, replace, target_of

COMMITS = 3


def main(url: str) -> None:
    replace(target_of("delta", url, 1), SLICE, 1)
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            deltalake.DeltaTable.is_deltatable(url)

    def write(number: int) -> None:
        for _ in range(COMMITS):
            slice_ = SLICE._replace(low=100 * number, high=100 * number + 10)
            replace(target_of("delta", url, 2), slice_, number)

    looking = [threading.Thread(target=look, daemon=True) for _ in range(2)]
    writing = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for thread in (*looking, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    over.set()
    for thread in looking:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1])

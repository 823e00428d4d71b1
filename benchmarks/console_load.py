"""The console under load: how fast a page is shown and updated, and how much memory it takes.

python -m benchmarks.console_load

Runs `tests/ui/test_load.py`, which checks that nothing is missed and that memory is bounded, and compares
what it measured with the limits: 50 queries, 10,000 origins of one of them, 1,000 batches of history, 1,800
updates as fast as the page shows them, 100 open pages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

LIMITS: Final = {"first_paint_ms": 1_000, "update_ms": 100, "update_95_ms": 100}
"""The largest values in milliseconds: until the first ladder is shown, and until a change of it is."""


def main() -> int:
    """Print the figures; the exit code is 1 if a check fails or a figure is above its limit."""
    root = Path(__file__).parent.parent
    with TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ui/test_load.py"]
        done = subprocess.run(
            command, cwd=root, env={**os.environ, "SLACKWATER_FIGURES": str(file)}, check=False
        )
        figures: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    for name, value in figures.items():
        limit = f" (limit {LIMITS[name]})" if name in LIMITS else ""
        sys.stdout.write(f"{name}: {value:.1f}{limit}\n")
    above = [name for name, limit in LIMITS.items() if figures.get(name, limit) >= limit]
    return 1 if done.returncode or above else 0


if __name__ == "__main__":
    sys.exit(main())

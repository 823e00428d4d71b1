"""Virtual environments of other engines, from pinned requirements with hashes, below build/environments."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ENVIRONMENTS: Final = ROOT / "build" / "environments"
REQUIREMENTS: Final = Path(__file__).parent / "peers" / "requirements"


def python_of(name: str) -> Path:
    """The interpreter of an engine's environment, which is created if its requirements have changed.

    Raises:
        FileNotFoundError: there are no requirements of that name.
        subprocess.CalledProcessError: the packages could not be installed.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    expected = hashlib.sha256(requirements.read_bytes()).hexdigest()
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / ".requirements"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="ascii") == expected:
        return python
    print(f"creating the environment of {name}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = ["-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    subprocess.run([str(python), *install, "-r", str(requirements)], check=True)
    stamp.write_text(expected, encoding="ascii")
    return python

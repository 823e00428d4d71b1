"""A machine made of a folder: its PATH holds only what a test puts there.

The scripts run for real, in real processes; only the programs they would call to change the
machine (package managers, sudo, interpreters) are stand-ins that write down how they were called.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).parents[2] / "scripts"
TOOLS: Final = ("cat", "chmod", "cksum", "dirname", "env", "ln", "mkdir", "readlink", "rm", "sed", "sleep")
"""What every machine has, and what the scripts may rely on."""


@dataclass
class Machine:
    """A PATH, a log of what was called, and the variables of the environment."""

    folder: Path
    user: int = 0
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path = self.folder / "bin"
        self.path.mkdir(parents=True)
        self.log = self.folder / "called.txt"
        self.log.touch()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"this machine has no {tool}"
            (self.path / tool).symlink_to(found)
        self.program("id", f"echo {self.user}", logged=False)
        self.variables.setdefault("JAVA_PLACES", str(self.folder / "jvm" / "*"))

    def program(self, name: str, body: str, *, logged: bool = True) -> Path:
        """Puts an executable on the PATH (or anywhere below the folder) that runs ``body``."""
        path = self.path / name if "/" not in name else self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        note = f'echo "{path.name} $*" >>"{self.log}"\n' if logged else ""
        path.write_text(f"#!/bin/sh\n{note}{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def java(self, place: str, version: str) -> Path:
        """A Java of this version in ``place``; the home it claims."""
        home = self.folder / place
        text = f"    java.home = {home}\n    java.specification.version = {version}\n    java.vendor = Any\n"
        self.program(f"{place}/bin/java", f"cat >&2 <<'END'\nProperty settings:\n{text}END", logged=False)
        return home

    def run(self, script: Path) -> subprocess.CompletedProcess[str]:
        """Runs the script with this machine's PATH and variables only, and without standard input."""
        return subprocess.run(
            ["/bin/sh", str(script)],
            env={"PATH": str(self.path), "HOME": str(self.folder), **self.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def called(self) -> list[str]:
        """The calls of logged stand-ins, in order."""
        return self.log.read_text(encoding="utf-8").splitlines()

    def link(self, name: str, target: Path) -> None:
        """Puts an existing program on the PATH."""
        (self.path / name).symlink_to(target)

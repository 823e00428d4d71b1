"""A simulated machine in a folder: its PATH contains only what a test puts there.

The scripts run in real processes. Only the programs that would change the machine (package managers, sudo,
interpreters) are stubs that log how they were called.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).parents[2] / "scripts"
TOOLS: Final = ("cat", "chmod", "cksum", "dirname", "env", "ln", "mkdir", "readlink", "rm", "sed", "sleep")
"""Programs that exist on every machine and that the scripts may use."""


@dataclass
class Machine:
    """A PATH, a log of calls to stubs, and environment variables."""

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
            assert found, f"{tool} is not installed"
            (self.path / tool).symlink_to(found)
        self.program("id", f"echo {self.user}", logged=False)
        self.variables.setdefault("JAVA_FOLDERS", str(self.folder / "jvm" / "*"))

    def program(self, name: str, body: str, *, logged: bool = True) -> Path:
        """Create an executable that runs ``body``, on the PATH or at a path below the folder."""
        path = self.path / name if "/" not in name else self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        note = f'echo "{path.name} $*" >>"{self.log}"\n' if logged else ""
        path.write_text(f"#!/bin/sh\n{note}{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def java(self, folder: str, version: str) -> Path:
        """Create a Java of this version in ``folder``; return its home."""
        home = self.folder / folder
        text = f"    java.home = {home}\n    java.specification.version = {version}\n    java.vendor = Any\n"
        self.program(f"{folder}/bin/java", f"cat >&2 <<'END'\nProperty settings:\n{text}END", logged=False)
        return home

    def run(self, script: Path) -> subprocess.CompletedProcess[str]:
        """Run the script with only the PATH and variables of this machine, without standard input."""
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
        """The logged calls to stubs, in order."""
        return self.log.read_text(encoding="utf-8").splitlines()

    def link(self, name: str, target: Path) -> None:
        """Put an existing program on the PATH."""
        (self.path / name).symlink_to(target)

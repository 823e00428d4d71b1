"""`scripts/postgres.sh` finds the programs of a PostgreSQL server, installs them, or explains what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.machine import SCRIPTS, Machine

POSTGRES = SCRIPTS / "postgres.sh"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "m")
    machine.variables["POSTGRES_FOLDERS"] = str(machine.folder / "postgresql/*/bin")
    return machine


def test_initdb_on_the_path_comes_first(machine: Machine) -> None:
    machine.program("postgresql/15/bin/initdb", "")
    machine.link("initdb", machine.program("mine/bin/initdb", ""))
    assert machine.run(POSTGRES).stdout == f"{machine.folder / 'mine/bin'}\n"


def test_the_newest_installed_version_is_used(machine: Machine) -> None:
    for version in ("13", "15"):
        machine.program(f"postgresql/{version}/bin/initdb", "")
    assert machine.run(POSTGRES).stdout == f"{machine.folder / 'postgresql/15/bin'}\n"


def test_it_is_installed_if_it_is_missing(machine: Machine) -> None:
    place = machine.folder / "postgresql/15/bin"
    program = place / "initdb"
    install = f'mkdir -p "{place}" && cat >"{program}" </dev/null && chmod +x "{program}"'
    machine.program("apt-get", f"case $1 in install) {install} ;; esac")
    assert machine.run(POSTGRES).stdout == f"{place}\n"
    assert any(call.endswith("--no-install-recommends postgresql") for call in machine.called())


@pytest.mark.parametrize("has_manager", [True, False])
def test_otherwise_the_error_names_the_fix(machine: Machine, has_manager: bool) -> None:
    if has_manager:
        machine.program("apt-get", "exit 100")
    done = machine.run(POSTGRES)
    assert done.returncode == 1
    assert not done.stdout
    assert "run this again" in done.stderr

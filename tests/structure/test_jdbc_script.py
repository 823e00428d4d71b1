"""`scripts/jdbc.sh` finds the PostgreSQL JDBC driver, installs it, or explains what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.machine import SCRIPTS, Machine

JDBC = SCRIPTS / "jdbc.sh"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "m")
    machine.variables["JDBC_FILES"] = f"{machine.folder}/java/a.jar {machine.folder}/java/b.jar"
    return machine


def test_an_installed_driver_is_found(machine: Machine) -> None:
    machine.program("java/b.jar", "")
    assert machine.run(JDBC).stdout == f"{machine.folder}/java/b.jar\n"


def test_it_is_installed_if_it_is_missing(machine: Machine) -> None:
    place = machine.folder / "java"
    install = f'mkdir -p "{place}" && cat >"{place}/a.jar" </dev/null'
    machine.program("apt-get", f"case $1 in install) {install} ;; esac")
    assert machine.run(JDBC).stdout == f"{place}/a.jar\n"
    assert any(call.endswith("--no-install-recommends libpostgresql-jdbc-java") for call in machine.called())


@pytest.mark.parametrize("has_manager", [True, False])
def test_otherwise_the_error_names_the_fix(machine: Machine, has_manager: bool) -> None:
    if has_manager:
        machine.program("apt-get", "exit 100")
    done = machine.run(JDBC)
    assert done.returncode == 1
    assert not done.stdout
    assert "run this again" in done.stderr

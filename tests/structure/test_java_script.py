"""`scripts/java.sh` finds a Java that Spark can run on, installs one, or explains what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.machine import SCRIPTS, Machine

JAVA = SCRIPTS / "java.sh"
INSTALLS = {
    "apt-get": "apt-get install -y -q --no-install-recommends openjdk-17-jre-headless",
    "dnf": "dnf install -y -q java-17-openjdk-headless",
    "yum": "yum install -y -q java-17-openjdk-headless",
    "apk": "apk add --no-cache openjdk17-jre-headless",
    "zypper": "zypper --non-interactive install --no-recommends java-17-openjdk-headless",
    "pacman": "pacman -S --noconfirm --needed jre17-openjdk-headless",
    "brew": "brew install --quiet openjdk@17",
}


def manager(machine: Machine, name: str, offers: dict[str, str]) -> None:
    """A package manager that offers these packages, each with a Java of some version."""
    place = machine.folder / "brew/opt/openjdk@17" if name == "brew" else machine.folder / "jvm/installed"
    cases = ""
    for package, version in offers.items():
        java = machine.java(f"shelf/{package}", version) / "bin/java"
        cases += f'{package}) mkdir -p "{place}/bin" && cp "{java}" "{place}/bin/java"; exit ;;\n'
    machine.program(
        name,
        f'case "$*" in\n    "--prefix") echo "{machine.folder}/brew"; exit ;;\n'
        f"    update*|-Sy*) exit 0 ;;\nesac\n"
        f'for last in "$@"; do :; done\ncase $last in\n{cases}esac\necho "no package $last" >&2; exit 100',
    )
    machine.link("cp", Path("/bin/cp"))


def installs(machine: Machine) -> list[str]:
    return [call for call in machine.called() if " install" in call or " add" in call or " -S " in call]


def test_java_home_is_used_before_the_path(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    home = machine.java("mine", "17")
    machine.link("java", machine.java("other", "21") / "bin/java")
    machine.variables["JAVA_HOME"] = str(home)
    assert machine.run(JAVA).stdout == f"{home}\n"


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(tmp_path: Path, version: str) -> None:
    machine = Machine(tmp_path / "m")
    machine.variables["JAVA_HOME"] = str(machine.java("old", version))
    home = machine.java("new", "21")
    machine.link("java", home / "bin/java")
    done = machine.run(JAVA)
    assert done.stdout == f"{home}\n"
    assert f"skipping Java {version}" in done.stderr


def test_a_java_in_a_system_folder_is_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    machine.java("jvm/java-11", "11")
    home = machine.java("jvm/java-25", "25")
    manager(machine, "apt-get", {})
    assert machine.run(JAVA).stdout == f"{home}\n"
    assert machine.called() == []


@pytest.mark.parametrize("broken", ["exit 1", "echo 'no Java runtime present' >&2", "echo 'java.home = x'"])
def test_a_java_that_does_not_run_is_skipped(tmp_path: Path, broken: str) -> None:
    machine = Machine(tmp_path / "m")
    machine.program("java", broken, logged=False)
    manager(machine, "apt-get", {"openjdk-17-jre-headless": "17"})
    assert machine.run(JAVA).stdout == f"{tmp_path}/m/shelf/openjdk-17-jre-headless\n"


@pytest.mark.parametrize("name", INSTALLS)
def test_each_package_manager_has_its_own_command(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path / "m")
    package = INSTALLS[name].split()[-1]
    manager(machine, name, {package: "17"})
    done = machine.run(JAVA)
    assert done.stdout == f"{tmp_path}/m/shelf/{package}\n"
    assert installs(machine) == [INSTALLS[name]]


def test_the_next_package_is_tried_if_the_first_is_not_available(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    manager(machine, "apt-get", {"openjdk-21-jre-headless": "21"})
    assert machine.run(JAVA).stdout == f"{tmp_path}/m/shelf/openjdk-21-jre-headless\n"
    assert [call.split()[-1] for call in installs(machine)] == [
        "openjdk-17-jre-headless",
        "openjdk-21-jre-headless",
    ]


@pytest.mark.parametrize("name", INSTALLS)
def test_other_users_install_with_sudo_except_with_brew(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path / "m", user=1000)
    manager(machine, name, {INSTALLS[name].split()[-1]: "17"})
    machine.program("sudo", 'shift; exec "$@"')
    assert machine.run(JAVA).returncode == 0
    asked = [call for call in machine.called() if call.startswith("sudo")]
    if name == "brew":
        assert asked == []
    else:
        # without a terminal no password can be entered, so sudo must not ask for one
        quiet = "env DEBIAN_FRONTEND=noninteractive " if name == "apt-get" else ""
        assert asked[-1] == f"sudo -n {quiet}{INSTALLS[name]}"


def test_without_root_and_sudo_the_error_names_the_packages(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m", user=1000)
    manager(machine, "dnf", {"java-17-openjdk-headless": "17"})
    done = machine.run(JAVA)
    assert (done.returncode, done.stdout, installs(machine)) == (1, "", [])
    assert "there is no sudo" in done.stderr
    assert "As root, install one of: java-17-openjdk-headless" in done.stderr


def test_without_a_package_manager_the_error_names_the_fix(tmp_path: Path) -> None:
    done = Machine(tmp_path / "m").run(JAVA)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Install a JRE 17 or newer and set JAVA_HOME" in done.stderr


def test_a_package_with_a_java_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m")
    manager(machine, "apt-get", {"default-jre-headless": "11"})
    done = machine.run(JAVA)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Java 17 or newer was found" in done.stderr

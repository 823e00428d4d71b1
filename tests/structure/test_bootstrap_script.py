"""`scripts/bootstrap.sh` creates `.venv` from the lock: completely, once, with any Python from 3.11 on."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.structure.machine import SCRIPTS, Machine


class Checkout(Machine):
    """A machine with a checkout that contains the files that the script reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.root = self.folder / "checkout"
        shutil.copytree(SCRIPTS, self.root / "scripts")
        self.write("requirements.lock", "polars==1")
        self.write("pyproject.toml", "[project]")
        self.variables["FAILS"] = ""

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text, encoding="utf-8")

    def python(self, name: str, version: tuple[int, int], *, venv: bool = True) -> None:
        """Create an interpreter of this version; without ``venv`` it lacks the venv module."""
        fails = 'case "$*" in *"$FAILS"*) [ -z "$FAILS" ] || exit 1 ;; esac'
        inside = f'echo "venv-python $*" >>"{self.log}"; {fails}'
        can = "true" if venv else f'[ -e "{self.folder}/venv-installed" ]'
        self.program(
            name,
            f'case "$*" in\n'
            f"    *version_info\\ \\<*) [ {version[1]} -ge 11 ] ;;\n"
            f"    *ensurepip*) {can} ;;\n"
            f'    *print*) echo "python{version[0]}.{version[1]}-venv" ;;\n'
            f'    --version) echo "Python {version[0]}.{version[1]}" ;;\n'
            f'    "-m venv .venv") echo "{name} makes .venv" >>"{self.log}"; mkdir -p .venv/bin\n'
            f"        printf '%s\\n' '#!/bin/sh' '{inside}' >.venv/bin/python; chmod +x .venv/bin/python ;;\n"
            f"esac",
            logged=False,
        )

    def bootstrap(self) -> subprocess.CompletedProcess[str]:
        self.log.write_text("", encoding="utf-8")
        return self.run(self.root / "scripts" / "bootstrap.sh")

    def made_by(self) -> list[str]:
        return [call.split()[0] for call in self.called() if "makes" in call]

    def installs(self) -> list[str]:
        return [call.split()[-1] for call in self.called() if call.startswith("venv-python")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "m")
    made.python("python3.11", (3, 11))
    return made


def test_the_lock_is_installed_with_hashes_and_the_package_without_the_network(checkout: Checkout) -> None:
    assert checkout.bootstrap().returncode == 0
    lock, package = (call for call in checkout.called() if call.startswith("venv-python"))
    assert "--require-hashes -r requirements.lock" in lock
    assert "--no-index --no-build-isolation --editable ." in package


def test_a_second_run_does_nothing(checkout: Checkout) -> None:
    checkout.bootstrap()
    (checkout.path / "python3.11").unlink()  # it is not even looked up
    done = checkout.bootstrap()
    assert (done.returncode, done.stdout, done.stderr, checkout.called()) == (0, "", "", [])


def test_a_changed_lock_recreates_the_environment(checkout: Checkout) -> None:
    checkout.bootstrap()
    checkout.write("requirements.lock", "polars==2")
    (checkout.root / ".venv" / "leftover").touch()
    checkout.bootstrap()
    assert checkout.installs() == ["requirements.lock", "."]
    assert not (checkout.root / ".venv" / "leftover").exists()


def test_changed_metadata_reinstalls_only_the_package(checkout: Checkout) -> None:
    checkout.bootstrap()
    checkout.write("pyproject.toml", "[project]\nversion = 2")
    checkout.bootstrap()
    assert (checkout.made_by(), checkout.installs()) == ([], ["."])


@pytest.mark.parametrize("step", ["requirements.lock", "--editable"])
def test_an_interrupted_installation_is_completed_by_the_next_run(checkout: Checkout, step: str) -> None:
    checkout.variables["FAILS"] = step
    assert checkout.bootstrap().returncode != 0
    assert not (checkout.root / ".venv.making").is_symlink()
    checkout.variables["FAILS"] = ""
    assert checkout.bootstrap().returncode == 0
    assert checkout.installs()[-1] == "."
    assert checkout.bootstrap().returncode == 0
    assert checkout.called() == []


def test_an_environment_without_a_stamp_is_recreated(checkout: Checkout) -> None:
    (checkout.root / ".venv" / "bin").mkdir(parents=True)
    (checkout.root / ".venv" / "leftover").touch()
    checkout.bootstrap()
    assert checkout.made_by() == ["python3.11"]
    assert not (checkout.root / ".venv" / "leftover").exists()


def test_the_environment_of_a_moved_checkout_is_recreated(checkout: Checkout) -> None:
    checkout.bootstrap()
    checkout.root = checkout.root.rename(checkout.folder / "elsewhere")
    checkout.bootstrap()
    assert checkout.made_by() == ["python3.11"]


def test_a_python_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "m")
    checkout.python("python3", (3, 9))
    checkout.python("python", (3, 13))
    assert checkout.bootstrap().returncode == 0
    assert checkout.made_by() == ["python"]


def test_the_named_python_comes_first(checkout: Checkout) -> None:
    checkout.python("python3.12", (3, 12))
    checkout.variables["PYTHON"] = "python3.12"
    checkout.bootstrap()
    assert checkout.made_by() == ["python3.12"]


def test_without_any_python_the_error_names_the_fix(tmp_path: Path) -> None:
    done = Checkout(tmp_path / "m").bootstrap()
    assert done.returncode == 1
    assert "No Python 3.11 or newer on the PATH" in done.stderr


def test_the_missing_venv_module_of_debian_is_installed(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "m")
    checkout.python("python3", (3, 11), venv=False)
    installs = f': >"{checkout.folder}/venv-installed"'
    checkout.program("apt-get", f'case "$*" in *python3.11-venv) {installs} ;; *install*) exit 1 ;; esac')
    assert checkout.bootstrap().returncode == 0
    assert checkout.made_by() == ["python3"]


def test_if_venv_cannot_be_installed_the_error_names_the_package(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "m")
    checkout.python("python3", (3, 12), venv=False)
    done = checkout.bootstrap()
    assert done.returncode == 1
    assert "install python3.12-venv, or set PYTHON" in done.stderr


def test_the_lock_of_a_dead_process_is_removed(checkout: Checkout) -> None:
    gone = subprocess.Popen(["/bin/sh", "-c", "exit"])
    gone.wait()
    (checkout.root / ".venv.making").symlink_to(str(gone.pid))
    assert checkout.bootstrap().returncode == 0
    assert not (checkout.root / ".venv.making").is_symlink()


def start(checkout: Checkout) -> subprocess.Popen[bytes]:
    script = str(checkout.root / "scripts" / "bootstrap.sh")
    return subprocess.Popen(["/bin/sh", script], env={"PATH": str(checkout.path), **checkout.variables})


@pytest.mark.search
def test_if_two_run_at_once_one_does_the_work(checkout: Checkout) -> None:
    both = [start(checkout), start(checkout)]
    assert [one.wait(timeout=30) for one in both] == [0, 0]
    assert (checkout.made_by(), checkout.installs()) == (["python3.11"], ["requirements.lock", "."])


@pytest.mark.search
def test_it_waits_while_another_is_at_work(checkout: Checkout) -> None:
    with subprocess.Popen(["/bin/sh", "-c", "exec sleep 30"]) as busy:
        (checkout.root / ".venv.making").symlink_to(str(busy.pid))
        waiting = start(checkout)
        time.sleep(0.5)
        still_waiting = waiting.poll() is None and checkout.called() == []
        busy.kill()
    assert still_waiting
    assert waiting.wait(timeout=30) == 0
    assert checkout.made_by() == ["python3.11"]

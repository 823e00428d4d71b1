"""The option `--cases`, and the summary of what is not built yet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.loading import Folder, load_folder, shipped_cases

_FOLDER = pytest.StashKey[Folder]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", metavar="DIR", default=None, help="run the conformance cases of this folder")


def folder_of(config: pytest.Config) -> Folder:
    """The cases of this run, read once."""
    if _FOLDER not in config.stash:
        given = config.getoption("--cases", default=None)
        config.stash[_FOLDER] = load_folder(Path(given)) if given else shipped_cases()
    return config.stash[_FOLDER]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conformance_case" in metafunc.fixturenames:
        tests = folder_of(metafunc.config).tests
        metafunc.parametrize("conformance_case", tests, ids=[test.name for test in tests])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    not_built: Counter[str] = config.stash[_FOLDER].not_built if _FOLDER in config.stash else Counter()
    if not_built:
        terminalreporter.section("conformance suites not built yet")
        for suite, count in sorted(not_built.items()):
            terminalreporter.write_line(f"{suite}: {count} cases not run")

"""The root command: its help and version come at once, and list what the commands say themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from slackwater import __version__
from slackwater.cli.app import COMMANDS, app


@pytest.mark.search
def test_the_help_and_the_version_import_no_command() -> None:
    heavy = {"pyspark", "polars", "pyarrow", "sqlalchemy", "pydantic", "numpy"}
    program = f"""
import sys
from typer.testing import CliRunner
from slackwater.cli.app import app
outputs = [CliRunner().invoke(app, [option]).output for option in ("--help", "--version")]
print(sorted({heavy!r} & set(sys.modules)), "ingest" in outputs[0], outputs[1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True", "slackwater", __version__]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_help_of_each_command(name: str) -> None:
    first, *_ = COMMANDS[name].load(name).help.split("\n\n")
    assert " ".join(first.split()) == COMMANDS[name].help


def test_a_misspelled_command_is_reported_with_the_one_that_was_meant() -> None:
    result = CliRunner().invoke(app, ["ingets"])
    assert result.exit_code == 2
    assert "Did you mean 'ingest'?" in " ".join(result.output.split())

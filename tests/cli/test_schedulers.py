"""The examples for schedulers: the page shows them, and the command accepts every call in them."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from slackwater.cli.app import app

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "schedulers").glob("*.py"))
PAGE = (ROOT / "docs" / "operations" / "schedulers.md").read_text(encoding="utf-8")


def calls(path: Path) -> list[list[str]]:
    """The arguments of each call of the command in a file, as text or as a list."""
    found = []
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    parts_of_texts = [id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values]
    for node in nodes:
        match node:
            case ast.JoinedStr():
                parts = [part.value if isinstance(part, ast.Constant) else "table" for part in node.values]
                words = shlex.split("".join(map(str, parts)))
            case ast.Constant(value=str(text)) if id(node) not in parts_of_texts:
                words = text.split()
            case ast.List(elts=[ast.Constant(value="slackwater"), *_]):
                words = [one.value if isinstance(one, ast.Constant) else "table" for one in node.elts]  # type: ignore[misc]
            case _:
                continue
        if words[:1] == ["slackwater"] and len(words) > 1:
            found.append([str(word) for word in words[1:]])
    return found


def parse(command: Any, arguments: list[str]) -> dict[str, Any]:
    """The options of the innermost command."""
    context = command.make_context("slackwater", list(arguments))
    while hasattr(command, "commands"):
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, rest, parent=context)
    return dict(context.params)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_shows_the_file(path: Path) -> None:
    assert f"```python\n{path.read_text(encoding='utf-8')}```" in PAGE


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_command_accepts_every_call(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").touch()
    found = calls(path)
    assert {words[0] for words in found} == {"ingest", "wait"}
    for words in found:
        parsed = parse(get_command(app), words)
        if words[0] == "wait":
            assert parsed["timeout"] == "0s"
        else:
            assert parsed["as_json"] is True

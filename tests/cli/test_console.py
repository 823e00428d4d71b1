"""What is printed: texts of others as they are, and no cell cut."""

from __future__ import annotations

import pytest

from slackwater.cli.console import complain, say, show

ID = "0123456789abcdef" * 2
ODD = ["[/a]", "[bold]x", ":smile:", "a\\", "[link=x]"]


@pytest.mark.parametrize("text", ODD)
def test_a_text_that_looks_like_markup_is_printed_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show([{"unit": text}], ["unit"], as_json=False)
    say(text)
    complain(text)
    printed = capsys.readouterr()
    assert [line.rstrip() for line in printed.out.splitlines()] == ["unit", text, text]
    assert printed.err == f"error: {text}\n"


def test_in_a_pipe_a_row_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    show([{"id": ID, "error": "no answer " * 30}], ["id", "error"], as_json=False, whole=["id"])
    assert capsys.readouterr().out.splitlines()[1].split() == [ID, *["no", "answer"] * 30]


def test_in_a_narrow_terminal_nothing_is_cut_and_ids_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    row = {"id": ID, "low": "2020-01-01T00:00:00Z", "error": "no answer"}
    show([row], ["id", "low", "error"], as_json=False, whole=["id"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(ID)
    told = "".join("".join(line.split()) for line in lines[1:])
    assert sorted(told) == sorted("".join(f"{ID}{row['low']}noanswer"))

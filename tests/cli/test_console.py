"""Console output: values are printed verbatim and never truncated."""

from __future__ import annotations

import pytest

from slackwater.cli.console import print_error, print_line, print_table

ID = "0123456789abcdef" * 2
ODD = ["[/a]", "[bold]x", ":smile:", "a\\", "[link=x]"]


@pytest.mark.parametrize("text", ODD)
def test_a_text_that_looks_like_markup_is_printed_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table([{"unit": text}], ["unit"], as_json=False)
    print_line(text)
    print_error(text)
    printed = capsys.readouterr()
    assert [line.rstrip() for line in printed.out.splitlines()] == ["unit", text, text]
    assert printed.err == f"error: {text}\n"


def test_in_a_pipe_a_row_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table([{"id": ID, "error": "no answer " * 30}], ["id", "error"], as_json=False, unwrapped=["id"])
    assert capsys.readouterr().out.splitlines()[1].split() == [ID, *["no", "answer"] * 30]


def test_in_a_narrow_terminal_nothing_is_cut_and_ids_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    row = {"id": ID, "low": "2020-01-01T00:00:00Z", "error": "no answer"}
    print_table([row], ["id", "low", "error"], as_json=False, unwrapped=["id"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(ID)
    printed = "".join("".join(line.split()) for line in lines[1:])
    assert sorted(printed) == sorted("".join(f"{ID}{row['low']}noanswer"))

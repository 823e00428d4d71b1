"""The runner tested: what must fail does, with a message that names the place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.errors import InvalidArgument
from tests.conformance import suites
from tests.conformance.framework import BrokenCase, Difference, Fields, check_case, must_fail, run_steps
from tests.conformance.loading import load_folder

ROOT = Path(__file__).parents[2]

ASSIGNMENT = """
suite: assignment
cases:
- {id: one, window: "fixed(10)", timestamps: [1], windows: {1: [[0, 10]]}}
"""
TRANSCRIPT = """
name: one
window_fn: FixedWindows(10)
transcript:
- input: [1]
- watermark: 10
- expect: [{window: [0, 9], values: [1]}]
"""


def outcomes(folder: Path, text: str, name: str = "cases.yaml", subject: str = "model") -> list[str]:
    """Run a folder with this one file: the message of each test of the subject, empty if it passed."""
    (folder / name).write_text(text, encoding="utf-8")
    messages = []
    for test in load_folder(folder).tests:
        if test.subject in {subject, ""}:
            try:
                test.run()
            except Difference as difference:
                messages.append(str(difference))
            else:
                messages.append("")
    return messages


def test_a_right_case_passes(tmp_path: Path) -> None:
    assert outcomes(tmp_path, ASSIGNMENT) == [""]


def test_a_right_transcript_passes(tmp_path: Path) -> None:
    assert outcomes(tmp_path, TRANSCRIPT) == [""]


def test_a_wrong_expectation_fails_and_shows_both_values(tmp_path: Path) -> None:
    [message] = outcomes(tmp_path, ASSIGNMENT.replace("[[0, 10]]", "[[0, 11]]"))
    assert "assignment / one" in message
    assert "expected: [(0, 11)]" in message
    assert "got:      [(0, 10)]" in message


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (TRANSCRIPT.replace("values: [1]", "values: [2]"), "Unmatched output at line 3 of 3"),
        (TRANSCRIPT.replace("- watermark: 10\n", ""), "Unmatched output"),
        (TRANSCRIPT.replace("- expect", "- watermark: 20\n- expect"), "Unexpected output before line 3"),
        (TRANSCRIPT.rsplit("- expect", 1)[0], "Unexpected output at the end"),
        (TRANSCRIPT + "- dropped_late: 1\n", "dropped_late"),
        (TRANSCRIPT + "- dropped_closed: 1\n", "dropped_closed"),
        (TRANSCRIPT.replace("name: one", "name: one\nerror: true"), "the transcript passes"),
        (TRANSCRIPT.replace("name: one", "name: one\nerror: 5"), "error: must be a text or true"),
        (TRANSCRIPT.replace("values: [1]", "value: [1]"), "unknown field 'value'"),
        (TRANSCRIPT.replace("window_fn", "windowfn"), "unknown field 'windowfn'"),
        (TRANSCRIPT.replace("- watermark: 10", "- watermarks: 10"), "line 2: must be one of"),
        (TRANSCRIPT.replace("- watermark: 10", "- {watermark: 10, clock: 3}"), "line 2: must be one of"),
        (TRANSCRIPT.replace("FixedWindows(10)", "HoppingWindows(10)"), "HoppingWindows is none of"),
        (TRANSCRIPT.replace("FixedWindows(10)", "__import__('os')"), "__import__ is none of"),
        (
            TRANSCRIPT.replace("FixedWindows(10)", "FixedWindows(10).size"),
            "is not a name, a call",
        ),
        (TRANSCRIPT.replace("FixedWindows(10)", "FixedWindows(10"), "cannot be read"),
        (TRANSCRIPT.replace("name: one", "name: one\naccumulation_mode: adding"), "'adding' is none of"),
    ],
)
def test_a_wrong_transcript_fails(tmp_path: Path, wrong: str, said: str) -> None:
    [message] = outcomes(tmp_path, wrong)
    assert said in message


def test_a_broken_transcript_does_not_pass_for_one_that_must_fail(tmp_path: Path) -> None:
    text = TRANSCRIPT.replace("name: one", "name: one\nerror: true").replace("FixedWindows", "HoppingWindows")
    [message] = outcomes(tmp_path, text)
    assert "HoppingWindows is none of" in message


def test_the_wrong_error_fails(tmp_path: Path) -> None:
    text = TRANSCRIPT.replace("name: one", "name: one\nerror: greater than a million")
    [message] = outcomes(tmp_path, text.replace("FixedWindows(10)", "FixedWindows(0)"))
    assert "expected: 'greater than a million'" in message
    assert "size = 0" in message


def test_panes_are_assigned_completely_if_that_is_possible(tmp_path: Path) -> None:
    """Taking the first pane that fits would leave the second expectation without one."""
    text = TRANSCRIPT.replace("[1]\n- w", "[1, 2]\n- w").replace("FixedWindows(10)", "FixedWindows(2)")
    text = text.rsplit("- expect", 1)[0] + "- expect: [{index: 0}, {window: [0, 1]}]\n"
    assert outcomes(tmp_path, text) == [""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ASSIGNMENT.replace("assignment", "weather"), "suite 'weather' has no module"),
        (ASSIGNMENT.replace("windows:", "note: x, colour: red, windows:"), "unknown field 'colour'"),
        (ASSIGNMENT.replace("timestamps: [1], ", ""), "missing field 'timestamps'"),
        (ASSIGNMENT.replace("id: one, ", ""), "case 1 has no id"),
        (ASSIGNMENT + "extra: 1\n", "unknown field 'extra'"),
        (ASSIGNMENT.replace("id: one", "id: one, id: two"), "'id' is written twice"),
        ("suite: assignment\ncases: []\n", "at least one case"),
        (ASSIGNMENT + "---" + ASSIGNMENT, "must be one document"),
        ("- nonsense: [", "cases.yaml"),
        ("just words", "case 1 has no id"),
        ("", "holds no case"),
        (TRANSCRIPT.replace("name:", "name: x\nid:"), "a transcript has a `name`, not an `id`"),
    ],
)
def test_what_cannot_be_understood_fails(tmp_path: Path, text: str, said: str) -> None:
    messages = outcomes(tmp_path, text)
    assert len(messages) == 1
    assert said in messages[0]


def test_ids_are_unique_over_the_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "other.yml").write_text(ASSIGNMENT, encoding="utf-8")
    messages = outcomes(tmp_path, TRANSCRIPT)
    assert "the id 'one' is used 2 times; ids are unique over the whole folder" in messages


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_folder_without_cases_fails(tmp_path: Path, folder: str) -> None:
    [test] = load_folder(tmp_path / folder).tests
    with pytest.raises(Difference, match="no case files"):
        test.run()


def test_suites_to_come_are_counted_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "NOT_BUILT", frozenset({"weather"}))
    (tmp_path / "a.yaml").write_text("suite: weather\ncases: [{id: a}, {id: b}]\n", encoding="utf-8")
    loaded = load_folder(tmp_path)
    assert loaded.tests == []
    assert loaded.not_built == {"weather": 2}


def test_a_suite_on_the_list_of_those_to_come_has_no_module() -> None:
    assert [name for name in suites.NOT_BUILT if suites.is_built(name)] == []


class TestSteps:
    FIELDS = Fields(required={"steps"})
    KINDS = (Fields({"input", "watermark"}, {"key"}), Fields({"input", "idle"}))

    def test_a_step_must_fit_one_kind(self) -> None:
        steps = [{"input": 0, "watermark": 1}, {"input": 0, "watermark": 1, "idle": True}]
        with pytest.raises(BrokenCase, match="step 2 of 2"):
            check_case({"id": "one", "steps": steps}, self.FIELDS, self.KINDS)

    @pytest.mark.parametrize("steps", [[], None, "words", [5]])
    def test_steps_must_be_a_list_of_mappings(self, steps: object) -> None:
        with pytest.raises(BrokenCase):
            check_case({"id": "one", "steps": steps}, self.FIELDS, self.KINDS)

    def test_every_step_may_ask_for_an_error(self) -> None:
        check_case(
            {"id": "one", "steps": [{"input": 0, "idle": True, "error": "no"}]}, self.FIELDS, self.KINDS
        )

    def test_an_error_must_come(self) -> None:
        with pytest.raises(Difference, match="no error"):
            run_steps([{"error": True}], lambda step: None)

    def test_an_error_must_say_so(self) -> None:
        with pytest.raises(Difference, match="size = 0"):
            must_fail("colour", _refuse)
        must_fail("SIZE = 0", _refuse)
        must_fail(True, _refuse)

    def test_a_bug_does_not_pass_for_a_refusal(self) -> None:
        with pytest.raises(ZeroDivisionError):
            must_fail(True, lambda: 1 // 0)

    def test_an_error_that_nobody_asked_for_names_its_step(self) -> None:
        with pytest.raises(Difference, match="step 1 of 2"):
            run_steps([{"input": 0}, {"input": 1}], lambda step: _refuse())

    def test_an_error_ends_its_case(self) -> None:
        with pytest.raises(Difference, match="more steps follow"):
            run_steps([{"error": True}, {"input": 1}], lambda step: _refuse())


def _refuse() -> None:
    raise InvalidArgument("size", 0, "must be greater than zero")


@pytest.mark.search
def test_the_command_line(tmp_path: Path) -> None:
    """Another folder: one test per case and subject, its id in the name."""
    (tmp_path / "a.yaml").write_text(ASSIGNMENT.replace("[[0, 10]]", "[[0, 11]]"), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "tests/conformance/test_cases.py", "--cases", str(tmp_path)]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "FAILED tests/conformance/test_cases.py::test_case[assignment-model-one]" in run.stdout
    assert "2 failed" in run.stdout

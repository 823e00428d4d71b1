"""Comparison of the operator with the model on a scenario."""

from __future__ import annotations

from tests.conformance.framework import Difference, equal
from tests.strategies.windows import Scenario
from tests.support.windowed import FoldedSubject, ModelSubject, OperatorSubject, canonical


def compare(scenario: Scenario) -> None:
    """Raise a Difference at the first step in which the outputs of operator and model differ.

    The operator is asked twice where it can: with the rows, and with the same rows folded in parts.
    """
    model, operator = ModelSubject(scenario.options), OperatorSubject(scenario.options, scenario.schema)
    folded = FoldedSubject(scenario.options, scenario.schema)
    asked = {operator: None, folded: "drops"} if folded.can_run else {operator: None}
    for number, step in enumerate(scenario.steps, 1):
        expected = canonical(model.step(step.rows, step.watermark, step.now, idle=step.idle))
        try:
            for subject, untold in asked.items():
                got = canonical(subject.step(step.rows, step.watermark, step.now, idle=step.idle))
                for what in expected.keys() - {untold}:
                    equal(f"{type(subject).__name__}: {what}", expected[what], got[what])
                if step.reload:
                    subject.reload()
        except Exception as error:
            raise Difference(f"step {number}: {step}\n{type(error).__name__}: {error}") from error


def reproduction(scenario: Scenario) -> str:
    """The scenario as text, one line per option and step."""
    lines = [f"  {name} = {value!r}" for name, value in vars(scenario.options).items()]
    for number, step in enumerate(scenario.steps, 1):
        flags = f"idle={step.idle} reload={step.reload}"
        lines.append(f"  step {number}: watermark={step.watermark} now={step.now} {flags}")
        lines += [f"    {row}" for row in step.rows]
    return "\n".join(lines)

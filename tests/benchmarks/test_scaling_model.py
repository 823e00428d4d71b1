"""The model of the cost of a batch finds the coefficients that its measurements were made with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.scaling.model import TERMS, Model, Shape, fit
from benchmarks.scaling.page import PAGE, RESULTS, content, load

KNOWN = Model(
    {
        "fixed": 0.2,
        "tasks": 2e-3,
        "map_tasks": 4e-2,
        "rows": 3e-7,
        "groups": 2e-6,
        "windows": 1e-5,
        "buckets": 4e-3,
        "headers": 5e-5,
    }
)
BASE = Shape(rows=200_000, groups=10_000, windows=1, buckets=4, partitions=4, map_tasks=4, executors=2)
SHAPES = [
    BASE,
    replace(BASE, rows=1_000_000),
    replace(BASE, groups=100_000),
    replace(BASE, windows=200),
    replace(BASE, buckets=64),
    replace(BASE, map_tasks=32),
    replace(BASE, map_tasks=32, buckets=64),
    replace(BASE, executors=1),
    replace(BASE, executors=1, rows=1_000_000),
]
TASK = KNOWN.coefficients["tasks"]


def test_exact_measurements_give_the_coefficients() -> None:
    found = fit(SHAPES, [KNOWN.seconds(shape, 2) for shape in SHAPES], 2, task=TASK)
    assert found.coefficients == pytest.approx(KNOWN.coefficients, rel=1e-6)


def test_noisy_measurements_give_a_close_model() -> None:
    random = np.random.default_rng(7)
    measured = [KNOWN.seconds(shape, 2) * random.uniform(0.97, 1.03) for shape in SHAPES * 4]
    found = fit(SHAPES * 4, measured, 2, task=TASK)
    for shape in SHAPES:
        assert found.seconds(shape, 2) == pytest.approx(KNOWN.seconds(shape, 2), rel=0.05)


def test_no_coefficient_is_negative() -> None:
    random = np.random.default_rng(8)
    found = fit(SHAPES, list(random.uniform(0.1, 2, len(SHAPES))), 2, task=TASK)
    assert set(found.coefficients) == set(TERMS)
    assert min(found.coefficients.values()) >= 0


def test_more_executors_than_processors_are_no_faster() -> None:
    assert KNOWN.seconds(replace(BASE, executors=4), 2) == KNOWN.seconds(BASE, 2)
    assert KNOWN.seconds(replace(BASE, executors=4), 4) < KNOWN.seconds(BASE, 4)


def test_the_page_shows_the_measurements() -> None:
    assert content(load(RESULTS)) in PAGE.read_text(encoding="utf-8")

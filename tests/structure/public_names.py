"""The public API: the packages whose names are documented, and those names."""

from __future__ import annotations

import types
from typing import Final

import slackwater as sw
from slackwater import ingest, plot, testing, windows

DOCUMENTED_PACKAGES: Final[tuple[types.ModuleType, ...]] = (sw, windows, ingest, testing, plot)


def public_names(package: types.ModuleType) -> list[str]:
    """The names in ``__all__`` of a package."""
    return list(vars(package)["__all__"])

"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long one example may take depends on who else uses the machine; the suite has its own limits.
settings.register_profile("slackwater", deadline=None, print_blob=True)
settings.load_profile("slackwater")

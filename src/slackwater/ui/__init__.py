"""The console: one page that shows why a watermark stands still, a window waits or a load is missing.

``slackwater ui`` serves it for a metadata store, and ``sw.ui(spark)`` for a running session. It only reads.
The module can be called, because the package and the public function ``sw.ui`` have the same name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slackwater._extras import naming_extras, require_extra

if TYPE_CHECKING:
    from slackwater.ui.running_console import RunningConsole

require_extra("ui", "sqlalchemy", "alembic", "pydantic")


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> RunningConsole:
        """Call `slackwater.ui.running_console.ui`."""
        with naming_extras():
            from slackwater.ui.running_console import ui
        return ui(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule

"""Lazy re-exports: a package lists its public names once and imports each on first use.

The names are listed as explicit re-exports, which type checkers and editors understand:

    if TYPE_CHECKING:
        from slackwater.time import duration as duration
    else:
        __all__, __getattr__, __dir__ = lazy_exports(__name__)

At run time those lines are parsed instead of executed, so importing the package does not import the modules
behind its names. See docs/decisions/0009-lazy-exports.md.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from slackwater._extras import naming_extras


def lazy_exports(
    package: str,
    *,
    renamed: Mapping[str, str] | None = None,
    spellings: Mapping[str, str] | None = None,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Build ``__all__``, ``__getattr__`` and ``__dir__`` of a package from its own source.

    Args:
        package: The ``__name__`` of the package that is being imported.
        renamed: Deprecated names, each with its replacement. Using one emits a DeprecationWarning;
            ``__all__`` and ``__dir__`` do not list them.
        spellings: Other names under which users of other libraries look for some of them, each with the
            name here. They are not listed either.

    Returns:
        ``__all__``, ``__getattr__`` and ``__dir__``, in this order.

    Raises:
        ImportError: The package was installed without its source.
    """
    module = sys.modules[package]
    source = _source(package)
    if source is None:
        raise ImportError(f"{package} lists its names in its source, which is missing; install the .py files")
    modules = explicit_reexports(source)
    submodules = {home.removeprefix(f"{package}.").partition(".")[0] for home in modules.values()}
    replacements, others = dict(renamed or {}), dict(spellings or {})

    def get_attribute(name: str) -> Any:
        if name in modules:
            with naming_extras():
                home = import_module(modules[name])
            value = getattr(home, name)
            setattr(module, name, value)
            return value
        if name in others:
            return getattr(module, others[name])
        if name in replacements:
            current = replacements[name]
            message = f"{package}.{name} is deprecated; use {package}.{current}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(module, current)
        if name in submodules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)

    def list_attributes() -> list[str]:
        return sorted({*vars(module), *modules})

    return sorted(modules), get_attribute, list_attributes


def explicit_reexports(source: str) -> dict[str, str]:
    """Map each name that ``source`` re-exports as ``from module import name as name`` to its module.

    >>> explicit_reexports("from slackwater.time import duration as duration, now")
    {'duration': 'slackwater.time'}
    """
    return {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname == alias.name
    }


def _source(package: str) -> str | None:
    """Return the source of a package, also from a zip archive; None if there are only .pyc files."""
    spec = sys.modules[package].__spec__
    get_source: Callable[[str], str | None] | None = getattr(spec and spec.loader, "get_source", None)
    return None if get_source is None else get_source(package)

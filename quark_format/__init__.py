"""AMD Quark's quantized checkpoint format, declared as data.

`validate` judges a checkpoint from its config and headers, `load_config` reads its quantization_config into
the typed model of the format version it has, `resolve` says what a consumer does with one module. All are
imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quark_format.formats import load_config
    from quark_format.resolver import resolve
    from quark_format.validators.validate import validate

__all__ = ["__version__", "load_config", "resolve", "validate"]

_HOMES = {
    "load_config": "quark_format.formats",
    "resolve": "quark_format.resolver",
    "validate": "quark_format.validators.validate",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("quark-format")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Exports that are imported on first use, so that importing a package is cheap."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than everything else here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for a package; `homes` maps names to modules in the package.

    A home that ends with `:*` refers to the module itself, and one that begins with `.` is in the parent package.
    """

    def get_export(name: str) -> object:
        from importlib import import_module

        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        try:
            loaded = import_module(f".{module}", package)
        except ImportError as error:
            from toolspan.extras import missing_extra

            raise missing_extra(error, f"{package}.{name}") or error from error
        return loaded if attribute == "*" else getattr(loaded, name)

    return get_export

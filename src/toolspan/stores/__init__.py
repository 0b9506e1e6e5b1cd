"""Stores that keep sessions outside of this machine. Start at `open_store`; `base.py` has the interface."""

from toolspan.lazy import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from toolspan.stores.base import Lease, LeasedStore, LeaseLost, SessionStore, StoreUnavailable
    from toolspan.stores.opening import is_store_url, open_store

__all__ = ["Lease", "LeaseLost", "LeasedStore", "SessionStore", "StoreUnavailable", "is_store_url", "open_store"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Lease": "base",
        "LeaseLost": "base",
        "LeasedStore": "base",
        "SessionStore": "base",
        "StoreUnavailable": "base",
        "is_store_url": "opening",
        "open_store": "opening",
    },
)

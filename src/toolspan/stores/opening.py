"""Open a store by its URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from toolspan.errors import ToolspanError

if TYPE_CHECKING:
    from toolspan.stores.base import LeasedStore

STORE_SCHEMES = ("sqlite", "postgresql", "postgres", "redis", "rediss", "store+s3")
_URL = re.compile(rf"(?:{'|'.join(map(re.escape, STORE_SCHEMES))})://")


def is_store_url(name: str) -> bool:
    """Return whether a name is the URL of a store. `s3://` alone is a folder of transcripts."""
    return _URL.match(name) is not None


def open_store(url: str) -> LeasedStore:
    """Return the store with a URL. Nothing is connected before it is used.

    The URLs are `sqlite:///path/to/file.db`, `postgresql://user@host/database`, `redis://host:6379/0` and
    `s3://bucket/folder`, which may also be written `store+s3://bucket/folder`.

    Raises:
        ToolspanError: the URL names no kind of store.
        MissingExtra: the package for this kind of store is not installed.
    """
    scheme, _, rest = url.partition("://")
    try:
        match scheme:
            case "sqlite" if rest:
                from toolspan.stores.sqlite import SqliteStore

                return SqliteStore(Path(unquote(rest)))
            case "postgresql" | "postgres":
                from toolspan.stores.postgres import PostgresStore

                return PostgresStore(url)
            case "redis" | "rediss":
                from toolspan.stores.redis import RedisStore

                return RedisStore(url)
            case "s3" | "store+s3" if rest:
                from toolspan.stores.s3 import S3Store

                return S3Store(rest)
            case _:
                pass
    except ImportError as error:
        from toolspan.extras import missing_extra

        raise missing_extra(error, f"{scheme}://") or error from error
    raise ToolspanError(f"{url!r} is not the URL of a store: use sqlite:///FILE, postgresql://, redis:// or s3://")

"""Transcripts in object storage, at any URL that fsspec understands.

`RemotePath` has the part of pathlib's interface that readers use, so that they treat objects and files alike. The
package of the store is imported when the first object is read. Start at `RemotePath.stat`, `open` and `walk_files`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from functools import total_ordering
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolspan.errors import SourceError
from toolspan.extras import install_command
from toolspan.types.span import parse_timestamp

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    _PathType = Path
else:
    # Not a real subclass: pathlib normalizes `//` and `/./`, which are significant in keys, and a method that is
    # missing here must fail rather than use a local file.
    _PathType = object

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BLOCK_BYTES = 8 << 20
"""The number of bytes per request when an object is read as a whole."""
_RETRY_DELAYS = (0.1, 0.3, 0.9)
_RETRYING_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl"})
"""Stores whose packages repeat failed requests themselves, with a back-off."""
_TIME_KEYS = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
"""The listing keys that hold an object's modification time, by store."""
_PERMANENT_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)

T = TypeVar("T")


class ConflictError(OSError):
    """Somebody else has created or replaced an object since it was listed."""


class ObjectInfo(NamedTuple):
    """The properties of an object or a folder of objects."""

    size: int = 0
    modified: float = 0.0
    etag: str = ""
    """A value that changes with the content; empty if the store has none."""
    is_folder: bool = False


def is_url(name: str) -> bool:
    """Return whether a name is a URL rather than a path."""
    return _URL.match(name) is not None


@total_ordering
class RemotePath(_PathType):
    """The URL of an object, or of the folder that its key implies. Errors raise OSError, like those of a Path.

    A path from a listing keeps the object's properties, so that reading it needs no further request.
    """

    def __init__(self, url: str, info: ObjectInfo | None = None) -> None:
        scheme, _, rest = url.partition("://")
        self._url = f"{scheme}://{rest.rstrip('/') or rest[:1]}"
        self._info = info
        self.sidecar_stamp = ""
        """Identifies the versions of the side files that belong to the object, if a listing showed them."""

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __hash__(self) -> int:
        return hash(self._url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._url == other._url

    def __lt__(self, other: object) -> bool:
        return self._url < str(other) if isinstance(other, Path | RemotePath) else NotImplemented

    # Names

    @property
    def scheme(self) -> str:
        """The part of the URL that names the store's protocol."""
        return self._url.partition("://")[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """The scheme with the bucket, and the parts of the key."""
        bucket, *keys = self._url.partition("://")[2].split("/")
        return (f"{self.scheme}://{bucket}", *keys)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last suffix of the name."""
        return os.path.splitext(self.name)[1]  # noqa: PTH122 - a name, not a path

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return os.path.splitext(self.name)[0]  # noqa: PTH122

    @property
    def parent(self) -> RemotePath:
        """The folder that contains the object; a bucket is its own parent."""
        return RemotePath("/".join(self.parts[:-1]) if len(self.parts) > 1 else self._url)

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """The folders above the object, up to the bucket."""
        return tuple(RemotePath("/".join(self.parts[:n])) for n in range(len(self.parts) - 1, 0, -1))

    def __truediv__(self, key: object) -> RemotePath:
        return RemotePath(f"{self._url}/{key}")

    def with_name(self, name: str) -> RemotePath:
        """Return the URL with another last part."""
        return self.parent / name

    def is_relative_to(self, other: object, /, *_: object) -> bool:
        """Return whether the object is in a folder, or is `other` itself."""
        return f"{self._url}/".startswith(f"{str(other).rstrip('/')}/")

    def relative_to(self, other: object, /, *_: object) -> PurePosixPath:  # type: ignore[override]
        """Return the part of the key below a folder."""
        if not self.is_relative_to(other):
            raise ValueError(f"{self} is not in {other}")
        return PurePosixPath(self._url[len(str(other).rstrip("/")) :].lstrip("/"))

    def absolute(self) -> RemotePath:
        """Return this URL, which is always absolute."""
        return self

    def resolve(self, strict: bool = False) -> RemotePath:  # noqa: ARG002, FBT001 - as in pathlib
        """Return this URL; object storage has no links."""
        return self

    def expanduser(self) -> RemotePath:
        """Return this URL."""
        return self

    # Properties

    @property
    def info(self) -> ObjectInfo:
        """The object's properties, from a listing or from a request."""
        return self._info or self._run_with_retries(lambda fs: _make_info(fs.info(self._url)))

    def stat(self, **_: object) -> os.stat_result:
        """Return the object's size, modification time and type as a `stat_result`."""
        info = self.info
        mode = stat.S_IFDIR if info.is_folder else stat.S_IFREG
        return os.stat_result((mode, 0, 0, 1, 0, 0, info.size, 0, info.modified, 0))

    def exists(self, **_: object) -> bool:
        """Return whether there is such an object or folder."""
        try:
            return self.info is not None
        except OSError:
            return False

    def is_dir(self, **_: object) -> bool:
        """Return whether this is a folder: a bucket or a key prefix."""
        try:
            return self.info.is_folder
        except OSError:
            return False

    def is_file(self, **_: object) -> bool:
        """Return whether this is an object."""
        return self.exists() and not self.is_dir()

    def is_symlink(self) -> bool:
        """Return False; object storage has no links."""
        return False

    # Content

    def open(self, mode: str = "rb", buffering: int = -1, *_: object, **__: object) -> IO[Any]:  # type: ignore[override]
        """Return a stream that requests one block after another."""
        if mode != "rb":
            raise OSError(errno.EROFS, "objects are only read", self._url)
        stream = _ObjectStream(self)
        return stream if buffering == 0 else io.BufferedReader(stream)  # type: ignore[return-value]

    def read_bytes(self) -> bytes:
        """Return the whole object."""
        with self.open("rb", buffering=0) as stream:
            data: bytes = stream.read()
            return data

    def read_range(self, offset: int, length: int) -> bytes:
        """Return a range with one request; fewer bytes if the object ends before."""
        if length <= 0:
            return b""
        if self._info is not None:
            length = min(length, self._info.size - offset)
            return self._fetch(offset, length) if length > 0 else b""
        try:
            data: bytes = self._run_with_retries(lambda fs: fs.cat_file(self._url, start=offset, end=offset + length))
        except _PERMANENT_ERRORS:
            raise
        except OSError:
            if offset < self.info.size:
                raise
            return b""  # the store refuses a range that begins after the end
        return data[:length]

    def _fetch(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range inside the object. A shorter download raises OSError."""

        def fetch(fs: Any) -> bytes:
            data: bytes = fs.cat_file(self._url, start=offset, end=offset + length)
            if len(data) < length:
                raise _TruncatedError(f"the download ended after {offset + len(data):,} of {self.info.size:,} bytes")
            return data[:length]

        return self._run_with_retries(fetch)

    def write(self, source: IO[bytes], metadata: Mapping[str, str], *, replaces: ObjectInfo | None) -> ObjectInfo:
        """Create an object in S3 from a stream, or replace the known one. Return its properties.

        Raises:
            ConflictError: there is an object, or another one than `replaces`.
        """
        condition = {"IfNoneMatch": "*"} if replaces is None else {"IfMatch": replaces.etag}
        size = source.seek(0, io.SEEK_END)

        def put(fs: Any) -> Any:
            source.seek(0)
            try:
                return fs.call_s3("put_object", **self._s3_key(), Body=source, Metadata=dict(metadata), **condition)
            except OSError as error:
                response = getattr(error.__cause__, "response", {}).get("ResponseMetadata", {})
                if response.get("HTTPStatusCode") in (409, 412) or (replaces and isinstance(error, FileNotFoundError)):
                    raise ConflictError(errno.EEXIST, "the object has changed", self._url) from error
                raise

        return ObjectInfo(size, time.time(), self._run_with_retries(put)["ETag"])

    def read_metadata(self) -> dict[str, str]:
        """Return what `write` was given for an object in S3."""
        answer = self._run_with_retries(lambda fs: fs.call_s3("head_object", **self._s3_key()))
        return dict(answer.get("Metadata", {}))

    def _s3_key(self) -> dict[str, str]:
        bucket, _, key = self._url.partition("://")[2].partition("/")
        return {"Bucket": bucket, "Key": key}

    # Folders

    def iterdir(self) -> Generator[RemotePath, None, None]:
        """Yield the objects and folders directly below this one."""
        base = self._strip()
        for item in self._run_with_retries(lambda fs: fs.ls(self._url, detail=True)):
            name = str(item["name"]).rstrip("/")
            if name != base and name.startswith(base):
                yield RemotePath(self._url + "/" + name[len(base) :].lstrip("/"), _make_info(item))

    def walk_files(self) -> Iterator[RemotePath]:
        """Yield all objects below this folder, page by page. Only the pages in use are kept in memory."""
        if self.scheme in ("s3", "s3a"):
            yield from self._list_s3()
            return
        pending_folders = [self]
        while pending_folders:
            for path in pending_folders.pop().iterdir():
                if path.info.is_folder:
                    pending_folders.append(path)
                else:
                    yield path

    def _list_s3(self) -> Iterator[RemotePath]:
        """Yield the objects with this prefix: a request for each 1,000 objects instead of one for each folder."""
        bucket, prefix = self._s3_key().values()
        request: dict[str, str] = {"Bucket": bucket, "Prefix": f"{prefix}/" if prefix else ""}
        while True:
            page = self._run_with_retries(lambda fs: fs.call_s3("list_objects_v2", **request))
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):
                    yield RemotePath(f"{self.scheme}://{bucket}/{item['Key']}", _make_info(item))
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def glob(self, pattern: str, **_: object) -> Iterator[RemotePath]:  # type: ignore[override]
        """Yield the objects directly below this folder whose names match."""
        yield from (path for path in self._children() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str, **_: object) -> Iterator[RemotePath]:  # type: ignore[override]
        """Yield the objects anywhere below this folder whose names match."""
        try:
            yield from (path for path in self.walk_files() if fnmatchcase(path.name, pattern))
        except FileNotFoundError:
            return

    def _children(self) -> Iterator[RemotePath]:
        try:
            yield from self.iterdir()
        except FileNotFoundError:
            return

    # Requests

    def _strip(self) -> str:
        """Return the URL in the form that the store's listings use."""
        import fsspec

        return str(fsspec.core.strip_protocol(self._url)).rstrip("/")

    def _run_with_retries(self, operation: Callable[[Any], T]) -> T:
        """Run an operation on the store, and repeat it after temporary failures."""
        with _translate_errors(self._url):
            fs = _open_store("/".join(self.parts[:1]))
            for delay in _RETRY_DELAYS:
                try:
                    return operation(fs)
                except _PERMANENT_ERRORS:
                    raise
                except _TruncatedError:
                    pass
                except Exception:
                    if self.scheme in _RETRYING_SCHEMES:
                        raise
                time.sleep(delay)
            return operation(fs)


class _TruncatedError(OSError):
    def __init__(self, message: str) -> None:
        super().__init__(errno.EIO, message)


def _open_store(bucket: str) -> Any:
    """Return the file system of a bucket. fsspec keeps one per process and thread.

    Only the bucket is passed, because keys may contain `::`, which has a special meaning in fsspec.
    """
    scheme = bucket.partition("://")[0]
    try:
        import fsspec

        return fsspec.core.url_to_fs(bucket, use_listings_cache=False)[0]
    except ImportError as error:  # fsspec raises a plain one for the package of a scheme
        command = install_command("cloud")
        raise SourceError(f"{bucket}: the package for {scheme}:// is not installed ({error}): run {command}") from error
    except ValueError as error:
        raise SourceError(f"{bucket}: {error}") from error


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    """Convert every exception of a store's package to OSError with a message for users."""
    try:
        yield
    except (SourceError, ConflictError, _TruncatedError):
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "no such object, folder or bucket", url) from error
    except PermissionError as error:
        raise PermissionError(errno.EACCES, "access denied", url) from error
    except Exception as error:
        text = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
        raise OSError(getattr(error, "errno", None) or errno.EIO, text, url) from error


def _make_info(item: dict[str, Any]) -> ObjectInfo:
    """Return the properties in an entry of any store's listing."""
    if item.get("type") == "directory":
        return ObjectInfo(is_folder=True)
    modified: Any = next((item[key] for key in _TIME_KEYS if item.get(key) is not None), None)
    etag = item.get("ETag") or item.get("etag") or item.get("md5Hash") or modified or ""
    if isinstance(modified, str):
        modified = parse_timestamp(modified)
    if isinstance(modified, datetime):
        modified = modified.timestamp()
    size = item.get("size", item.get("Size"))
    return ObjectInfo(int(size or 0), float(modified or 0.0), "".join(str(etag).split()))


class _ObjectStream(io.RawIOBase):
    """The bytes of an object, requested in blocks."""

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self._path = path if path._info is not None else RemotePath(str(path), path.info)
        self._size = self._path.info.size
        if self._path.info.is_folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        self._position = 0
        self._block = b""
        self._block_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._position)
        if length <= 0:
            return 0
        start = self._position - self._block_start
        if not 0 <= start < len(self._block):
            block_length = min(_BLOCK_BYTES, self._size - self._position)
            self._block = b""  # released before the next one arrives
            self._block = self._path._fetch(self._position, block_length)
            self._block_start, start = self._position, 0
        data = self._block[start : start + length]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

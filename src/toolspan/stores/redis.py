"""A store in Redis: one stream per stream of a session, with scripts that check the lease and append at once.

Entry `n` of a stream has the id `n+1-0`. Times are those of the server. The keys of one session have the same hash tag;
the indexes of sessions and leases do not, so that a Redis Cluster is not supported. Records are as durable as the
server is configured: with `appendonly yes` and `appendfsync always`, they are on its disk when `commit` returns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.exceptions import RedisError, ResponseError

from toolspan.stores.base import (
    Append,
    Lease,
    LeasedStore,
    LeaseRequest,
    StoreUnavailable,
    StreamInfo,
    StreamKey,
    entry_uuid,
    held_error,
    lost_error,
)

_PREFIX = "toolspan"
_PAGE = 1_000
_TIMEOUT = 30.0
_LEASE_FIELDS = ("owner", "host", "pid", "fence", "ttl", "expires")
_NOW = "local t = redis.call('TIME'); local now = tonumber(t[1]) + tonumber(t[2]) / 1e6;"
_COMMIT = (
    _NOW
    + """
local lease = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires', 'ttl')
local owner, fence, expires = lease[1] or '', tonumber(lease[2] or 0), tonumber(lease[3] or 0)
local session = cjson.decode(ARGV[1])
if session.owner then
    if owner ~= session.owner or fence ~= session.fence then return 'lost' end
    redis.call('HSET', KEYS[1], 'expires', string.format('%.6f', now + session.ttl))
elseif owner ~= '' then
    if expires > now then return 'held' end
    redis.call('HSET', KEYS[1], 'owner', '', 'fence', fence + 1)
end
local number = 2
for i, append in ipairs(session.appends) do
    local stream, known = KEYS[2 * i + 2], KEYS[2 * i + 3]
    local meta = redis.call('HGET', KEYS[2], append.subpath)
    local count, mtime = 0, 0
    if meta then count, mtime = string.match(meta, '(%d+) (%d+)') end
    count, mtime = tonumber(count), tonumber(mtime)
    if append.start and count < append.start then return 'gap' end
    local have = append.start and count - append.start or 0
    for n, uuid in ipairs(append.uuids) do
        local is_new = n > have
        if is_new and not append.start and uuid ~= '' then is_new = redis.call('SISMEMBER', known, uuid) == 0 end
        if is_new then
            count = count + 1
            redis.call('XADD', stream, string.format('%d-0', count), 'line', ARGV[number])
            if uuid ~= '' then redis.call('SADD', known, uuid) end
        end
        number = number + 1
    end
    mtime = math.max(mtime + 1, math.floor(now * 1000))
    redis.call('HSET', KEYS[2], append.subpath, string.format('%d %d', count, mtime))
end
redis.call('SADD', KEYS[3], session.name)
return 'ok'
"""
)
_ACQUIRE = (
    _NOW
    + """
local lease = redis.call('HMGET', KEYS[1], 'owner', 'fence', 'expires')
local owner, fence, expires = lease[1] or '', tonumber(lease[2] or 0), tonumber(lease[3] or 0)
if owner ~= '' and owner ~= ARGV[1] and expires > now then return -1 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'host', ARGV[2], 'pid', ARGV[3], 'ttl', ARGV[4], 'fence', fence + 1,
    'expires', string.format('%.6f', now + tonumber(ARGV[4])))
redis.call('SADD', KEYS[2], ARGV[5])
return fence
"""
)
_RENEW = (
    _NOW
    + """
local lease = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] then return 0 end
if ARGV[3] == '0' then redis.call('HSET', KEYS[1], 'owner', '', 'expires', '0')
else redis.call('HSET', KEYS[1], 'expires', string.format('%.6f', now + tonumber(ARGV[3]))) end
return 1
"""
)


class RedisStore(LeasedStore):
    """A store in a Redis server."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        self._client: Any = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT, socket_connect_timeout=10, health_check_interval=15
        )
        self._commit = self._client.register_script(_COMMIT)
        self._acquire = self._client.register_script(_ACQUIRE)
        self._renew = self._client.register_script(_RENEW)
        self._is_checked = False

    def commit(self, appends: Sequence[Append], lease: Lease | None = None) -> None:
        """Append to streams of one session in one script."""
        appends = [append for append in appends if append.lines]
        if not appends:
            return
        session = appends[0].key
        keys = [self._key(session, "lease"), self._key(session, "streams"), f"{_PREFIX}:sessions"]
        for append in appends:
            keys += [self._key(session, "stream", append.key.subpath), self._key(session, "ids", append.key.subpath)]
        header: dict[str, Any] = {
            "name": json.dumps(session[:2]),
            "appends": [
                {
                    "subpath": append.key.subpath,
                    "uuids": [entry_uuid(line) or "" for line in append.lines],
                    **({} if append.start is None else {"start": append.start}),
                }
                for append in appends
            ],
        }
        if lease is not None:
            header |= {"owner": lease.owner, "fence": lease.fence, "ttl": lease.ttl}
        lines = [line for append in appends for line in append.lines]
        with self._translate_errors():
            self._warn_if_volatile()
            outcome = self._commit(keys=keys, args=[json.dumps(header), *lines])
        if outcome == b"lost":
            raise lost_error(session.session)
        if outcome == b"gap":
            raise StoreUnavailable(f"{self.url}: earlier records are missing in the store")
        if outcome == b"held":
            raise self._held_error(session)

    def read_lines(self, key: StreamKey, start: int = 0) -> list[bytes] | None:
        """Return the lines of a stream without the first `start` ones."""
        with self._translate_errors():
            if not self._client.hexists(self._key(key, "streams"), key.subpath):
                return None
            lines: list[bytes] = []
            first = start + 1
            while page := self._client.xrange(self._key(key, "stream", key.subpath), f"{first}-0", count=_PAGE):
                lines += [fields[b"line"] for _, fields in page]
                first = int(page[-1][0].partition(b"-")[0]) + 1
        return lines

    def list_streams(self, project: str | None = None, session: str | None = None) -> list[StreamInfo]:
        """Return the streams of a session, of a project or of all projects."""
        with self._translate_errors():
            keys = self._list_sessions("sessions", project, session)
            pipeline = self._client.pipeline(transaction=False)
            for key in keys:
                pipeline.hgetall(self._key(key, "streams"))
            streams = []
            for key, found in zip(keys, pipeline.execute(), strict=True):
                for subpath, meta in found.items():
                    entries, mtime = map(int, meta.split())
                    streams.append(StreamInfo(key.with_subpath(subpath.decode()), entries, mtime))
        return sorted(streams)

    def remove_stream(self, key: StreamKey) -> None:
        """Remove a stream, or a whole session. The fencing number is kept."""
        with self._translate_errors():
            streams_key = self._key(key, "streams")
            # A commit without lines checks for a live lease and ends an expired one.
            header = {"name": json.dumps(key[:2]), "appends": []}
            keys = [self._key(key, "lease"), streams_key, f"{_PREFIX}:sessions"]
            if self._commit(keys=keys, args=[json.dumps(header)]) == b"held":
                raise self._held_error(key)
            subpaths = [key.subpath] if key.subpath else [name.decode() for name in self._client.hkeys(streams_key)]
            pipeline = self._client.pipeline()
            for subpath in subpaths:
                pipeline.delete(self._key(key, "stream", subpath), self._key(key, "ids", subpath))
                pipeline.hdel(streams_key, subpath)
            if not key.subpath:
                pipeline.srem(f"{_PREFIX}:sessions", json.dumps(key[:2]))
            pipeline.execute()

    # Leases

    def acquire_lease(self, request: LeaseRequest) -> Lease:
        """Return a lease with a new fencing number."""
        key = request.key
        with self._translate_errors():
            fence = self._acquire(
                keys=[self._key(key, "lease"), f"{_PREFIX}:leases"],
                args=[request.owner, request.host, request.pid, request.ttl, json.dumps(key[:2])],
            )
        if fence < 0:
            raise self._held_error(key)
        return request.grant(fence + 1, fence)

    def renew_lease(self, lease: Lease) -> None:
        """Extend a lease by its `ttl`."""
        if not self._set_end(lease, lease.ttl):
            raise lost_error(lease.session)

    def release_lease(self, lease: Lease) -> None:
        """End a lease, and keep its fencing number."""
        self._set_end(lease, 0)

    def list_leases(self, project: str | None = None) -> list[Lease]:
        """Return the latest lease of each session that has an owner."""
        with self._translate_errors():
            leases = [self._read_lease(key) for key in self._list_sessions("leases", project, None)]
        return [lease for lease in leases if lease is not None and lease.owner]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _set_end(self, lease: Lease, seconds: float) -> bool:
        arguments: list[Any] = [lease.owner, lease.fence, f"{seconds:g}"]
        with self._translate_errors():
            return bool(self._renew(keys=[self._key(lease.key, "lease")], args=arguments))

    def _read_lease(self, key: StreamKey) -> Lease | None:
        values = self._client.hmget(self._key(key, "lease"), *_LEASE_FIELDS)
        if values[0] is None:
            return None
        owner, host, pid, fence, ttl, expires = (value.decode() for value in values)
        seconds, microseconds = self._client.time()
        return Lease(
            project=key.project, session=key.session, owner=owner, host=host, pid=int(pid), fence=int(fence),
            ttl=float(ttl), expires_in=float(expires) - seconds - microseconds / 1e6,
        )  # fmt: skip

    def _held_error(self, key: StreamKey) -> Exception:
        with self._translate_errors():
            lease = self._read_lease(key)
        return StoreUnavailable(f"{self.url}: the lease changed meanwhile") if lease is None else held_error(lease)

    def _list_sessions(self, index: str, project: str | None, session: str | None) -> list[StreamKey]:
        if project is not None and session is not None:
            return [StreamKey(project, session)]
        names = [json.loads(name) for name in self._client.smembers(f"{_PREFIX}:{index}")]
        return sorted(StreamKey(*name) for name in names if project in (None, name[0]) and session in (None, name[1]))

    def _key(self, key: StreamKey, kind: str, subpath: str = "") -> str:
        tag = json.dumps(key[:2]).replace("}", "%7D")
        return f"{_PREFIX}:{kind}:{{{tag}}}:{subpath}"

    def _warn_if_volatile(self) -> None:
        """Log a warning once if the server may lose records that it has acknowledged."""
        if self._is_checked:
            return
        self._is_checked = True
        try:
            settings = self._client.config_get("appendonly", "appendfsync")
        except ResponseError:  # a service that hides its settings
            return
        if settings.get("appendonly") != "yes" or settings.get("appendfsync") != "always":
            logging.getLogger("toolspan").warning(
                "%s: the server may lose records in a crash; set appendonly yes and appendfsync always", self.url
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            raise StoreUnavailable(f"{self.url}: {str(error) or type(error).__name__}") from error

"""`toolspan hook guard` and `toolspan statusline`: what a session has used so far, and the limits on it.

The client waits for these before each call, so only the standard library is imported, and each transcript is read from
where the last call ended. What was found is in one small file per session. Start at `check_hook_input`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # perf: typing, datetime and tomllib take longer to import than the check
if TYPE_CHECKING:
    from typing import Any

    from toolspan.prices import PriceTable

    JsonObject = dict[str, Any]

SCOPES: Mapping[str, tuple[str, ...]] = {
    "session": ("cost", "tokens", "minutes", "calls", "same_failure", "context"),
    "day": ("cost", "tokens", "calls"),
    "project": ("cost", "tokens", "calls"),
}
"""The limits that each scope may have. The numbers of a project are those of the last 30 days."""
ACTIONS = ("stop", "ask")
LIFT_HOURS = 12.0
_PROJECT_DAYS = 30
_KEPT_SECONDS = 40 * 86_400
_PAUSE_SECONDS = 1_800
"""A longer gap between two records is a pause, which does not count as working time."""
_MAX_READ = 64 << 20
_RECENT_IDS = 40
_WINDOW, _LONG_WINDOW = 200_000, 1_000_000
_CODEX_KEYS = (b'"token_count"', b'_call"', b'_call_output"', b'"turn_context"')
_COUNTERS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def limits_path() -> str:
    """Return the path of the file with the limits."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")  # noqa: PTH111, PTH118
    return os.path.join(config, "toolspan", "limits.toml")  # noqa: PTH118


def state_folder() -> str:
    """Return the folder with what is known about each session."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state")  # noqa: PTH111, PTH118
    return os.path.join(state, "toolspan", "guard")  # noqa: PTH118


def load_limits() -> JsonObject:
    """Return the limits by scope, and the action; empty if there is no file.

    Raises:
        ValueError: the file is not valid. The message says why.
    """
    path = limits_path()
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{path}: {error}") from error
    stamp = [path, status.st_mtime_ns, status.st_size, status.st_ino]
    parsed = os.path.join(state_folder(), "limits")  # noqa: PTH118
    with suppress(OSError, ValueError, KeyError, TypeError), open(parsed, encoding="utf-8") as file:  # noqa: PTH123
        known = json.load(file)
        if known["stamp"] == stamp:
            limits: JsonObject = known["limits"]
            return limits
    limits = _parse_limits(path)
    with suppress(OSError):
        os.makedirs(state_folder(), mode=0o700, exist_ok=True)  # noqa: PTH103
        _replace_file(parsed, json.dumps({"stamp": stamp, "limits": limits}))
    return limits


def _parse_limits(path: str) -> JsonObject:
    import tomllib

    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return check_limits(tomllib.load(file), path)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error


def check_limits(limits: JsonObject, path: str) -> JsonObject:
    """Return the limits if all names and values are valid.

    Raises:
        ValueError: one is not.
    """
    for scope, values in limits.items():
        if scope == "action":
            if values not in ACTIONS:
                raise ValueError(f"{path}: action must be one of {', '.join(ACTIONS)}, not {values!r}")
            continue
        if scope not in SCOPES or not isinstance(values, dict):
            raise ValueError(f"{path}: {scope!r} is unknown; use {', '.join(SCOPES)} or action")
        for name, value in values.items():
            if name not in SCOPES[scope]:
                raise ValueError(f"{path}: no limit {scope}.{name}; {scope} has {', '.join(SCOPES[scope])}")
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{path}: {scope}.{name} must be a number above 0, not {value!r}")
    return limits


def check_hook_input() -> None:
    """Stop or ask about the call in the hook input, if a limit is reached. Never raises.

    A fault of ours lets the call run and is reported on standard error.
    """
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return
        hook_input = json.loads(sys.stdin.buffer.read())
        limits = load_limits()
        if not limits:
            return
        session = str(hook_input["session_id"])
        state = update_state(session, str(hook_input["transcript_path"]), hook_input.get("cwd"))
        reason = None if is_lifted(session) else find_reached_limit(limits, state, hook_input)
        if reason is not None:
            is_codex = _is_rollout(str(hook_input["transcript_path"]))
            sys.stdout.write(json.dumps(_make_output(reason, session, limits.get("action", "stop"), is_codex)) + "\n")
    except Exception as error:  # noqa: BLE001 - a failure must never disturb the client
        sys.stderr.write(f"toolspan hook guard: {error}\n")


def _make_output(reason: str, session: str, action: str, is_codex: bool) -> JsonObject:  # noqa: FBT001 - perf: no import
    # The ids of Codex begin with the time, so that the beginnings of several are equal.
    lift = f"To continue, the user can run: toolspan guard lift {session if is_codex else session[:8]}"
    if is_codex:  # it can only deny the call
        text = f"toolspan stopped this session: {reason}. Stop, and tell the user. {lift}"
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": text}
        return {"hookSpecificOutput": decision}
    if action == "ask":
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "ask",
                    "permissionDecisionReason": f"toolspan: {reason}."}  # fmt: skip
        return {"hookSpecificOutput": decision}
    text = f"toolspan stopped this session: {reason}. {lift}"
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": text}
    return {"continue": False, "stopReason": text, "hookSpecificOutput": decision}


def find_reached_limit(limits: JsonObject, state: JsonObject, hook_input: JsonObject) -> str | None:
    """Return a sentence about the first limit that is reached, or None."""
    session = limits.get("session", {})
    used: JsonObject = {
        "cost": state["cost"], "tokens": state["tokens"], "calls": state["calls"], "minutes": state["active"] / 60,
        "context": state["context"] / (state.get("window") or _WINDOW),
    }  # fmt: skip
    key = call_key(hook_input.get("tool_name"), hook_input.get("tool_input"))
    used["same_failure"] = state["failures_in_row"] if key == state["failed_key"] else 0
    for name, limit in session.items():
        if used[name] >= limit:
            return _describe("this session", name, used[name], limit)
    for scope, where in (("day", "today"), ("project", "this project in the last 30 days")):
        if values := limits.get(scope):
            totals = sum_states(state, scope)
            for name, limit in values.items():
                if totals[name] >= limit:
                    return _describe(where, name, totals[name], limit)
    return None


def _describe(where: str, name: str, used: float, limit: float) -> str:
    if name == "cost":
        return f"{where} has cost ${used:.2f}, and the limit is ${limit:.2f}"
    if name == "same_failure":
        return f"the same call has failed {used:.0f} times in a row, and the limit is {limit:.0f}"
    if name == "context":
        return f"the context is {used:.0%} full, and the limit is {limit:.0%}"
    if name == "minutes":
        return f"{where} has worked for {used:.0f} minutes, and the limit is {limit:g}"
    return f"{where} has used {used:,.0f} {name}, and the limit is {limit:,.0f}"


# What was used


def call_key(tool: object, tool_input: object) -> str:
    """Return a key that is equal for equal calls."""
    import zlib

    data = json.dumps([tool, tool_input], sort_keys=True).encode(errors="replace")
    return f"{zlib.crc32(data):08x}-{len(data)}"


def update_state(session: str, transcript: str, cwd: object = None) -> JsonObject:
    """Return what a session has used, after reading what was written since the last time."""
    folder = state_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    name = "".join(char if char.isalnum() or char in "-_" else "_" for char in session)[:100]
    path = os.path.join(folder, f"{name}.json")  # noqa: PTH118
    with _locked(path):
        state = _load_state(path)
        state["project"] = cwd if isinstance(cwd, str) else state["project"]
        before = json.dumps(state)
        agents = os.path.join(transcript.removesuffix(".jsonl"), "subagents")  # noqa: PTH118
        files = [transcript]
        with suppress(OSError):
            files += [os.path.join(agents, name) for name in sorted(os.listdir(agents)) if name.endswith(".jsonl")]  # noqa: PTH118, PTH208
        for file in files:
            _read_new_lines(file, state, is_main=file == transcript)
        after = json.dumps(state)
        if after != before:
            _replace_file(path, after)
    return state


def _replace_file(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as out:  # noqa: PTH123
        out.write(text)
    os.replace(temporary, path)  # noqa: PTH105


@contextmanager
def _locked(path: str) -> Iterator[None]:
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _load_state(path: str) -> JsonObject:
    empty: JsonObject = {
        "offsets": {}, "ids": {}, "rates": {}, "days": {}, "cost": 0.0, "tokens": 0, "calls": 0, "failed": 0,
        "active": 0.0, "last": 0.0, "context": 0, "window": 0, "failed_key": "", "failures_in_row": 0, "pending": {},
        "project": None, "model": "", "codex": [0, 0, 0, 0],
    }  # fmt: skip
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            state = json.load(file)
    except (OSError, ValueError):
        return empty
    return {**empty, **state} if isinstance(state, dict) else empty


def _read_new_lines(path: str, state: JsonObject, *, is_main: bool) -> None:
    offset = state["offsets"].get(path, 0)
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            if os.fstat(file.fileno()).st_size < offset:
                offset = 0  # it was replaced
            file.seek(offset)
            data = file.read(_MAX_READ)
    except OSError:
        return
    end = data.rfind(b"\n") + 1
    state["offsets"][path] = offset + end
    if _is_rollout(path):
        for line in data[:end].splitlines():
            if any(key in line for key in _CODEX_KEYS):
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    _add_codex_record(json.loads(line), state)
        return
    for line in data[:end].splitlines():
        if b'"tool_use"' in line or b'"usage"' in line or b'"tool_result"' in line:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                _add_record(json.loads(line), state, is_main=is_main)


def _add_time(record: JsonObject, state: JsonObject, *, is_main: bool) -> list[float]:
    """Add the time since the record before as working time. Return the cost, tokens and calls of the record's day."""
    at = _parse_time(record.get("timestamp"))
    if is_main and at:
        gap = at - state["last"]
        state["active"] += gap if 0 < gap < _PAUSE_SECONDS and state["last"] else 0
        state["last"] = max(at, state["last"])
    day = time.strftime("%Y-%m-%d", time.localtime(at or time.time()))
    counts: list[float] = state["days"].setdefault(day, [0.0, 0, 0])
    return counts


def _add_record(record: JsonObject, state: JsonObject, *, is_main: bool) -> None:
    message = record["message"]
    day = _add_time(record, state, is_main=is_main)
    if isinstance(message.get("usage"), dict) and message.get("model") != "<synthetic>":
        _add_usage(message, state, day, is_main=is_main)
    for block in message["content"] if isinstance(message["content"], list) else ():
        if block.get("type") == "tool_use":
            _add_call(state, day, block["id"], call_key(block.get("name"), block.get("input")))
        elif block.get("type") == "tool_result":
            _add_result(state, block.get("tool_use_id"), is_failed=block.get("is_error") is True)


def _add_call(state: JsonObject, day: list[float], call: str, key: str) -> None:
    state["calls"] += 1
    day[2] += 1
    state["pending"][call] = key


def _add_result(state: JsonObject, call: object, *, is_failed: bool) -> None:
    key = state["pending"].pop(call, "")
    state["failed"] += is_failed
    same = is_failed and key and key == state["failed_key"]
    state["failures_in_row"] = state["failures_in_row"] + 1 if same else int(is_failed)
    state["failed_key"] = key if is_failed else ""


# Codex


def _is_rollout(path: str) -> bool:
    return os.path.basename(path).startswith("rollout-")  # noqa: PTH119


def _add_codex_record(record: JsonObject, state: JsonObject) -> None:
    payload = record["payload"]
    kind = payload.get("type") if record["type"] != "turn_context" else "turn_context"
    day = _add_time(record, state, is_main=True)
    if kind == "turn_context":
        state["model"] = str(payload["model"])
    elif kind == "token_count" and payload.get("info"):
        _add_codex_usage(payload["info"], state, day)
    elif kind == "function_call":
        arguments = json.loads(payload["arguments"])
        name = "__".join(filter(None, (payload.get("namespace"), payload["name"])))
        if name == "exec_command":  # its hooks call it so
            name, arguments = "Bash", {"command": arguments["cmd"]}
        _add_call(state, day, payload["call_id"], call_key(name, arguments))
    elif kind == "custom_tool_call":
        _add_call(state, day, payload["call_id"], call_key(payload["name"], {"command": payload["input"]}))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = payload["output"]
        text = output if isinstance(output, str) else "\n".join(str(item.get("text")) for item in output)
        head = text.partition("Output:")[0]
        code = head.partition("xit code: ")[2] or head.partition("exited with code ")[2]
        _add_result(state, payload["call_id"], is_failed=code.split("\n")[0].strip() not in ("", "0"))


def _add_codex_usage(info: JsonObject, state: JsonObject, day: list[float]) -> None:
    """Add what was used since the last count. The counts of a session only grow; smaller ones are a new beginning."""
    total = info["total_token_usage"]
    cached, written = int(total.get("cached_input_tokens") or 0), int(total.get("cache_write_input_tokens") or 0)
    counts = [int(total["input_tokens"]) - cached - written, int(total["output_tokens"]), written, cached]
    before = state["codex"] if sum(counts) >= sum(state["codex"]) else [0, 0, 0, 0]
    state["codex"] = counts
    new = [after - old for after, old in zip(counts, before, strict=True)]
    cost = _cost(state["model"], new, 0, state)
    state["cost"] += cost
    state["tokens"] += sum(new)
    day[0] += cost
    day[1] += sum(new)
    state["context"] = int((info.get("last_token_usage") or {}).get("total_tokens") or 0)
    state["window"] = int(info.get("model_context_window") or state["window"])


def _add_usage(message: JsonObject, state: JsonObject, day: list[float], *, is_main: bool) -> None:
    """Add the tokens of a request. Several records have the same request, of which the maximum counts."""
    usage, model, name = message["usage"], str(message.get("model")), str(message.get("id"))
    counts = [int(usage.get(counter) or 0) for counter in _COUNTERS]
    before = state["ids"].get(name, [0, 0, 0, 0])
    counts = [max(pair) for pair in zip(counts, before, strict=True)]
    hourly = int((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0)
    cost = _cost(model, counts, hourly, state) - _cost(model, before, hourly if any(before) else 0, state)
    tokens = sum(counts) - sum(before)
    state["cost"] += cost
    state["tokens"] += tokens
    day[0] += cost
    day[1] += tokens
    state["ids"].pop(name, None)
    state["ids"][name] = counts
    while len(state["ids"]) > _RECENT_IDS:
        del state["ids"][next(iter(state["ids"]))]
    if is_main:
        state["context"] = sum(counts)
        # The name does not show the size of the window; a larger context proves the long one.
        state["window"] = _LONG_WINDOW if sum(counts) > _WINDOW or state["window"] == _LONG_WINDOW else _WINDOW


def _cost(model: str, counts: list[int], hourly: int, state: JsonObject) -> float:
    rate = state["rates"].get(model)
    if rate is None:
        rate = state["rates"][model] = _find_rate(model)
    if not rate:
        return 0.0
    fresh, output, created, read = counts
    written_hourly = min(hourly, created)
    parts = (fresh * rate[0], output * rate[1], (created - written_hourly) * rate[2], written_hourly * rate[3])
    return float(sum(parts) + read * rate[4]) / 1_000_000


def _find_rate(model: str) -> list[float]:
    """Return the prices of a model for its input, output, cache writes and cache reads; empty if unknown."""
    from datetime import datetime

    from toolspan.prices import load_prices  # perf: once per model of a session

    table: PriceTable = load_prices()
    rate = table.rate(model, datetime.now().astimezone())
    if rate is None:
        return []
    write = rate.cache_write or rate.input
    return [rate.input, rate.output, write, rate.cache_write_1h or write, rate.cache_read or rate.input]


def _parse_time(text: object) -> float:
    from datetime import datetime  # perf: only if there are new records

    if not isinstance(text, str):
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def sum_states(own: JsonObject, scope: str) -> JsonObject:
    """Return cost, tokens and calls of all sessions of today, or of a project in the last 30 days."""
    begin = time.localtime(time.time() - (0 if scope == "day" else _PROJECT_DAYS * 86_400))
    first = time.strftime("%Y-%m-%d", begin)
    since = time.mktime((begin.tm_year, begin.tm_mon, begin.tm_mday, 0, 0, 0, 0, 0, -1))
    totals = [0.0, 0.0, 0.0]
    with suppress(OSError), os.scandir(state_folder()) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.name.endswith(".json") or (modified := entry.stat().st_mtime) < since:
                    if entry.name.endswith((".json", ".lock")) and time.time() - entry.stat().st_mtime > _KEPT_SECONDS:
                        os.unlink(entry.path)  # noqa: PTH108
                    continue
                state = _load_state(entry.path) if modified else own
                if scope == "project" and state["project"] != own["project"]:
                    continue
                for day, values in state["days"].items():
                    if day >= first:
                        totals = [total + value for total, value in zip(totals, values, strict=True)]
    return {"cost": totals[0], "tokens": totals[1], "calls": totals[2]}


# Lifting limits


def lift(session: str, hours: float = LIFT_HOURS) -> float:
    """Lift the limits for the sessions whose ids begin with `session`; `all` lifts them for all. Return until when."""
    os.makedirs(state_folder(), mode=0o700, exist_ok=True)  # noqa: PTH103
    until = time.time() + hours * 3_600
    path = os.path.join(state_folder(), f"lift-{session}")  # noqa: PTH118
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(str(until))
    return until


def is_lifted(session: str) -> bool:
    """Return whether the limits are lifted for a session."""
    with suppress(OSError, ValueError), os.scandir(state_folder()) as entries:
        for entry in entries:
            prefix = entry.name.removeprefix("lift-")
            if entry.name.startswith("lift-") and (prefix == "all" or session.startswith(prefix)):
                with open(entry.path, encoding="utf-8") as file:  # noqa: PTH123
                    if float(file.read()) > time.time():
                        return True
    return False


# The status line


def print_status_line() -> None:
    """Print one line about the session in the status input of Claude Code. Never raises."""
    try:
        status = json.loads(sys.stdin.buffer.read()) if sys.stdin is not None and not sys.stdin.isatty() else {}
        workspace = status.get("workspace") or {}
        state = update_state(str(status["session_id"]), str(status["transcript_path"]), workspace.get("current_dir"))
        sys.stdout.write(format_status_line(status, state, load_limits()) + "\n")
    except Exception as error:  # noqa: BLE001 - the client shows what is printed
        sys.stdout.write(f"toolspan: {error}\n")


def format_status_line(status: JsonObject, state: JsonObject, limits: JsonObject) -> str:
    """Return model, context, cost of the session and today, and failed calls."""
    recorded = (status.get("cost") or {}).get("total_cost_usd")
    cost = recorded if isinstance(recorded, int | float) else state["cost"]
    limit = limits.get("session", {}).get("cost")
    parts = [str((status.get("model") or {}).get("display_name") or "")]
    parts.append(f"context {state['context'] / (state['window'] or _WINDOW):.0%}" if state["context"] else "")
    parts.append(f"${cost:.2f}" + (f" of ${limit:.2f}" if limit else ""))
    parts.append(f"today ${sum_states(state, 'day')['cost']:.2f}")
    failed = state["failed"]
    parts.append(f"{failed} of {state['calls']} calls failed" if failed else "")
    parts.append("limits lifted" if limits and is_lifted(str(status.get("session_id"))) else "")
    return " · ".join(part for part in parts if part)

"""Run one case on one side, the real client or toolspan, in namespaces of its own.

    python -m lab.explore.inside SHARED client|toolspan CASE OUTPUT

`run.py` starts it as root in a new network and mount namespace. Both sides get the same home folder, user, files,
settings and calls. OUTPUT is a JSON object: the results by call id, the project's files afterwards, and problems.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.oracle.installed_client import ROOT, make_reachable
from lab.oracle.recording_scenarios import nearest_profile

Json = dict[str, Any]
_BACKGROUND_ID = re.compile(r"background with ID: (\w+)|background \(ID: (\w+)\)")
_PLACEHOLDER = re.compile(r"<task-id:(\w+)>")
_CLIENT_TIMEOUT = 240.0
_TURN_TIMEOUT = 60.0
_SERVER = ROOT / "tests/integrations/mcp_client/mcp_shapes.py"
_FLAGS = {
    "tools": ("--tools", "--tools"),
    "allowed_tools": ("--allowedTools", "--allowed-tools"),
    "disallowed_tools": ("--disallowedTools", "--disallowed-tools"),
    "model": ("--model", "--model"),
    "permission_prompt_tool": ("--permission-prompt-tool", "--permission-prompt-tool"),
}
"""Options of a case: the client's flag, and toolspan's."""


def main(shared: str, side: str, case_path: str, output_path: str) -> None:
    """Run the case and write what it produced."""
    sys.path[:0] = [f"{shared}/oracle", f"{shared}/conformance"]
    lib, score = importlib.import_module("lib"), importlib.import_module("score")
    case: Json = json.loads(Path(case_path).read_text(encoding="utf-8"))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    world = lib.S("claude", f"{side}-{case['id']}")
    world.chown = lambda: subprocess.run(["chown", "-hR", f"{lib.UID}:{lib.UID}", world.home], check=True)
    shutil.copy(_SERVER, Path(world.home) / "orc")
    paths = {"<cwd>": world.cwd, "<home>": world.home}
    score.put(world.cwd, case.get("files") or {}, paths)
    score.put(world.home, case.get("home_files") or {}, paths)
    case = score.fill(case, paths)
    if case.get("managed_settings"):
        _mount_managed_settings(case["managed_settings"], Path(output_path).parent / "etc")
    output = _run_client(world, case) if side == "client" else _run_toolspan(world, case, lib, score)
    output["files"] = {**_settings_files(Path(world.cwd)), **world.snapshot()}
    Path(output_path).write_text(json.dumps(output), encoding="utf-8")
    shutil.rmtree(world.out, ignore_errors=True)


def _mount_managed_settings(text: str, folder: Path) -> None:
    """Replace /etc in this namespace by a copy that has an administrator's settings."""
    shutil.copytree("/etc", folder, symlinks=True)
    (folder / "claude-code").mkdir(exist_ok=True)
    (folder / "claude-code/managed-settings.json").write_text(text, encoding="utf-8")
    subprocess.run(["mount", "--bind", str(folder), "/etc"], check=True)


def _settings_files(cwd: Path) -> Json:
    """Return the files below .claude, which the snapshot leaves out."""
    found = (path for path in sorted((cwd / ".claude").rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(cwd)): {"text": path.read_text(errors="replace")} for path in found}


def _run_client(world: Any, case: Json) -> Json:
    world.settings = case["settings"]
    world.env = dict(case.get("env") or {})
    world.mcp = case.get("mcp_servers") or {}
    for command in case.get("setup") or []:
        world.sh(command)
    for turn in case["turns"]:
        world.turn(*({"tool": call["name"], "input": call["input"], "id": call["id"]} for call in turn))
    world.turn("Done.")
    server = world.ensure_server()
    original, task_ids = server.next_turn, {}

    def next_turn(body: Json) -> tuple[str, list[Any]]:
        """Replace the placeholders of background tasks by the ids in the results so far."""
        task_ids.update(_task_ids(body))
        if task_ids:
            server.scripts = json.loads(_fill_task_ids(json.dumps(server.scripts), task_ids))
        popped: tuple[str, list[Any]] = original(body)
        return popped

    server.next_turn = next_turn
    flags = [word for key, (flag, _) in _FLAGS.items() if case.get(key) for word in (flag, case[key])]
    code = world.go(args=flags, permission_mode=case.get("permission_mode"), timeout=_CLIENT_TIMEOUT, allow=False)
    results = _recorded_results(Path(world.home) / ".claude/projects")
    denials, problem = _stream_facts(Path(world.out) / "stream.jsonl")
    for call_id, result in results.items():
        result["denied"] = call_id in denials or "toolDenialKind" in result
    if code or problem:
        errors = (Path(world.out) / "stderr.txt").read_text(errors="replace")[-400:]
        problem = f"exit code {code} {problem} {errors}".strip()
    return {"results": results, "problem": problem}


def _task_ids(body: Json) -> dict[str, str]:
    """Return the background task ids in a request's results, by call id."""
    ids = {}
    for message in body.get("messages") or []:
        for block in message["content"] if isinstance(message.get("content"), list) else []:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                match = _BACKGROUND_ID.search(json.dumps(block.get("content")))
                if match:
                    ids[str(block["tool_use_id"])] = str(match[1] or match[2])
    return ids


def _fill_task_ids(text: str, ids: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: ids.get(match[1], match[0]), text)


def _recorded_results(projects: Path) -> Json:
    results: Json = {}
    for path in sorted(projects.glob("*/*.jsonl")):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            content = (record.get("message") or {}).get("content")
            if record.get("type") != "user" or not isinstance(content, list):
                continue
            for block in content:
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    result = {key: block[key] for key in ("is_error", "content") if key in block}
                    result |= {key: record[key] for key in ("toolUseResult", "toolDenialKind") if key in record}
                    results.setdefault(block["tool_use_id"], result)
    return results


def _stream_facts(stream: Path) -> tuple[set[str], str]:
    """Return the ids of denied calls, and a problem of the run as a whole."""
    denied: set[str] = set()
    problem = "the client gave no result"
    for line in stream.read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("type") == "result":
            denied |= {denial["tool_use_id"] for denial in event.get("permission_denials") or []}
            problem = "" if event.get("subtype") == "success" else str(event.get("subtype"))
    return denied, problem


def _run_toolspan(world: Any, case: Json, lib: Any, score: Any) -> Json:
    home, cwd = Path(world.home), Path(world.cwd)
    settings = cwd / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps(case["settings"], indent=1))
    for command in case.get("setup") or []:
        subprocess.run(["bash", "-c", command], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    # As one of several files, the project's settings have their usual rank, and need trust.
    arguments = [] if case.get("all_scopes") else ["--settings", str(settings)]
    if case.get("permission_mode"):
        arguments += ["--permission-mode", case["permission_mode"]]
    arguments += ["--profile", nearest_profile(case["version"])]
    arguments += [word for key, (_, flag) in _FLAGS.items() if case.get(key) for word in (flag, case[key])]
    if case.get("mcp_servers"):
        servers = home / "orc/mcp.json"
        servers.write_text(json.dumps({"mcpServers": case["mcp_servers"]}))
        arguments += ["--mcp-config", str(servers)]
    for folder in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        make_reachable(folder)
    world.chown()
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "SHELL": "/bin/bash", "LANG": "C.UTF-8",
        "TERM": "xterm", "USER": "dev", **(case.get("env") or {}),
    }  # fmt: skip
    user = ["setpriv", "--reuid", str(lib.UID), "--regid", str(lib.UID), "--clear-groups", "--", "env", "-i"]
    variables = [f"{key}={value}" for key, value in environment.items()]
    program = str(Path(sys.prefix) / "bin/toolspan")
    log = Path(world.out) / "stderr.txt"
    if case.get("all_scopes") or (cwd / ".claude/skills").is_dir():
        trust = [*user, *variables, program, "trust", "--yes", str(cwd)]
        subprocess.run(trust, cwd=cwd, check=False, capture_output=True)
    candidate = score.Candidate([*user, *variables, program, "exec", *arguments], cwd, dict(os.environ), str(log))
    problem = ""
    ids: dict[str, str] = {}
    for turn in case["turns"]:
        calls = json.loads(_fill_task_ids(json.dumps(turn), ids))
        trouble = candidate.turn(calls, _TURN_TIMEOUT)
        for call in turn:
            task_id = call["id"] in candidate.results and score.task_id(candidate.results[call["id"]])
            if task_id:
                ids[call["id"]] = task_id
        if trouble:
            problem = str(trouble)
            break
    code = candidate.close()
    if code or problem:
        problem = f"exit code {code} {problem} {log.read_text(errors='replace')[-400:]}".strip()
    for result in candidate.results.values():
        result["denied"] = result.get("state") in ("denied", "blocked_by_hook")
    return {"results": candidate.results, "problem": problem}


if __name__ == "__main__":
    main(*sys.argv[1:])

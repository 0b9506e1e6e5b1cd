"""Compare the decisions of toolspan and the real client on given command lines and calls.

    python -m lab.explore.ask FILE [--version 2.1.327] [--verbose]

Each line of FILE is a JSON object: `lines` (commands) or `calls` ([name, input] pairs), and optionally `mode`,
`permissions` (allow, deny, ask), `settings`, `tools`, `env`, `mcp_servers`, `files` and `home_files`, as in a generated
case. An empty `mode` leaves it to the settings. Prints the calls that only one side runs; with --verbose, the answers
to all calls.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from lab.explore.compare import Comparer, compare_decisions, has_acted
from lab.explore.permissions import generate_permission_case
from lab.explore.run import Machine

Json = dict[str, Any]
_CALLS_PER_TURN = {"plan": 4}
_CASE_KEYS = ("tools", "env", "mcp_servers", "allowed_tools", "disallowed_tools", "all_scopes", "managed_settings")


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--version", default="2.1.327", show_default=True)
@click.option("--jobs", type=int, default=2, show_default=True)
@click.option("--verbose", is_flag=True, help="Print the answers to all calls.")
def main(file: Path, version: str, jobs: int, *, verbose: bool) -> None:
    """Compare the decisions of toolspan and the real client on given command lines and calls."""
    shared = Path(os.environ.get("SHARED", "../shared")).resolve()
    scratch = Path(os.environ.get("ORACLE_SCRATCH", "/var/tmp/toolspan-oracle")).resolve()
    machine = Machine(shared, scratch, Comparer(shared))
    batches = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    cases = [make_case(batch, version, number) for number, batch in enumerate(batches)]

    def ask(case: Json) -> tuple[Json, Json]:
        return machine.run_side("client", case), machine.run_side("toolspan", case)

    with ThreadPoolExecutor(jobs) as pool:
        for case, (client, ours) in zip(cases, pool.map(ask, cases), strict=True):
            click.echo(f"{case['permission_mode']} {json.dumps(case['settings'])}")
            for problem in filter(None, (client.get("problem"), ours.get("problem"))):
                click.echo(f"  PROBLEM {problem}")
            _print_answers(case, client["results"], ours["results"], verbose=verbose)


def make_case(batch: Json, version: str, number: int) -> Json:
    """Return the case that asks for the calls of a batch, in turns of ten."""
    case = generate_permission_case(77, version, 1)
    mode = batch.get("mode", "default")
    calls = [("Bash", {"command": line}) for line in batch.get("lines", ())] + list(batch.get("calls", ()))
    case |= {"id": f"ask{number}", "permission_mode": mode or None}
    case["settings"] = {"permissions": batch.get("permissions", {}), **batch.get("settings", {})}
    case |= {key: batch[key] for key in _CASE_KEYS if key in batch}
    for key in ("files", "home_files"):
        case[key] |= batch.get(key, {})
    tool_calls = [
        {"id": f"toolu_01ask{number:03}x{index:04}", "name": name, "input": tool_input}
        for index, (name, tool_input) in enumerate(calls)
    ]
    size = _CALLS_PER_TURN.get(mode, 10)
    case["turns"] = [tool_calls[at : at + size] for at in range(0, len(tool_calls), size)]
    return case


def _print_answers(case: Json, client: Json, ours: Json, *, verbose: bool) -> None:
    counts = {"": 0, "laxer": 0, "stricter": 0, "differs": 0, "unanswered": 0}
    for call in (call for turn in case["turns"] for call in turn):
        want, got = client.get(call["id"], {}), ours.get(call["id"], {})
        kind = compare_decisions(call["name"], want, got) if want else "unanswered"
        acted = [has_acted(call["name"], answer) for answer in (want, got)]
        if want and not kind and acted[0] is not acted[1]:
            kind = "differs"  # one side fails for another reason, for example because the tool is missing
        counts[kind] += 1
        if kind or verbose:
            both = " ".join("runs" if runs else "stops" for runs in acted)
            shown = call["input"].get("command") or json.dumps(call["input"], ensure_ascii=False)
            click.echo(f"  {kind.upper() or 'equal'} (client, ours: {both}) {call['name']} {shown!r}")
        if verbose or kind == "differs":
            for answer in (want, got):
                click.echo(f"      {json.dumps(answer.get('content'), ensure_ascii=False)[:200]}")
    click.echo(f"  {counts['']} equal, {counts['laxer']} laxer, {counts['stricter']} stricter, "
               f"{counts['differs']} differ, {counts['unanswered']} unanswered")  # fmt: skip


if __name__ == "__main__":
    main()

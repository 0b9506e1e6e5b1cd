"""Run cases on both sides in namespaces, in parallel, and reduce cases that differ."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab.explore import inside
from lab.explore.compare import FILES, Comparer, Comparison, Difference
from lab.oracle.installed_client import ROOT

Json = dict[str, Any]
_NAMESPACE = ("unshare", "-n", "-m", "-p", "-f", "--mount-proc", "--propagation", "private", "--kill-child")
_TIMEOUT = 400.0


class Machine:
    """The folders and programs that cases are run with."""

    def __init__(self, shared: Path, scratch: Path, comparer: Comparer) -> None:
        self.shared, self.scratch, self._comparer = shared, scratch, comparer

    def compare(self, case: Json) -> Comparison:
        """Run a case on both sides."""
        return self._comparer.compare(case, self.run_side("client", case), self.run_side("toolspan", case))

    def compare_all(self, cases: Iterable[Json], jobs: int) -> Iterator[Comparison]:
        """Run cases with several processes, yielding each as it finishes, in order."""
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(self.compare, cases)

    def run_side(self, side: str, case: Json) -> Json:
        """Run a case on one side and return its output; never raises for what the side did."""
        folder = Path(tempfile.mkdtemp(prefix=f"explore-{os.getpid()}-", dir=self.scratch))
        try:
            (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
            arguments = [str(self.shared), side, str(folder / "case.json"), str(folder / "output.json")]
            run = subprocess.run(
                [*_NAMESPACE, sys.executable, "-m", inside.__name__, *arguments],
                cwd=ROOT,
                env={
                    **os.environ,
                    "ORACLE_SCRATCH": str(self.scratch),
                    "ORACLE_OUT": folder.name,
                    "ORACLE_CLAUDE_VERSION": case["version"],
                },
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT,
            )
            if run.returncode:
                return {"results": {}, "files": {}, "problem": run.stderr.strip()[-600:]}
            output: Json = json.loads((folder / "output.json").read_text(encoding="utf-8"))
            return output
        except subprocess.TimeoutExpired:
            return {"results": {}, "files": {}, "problem": f"no end within {_TIMEOUT:.0f} s"}
        finally:
            for place in (folder, self.scratch / folder.name, self.scratch / "homes" / folder.name):
                shutil.rmtree(place, ignore_errors=True)

    def minimize(self, case: Json, difference: Difference) -> Json | None:
        """Return the shortest case found that still shows the difference; None if it did not come again."""
        for smaller in reductions(case, difference.call_id):
            found = self.compare(smaller).differences
            if any(one.group == difference.group for one in found):
                return smaller
        return None


def reductions(case: Json, call_id: str) -> Iterator[Json]:
    """Yield smaller cases: the call alone, with earlier calls that name the same file, with all earlier calls."""
    calls = [call for turn in case["turns"] for call in turn]
    position = next((at for at, call in enumerate(calls) if call["id"] == call_id), None)
    if position is None:
        return
    target, earlier = calls[position], calls[:position]
    yield _with_turns(case, [[target]])
    related = [call for call in earlier if _is_related(call, target)]
    if related:
        yield _with_turns(case, [*([call] for call in related), [target]])
    yield _with_turns(case, [*([call] for call in earlier), [target]])
    until = next(at for at, turn in enumerate(case["turns"]) if target in turn)
    yield _with_turns(case, case["turns"][: until + 1])


def _with_turns(case: Json, turns: list[list[Json]]) -> Json:
    return {**case, "turns": turns}


def _is_related(call: Json, target: Json) -> bool:
    """Return whether an earlier call may have changed the answer to a later one."""
    names = {Path(value).name for value in target["input"].values() if isinstance(value, str) and "/" in value}
    text = json.dumps(call["input"])
    return any(name and name in text for name in names) or call["id"] in json.dumps(target["input"])


def related_files(difference: Difference) -> str:
    """Return the file that a difference is about; empty for calls."""
    return difference.call_id if difference.tool == FILES else ""

"""Planted faults: does a test notice each of them?

Each mutant is one change to one file. It is made in a copy of the package, and the quick tests of
the running half are run against that copy; a mutant they do not notice has survived.

    python tests/runtime/mutants.py              all of them
    python tests/runtime/mutants.py --share 3/5  every fifth, beginning with the third
    python tests/runtime/mutants.py --only settle
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTS = (
    "test_batch", "test_pipeline", "test_cancel", "test_consent", "test_runner", "test_queue",
    "test_raising", "test_settlement", "test_stubborn",
)  # fmt: skip
LIMIT = 180
"""Seconds after which a mutant counts as noticed: it made something wait forever."""


class Mutant(NamedTuple):
    """One planted fault."""

    file: str
    old: str
    new: str
    breaks: str


MUTANTS = (
    Mutant("queue", "if item.id in self._items:", "if False:", "an id is queued twice"),
    Mutant("queue", 'if item.stage != "queued":', "if False:", "a used item is queued"),
    Mutant("queue", "            if not self._may_start(item):\n                break",
           "            if not self._may_start(item):\n                continue",
           "calls overtake one that cannot start"),
    Mutant("queue", "len(self._running) >= self.cap", "len(self._running) > self.cap", "the cap"),
    Mutant("queue", "if item.overlaps and not self._exclusive:", "if item.overlaps:", "barriers"),
    Mutant("queue", "if not item.overlaps:\n", "if item.overlaps:\n", "who is exclusive"),
    Mutant("queue", "i.position < barrier", "i.position <= barrier + 1", "the hand-out barrier"),
    Mutant("queue", "ready.sort(key=lambda item: item.position)", "pass", "the hand-out order"),
    Mutant("queue", "self._exclusive.pop(call_id, None)", "pass", "a barrier never ends"),
    Mutant("queue", "item.paths.isdisjoint(other.paths)", "True", "locks by path"),
    Mutant("queue", "not self.by_path or item.paths is None", "item.paths is None", "by_path"),
    Mutant("queue", 'item.stage = "completed"', 'item.stage = "yielded"', "stages"),
    Mutant("batch", "if call_id in self._seen:", "if False:", "a duplicate is run"),
    Mutant("batch",
           "        self._seen.add(call_id)\n        job = self._job(call_id, name, given)\n"
           "        job.cut = cut",
           "        job = self._job(call_id, name, given)\n        job.cut = cut",
           "ids of the conversation are forgotten"),
    Mutant("batch", "job.cut = cut", "pass", "a cut call is run"),
    Mutant("batch", "and tool.enabled else None", "else None", "a switched-off tool is run"),
    Mutant("batch", "overlaps=job.tool is None", "overlaps=True", "bad calls overtake"),
    Mutant("batch", "withdraw(job.call.id):\n            settle_unstarted(job, self.desk)\n",
           "withdraw(job.call.id):\n            pass\n", "a withdrawn call has no result"),
    Mutant("batch", "if self._queue.withdraw(job.call.id):", "if False:", "withdrawal"),
    Mutant("batch", 'self.cancel(by="host")', "self._start_tasks()",
           "calls start after the host is gone"),
    Mutant("batch", "sorted(self._modifiers, key=self._queue.position)",
           "sorted(self._modifiers, key=self._queue.position, reverse=True)",
           "the order of modifiers"),
    Mutant("batch", "if self._modifiers and self._queue.is_idle:", "if self._modifiers:",
           "a parallel call changes the context of its siblings"),
    Mutant("batch", "before, self.desk.context = self.desk.context.cwd, changed",
           "before = self.desk.context.cwd", "modifiers"),
    Mutant("batch", 'if finished.span.state == "denied":', "if False:",
           "a refusal without a word leaves running calls"),
    Mutant("batch", "and _takes_siblings_along(finished, self.desk):", "and False:",
           "siblings"),
    Mutant("batch", 'if job.tool is not None and job.tool.interrupt == "block":', "if False:",
           "a blocking tool is cut off with the host's task"),
    Mutant("batch", "        if self.stop is not None:\n            self._cancel(job",
           "        if False:\n            self._cancel(job", "a call added after the stop is run"),
    Mutant("batch", "if job.finished is None:  #", "if False:  #", "no result while prepared for"),
    Mutant("batch", "            helping.cancel()\n", "", "a recovery outlives its call"),
    Mutant("batch", "one not in self._seen)", "True)", "steps take ids of calls"),
    Mutant("pipeline", "    if job.cancelled:\n        return cut_short(job, desk)\n    if job.cut",
           "    if job.cut", "a cancelled call runs"),
    Mutant("pipeline", "    if job.cancelled:\n        return cut_short(job, desk)\n    job.ending",
           "    job.ending", "a call cancelled by its policy runs"),
    Mutant("pipeline", "if job.tool is None:", "if False:", "unknown tools"),
    Mutant("pipeline", "return incomplete(job)", "pass", "a cut call is run"),
    Mutant("pipeline", "if prepared.tool.validate is not None:", "if False:", "vetoes"),
    Mutant("pipeline", "if isinstance(before.decision, Deny):", "if False:", "a hook's refusal"),
    Mutant("pipeline", "return with_input(job, prepared, before.input, desk)", "return prepared",
           "a hook's input"),
    Mutant("pipeline", 'anyio.CancelScope(shield=tool.interrupt == "block")',
           "anyio.CancelScope()", "blocking tools are interrupted"),
    Mutant("pipeline", "        ending = job.ending or (None if job.cancelled",
           "        ending = (None if job.cancelled",
           "a finished tool's result is lost with its hooks"),
    Mutant("pipeline", 'if job.cancelled == "host" and is_cancelled():', "if False:",
           "a host goes on though it was cancelled, for its tool had the last word"),
    Mutant("pipeline", "    return job.cancelled is not None or is_cancelled()", "    return True",
           "a stray cancellation ends all"),
    Mutant("pipeline", "isinstance(error, _ENDS) or _is_ours",
           "not isinstance(error, Exception) or _is_ours", "a tool's panic ends the session"),
    Mutant("insist", "wish = error", "raise", "a host that is told twice to end loses results"),
    Mutant("door", "if self._inside or keeper is None:", "if keeper is None:",
           "the end of one run ends the calls of another"),
    Mutant("pipeline", "        return raised(tool.name, error)  # a tool's",
           "        raise  # a tool's", "a tool's exceptions"),
    Mutant("review", "    if after is not None:\n", "    if False:\n", "contexts after a call"),
    Mutant("settle", "if job.started is None:", "if False:", "cancelled is told as interrupted"),
    Mutant("settle", "is_error=ending.flag", "is_error=None", "the error flag"),
    Mutant("settle", "    desk.emit(finished)\n", "", "nobody is told of the end"),
    Mutant("settle", "    job.finished = finished\n", "", "a call has no result"),
    Mutant("settle", "    job.modify = ending.modify\n", "", "modifiers"),
    Mutant("settle", "        desk.emit(job.news)\n", "        pass\n", "the last progress"),
    Mutant("settle", 'if job.cancelled == "sibling":', "if False:", "words for siblings"),
    Mutant("settle", "        return clean(job.view.partial())\n",
           "        return job.view.partial()\n", "partial output cannot be sent"),
    Mutant("consent", "isinstance(ruled, Deny | Ask) else", "isinstance(ruled, Deny) else",
           "a hook's consent opens a rule's question"),
    Mutant("consent", "isinstance(ruled, Deny | Ask) else", "isinstance(ruled, Ask) else",
           "a hook's consent undoes a rule's refusal"),
    Mutant("consent", "if isinstance(ruled, Allow) and ruled.input is not None:", "if False:",
           "a policy's input"),
    Mutant("consent", 'return Deny(f"Tool permission request failed: {words_of(error)}", "policy")',
           'return Allow(None, "policy")', "consent fails open"),
    Mutant("consent",
           'note_decision(job, Deny(None, "user_abort"), desk, asked=ask, waited=waited)', "pass",
           "an aborted question is not told"),
    Mutant("consent", "        if not isinstance(answer, Allow | Deny):\n            raise",
           "        if False:\n            raise", "an approver's nonsense"),
    Mutant("rooms", "while left > 0 and not", "while not", "the grace never ends"),
    Mutant("rooms", "                left -= pause\n", "", "the grace does not run out"),
    Mutant("rooms", "        room.hush()\n", "        pass\n",
           "what was left is told to stop at every turn of the loop"),
    Mutant("rooms", "    room.stop()\n", "", "nobody tells a tool to stop"),
    Mutant("rooms", "with anyio.CancelScope(shield=True):\n            while",
           "with anyio.CancelScope():\n            while", "no grace for tools that clean up"),
    Mutant("rooms", "        room.late = self._ended_late\n", "", "a late end is not told of"),
    Mutant("rooms", "            if not room.is_over:\n                self._leave",
           "            if True:\n                self._leave", "tools that stop count as left"),
    Mutant("rooms", "            if isinstance(room.error, asyncio.CancelledError):\n"
           "                raise\n", "", "a host's cancellation is lost in the tool's"),
    Mutant("rooms", "                _cancel_again(job)\n", "                pass\n",
           "a cancellation that comes once is lost"),
    Mutant("desk", "        if room is not None and self.cancelled:", "        if False:",
           "a call cancelled before it waits goes on"),
    Mutant("rooms", "if job is None or job.is_blocking:", "if job is None:",
           "blocking tools are interrupted"),
    Mutant("rooms", "        room.drop()\n", "", "what was left stays when the runner is closed"),
    Mutant("rooms", "if not room.task.cancelling():", "if True:",
           "a task that a tool cancelled is used again"),
    Mutant("rooms", "if self.late is not None or self.task.cancelling():", "if False:",
           "a task that a tool cancelled while it waited is used again"),
    Mutant("rooms", "return anyio.current_effective_deadline() == math.inf", "return True",
           "a scope that a tool left open ends the next one"),
    Mutant("rooms", "                return False\n            self._waiter",
           "                return True\n            self._waiter",
           "a call that is called off is taken for one that ended"),
    Mutant("runner", '            self.cancel(by="host")\n', "            pass\n",
           "calls in tasks of their own do not hear that the host is gone"),
    Mutant("rooms", "and wanted.cancel():", "and False:",
           "what a cancelled tool waited for goes on"),
    Mutant("batch", 'if self._queue.stage(origin) != "executing":', "if False:",
           "a recovery that was left goes on running calls"),
    Mutant("consent", "    if desk.approver is None:\n", "    if False:\n", "nobody to ask"),
)  # fmt: skip


def main() -> int:
    """Run the mutants that were asked for; 1 when one survived or cannot be planted."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--share", default="1/1", help="which part of them: 2/5")
    options.add_argument("--only", default="", help="the files whose name contains this")
    given = options.parse_args()
    first, parts = (int(number) for number in given.share.split("/"))
    chosen = [one for one in MUTANTS[first - 1 :: parts] if given.only in one.file]
    survivors: list[str] = []
    for mutant in chosen:
        told = survivor(mutant)
        if told is not None:
            survivors.append(told)
            print(told, flush=True)  # noqa: T201 - a script
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were noticed")  # noqa: T201
    return 1 if survivors else 0


def survivor(mutant: Mutant) -> str | None:
    """What to say of a mutant that no test noticed; None for the others."""
    name = f"{mutant.file}.py: {mutant.breaks}"
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "toolspan"
        shutil.copytree(ROOT / "src" / "toolspan", package, ignore=shutil.ignore_patterns("__pycache__"))
        path = package / "run" / f"{mutant.file}.py"
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            return f"CANNOT BE PLANTED {name}: {text.count(mutant.old)} places for {mutant.old!r}"
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        return None if _is_noticed(Path(folder)) else f"SURVIVED {name}"


def _is_noticed(folder: Path) -> bool:
    tests = [str(ROOT / "tests" / "run" / f"{name}.py") for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *tests]
    quiet = ["-p", "no:cacheprovider", "--no-header", "--tb=no"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "mutants",
    }
    try:
        ended = subprocess.run(
            [*command, *quiet], cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != 0


if __name__ == "__main__":
    sys.exit(main())

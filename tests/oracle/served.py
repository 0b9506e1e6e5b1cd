"""`toolspan mcp` in the hands of real clients, connected as its page says.

Each story goes in a house of its own and yields what is not as it was promised.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.oracle.house import House, enters, shows, until

Story = Callable[[House], Iterator[str]]
_ASKS_BY_FORM = (2, 1, 325)
"""Before, clients were not asked whether they do."""
_LASTING = "echo $$ > pid; exec sleep 1000"


def differ(what: str, found: object, wanted: object) -> Iterator[str]:
    """Something that is not as it should be."""
    if found != wanted:
        yield f"{what}: {found!r}, not {wanted!r}"


def _moved_in(house: House, *options: str) -> Path:
    """A file, a hook of the user, a rule of the user, and the client, which may call our tools."""
    heard = house.home / "heard.jsonl"
    note = {"type": "command", "command": f"tr -d '\\n' >> {heard}; echo >> {heard}"}
    own = {
        "permissions": {"deny": ["Bash(cat secret*)"]},
        "hooks": {"PreToolUse": [{"matcher": "Bash|Edit", "hooks": [note]}]},
    }
    house.writes(".claude/settings.json", json.dumps(own))
    house.writes("proj/a.txt", "alpha\nbeta\n")
    house.writes("proj/secret", "hush\n")
    house.world.settings = {"permissions": {"allow": ["mcp__toolspan", "Bash"]}}
    connected = house.connects(*options)
    assert connected.code == 0, connected.all
    return heard


def mcp_tools(house: House) -> Iterator[str]:
    """The tools are listed and called; our rules refuse, our hooks hear, our record has it."""
    heard = _moved_in(house, "--tools", "Read,Edit,Bash")
    path = str(house.cwd / "a.txt")
    if not house.is_codex:
        listed = house.types("claude mcp list").all
        yield from differ("`claude mcp list`", "Connected" in listed, True)
    house.turn(house.call("Read", file_path=path))
    house.turn(house.call("Edit", file_path=path, old_string="alpha", new_string="ALPHA"))
    house.turn(house.call("Bash", command="cat a.txt; exit 3"), house.call("Bash", command="pwd"))
    house.turn(house.call("Bash", command="cat secret"))
    house.turn(house.call("Bash", command="make love"))
    house.turn("That was all.")
    yield from differ("the client's exit code", house.works(), 0)
    yield from _offered(house)
    yield from _told(house)
    sent = [json.loads(line) for line in heard.read_text(encoding="utf-8").splitlines()]
    ours = _our_session(house)
    mine = [one["tool_name"] for one in sent if one["session_id"] == ours]
    yield from differ("calls that our hooks heard of", mine, ["Edit", *["Bash"] * 4])
    yield from _on_record(house, ours)


def _offered(house: House) -> Iterator[str]:
    if house.is_codex:  # it tells its model of servers; tools are to be searched for
        hears = "- toolspan: Tools to read" in house.heard()
        yield from differ("the model hears of us", hears, True)
        return
    tools = set(re.findall(r"mcp__toolspan__(\w+)", house.heard()))
    yield from differ("the tools that the model hears of", tools, {"Read", "Edit", "Bash"})


def _told(house: House) -> Iterator[str]:
    read, edited, failed, ran, secret, asked = house.answers()
    yield from differ("Read", read, "1\talpha\n2\tbeta\n3\t")
    yield from differ("Edit", "has been updated successfully" in edited, True)
    yield from differ("a command that fails", _before_note(failed), "Exit code 3\nALPHA\nbeta")
    yield from differ("a command", ran, str(house.cwd))
    yield from differ("a rule refuses", "denied" in secret and "hush" not in secret, True)
    nobody = "toolspan: there is no user to ask" in asked
    yield from differ(f"what nobody can allow ({asked!r})", nobody, True)
    yield from differ("the file", (house.cwd / "a.txt").read_text(), "ALPHA\nbeta\n")


def _before_note(answer: str) -> str:
    """An answer without what a client adds for a model that has not looked up the tool before."""
    return answer.partition("\n\nThis tool's input schema")[0]


def _our_session(house: House) -> str:
    """The session that our server recorded."""
    (found,) = {one["session"] for one in house.calls() if one["tool"] == "Edit"}
    return str(found)


def _on_record(house: House, ours: str) -> Iterator[str]:
    calls = house.calls(ours)
    wanted = [
        ("Read", "succeeded"), ("Edit", "succeeded"), ("Bash", "failed"), ("Bash", "succeeded"),
        ("Bash", "denied"), ("Bash", "denied"),
    ]  # fmt: skip
    yield from differ("our record", [(one["tool"], one["state"]) for one in calls], wanted)
    theirs = [one for one in house.calls() if one["tool"].startswith("mcp__toolspan__")]
    yield from differ("calls in the client's own record", len(theirs), len(wanted))
    sound = house.types(f"toolspan doctor {ours}")
    yield from differ(f"`toolspan doctor`: {sound.all[-200:]}", sound.code, 0)


def mcp_readme(house: House) -> Iterator[str]:
    """As the README connects it, it reads; what it may not do, it says."""
    _moved_in(house)
    house.turn(house.call("Read", file_path=str(house.cwd / "a.txt")))
    house.turn(house.call("Write", file_path=str(house.cwd / "b.txt"), content="b"))
    house.turn("That was all.")
    yield from differ("the client's exit code", house.works(), 0)
    read, *wrote = house.answers()
    yield from differ("Read", read, "1\talpha\n2\tbeta\n3\t")
    if not house.is_codex:  # its page lets it edit
        nobody = "toolspan: there is no user to ask" in wrote[0]
        yield from differ(f"Write ({wrote[0]!r})", nobody, True)
        yield from differ("the file is there", (house.cwd / "b.txt").exists(), False)


def mcp_consent(house: House) -> Iterator[str]:
    """In the client's terminal somebody is asked, sees for what, and says yes."""
    if house.is_codex or house.version < _ASKS_BY_FORM:
        return
    _moved_in(house, "--tools", "Bash")
    house.writes("proj/.claude/settings.json", json.dumps(house.world.settings))
    house.turn(house.waits())
    house.turn(house.call("Bash", command="touch made; make || true"))
    house.turn("That was all.")
    with house.terminal() as shell:
        shell.starts("claude --permission-mode default")
        until(lambda: shows(shell, "❯"), what="the client")
        enters(shell, "Go [[s:main]]", then=lambda: shows(shell, "May it run?"))
        seen = "\n".join(shell.lines())
        for key in ("Right", "Enter", "Down", "Enter"):  # open the choices, once, Accept
            time.sleep(1)
            shell.presses(key)
        until(lambda: shows(shell, "That was all."), what="the answer")
    told = "Bash: touch made; make || true" in seen
    yield from differ(f"the command is to be seen:\n{seen}", told, True)
    yield from differ("the command ran", (house.cwd / "made").exists(), True)
    (call,) = (one["id"] for one in house.calls() if one["tool"] == "Bash" and _made(one))
    why = json.loads(house.types(f"toolspan why {call} --json").out)
    yield from differ("who allowed it", why["source"], "user_temporary")


def _made(call: dict[str, Any]) -> bool:
    return str(call["target"]).startswith("touch made")


def mcp_structured(house: House) -> Iterator[str]:
    """With `--structured` the model reads the value for programs."""
    _moved_in(house, "--structured")
    house.turn(house.call("Read", file_path=str(house.cwd / "a.txt")))
    house.turn(house.call("Bash", command="echo hi"), house.call("Bash", command="ls; exit 3"))
    house.turn("That was all.")
    yield from differ("the client's exit code", house.works(), 0)
    read, ran, failed = house.answers()
    yield from differ("Read", json.loads(read)["file"]["content"], "alpha\nbeta\n")
    yield from differ("Bash", json.loads(ran)["stdout"], "hi")
    yield from differ("a failure is a text", _before_note(failed), "Exit code 3\na.txt\nsecret")


def mcp_interrupted(house: House) -> Iterator[str]:
    """A long command tells of itself; one whose turn is interrupted is ended, and on record."""
    _moved_in(house, "--allowed-tools", "Bash")
    slow = "echo one; sleep 1.7; echo two; sleep 2; ls secret"
    house.turn(house.call("Bash", command=slow))
    house.turn(house.call("Bash", command=_LASTING))
    house.turn("That was all.")
    pid = house.cwd / "pid"

    def during(client: Any) -> None:
        until(lambda: pid.exists() and pid.read_text(), what="the command")
        house.interrupts(client)
        until(lambda: _gone(pid) or client.poll() is not None, what="the command's end")
        if client.stdin is not None:
            client.stdin.close()

    house.works(during)
    until(lambda: _gone(pid), what="the command's end")
    yield from differ("a long command", house.answers()[:1], ["one\ntwo\nsecret"])
    yield from _news(house)
    yield from _ended_on_record(house)


def _news(house: House) -> Iterator[str]:
    """What the client hears of a long command, if it wants to: 2.0.65 does not."""
    (slow, *_) = (one for one in house.said("in") if one.get("method") == "tools/call")
    wanted = slow["params"].get("_meta", {}).get("progressToken")
    said = (one["params"] for one in house.said("out") if "progress" in one.get("method", ""))
    told = [one["message"] for one in said if one["progressToken"] == wanted]
    yield from differ("the news of it", told[:2], ["one", "two"] if wanted is not None else [])


def mcp_killed(house: House) -> Iterator[str]:
    """The client is killed: the server ends, its command too, and both are on record."""
    _moved_in(house, "--allowed-tools", "Bash")
    house.turn(house.call("Bash", command=_LASTING))
    pid = house.cwd / "pid"

    def during(client: Any) -> None:
        until(lambda: pid.exists() and pid.read_text(), what="the command")
        time.sleep(0.5)  # its own lines are written a moment later
        os.kill(client.pid, signal.SIGKILL)  # the server is of its process group

    house.works(during)
    until(lambda: _gone(pid), what="the command's end")
    until(lambda: not _servers(), what="the server's end")
    yield from _ended_on_record(house)


def _gone(pid: Path) -> bool:
    """Whether the process whose number stands in a file has ended."""
    return not Path(f"/proc/{pid.read_text(encoding='utf-8').strip()}").exists()


def _ended_on_record(house: House) -> Iterator[str]:
    states = [one["state"] for one in house.calls() if one["tool"] == "Bash"]
    yield from differ("our record", states[-1:], ["interrupted"])


def _servers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"mcp" in words and any(word.endswith(b"/toolspan") for word in words):
            found.append(path.parent.name)
    return found


STORIES: tuple[Story, ...] = (mcp_tools, mcp_readme, mcp_consent, mcp_structured, mcp_interrupted, mcp_killed)

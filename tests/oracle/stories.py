"""Sessions for the real client to resume, told to our own recorder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from tests.session.recording.emitted import (
    SESSION,
    START,
    Clock,
    decided,
    error,
    finished,
    hook,
    message,
    no_failure,
    use,
)
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.session.recording import Interruption, Recorder, RecorderConfig, transcript_path
from toolspan.session.resume import load_history
from toolspan.tools import coding_tools
from toolspan.types.events import Finished, HookContext

CWD = Path("/home/dev/proj")
"""Where the harness lets the client work."""

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file). STOP what you are doing and wait"
    " for the user to tell you how to proceed."
)


def _read(call_id: str, name: str) -> dict[str, object]:
    return use(call_id, "Read", file_path=f"{CWD}/{name}")


def _content(call_id: str, name: str, text: str) -> Finished:
    """A file that was read."""
    file = {"filePath": f"{CWD}/{name}", "content": text, "numLines": 1, "startLine": 1}
    return finished(
        call_id,
        "Read",
        text,
        structured={"type": "text", "file": {**file, "totalLines": 1}},
        decision=decided(call_id, allowed=True),
    )


def parallel(recorder: Recorder) -> None:
    """Three calls at once, one of them fails, none ends in the order it was asked for."""
    recorder.record_prompt("Look at the files, please")
    calls = (_read("toolu_a", "a"), use("toolu_b", "Bash", command="false"), _read("toolu_c", "c"))
    recorder.record_reply(message("I look at them.", *calls), request_id="req_1")
    recorder.record_result(_content("toolu_c", "c", "1\tccc"))
    yes = decided("toolu_b", allowed=True)
    recorder.record_result(error("toolu_b", "Bash", "Exit code 1", decision=yes))
    recorder.record_result(_content("toolu_a", "a", "1\taaa"))
    recorder.record_reply(message("One of them failed.", id="msg_02"), request_id="req_2")


def hooks(recorder: Recorder) -> None:
    """Handlers before and after, words of theirs for the model, a note beside a result."""
    recorder.record_prompt("Run it")
    recorder.record_reply(message(use("toolu_a", "Bash", command="echo hi", description="x")))
    recorder.record_hook(hook("toolu_a", "PreToolUse", "success", text="fine", stdout="fine\n", exit_code=0))
    recorder.record_hook(hook("toolu_a", "PostToolUse", "blocked", text="do not say hi"))
    context = HookContext(point="PostToolUse", name="PostToolUse:Bash", text="it was Tuesday")
    output = {"stdout": "hi", "stderr": "", "interrupted": False, "isImage": False}
    recorder.record_result(
        finished(
            "toolu_a",
            "Bash",
            "hi",
            is_error=False,
            structured=output,
            decision=decided("toolu_a", allowed=True),
            contexts=(context,),
            companions=("[a note beside the result]",),
        )
    )
    recorder.record_reply(message("It says hi.", id="msg_02"))


def interrupted(recorder: Recorder) -> None:
    """A person stops the turn, and asks for something else."""
    recorder.record_prompt("Wait for it")
    recorder.record_reply(message(use("toolu_a", "Bash", command="sleep 9"), _read("toolu_b", "b")))
    for call_id, tool in (("toolu_a", "Bash"), ("toolu_b", "Read")):
        recorder.record_result(
            finished(
                call_id,
                tool,
                REJECTED,
                state="interrupted",
                is_error=True,
                structured="User rejected tool use",
                denial_kind="user-rejected",
            )
        )
    recorder.handle(Interruption())
    recorder.record_prompt("Something else then")
    recorder.record_reply(message("As you wish.", id="msg_02"))


def turns(recorder: Recorder) -> None:
    """Thinking, a dozen calls that end backwards, odd characters, a second turn."""
    recorder.record_prompt("Read \u2028 all of them \U0001f600")
    calls = [_read(f"toolu_{n}", f"f{n}") for n in range(12)]
    thought = {"type": "thinking", "thinking": "many files", "signature": "c2ln"}
    recorder.record_reply(message(thought, "All at once.", *calls))
    for n in reversed(range(12)):
        text = f"1\tfile {n} \0 \u0085 \ud83d end"
        recorder.record_result(_content(f"toolu_{n}", f"f{n}", text))
    recorder.record_reply(message("Read.", id="msg_02"))
    recorder.record_prompt("And again")
    recorder.record_reply(message(_read("toolu_z", "z"), id="msg_03"))
    recorder.record_result(error("toolu_z", "Read", "File does not exist."))
    recorder.record_reply(message("Gone.", id="msg_04"))


def unanswered(recorder: Recorder) -> None:
    """The session ends while a call runs, like one that is killed."""
    recorder.record_prompt("Do both")
    recorder.record_reply(message("Both.", _read("toolu_a", "a"), use("toolu_b", "Bash", command="x")))
    recorder.record_result(_content("toolu_a", "a", "1\taaa"))


def torn(recorder: Recorder) -> None:
    """The file ends within a line; a second recorder goes on with it."""
    parallel(recorder)
    recorder.close()
    with recorder.path.open("ab") as file:
        file.write(b'{"parentUuid":"torn')
    again = Recorder.resume(recorder.path, _origin(_version(recorder)), no_failure)
    again.record_prompt("Where were we?")
    again.record_reply(message("Here.", id="msg_03"))
    again.close()


def subagent(recorder: Recorder) -> None:
    """A call starts an agent, whose own session lies beside."""
    recorder.record_prompt("Let somebody look")
    asked = use("toolu_a", "Agent", description="look", prompt="Look at a", subagent_type="Explore")
    recorder.record_reply(message(asked))
    agent = recorder.subagent_recorder("a1b2c3d4e5f6a7b8c", {"agentType": "Explore", "toolUseId": "toolu_a"})
    agent.record_prompt("Look at a")
    agent.record_reply(message(_read("toolu_s", "a"), id="msg_s1"))
    agent.record_result(_content("toolu_s", "a", "1\taaa"))
    agent.record_reply(message("It says aaa.", id="msg_s2"))
    agent.close()
    text: list[dict[str, object]] = [{"type": "text", "text": "It says aaa."}]
    yes = decided("toolu_a", allowed=True)
    about = {
        "status": "completed",
        "prompt": "Look at a",
        "agentId": "a1b2c3d4e5f6a7b8c",
        "content": text,
        "totalDurationMs": 1200,
        "totalTokens": 40,
        "totalToolUseCount": 1,
    }
    recorder.record_result(finished("toolu_a", "Agent", text, structured=about, decision=yes))
    recorder.record_reply(message("They say aaa.", id="msg_02"))


def journaled(recorder: Recorder) -> None:
    """Intents are kept beside the transcript, and a call has not come to its end."""
    recorder.tools = Runner(coding_tools()).runner_context
    journal = recorder.open_intent_log()
    recorder.record_prompt("Do both")
    recorder.record_reply(message("Both.", _read("toolu_a", "a"), use("toolu_b", "Bash", command="x")))
    if journal is not None:
        journal.begin("toolu_b", "Bash")
    recorder.record_result(_content("toolu_a", "a", "1\taaa"))


def answered(recorder: Recorder) -> None:
    """A second recorder goes on with it: what is known of the open call is recorded first."""
    journaled(recorder)
    recorder.close()
    again = Recorder.resume(recorder.path, _origin(_version(recorder)), no_failure)
    again.set_resume_answers(load_history(recorder.path))
    again.record_prompt("Where were we?")
    again.record_reply(message("Here.", id="msg_02"))
    again.close()


def sandboxed(recorder: Recorder) -> None:
    """A command that ran in a sandbox, and one to which the sandbox refused a path."""
    recorder.record_prompt("Make the files")
    calls = (use("toolu_a", "Bash", command="touch a"), use("toolu_b", "Bash", command="touch /etc/b"))
    recorder.record_reply(message(*calls))
    output = {"stdout": "", "stderr": "", "interrupted": False, "isImage": False}
    freed = {name: structs.replace(decided(name, allowed=True), basis="sandbox") for name in ("toolu_a", "toolu_b")}
    made = finished("toolu_a", "Bash", "(no output)", structured=output, decision=freed["toolu_a"])
    text = "Exit code 1\ntouch: /etc/b: Read-only file system\nThe sandbox denied writing /etc/b."
    for result in (made, error("toolu_b", "Bash", text, decision=freed["toolu_b"])):
        recorder.record_result(structs.replace(result, beside={"sandboxed": True}))
    recorder.record_reply(message("One of them.", id="msg_02"))


STORIES: tuple[Callable[[Recorder], None], ...] = (
    parallel,
    hooks,
    interrupted,
    turns,
    unanswered,
    torn,
    subagent,
    journaled,
    answered,
    sandboxed,
)


def record(story: Callable[[Recorder], None], config: Path, version: str) -> Path:
    """The transcript of a story, below a client's folder."""
    path = transcript_path(SESSION, CWD, config)
    recorder = Recorder(path, _origin(version), no_failure)
    story(recorder)
    recorder.close()
    return path


def _origin(version: str) -> RecorderConfig:
    return RecorderConfig(profile=profile(version), session_id=SESSION, cwd=CWD, clock=Clock(START))


def _version(recorder: Recorder) -> str:
    return recorder.path.read_text(encoding="utf-8").partition('"version":"')[2].partition('"')[0]

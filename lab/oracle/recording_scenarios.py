"""Sessions written with our recorder, for the real client to resume."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from msgspec import structs
from tests.reading.repair.defects import CWD, parallel, read_call, read_result
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
from tests.session.role_models import Play, tools_of

from toolspan import Permissions, Session, testing
from toolspan.runtime.profiles import nearest_version, profile
from toolspan.session import Agent, AgentLimits, SpendingLimits
from toolspan.session.models.scripted import ScriptStep
from toolspan.session.recording import Interruption, Recorder, RecorderConfig, transcript_path
from toolspan.session.resume import load_history
from toolspan.session.subagents import Subagents
from toolspan.testing import say
from toolspan.types.events import HookContext

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file). STOP what you are doing and wait"
    " for the user to tell you how to proceed."
)


def hooks(recorder: Recorder) -> None:
    """Record hooks before and after a call, their context, and a note beside the result."""
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
    """Record an interrupted turn and another prompt."""
    recorder.record_prompt("Wait for it")
    recorder.record_reply(message(use("toolu_a", "Bash", command="sleep 9"), read_call("toolu_b", "b")))
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
    """Record thinking, twelve calls that finish in reverse, odd characters and a second turn."""
    recorder.record_prompt("Read \u2028 all of them \U0001f600")
    calls = [read_call(f"toolu_{n}", f"f{n}") for n in range(12)]
    thought = {"type": "thinking", "thinking": "many files", "signature": "c2ln"}
    recorder.record_reply(message(thought, "All at once.", *calls))
    for n in reversed(range(12)):
        text = f"1\tfile {n} \0 \u0085 \ud83d end"
        recorder.record_result(read_result(f"toolu_{n}", f"f{n}", text))
    recorder.record_reply(message("Read.", id="msg_02"))
    recorder.record_prompt("And again")
    recorder.record_reply(message(read_call("toolu_z", "z"), id="msg_03"))
    recorder.record_result(error("toolu_z", "Read", "File does not exist."))
    recorder.record_reply(message("Gone.", id="msg_04"))


def unanswered(recorder: Recorder) -> None:
    """End the record while a call runs, as when the process is killed."""
    recorder.record_prompt("Do both")
    recorder.record_reply(message("Both.", read_call("toolu_a", "a"), use("toolu_b", "Bash", command="x")))
    recorder.record_result(read_result("toolu_a", "a", "1\taaa"))


def torn(recorder: Recorder) -> None:
    """End the file within a line and continue it with a second recorder."""
    parallel(recorder)
    recorder.close()
    with recorder.path.open("ab") as file:
        file.write(b'{"parentUuid":"torn')
    second = Recorder.resume(recorder.path, _recorder_config(_version(recorder)), no_failure)
    second.record_prompt("Where were we?")
    second.record_reply(message("Here.", id="msg_03"))
    second.close()


def subagent(recorder: Recorder) -> None:
    """Record a call that starts a subagent with its own transcript."""
    recorder.record_prompt("Let somebody look")
    call = use("toolu_a", "Agent", description="look", prompt="Look at a", subagent_type="Explore")
    recorder.record_reply(message(call))
    agent = recorder.subagent_recorder("a1b2c3d4e5f6a7b8c", {"agentType": "Explore", "toolUseId": "toolu_a"})
    agent.record_prompt("Look at a")
    agent.record_reply(message(read_call("toolu_s", "a"), id="msg_s1"))
    agent.record_result(read_result("toolu_s", "a", "1\taaa"))
    agent.record_reply(message("It says aaa.", id="msg_s2"))
    agent.close()
    text: list[dict[str, object]] = [{"type": "text", "text": "It says aaa."}]
    allowed = decided("toolu_a", allowed=True)
    structured = {
        "status": "completed",
        "prompt": "Look at a",
        "agentId": "a1b2c3d4e5f6a7b8c",
        "content": text,
        "totalDurationMs": 1200,
        "totalTokens": 40,
        "totalToolUseCount": 1,
    }
    recorder.record_result(finished("toolu_a", "Agent", text, structured=structured, decision=allowed))
    recorder.record_reply(message("They say aaa.", id="msg_02"))


def with_intent_log(recorder: Recorder) -> None:
    """Write the intent log beside the transcript; one call does not finish."""
    intents = recorder.open_intent_log()
    recorder.record_prompt("Do both")
    recorder.record_reply(message("Both.", read_call("toolu_a", "a"), use("toolu_b", "Bash", command="x")))
    if intents is not None:
        intents.begin("toolu_b", "Bash")
    recorder.record_result(read_result("toolu_a", "a", "1\taaa"))


def answered(recorder: Recorder) -> None:
    """Continue with a second recorder, which first records a result for the open call."""
    with_intent_log(recorder)
    recorder.close()
    second = Recorder.resume(recorder.path, _recorder_config(_version(recorder)), no_failure)
    second.set_resume_answers(load_history(recorder.path))
    second.record_prompt("Where were we?")
    second.record_reply(message("Here.", id="msg_02"))
    second.close()


def sandboxed(recorder: Recorder) -> None:
    """Record a command that ran in a sandbox, and one to which the sandbox denied a path."""
    recorder.record_prompt("Make the files")
    calls = (use("toolu_a", "Bash", command="touch a"), use("toolu_b", "Bash", command="touch /etc/b"))
    recorder.record_reply(message(*calls))
    output = {"stdout": "", "stderr": "", "interrupted": False, "isImage": False}
    decisions = {name: structs.replace(decided(name, allowed=True), basis="sandbox") for name in ("toolu_a", "toolu_b")}
    succeeded = finished("toolu_a", "Bash", "(no output)", structured=output, decision=decisions["toolu_a"])
    text = "Exit code 1\ntouch: /etc/b: Read-only file system\nThe sandbox denied writing /etc/b."
    for result in (succeeded, error("toolu_b", "Bash", text, decision=decisions["toolu_b"])):
        recorder.record_result(structs.replace(result, beside={"sandboxed": True}))
    recorder.record_reply(message("One of them.", id="msg_02"))


def limited(recorder: Recorder) -> None:
    """Reach a limit within a batch of three calls."""
    commands = [use("toolu_" + name, "Bash", command=f"echo {name}") for name in "abc"]
    anyio.run(_run_agent, recorder, [commands], AgentLimits(turn=SpendingLimits(calls=2)), None)


def structured(recorder: Recorder) -> None:
    """End a turn with an answer that follows a schema, after one that does not."""
    schema: dict[str, object] = {
        "type": "object", "properties": {"version": {"type": "string"}}, "required": ["version"]
    }  # fmt: skip
    answers: list[ScriptStep] = [[testing.use("StructuredOutput", version=version)] for version in (3, "0.3")]
    anyio.run(_run_agent, recorder, answers, AgentLimits(), schema)


async def _run_agent(
    recorder: Recorder, script: Sequence[ScriptStep], limits: AgentLimits, schema: dict[str, object] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        permissions = Permissions(mode="bypassPermissions")
        session = Session(
            permissions=permissions, cwd=Path(folder), transcript=recorder, session_id=recorder.session_id
        )
        async with session:
            model = testing.ScriptedModel(script, then=say("Done."))
            await Agent(session, model, limits=limits).prompt("Go", output=schema)


SCENARIOS: tuple[Callable[[Recorder], None], ...] = (
    parallel,
    hooks,
    interrupted,
    turns,
    unanswered,
    torn,
    subagent,
    with_intent_log,
    answered,
    sandboxed,
    limited,
    structured,
)


def subagents_for(version: str) -> Callable[[Recorder], None]:
    """Return the scenario with subagents, which runs with the tools of a client version."""

    def subagents(recorder: Recorder) -> None:
        """Run two agents at once: one starts another, one runs in the background and reports."""
        with tempfile.TemporaryDirectory() as folder:
            anyio.run(_run_subagents, recorder, version, Path(folder))

    return subagents


async def _run_subagents(recorder: Recorder, version: str, folder: Path) -> None:
    client = profile(nearest_profile(version))

    def start(prompt: str, *, background: bool) -> dict[str, object]:
        return testing.use(
            client.agents.name, description=prompt, prompt=prompt, run_in_background=background,
            subagent_type="general-purpose",
        )  # fmt: skip

    play = Play(
        {
            "Main": [[start("Left", background=False), start("Right", background=True)], say("Both sent.")],
            "Left": [[testing.use("echo", text="l"), start("Deep", background=False)], say("Left is back.")],
            "Right": [[testing.use("echo", text="r")], say("Right is back.")],
        }
    )
    session = Session(
        permissions=Permissions.allow_all(),
        cwd=folder,
        tools=tools_of(client),
        profile=client,
        transcript=recorder,
        session_id=recorder.session_id,
    )
    agent = Agent(session, play.model)
    Subagents(agent)
    with anyio.fail_after(30):
        async with session:
            await agent.run_to_completion("Main")


def record(scenario: Callable[[Recorder], None], config: Path, version: str) -> Path:
    """Record a scenario below a client's configuration folder; return its transcript."""
    path = transcript_path(SESSION, CWD, config)
    recorder = Recorder(path, _recorder_config(version), no_failure)
    scenario(recorder)
    recorder.close()
    return path


def nearest_profile(version: str) -> str:
    """Return the profile that resembles a client version most."""
    nearest = nearest_version(version)
    assert nearest is not None, f"{version} is not a version"
    return nearest


def _recorder_config(version: str) -> RecorderConfig:
    return RecorderConfig(
        profile=profile(nearest_profile(version)),
        session_id=SESSION,
        cwd=CWD,
        clock=Clock(START),
        is_read_only=lambda name: name == "Read",
    )


def _version(recorder: Recorder) -> str:
    return recorder.path.read_text(encoding="utf-8").partition('"version":"')[2].partition('"')[0]

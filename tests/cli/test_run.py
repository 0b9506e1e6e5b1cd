"""`toolspan run`: an agent as a process, against servers that follow a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import toolspan
from tests.fork_server import TOOLSPAN, run_python, run_toolspan
from tests.requirement import requirement
from toolspan import testing
from toolspan.session.models.scripted import ScriptAnswer, ScriptStep
from toolspan.session.resume import load_history
from toolspan.testing import ModelServer, ScriptedModel, check_history, say, use

pytestmark = pytest.mark.usefixtures("fork_server")

COMMAND = ["run", "--setting-sources", ""]
ALLOWED = ("--permission-mode", "bypassPermissions")
KINDS = pytest.mark.parametrize("kind", ["anthropic", "openai"])
SOME_ID = "0d6a53bd-1ca5-4c06-9613-e4ac8c7310fe"
Completed = subprocess.CompletedProcess[str]
Row = dict[str, object]


def environment(folder: Path) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "OPENAI"))}
    return {**inherited, "HOME": str(folder / "home"), "CLAUDE_CONFIG_DIR": str(folder / "config")}


def run(folder: Path, *options: str, typed: str = "") -> Completed:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return run_toolspan(*COMMAND, *options, cwd=work, env=environment(folder), stdin=typed)


def start_run(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a run that prints its events."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*TOOLSPAN, *COMMAND, "-p", "Go.", "--output-format", "stream-json", *ALLOWED, *options],
        cwd=work,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def rows(result: Completed) -> list[Row]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def model(server: ModelServer, kind: str) -> tuple[str, ...]:
    pytest.importorskip(kind)
    url = server.url if kind == "anthropic" else f"{server.url}/v1"
    return ("--model", f"{kind}:m", "--base-url", url)


def run_with_server(
    folder: Path, kind: str, script: Sequence[ScriptStep], *options: str
) -> tuple[Completed, list[Row]]:
    """Run the prompt `Go.` against a served script, and return the lines of its stream."""
    scripted = ScriptedModel(script)
    with ModelServer(scripted) as server:
        output = ("-p", "Go.", "--output-format", "stream-json", *ALLOWED, *model(server, kind))
        result = run(folder, *output, *options)
    assert scripted.remaining_steps == 0, result.stderr
    return result, rows(result)


def transcript(folder: Path) -> Path:
    (result,) = (folder / "config").rglob("*.jsonl")
    return result


@KINDS
def test_a_model_behind_a_server_works_with_real_tools(tmp_path: Path, kind: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\n", encoding="utf-8")
    result, lines = run_with_server(
        tmp_path,
        kind,
        [
            [say("I look."), use("Read", file_path="a.txt"), use("Bash", command="echo hi")],
            [use("Edit", file_path="a.txt", old_string="one", new_string="two")],
            say("It is two now."),
        ],
    )

    assert result.returncode == 0
    assert [line for line in result.stderr.splitlines() if "a sandbox: " not in line] == []
    assert (work / "a.txt").read_text(encoding="utf-8") == "two\n"
    path = transcript(tmp_path)
    spans = toolspan.read(path).spans
    assert [(s.tool, s.state) for s in spans] == [("Read", "succeeded"), ("Bash", "succeeded"), ("Edit", "succeeded")]
    assert check_history(load_history(path)) == []
    assert lines[-1]["result"] == "It is two now."
    assert toolspan.read(path).tokens.output_tokens > 0


def test_stream_has_the_lines_of_the_client_and_can_be_read(tmp_path: Path) -> None:
    result, lines = run_with_server(
        tmp_path,
        "anthropic",
        [[say("I look."), use("Bash", command="echo hi"), use("Bash", command="exit 3")], say("Ok.")],
    )

    init, last = lines[0], lines[-1]
    assert (init["type"], init["subtype"]) == ("system", "init")
    assert {"Bash", "Read", "Edit", "Write"} <= set(init["tools"])  # type: ignore[call-overload]
    assert init["permissionMode"] == "bypassPermissions"
    kinds = [line["type"] for line in lines]
    assert kinds == ["system", *["assistant"] * 3, "user", "user", "assistant", "result"]
    assert len({line["session_id"] for line in lines}) == 1
    assert len({line["uuid"] for line in lines}) == len(lines)
    assert {key: last[key] for key in ("subtype", "is_error", "num_turns", "terminal_reason")} == {
        "subtype": "success",
        "is_error": False,
        "num_turns": 2,
        "terminal_reason": "completed",
    }
    stream = tmp_path / "stream.jsonl"
    stream.write_text(result.stdout, encoding="utf-8")
    spans = toolspan.read(stream).spans
    assert [(s.tool, s.state) for s in spans] == [("Bash", "succeeded"), ("Bash", "failed")]


def test_text_output_is_the_final_reply_and_json_one_object(tmp_path: Path) -> None:
    script = tmp_path / "s.json"
    script.write_text(json.dumps([[use("Bash", command="touch made")], [say("Completed.")]]))
    text = run(tmp_path, "-p", "Go.", "--model", f"scripted:{script}", *ALLOWED)
    output = run(tmp_path, "-p", "Go.", "--model", f"scripted:{script}", "--json")

    assert (text.returncode, text.stdout) == (0, "Completed.\n")
    (row,) = rows(output)
    assert row["result"] == "Completed."
    denials = row["permission_denials"]
    assert isinstance(denials, list)
    (denied,) = denials
    assert (denied["tool_name"], denied["tool_input"]) == ("Bash", {"command": "touch made"})
    usage = row["usage"]
    assert isinstance(usage, dict)
    assert usage["output_tokens"] > 0


def test_the_prompt_comes_from_the_command_line_or_from_standard_input(tmp_path: Path) -> None:
    for options, typed, text in (
        (("-p", "One."), "ignored", ["One."]),
        (("-p",), "Two.\n", ["Two."]),
        ((), "Three.", ["Three."]),
        (("-p", "Four:", "--stdin"), "data\n", ["Four:\n\ndata"]),
    ):
        script, path = tmp_path / "s.json", tmp_path / f"{text[0][:3]}.jsonl"
        script.write_text(json.dumps([[say("Ok.")]]))
        about = ("--model", f"scripted:{script}", "--transcript", str(path))
        result = run(tmp_path, *options, *about, typed=typed)
        assert result.returncode == 0, result.stderr
        assert [m.text for m in toolspan.read(path).messages() if m.voice == "prompt"] == text


@KINDS
def test_request_to_a_busy_or_broken_server_is_retried(tmp_path: Path, kind: str) -> None:
    result, lines = run_with_server(
        tmp_path,
        kind,
        [
            testing.fail(429, retry_after=0),
            testing.drop(say("I was about to")),
            [use("Bash", command="echo a")],
            testing.fail(529, retry_after=0),
            testing.drop(say("So"), use("Bash", command="echo b"), use("Bash", command="echo c")),
            say("Completed."),
        ],
    )

    assert result.returncode == 0, result.stderr
    assert lines[-1]["result"] == "Completed."
    assert [r["error_status"] for r in lines if r.get("subtype") == "api_retry"] == [429, None, 529]
    path = transcript(tmp_path)
    spans = toolspan.read(path).spans
    # Chat completions say that a call is complete only by the next one.
    commands = ["echo a", "echo b", "echo c"] if kind == "anthropic" else ["echo a", "echo b"]
    assert [s.call.target for s in spans] == commands
    assert {s.state for s in spans} == {"succeeded"}
    assert check_history(load_history(path)) == []


@KINDS
def test_invalid_calls_are_answered_and_the_turn_continues(tmp_path: Path, kind: str) -> None:
    result, _ = run_with_server(
        tmp_path,
        kind,
        [
            testing.cut(say("I write."), use("Write", file_path="cut.txt", content="long")),
            testing.garble(use("Bash", description="x", command="touch garbled")),
            [use("Bash", command="echo fine")],
            say("Completed."),
        ],
    )

    assert result.returncode == 0, result.stderr
    path = transcript(tmp_path)
    assert [s.state for s in toolspan.read(path).spans] == ["failed", "failed", "succeeded"]
    assert list((tmp_path / "work").iterdir()) == []
    assert check_history(load_history(path)) == []


def test_incomplete_turn_exits_with_1_and_the_reason(tmp_path: Path) -> None:
    for number, (script, options, reason, subtype) in enumerate(
        (
            ({"refuse": [say("No.")]}, (), "refusal", "error_during_execution"),
            ({"fail": {"status": 400}}, (), "model_error", "error_during_execution"),
            ({"cut": [say("A story")]}, (), "max_tokens", "error_during_execution"),
            (use("Bash", command="true"), ("--max-turns", "1"), "max_turns", "error_max_turns"),
            (use("Bash", command="true"), ("--max-calls", "1"), "max_calls", "error_max_calls"),
            (
                use("Bash", command="true"),
                ("--max-session-tokens", "1"),
                "max_budget_tokens",
                "error_max_budget_tokens",
            ),
        )
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps([script]))
        result = run(tmp_path, "-p", "Go.", "--json", "--model", f"scripted:{path}", *options)
        (last,) = rows(result)
        assert result.returncode == 1
        assert (last["terminal_reason"], last["subtype"]) == (reason, subtype)
        assert last["is_error"] is True
        assert last["errors"]


def test_run_prints_the_answer(tmp_path: Path) -> None:
    script, schema, broken = tmp_path / "script.json", tmp_path / "schema.json", tmp_path / "broken.json"
    script.write_text(json.dumps([use("StructuredOutput", price=3.5)]))
    schema.write_text(json.dumps({"type": "object", "properties": {"price": {"type": "number"}}}))
    broken.write_text('{"type": "town"}')
    model = ("-p", "How much?", "--model", f"scripted:{script}")

    text = run(tmp_path, *model, "--output-schema", str(schema))
    assert (text.returncode, json.loads(text.stdout)) == (0, {"price": 3.5})
    (row,) = rows(run(tmp_path, *model, "--output-schema", str(schema), "--output-format", "json"))
    assert row["structured_output"] == {"price": 3.5}
    refused = run(tmp_path, *model, "--output-schema", str(broken))
    assert refused.returncode == 2
    assert "not a valid JSON Schema" in refused.stderr


def test_instructions_of_a_folder_are_used_after_it_is_trusted(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([say("Hello.")]))
    prompt = ("-p", "Go.", "--model", f"scripted:{script}", "--setting-sources", "user,project,local")
    work = tmp_path / "work"
    work.mkdir()
    (work / "CLAUDE.md").write_text("Speak plainly. @more.md")
    (work / "more.md").write_text("And briefly.")

    def list_files() -> list[tuple[str, str]]:
        listed = run_toolspan("tools", "--instructions", "--json", cwd=work, env=env)
        return [(Path(str(row["path"])).name, str(row["used"])) for row in rows(listed)]

    env = {**environment(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert "CLAUDE.md (instructions)" in run_toolspan(*COMMAND, *prompt, cwd=work, env=env, stdin="").stderr
    assert list_files() == [("CLAUDE.md", "no")]
    trusted = run_toolspan("trust", "--yes", cwd=work, env=env)
    assert "CLAUDE.md: instructions for the model" in trusted.stdout
    assert "ignoring" not in run_toolspan(*COMMAND, *prompt, cwd=work, env=env, stdin="").stderr
    (work / "CLAUDE.md").write_text("Speak loudly. @more.md")
    assert list_files() == [("CLAUDE.md", "yes"), ("more.md", "yes")]


def test_budget_for_a_model_without_a_price_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([say("Hello.")]))
    result = run(tmp_path, "-p", "Go.", "--model", f"scripted:{script}", "--max-budget-usd", "1")
    assert result.returncode == 0
    assert "the price of claude-scripted is unknown" in result.stderr


def test_invalid_or_missing_option_is_reported_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("anthropic")
    pytest.importorskip("openai")
    script = tmp_path / "bad.json"
    script.write_text("{}")
    for options, arguments in (
        (("-p", "x"), "no model named"),
        (("-p", "x", "--model", "llama"), "unknown model"),
        (("-p", "x", "--model", "anthropic:m"), "ANTHROPIC_API_KEY"),
        (("-p", "x", "--model", "openai:m"), "OPENAI_API_KEY"),
        (("-p", "x", "--model", "scripted:none.json"), "No such file"),
        (("-p", "x", "--model", f"scripted:{script}"), "list of steps"),
        (("-p", "", "--model", f"scripted:{script}"), "prompt is empty"),
        (("-p", "x", "--model", "scripted:s", "--resume", "nope"), "no session"),
        (("-p", "x", "--model", "scripted:s", "--continue"), "no session"),
        (("-p", "x", "--model", "scripted:s", "--fork-session"), "--fork-session needs"),
        (("-p", "x", "--model", "scripted:s", "--session-id", "1"), "not a UUID"),
        (("-p", "x", "--model", "scripted:s", "-c", "--session-id", SOME_ID), "keeps its id"),
        (("-p", "x", "--model", "scripted:s", "-c", "--transcript", "t"), "record to the session's own file"),
    ):
        if "scripted:s" in options:
            (tmp_path / "work").mkdir(exist_ok=True)
            (tmp_path / "work" / "s").write_text("[]")
        result = run(tmp_path, *options)
        assert (result.returncode, result.stdout) == (2, ""), options
        assert arguments in result.stderr
        assert len(result.stderr.splitlines()) == 1


@KINDS
def test_missing_sdk_is_named(tmp_path: Path, kind: str) -> None:
    program = f"import sys; sys.modules[{kind!r}] = None; from toolspan.cli import main; main()"
    env = {**environment(tmp_path), "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    result = run_python("-c", program, "run", "-p", "x", "--model", f"{kind}:m", env=env)

    assert result.returncode == 2
    assert f"needs {kind}, which is not installed" in result.stderr
    assert f"[{kind}]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@KINDS
def test_session_continues_where_it_stopped(tmp_path: Path, kind: str) -> None:
    scripted = ScriptedModel(
        [
            [say("I look."), use("Bash", command="echo a"), use("Bash", command="echo b")],
            say("Seen."),
            say("Again."),
            say("And again."),
            say("In a copy."),
        ]
    )
    with ModelServer(scripted) as server:
        about = (*model(server, kind), *ALLOWED, "--json")
        (first,) = rows(run(tmp_path, "-p", "One.", *about))
        path = transcript(tmp_path)
        (second,) = rows(run(tmp_path, "-p", "Two.", "--continue", *about))
        (third,) = rows(run(tmp_path, "-p", "Three.", "--resume", path.stem[:8], *about))
        before = path.read_bytes()
        (copy,) = rows(run(tmp_path, "-p", "Four.", "-r", path.stem, "--fork-session", *about))

    assert first["session_id"] == second["session_id"] == third["session_id"] == path.stem
    assert copy["session_id"] != path.stem
    assert path.read_bytes() == before
    last = scripted.requests[-1]["messages"]
    assert isinstance(last, list)
    for text in ("One.", "I look.", "Seen.", "Two.", "Again.", "Three.", "Four."):
        assert text in str(last)
    prompts = [m.text for m in toolspan.read(path).messages() if m.voice == "prompt"]
    assert prompts == ["One.", "Two.", "Three."]
    copied = path.with_name(f"{copy['session_id']}.jsonl")
    assert [m.text for m in toolspan.read(copied).messages() if m.voice == "prompt"] == [
        "One.",
        "Two.",
        "Three.",
        "Four.",
    ]
    assert {span.branch for span in toolspan.read(copied).spans} == {"active"}
    assert check_history(load_history(copied)) == []


@KINDS
def test_ctrl_c_ends_the_turn_answers_the_calls_and_prints_the_result(tmp_path: Path, kind: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.mkfifo(work / "ready")
    waits = use("Bash", command="echo > ready; sleep 600")
    with ModelServer(ScriptedModel([[waits]])) as server:
        process = start_run(tmp_path, *model(server, kind))
        (work / "ready").read_text(encoding="utf-8")  # comes when the command runs
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()

    assert process.returncode == 130
    last = json.loads(out.splitlines()[-1])
    assert (last["subtype"], last["terminal_reason"]) == ("error_during_execution", "aborted_tools")
    path = transcript(tmp_path)
    assert [s.state for s in toolspan.read(path).spans] == ["interrupted"]
    assert check_history(load_history(path)) == []


def test_ctrl_c_ends_awaited_agents_and_prints_the_result_last(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    os.mkfifo(work / "ready")

    def reply(messages: Sequence[object]) -> ScriptAnswer:
        if "Below." in str(messages[0]):
            return use("Bash", command="echo > ready; sleep 600")
        if len(messages) == 1:
            return use("Agent", description="d", prompt="Below.", run_in_background=True)
        return say("Sent off.")

    with ModelServer(ScriptedModel([], then=reply)) as server:
        process = start_run(tmp_path, *model(server, "anthropic"))
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while '"Sent off."' not in lines[-1]:
            lines.append(process.stdout.readline())
        (work / "ready").read_text(encoding="utf-8")  # comes when the agent's command runs
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()

    assert process.returncode == 130
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["terminal_reason"]) == ("result", "aborted_streaming")
    assert last["result"] == "Sent off."
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["user", "result"]


def test_rules_hooks_and_tool_lists_apply_as_in_exec(tmp_path: Path) -> None:
    script = tmp_path / "s.json"
    steps = [[use("Bash", command="echo a"), use("Bash", command="echo b")], [say("Completed.")]]
    script.write_text(json.dumps(steps))
    result = run(
        tmp_path,
        *("-p", "Go.", "--model", f"scripted:{script}", "--output-format", "stream-json"),
        *("--allowed-tools", "Bash(echo a)", "--disallowed-tools", "Bash(echo b)"),
        *("--tools", "Bash,Read", "--transcript", "none"),
    )

    lines = rows(result)
    assert lines[0]["tools"] == ["Bash", "Read"]
    assert lines[0]["transcript"] is None
    denied = lines[-1]["permission_denials"]
    assert isinstance(denied, list)
    assert [denial["tool_input"]["command"] for denial in denied] == ["echo b"]
    assert not (tmp_path / "config").exists()


def test_named_transcript_is_continued_and_other_files_are_refused(tmp_path: Path) -> None:
    script, notes = tmp_path / "s.json", tmp_path / "notes.md"
    script.write_text(json.dumps([[say("Seen.")]]))
    notes.write_text("milk\n", encoding="utf-8")
    about = ("--model", f"scripted:{script}", "--json", "--transcript")
    (first,) = rows(run(tmp_path, "-p", "One.", *about, "t.jsonl"))
    (second,) = rows(run(tmp_path, "-p", "Two.", *about, "t.jsonl"))
    refused = run(tmp_path, "-p", "Three.", *about, str(notes))

    assert first["session_id"] == second["session_id"]
    result = toolspan.read(tmp_path / "work" / "t.jsonl")
    assert [m.text for m in result.messages() if m.voice == "prompt"] == ["One.", "Two."]
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "not a transcript" in refused.stderr
    assert notes.read_text(encoding="utf-8") == "milk\n"


def test_system_prompt_can_be_replaced_and_extended(tmp_path: Path) -> None:
    for options, expected in (
        (("--system-prompt", "Be a duck."), "Be a duck."),
        (("--append-system-prompt", "Quack."), "Quack."),
    ):
        scripted = ScriptedModel([say("Ok.")])
        with ModelServer(scripted) as server:
            run(tmp_path, "-p", "x", *options, *model(server, "anthropic"))
        assert expected in str(scripted.requests[0]["system"])
        is_default = "Working folder" in str(scripted.requests[0]["system"])
        assert is_default == ("--system-prompt" not in options)


def test_closed_output_pipe_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "s.json"
    script.write_text(json.dumps([[use("Bash", command="true")]] * 3 + [[say("x")]]))
    process = start_run(tmp_path, "--model", f"scripted:{script}")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


@requirement("hooks.async-rewake")
def test_run_waits_for_a_hook_that_may_wake_the_model(tmp_path: Path) -> None:
    waits = "until [ -e go ]; do sleep 0.02; done; echo the build broke >&2; exit 2"
    waker = {"hooks": [{"type": "command", "command": waits, "asyncRewake": True}]}
    stop = {"hooks": [{"type": "command", "command": "touch go"}]}
    settings = tmp_path / "settings.json"
    hooks = {"PostToolUse": [waker], "Stop": [stop]}
    settings.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")
    script = [[use("Bash", command="true")], say("Completed."), say("I mend it.")]
    (tmp_path / "script.json").write_text(json.dumps(script), encoding="utf-8")
    result = run(
        tmp_path,
        *("-p", "Go.", *ALLOWED, "--settings", str(settings)),
        *("--model", f"scripted:{tmp_path / 'script.json'}"),
    )

    assert (result.returncode, result.stdout) == (0, "I mend it.\n")

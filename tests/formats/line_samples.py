"""Invented sessions of clients that write lines: a prompt, and calls that succeeded, failed and were refused."""

from __future__ import annotations

import json
from typing import Any

SESSION = "1a2b3c4d-0000-4000-8000-00000000abcd"
Fields = dict[str, Any]
_START_MS = 1_795_003_757_000


def ms(second: float) -> int:
    """Return a time in milliseconds."""
    return _START_MS + round(second * 1000)


def stamp(second: float) -> str:
    """Return the same time as text."""
    return f"2026-11-18T12:09:{17 + second:06.3f}Z"


def lines(records: list[Fields]) -> bytes:
    """Return records as lines."""
    return b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)


def pi(messages: list[Fields] | None = None) -> bytes:
    """Return a session of Pi."""

    def result(call: str, tool: str, text: str, second: float, *, is_error: bool = False) -> Fields:
        content = [{"type": "text", "text": text}]
        return {"role": "toolResult", "toolCallId": call, "toolName": tool, "content": content, "details": {},
                "isError": is_error, "timestamp": ms(second)}  # fmt: skip

    def reply(*content: Fields) -> Fields:
        usage = {"input": 60, "output": 20, "cacheRead": 40, "cacheWrite": 0, "totalTokens": 120,
                 "cost": {"total": 0.25}}  # fmt: skip
        return {"role": "assistant", "content": list(content), "usage": usage, "stopReason": "toolUse", "model": "m1"}

    def call(name: str, tool: str, arguments: Fields) -> Fields:
        return {"type": "toolCall", "id": name, "name": tool, "arguments": arguments}

    edit = {"path": "a.py", "edits": [{"oldText": "x", "newText": "y"}]}
    sample = [
        {"role": "user", "content": [{"type": "text", "text": "Fix the tëst."}], "timestamp": ms(0)},
        reply(
            {"type": "text", "text": "I look."},
            call("call_1", "read", {"path": "a.py"}),
            call("call_2", "bash", {"command": "make test"}),
        ),
        result("call_1", "read", "print(1)\n", 1),
        result("call_2", "bash", "bad\n\n\nCommand exited with code 2", 2, is_error=True),
        reply(call("call_3", "edit", edit), call("call_4", "bash", {"command": "rm -rf /"})),
        result("call_3", "edit", "Successfully replaced 1 block(s) in a.py.", 3),
        result("call_4", "bash", "refused by an extension", 3, is_error=True),
        reply(call("call_5", "bash", {"command": "sleep 60"})),
    ]
    records: list[Fields] = [
        {"type": "session", "version": 3, "id": SESSION, "timestamp": stamp(0), "cwd": "/w"},
        {"type": "model_change", "id": "00000000", "parentId": None, "timestamp": stamp(0), "modelId": "m1"},
    ]
    for n, message in enumerate(sample if messages is None else messages, start=1):
        records.append({"type": "message", "id": f"{n:08}", "parentId": f"{n - 1:08}", "timestamp": stamp(n),
                        "message": message})  # fmt: skip
    return lines(records)


def qwen() -> bytes:
    """Return a chat of Qwen Code."""
    records: list[Fields] = []

    def add(kind: str, **fields: object) -> None:
        number = len(records)
        parent = f"{number - 1:08}" if number else None
        ids = {"uuid": f"{number:08}", "parentUuid": parent, "sessionId": SESSION, "timestamp": stamp(number)}
        records.append(ids | {"type": kind, "cwd": "/w", "version": "0.24.4"} | fields)

    def reply(*calls: tuple[str, str, Fields]) -> None:
        parts: list[Fields] = [{"text": "I look."}]
        parts += [{"functionCall": {"id": name, "name": tool, "args": args}} for name, tool, args in calls]
        usage = {"promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 20}
        add("assistant", provenance="assistant_output", model="m1", message={"role": "model", "parts": parts},
            usageMetadata=usage)  # fmt: skip

    def result(name: str, tool: str, response: Fields, **outcome: object) -> None:
        part = {"functionResponse": {"id": name, "name": tool, "response": response}}
        add("tool_result", provenance="tool_result", message={"role": "user", "parts": [part]},
            toolCallResult={"callId": name} | outcome)  # fmt: skip

    add("user", provenance="real_user", message={"role": "user", "parts": [{"text": "Fix the tëst."}]})
    reply(("call_1", "read_file", {"file_path": "/w/a.py"}), ("call_2", "run_shell_command", {"command": "make test"}))
    event = {"event.name": "qwen-code.tool_call", "event.timestamp": stamp(2.5), "call_id": "call_1",
             "duration_ms": 500, "status": "success"}  # fmt: skip
    add("system", provenance="system", subtype="ui_telemetry", systemPayload={"uiEvent": event})
    result("call_1", "read_file", {"output": "print(1)\n"}, status="success", executionStatus="success")
    shell = {"type": "shell_result", "exitCode": 2, "outcome": "failed", "output": "bad"}
    result("call_2", "run_shell_command", {"error": "Output: bad\nExit Code: 2"}, status="error",
           executionStatus="error", errorType="shell_execute_error", resultDisplay=shell)  # fmt: skip
    reply(("call_3", "run_shell_command", {"command": "rm -rf /"}), ("call_4", "edit", {"file_path": "/w/a.py"}))
    result("call_3", "run_shell_command", {"error": "Denied. Matching deny rule: \"Bash(rm *)\"."}, status="error",
           executionStatus="not_started", errorType="execution_denied")  # fmt: skip
    reply(("call_5", "run_shell_command", {"command": "sleep 60"}))
    return lines(records)


def kimi() -> bytes:
    """Return a journal of Kimi Code."""
    records: list[Fields] = [{"type": "metadata", "protocol_version": "1.5", "created_at": ms(0)}]

    def add(record_type: str, second: float, **fields: object) -> None:
        records.append({"type": record_type, "agentId": "main"} | fields | {"time": ms(second)})

    def loop(second: float, **event: object) -> None:
        add("context.append_loop_event", second, event=event)

    def call(name: str, tool: str, args: Fields, second: float) -> None:
        loop(second, type="tool.call", uuid=f"u-{name}", stepUuid=f"step-{second}", toolCallId=name, name=tool,
             args=args)  # fmt: skip

    def result(name: str, second: float, **values: object) -> None:
        loop(second, type="tool.result", parentUuid=f"u-{name}", toolCallId=name, result=values)

    add("profile.bind", 0, modelAlias="x/m1", environmentDisclosure={"cwd": "/w"})
    add("turn.prompt", 0, input=[{"type": "text", "text": "Fix the tëst."}], origin={"kind": "user"}, promptId="p1")
    loop(1, type="content.part", part={"type": "text", "text": "I look."})
    usage = {"inputOther": 60, "output": 20, "inputCacheRead": 40, "inputCacheCreation": 0}
    add("usage.record", 1, model="x/m1", usage=usage)
    call("Read_0", "Read", {"path": "/w/a.py"}, 1)
    call("Bash_1", "Bash", {"command": "make test"}, 1)
    result("Read_0", 2, output="1\tprint(1)", durationMs=9)
    result("Bash_1", 3, output="bad\nCommand failed with exit code: 2.", isError=True, durationMs=900)
    add("interaction.request", 4, kind="approval", toolCallId="Bash_2")
    add("permission.record_approval_result", 6, toolCallId="Bash_2", result={"decision": "rejected"})
    call("Bash_2", "Bash", {"command": "rm -rf /"}, 6)
    result("Bash_2", 6, output='Tool "Bash" was not run because the user rejected the approval request.', isError=True)
    call("Bash_3", "Bash", {"command": "sleep 60"}, 7)
    return lines(records)


def older_kimi() -> bytes:
    """Return a journal of the client before Kimi Code."""
    records: list[Fields] = [{"type": "metadata", "protocol_version": "1.1"}]

    def add(kind: str, second: float, **payload: object) -> None:
        records.append({"timestamp": ms(second) / 1000, "message": {"type": kind, "payload": payload}})

    def call(name: str, tool: str, arguments: Fields, second: float) -> None:
        add("ToolCall", second, type="function", id=name, function={"name": tool, "arguments": json.dumps(arguments)})

    add("TurnBegin", 0, user_input="Fix the tëst.")
    add("StepBegin", 1, n=1)
    add("ContentPart", 1, type="text", text="I look.")
    call("ReadFile_0", "ReadFile", {"path": "/w/a.py"}, 1)
    call("Shell_1", "Shell", {"command": "make test"}, 1)
    usage = {"input_other": 60, "output": 20, "input_cache_read": 40, "input_cache_creation": 0}
    add("StatusUpdate", 1, token_usage=usage, message_id="m1")
    add("ToolResult", 2, tool_call_id="ReadFile_0", return_value={"is_error": False, "output": "print(1)"})
    failure = {"is_error": True, "output": "bad", "message": "Command failed with exit code: 2."}
    add("ToolResult", 3, tool_call_id="Shell_1", return_value=failure)
    add("StepBegin", 4, n=2)
    call("Shell_2", "Shell", {"command": "sleep 60"}, 4)
    add("StepInterrupted", 5)
    return lines(records)


def copilot() -> bytes:
    """Return a session of Copilot CLI."""
    records: list[Fields] = []

    def add(kind: str, second: float, agent: str | None = None, **data: object) -> None:
        ids = {"id": f"{len(records):08}", "timestamp": stamp(second), "parentId": f"{len(records) - 1:08}"}
        records.append({"type": kind, "data": data} | ids | ({"agentId": agent} if agent else {}))

    def call(second: float, *requests: tuple[str, str, Fields], agent: str | None = None, **data: object) -> None:
        asked = [{"toolCallId": name, "name": tool, "arguments": args} for name, tool, args in requests]
        add("assistant.message", second, agent, messageId=f"m{second}", content="I look.", toolRequests=asked, **data)
        for name, tool, args in requests:
            add("tool.execution_start", second, agent, toolCallId=name, toolName=tool, arguments=args, **data)

    def result(name: str, second: float, text: str, code: int | None = None, **data: Any) -> None:
        shell: Fields = {} if code is None else {"shellExecution": {"exitCode": code}}
        add("tool.execution_complete", second, toolCallId=name, success=True, result={"content": text}, **shell, **data)

    add("session.start", 0, sessionId=SESSION, producer="copilot-agent", copilotVersion="1.0.102",
        startTime=stamp(0), context={"cwd": "/w"})  # fmt: skip
    add("user.message", 0, content="Fix the tëst.", messageId="p1")
    usage = {"model": "m1", "inputTokens": 100, "cacheReadTokens": 40, "outputTokens": 20, "apiCallId": "r1"}
    add("session.usage_record", 1, usage=usage)
    call(1, ("call_1", "view", {"path": "/w/a.py"}), ("call_2", "bash", {"command": "make test"}))
    result("call_1", 2, "print(1)\n")
    result("call_2", 3, "bad\n<shellId: 0 completed with exit code 2>", 2)
    call(4, ("call_3", "bash", {"command": "rm -rf /"}))
    error = {"message": "Permission to run this tool was denied due to the following rules: `shell(rm:*)`"}
    add("tool.execution_complete", 4, toolCallId="call_3", success=False, error=error | {"code": "denied"})
    call(5, ("call_4", "task", {"prompt": "dig", "agent_type": "general"}))
    call(6, ("call_5", "bash", {"command": "ls"}), agent="a1", parentToolCallId="call_4")
    result("call_5", 7, "x\n<shellId: 1 completed with exit code 0>", 0, parentToolCallId="call_4")
    result("call_4", 8, "found")
    call(9, ("call_6", "bash", {"command": "sleep 60"}))
    return lines(records)


def cursor() -> bytes:
    """Return a transcript of Cursor CLI."""

    def message(role: str, *blocks: Fields) -> Fields:
        return {"role": role, "message": {"content": list(blocks)}}

    def call(name: str, tool_input: Fields, **fields: object) -> Fields:
        return {"type": "tool_use", "name": name, "input": tool_input} | fields

    return lines([
        message("user", {"type": "text", "text": "<user_query>\nFix the tëst.\n</user_query>"}),
        message("assistant", {"type": "text", "text": "I look."}, call("Read", {"path": "/w/a.py"})),
        message("assistant", call("Shell", {"command": "make test"}), call("Grep", {"pattern": "x"})),
        message("user", {"type": "tool_result", "content": "No such tool available", "is_error": True}),
        message("assistant", call("Shell", {"command": "sleep 60"})),
    ])  # fmt: skip

"""Fuzz the reader with coverage feedback: `make fuzz`, with FUZZ_SECONDS for longer.

Begins with small transcripts and changes them by lines, by words and by bytes. Whatever `visit`
raises is a bug. The bytes that made it are left in the corpus folder, in a file named crash-...,
and tried again first next time.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["toolspan", "tests"]):
    from tests.fuzz.traversal import visit

SEEDS = (
    b'{"type":"user","uuid":"u0","message":{"content":"Go on."}}\n'
    b'{"type":"assistant","uuid":"u1","parentUuid":"u0","sessionId":"s","version":"2.1.325",'
    b'"timestamp":"2026-01-05T10:00:00.000Z","message":{"id":"m1","model":"claude-x","content":'
    b'[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}},{"type":"tool_use",'
    b'"id":"t2","name":"Read","input":{"file_path":"/w/a"}}],"usage":{"input_tokens":1}}}\n'
    b'{"type":"user","uuid":"u2","parentUuid":"u1","timestamp":"2026-01-05T10:00:01.000Z",'
    b'"toolUseResult":{"stdout":"ok","interrupted":false,"durationMs":1.5},"message":{"content":'
    b'[{"type":"tool_result","tool_use_id":"t1","content":"ok","is_error":false}]}}\n'
    b'{"type":"user","uuid":"u3","parentUuid":"u2","toolUseResult":"Error: no","message":'
    b'{"content":[{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":'
    b'"<tool_use_error>File does not exist.</tool_use_error>"}],"is_error":true}]}}\n',
    b'{"type":"assistant","session_id":"s","message":{"content":[{"type":"tool_use","id":"t1",'
    b'"name":"Task","input":{"prompt":"look"}}]}}\n{"type":"progress","parentToolUseID":"t1",'
    b'"data":{"type":"agent_progress","agentId":"a1"}}\n{"type":"user","session_id":"s",'
    b'"tool_use_result":{"status":"async_launched","agentId":"a1"},"message":{"content":[{"type":'
    b'"tool_result","tool_use_id":"t1","content":"done\\nagentId: a1"}]}}\n{"type":"result",'
    b'"permission_denials":[{"tool_use_id":"t1"}],"deferred_tool_use":{"id":"t1"}}\n',
    b'{"type":"attachment","attachment":{"type":"hook_blocking_error","hookEvent":"PreToolUse",'
    b'"toolUseID":"t1","blockingError":"no"}}\n{"type":"system","subtype":"compact_boundary",'
    b'"uuid":"u4","logicalParentUuid":"u1"}\n{"type":"summary","summary":"A title"}\n'
    b'{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"'
    b'}]}}\n{"type":"user","origin":{"kind":"task-notification"},"message":{"content":'
    b'"<task-notification><task-id>b1</task-id><tool-use-id>t1</tool-use-id></task-notification>"'
    b"}}\n",
)
WORDS = (
    *(b"null", b"true", b"0", b"1e400", b"NaN", b"[]", b"{}", b'""', b'"\\ud83d"', b"[[[[", b"\0"),
    *(b"\xff", b"\t", b"}{", b'"t1"', b'"byte-0"', b'"content":', b'"input":', b'"message":', b"\n"),
    *(b"1e9999999999999999999", b"Exit code 1", b"saved to: /w/x", b"<persisted-output>", b"\r"),
)
MOST = 1 << 14


def test_one_input(data: bytes) -> None:
    visit(data)


def change(data: bytes, max_size: int, seed: int) -> bytes:
    chance = random.Random(seed)
    ways: tuple[Callable[[bytes, random.Random], bytes], ...] = (by_lines, by_word, by_value)
    n = chance.randrange(2 * len(ways))
    changed: bytes = ways[n](data, chance) if n < len(ways) else atheris.Mutate(data, max_size)
    return changed[:max_size]


def by_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    pool = lines + [line for seed in SEEDS for line in seed.splitlines(keepends=True)]
    lines.insert(chance.randint(0, len(lines)), chance.choice(pool))
    if chance.random() < 0.5:
        del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def by_word(data: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(WORDS) + data[at + chance.choice((0, 0, 1, 8)) :]


def by_value(data: bytes, chance: random.Random) -> bytes:
    colons = [n for n, byte in enumerate(data) if byte == 0x3A]
    if not colons:
        return by_word(data, chance)
    start = chance.choice(colons) + 1
    end = min((n for mark in b",}]" if (n := data.find(mark, start)) >= 0), default=start)
    return data[:start] + chance.choice(WORDS) + data[end:]


def plant(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for n, seed in enumerate(SEEDS):
        (folder / f"seed-{n}").write_bytes(seed)


def main(arguments: list[str]) -> None:
    """Fuzz until the time is over or something raises."""
    options = [argument for argument in arguments if argument.startswith("-")]
    folders = [argument for argument in arguments if not argument.startswith("-")]
    if not any(option.startswith("-max_total_time=") for option in options):
        options.append(f"-max_total_time={os.environ.get('FUZZ_SECONDS', '60')}")
    if folders:
        plant(Path(folders[0]))
        options.insert(0, f"-artifact_prefix={folders[0]}/")
    atheris.Setup([sys.argv[0], f"-max_len={MOST}", *options, *folders], test_one_input, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])

"""`toolspan risky`: command lines that remove, overwrite or upload something, or use credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import rows, run
from toolspan import Archive
from toolspan.archive.risky import RiskyCommand
from toolspan.testing import TranscriptBuilder, claude_results, codex_builder
from toolspan.testing.codex_builder import RolloutBuilder

RISKY = {
    "rm -rf build": "removal",
    "cd a && rm -r b": "removal",
    "find . -name '*.pyc' | xargs rm -rf": "removal",
    "find . -name '*.log' -exec rm -r {} +": "removal",
    "rm ~/notes.txt": "removal",
    "find . -name x -delete": "removal",
    "git -C sub reset --hard HEAD~1": "removal",
    "git clean -fdx": "removal",
    "git checkout -- .": "removal",
    "sudo docker volume rm data": "removal",
    "terraform destroy": "removal",
    "git push --force origin main": "force_push",
    "git push -uf origin main": "force_push",
    "git push origin +main": "force_push",
    "git push origin :old": "force_push",
    "curl -X POST https://example.org -d @dump.sql": "upload",
    "curl --upload-file a.tgz https://example.org": "upload",
    "scp a.tgz host:/srv": "upload",
    "aws s3 cp a.tgz s3://bucket/": "upload",
    "npm publish": "upload",
    "cat .env": "credentials",
    "bash -lc 'set -a; source ../app/.env; make'": "credentials",
    "grep KEY .env.local": "credentials",
    "cp ~/.ssh/id_ed25519 /tmp/k": "credentials",
    "gh auth token": "credentials",
    "API_KEY=abc123 make test": "credentials",
    "curl -H 'Authorization: Bearer abcdef0123456789' https://example.org": "credentials",
    "kubectl --context prod get pods": "production",
    "ssh deploy@production-1.example.org uptime": "production",
}
HARMLESS = (
    "rm build/a.o",
    "rm /tmp/x.log",
    "echo 'rm -rf /'",
    "git commit -m 'git push --force is forbidden'",
    "git push -u origin fix-reset",
    "git checkout main",
    "git branch -d merged",
    "curl -s https://example.org",
    "cat .env.example",
    "test -f .env",
    "grep -rn production src",
    "NODE_ENV=production npm run build",
    "API_KEY=$KEY make test",
    "env FOO=1 make",
    "ls -la ~/.ssh",
    "rsync -a src/ backup/",
)


def find_risky(root: Path, *commands: str) -> list[RiskyCommand]:
    builder = TranscriptBuilder(session_id="s").prompt("Clean up and release")
    for line in commands:
        builder.result(builder.call("Bash", {"command": line}), claude_results.ran("ok"))
    return [*Archive(builder.write(root / "s.jsonl")).risky()]


@pytest.mark.parametrize(("line", "risk"), RISKY.items(), ids=str)
def test_risky_program_in_a_command_line_is_listed(line: str, risk: str, tmp_path: Path) -> None:
    found = find_risky(tmp_path, line)

    assert [row.risk for row in found] == [risk]
    assert (found[0].command, found[0].prompt, found[0].ran) == (line, "Clean up and release", True)


def test_harmless_commands_are_not_listed(tmp_path: Path) -> None:
    assert [row.command for row in find_risky(tmp_path, *HARMLESS)] == []


def test_line_with_several_risks_has_a_row_for_each(tmp_path: Path) -> None:
    found = find_risky(tmp_path, "rm -rf dist && npm publish && git push -f")

    assert [(row.risk, row.part) for row in found] == [
        ("force_push", "git push -f"), ("removal", "rm -rf dist"), ("upload", "npm publish"),
    ]  # fmt: skip
    last = run("risky", tmp_path, "--limit", "1").stdout
    assert "3 risky commands (1 force_push, 1 removal, 1 upload), the last 1 shown" in last


def test_denied_command_did_not_run_and_long_lines_are_read_whole(tmp_path: Path) -> None:
    builder = TranscriptBuilder(session_id="s").prompt("Release it")
    long = f"{'true && ' * 40}git push --force"
    builder.result(builder.call("Bash", {"command": long}), claude_results.rejected("not now"))
    file = builder.write(tmp_path / "s.jsonl")

    (row,) = rows(run("risky", file, "--json"))
    assert (row["risk"], row["state"], row["ran"], row["command"]) == ("force_push", "denied", False, long)
    output = run("risky", file).stdout
    assert "1 risky command (1 force_push); 1 did not run" in output
    assert "asked: Release it" in output


def test_kinds_and_filters_choose_rows(tmp_path: Path) -> None:
    rollout = RolloutBuilder().prompt("Tidy")
    for line in ("rm -rf a", "cat .env"):
        rollout.output(rollout.call("exec_command", {"cmd": line}), codex_builder.command_output("ok"))
    file = rollout.write(tmp_path)

    assert [row["part"] for row in rows(run("risky", file, "--risk", "credentials", "--json"))] == ["cat .env"]
    assert rows(run("risky", file, "--client", "claude", "--json")) == []
    assert "did you mean upload?" in run("risky", file, "--risk", "uploads", code=2).stderr

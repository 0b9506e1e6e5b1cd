"""A command or name whose extra is not installed says so, with the command that installs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = {"httpx2", "jsonschema", "markdownify", "mcp", "PIL", "pydantic", "pydantic_core", "pypdf", "yaml"}
OTHERS = {
    "acp", "adlfs", "anthropic", "boto3", "fsspec", "google", "langchain_core", "openai", "opentelemetry", "psycopg",
    "pydantic_ai", "ray",
}  # fmt: skip
"""A package of each other extra, but for `tables`."""
BLOCK = """
import sys
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without(names: set[str], code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(names=names) + code], capture_output=True, text=True, check=False
    )


def test_command_without_its_extra_names_the_command_that_installs_it() -> None:
    completed = run_without(RUN, "from toolspan.cli import main; sys.argv = ['toolspan', 'exec']; main()")
    assert completed.returncode == 2
    assert "toolspan exec needs httpx2, which is not installed: run " in completed.stderr
    assert "[run]'" in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_public_name_without_its_extra_raises_one_sentence() -> None:
    completed = run_without(
        RUN,
        """
import toolspan
try:
    toolspan.Session
except toolspan.ToolspanError as error:
    assert isinstance(error, ImportError)
    print(error)
""",
    )
    assert completed.stdout.startswith("toolspan.Session needs httpx2, which is not installed: run ")


def test_error_in_a_package_that_is_no_extra_is_not_hidden() -> None:
    completed = run_without({"msgspec"}, "import toolspan; toolspan.Archive")
    assert completed.stderr.rstrip().endswith("ModuleNotFoundError: No module named 'msgspec'")


@pytest.mark.parametrize("command", ["errors", "usage", "calls", "show --last", "doctor", "search x", "sessions"])
def test_reading_needs_no_extra(command: str) -> None:
    code = f"""
from pathlib import Path
from toolspan import sample
from toolspan.cli import main
sys.argv = ["toolspan", *{command.split()!r}, str(sample.archive())]
main()
"""
    completed = run_without(RUN | {"pyarrow", "duckdb"}, code)
    assert completed.returncode in (0, 1), completed.stderr


@pytest.mark.parametrize("arguments", [["acp"], ["demo"], ["mcp"], ["replay"], ["run", "-p", "hi"]])
def test_every_command_that_runs_tools_names_itself_and_its_extra(arguments: list[str]) -> None:
    completed = run_without(RUN, f"from toolspan.cli import main; sys.argv = ['toolspan', *{arguments!r}]; main()")
    assert completed.returncode == 2
    assert completed.stderr.startswith(f"toolspan: toolspan {arguments[0]} needs httpx2, which is not installed: run ")
    assert f"[{'acp' if arguments[0] == 'acp' else 'run'}]'" in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_command_that_needs_an_extra_for_one_input_names_the_command_that_installs_it(tmp_path: Path) -> None:
    arguments = ["policy", "check", "--tool", "WebFetch", "--input", '{"url": "https://example.org", "prompt": "x"}']
    code = f"from toolspan.cli import main; sys.argv = ['toolspan', *{arguments!r}, '--cwd', {str(tmp_path)!r}]; main()"
    completed = run_without(RUN, code)
    assert completed.returncode == 2
    assert completed.stderr.startswith("toolspan: toolspan policy needs pydantic_core, which is not installed: run ")
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "subject"),
    [
        ("from toolspan.testing import ScriptedModel", "toolspan.testing.ScriptedModel"),
        ("from toolspan import tool\n@tool\ndef add(a: int) -> int: ...", "@tool"),
    ],
)
def test_program_without_its_extra_ends_with_one_sentence(code: str, subject: str) -> None:
    last_line = run_without(RUN, code).stderr.rstrip().rpartition("\n")[2]
    assert last_line.startswith(f"toolspan.errors.MissingExtra: {subject} needs ")
    assert "[run]'" in last_line


@pytest.mark.parametrize(
    ("origin", "installer", "prefix", "command"),
    [
        (None, "pip", "/venv", "pip install 'toolspan[run]'"),
        ({"url": "file:///a%20b/toolspan", "dir_info": {}}, "pip", "/venv", "pip install '/a b/toolspan[run]'"),
        (
            {"url": "file:///src", "dir_info": {"editable": True}}, "uv", "/venv", "uv pip install -e '/src[run]'",
        ),
        (
            {"url": "file:///src", "dir_info": {}}, "pip", "/home/u/.local/pipx/venvs/toolspan",
            "pipx install --force '/src[run,tables]'",
        ),
        (
            {"url": "file:///d/toolspan-0.2.0-py3-none-any.whl", "archive_info": {}}, "uv",
            "/home/u/.local/share/uv/tools/toolspan",
            "uv tool install 'toolspan[run,tables] @ file:///d/toolspan-0.2.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://git.example/t", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}}, "pip", "/venv",
            "pip install 'toolspan[run] @ git+https://git.example/t@1a2b'",
        ),
    ],
)  # fmt: skip
def test_an_extra_is_installed_as_toolspan_was(
    origin: dict[str, object] | None, installer: str, prefix: str, command: str, tmp_path: Path
) -> None:
    info = tmp_path / "toolspan-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolspan\nVersion: 0.2.0\n")
    (info / "INSTALLER").write_text(f"{installer}\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    code = f"sys.path.insert(0, {str(tmp_path)!r}); sys.prefix = {prefix!r}\nimport toolspan; toolspan.Session"
    assert run_without(RUN | OTHERS, code).stderr.rstrip().endswith(f": run {command}")

"""The story that `toolspan demo` plays: a small project with a bug, and a model that mends it.

The model follows a script; everything else is real: the files, the commands, the rules, the hook,
the transcript.
"""

from collections.abc import Callable
from pathlib import Path

from toolspan.hooks.callbacks import Hooks
from toolspan.llm.script import say, use
from toolspan.llm.scripted import ScriptedModel
from toolspan.model.decision import Allow, Deny
from toolspan.model.live import LiveEvent
from toolspan.model.span import Call
from toolspan.permission import Rules
from toolspan.session import Session

PROMPT = "The test fails. Mend it, then clean up and push."

_FILES = {
    "greet.py": 'def greet(name: str) -> str:\n    return f"Helo, {name}!"\n',
    "test_greet.py": (
        "from greet import greet\n\n"
        'got = greet("Ada")\n'
        'assert got == "Hello, Ada!", f"got {got!r}"\n'
        'print("1 test passed")\n'
    ),
    "notes.md": "# Notes\n\nReleases are pushed by the release job, never by hand.\n",
}


def write_project(folder: Path) -> None:
    """The files that the story begins with."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


def make_session(
    folder: Path, transcript: Path, session_id: str, show: Callable[[LiveEvent], None]
) -> Session:
    """A session on the project: everything is allowed but pushing, and a hook guards against rm."""
    hooks = Hooks()

    @hooks.pre_tool_use("Bash")
    def keep_files(call: Call) -> Deny | None:
        wipes = "rm -rf" in str(call.arguments.get("command"))
        return Deny("Nothing is removed recursively here.") if wipes else None

    return Session(
        cwd=folder,
        hooks=hooks,
        policies=[Rules(deny=["Bash(git push:*)"]), lambda _: Allow()],
        direct=[show],
        transcript=transcript,
        session_id=session_id,
    )


def make_model(folder: Path) -> ScriptedModel:
    """The model, and what it is going to say."""
    greet = str(folder / "greet.py")
    run_tests = use("Bash", command="python3 test_greet.py", description="Run the test")
    return ScriptedModel(
        [
            [
                say("I look at the code, its test and the notes."),
                use("Read", file_path=greet),
                use("Read", file_path=str(folder / "test_greet.py")),
                use("Read", file_path=str(folder / "notes.md")),
            ],
            [say("Now the failure itself."), run_tests],
            [
                say("A letter is missing."),
                use("Edit", file_path=greet, old_string="Helo", new_string="Hello"),
            ],
            [run_tests],
            [
                say("It passes. I clean up and push."),
                use("Bash", command="rm -rf __pycache__", description="Clean up"),
                use("Bash", command="git push origin main", description="Push"),
            ],
            [
                say(
                    "The greeting is mended and the test passes. Cleaning up was blocked by a hook"
                    " and pushing is not allowed here, so both are left to you."
                )
            ],
        ],
        seed="demo",
    )

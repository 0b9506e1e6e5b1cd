"""The Live, Files and Doctor views: what they show equals the commands, and what they change is asked for first."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.analysis.recorded_edits import ClaudeFolder
from tests.fork_server import TOOLSPAN, run_toolspan
from tests.web.conftest import Browser, Server, command_rows, open_empty_page, running
from toolspan.reading import sample

pytestmark = pytest.mark.usefixtures("fork_server")

ASKING_SERVER = Path(__file__).parents[1] / "integrations/mcp_client/asking_server.py"
DAMAGED = "16d9c7a2-f584-4e3b-90c1-d2b8a5e7f463"


class UiServer(NamedTuple):
    """A server on a copy of the sample archive, and commands that find it."""

    archive: Path
    workspace: ClaudeFolder
    server: Server
    env: Mapping[str, str]

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command that finds the server, and end it with the context."""
        with subprocess.Popen(
            [*TOOLSPAN, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=self.env, cwd=self.workspace.folder,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module")
def ui_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    folder = tmp_path_factory.mktemp("ui")
    archive = folder / "archive"
    shutil.copytree(sample.archive(), archive)
    (folder / "work").mkdir()
    workspace = ClaudeFolder(folder / "work")
    workspace.write("plan.md", "one\n")
    workspace.edit("plan.md", "one", "two")
    workspace.edit("plan.md", "two", "<b>three</b>")
    workspace.write("linked.md", "one\n")
    workspace.edit("linked.md", "one", "two")
    workspace.builder.write(archive / "claude" / "projects" / "-work" / f"{workspace.builder.session_id}.jsonl")
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run"), "CLAUDE_CONFIG_DIR": str(archive / "claude")}
    with running(folder / "run", archive) as server:
        yield UiServer(archive, workspace, server, {**env, "HOME": str(folder)})


@pytest.fixture(scope="module")
def page(driver: Any, ui_server: UiServer) -> Browser:
    browser = open_empty_page(driver)
    browser.sign_in(ui_server.server)
    return browser


def call(name: str, tool: str, **tool_input: object) -> bytes:
    content = [{"type": "tool_use", "id": name, "name": tool, "input": tool_input}]
    return json.dumps({"type": "assistant", "message": {"role": "assistant", "content": content}}).encode() + b"\n"


def send(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def next_row(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_a_question_of_a_running_session_is_answered_in_the_page(ui_server: UiServer, page: Browser) -> None:
    page.open("/live", ".live h1")
    with ui_server.start("exec", "--approve", "web") as process:
        send(process, call("toolu_1", "Bash", command="touch made && echo '<img src=x onerror=alert(1)>'"))
        page.wait("document.querySelector('[data-test=question]')")
        assert "touch made && echo '<img src=x" in page.texts("[data-test=question] .preview")[0]
        page.wait("document.title.startsWith('(1) ')")
        page.wait("document.querySelector('.live-card').dataset.test === 'question'")
        page.wait("document.querySelector('[data-test=waiting] .call.open button')")
        assert "Bash waits for your answer above" in page.texts("[data-test=waiting] .call.open")[0].replace("\n", " ")
        assert "touch made" not in page.texts("[data-test=waiting].live-card")[0]
        page.click("[data-test=waiting] .call.open button")
        assert page.run("return document.activeElement.dataset.test") == "question"
        page.run("document.activeElement.blur()")
        facts, title = page.texts("[data-test=question] .facts")[0], page.texts("[data-test=waiting].live-card h2")[0]
        assert "asked by toolspan" in facts
        assert f"session: {title}" in facts or title[:8] in facts
        assert page.barriers() == []
        page.press("j", "a")
        row = next_row(process)
        assert (row["tool_use_id"], row["is_error"]) == ("toolu_1", False)
        assert (ui_server.workspace.folder / "made").exists()
        page.wait("!document.querySelector('[data-test=question]') && !document.title.startsWith('(')")

        send(process, call("toolu_2", "Bash", command="touch never"))
        page.wait("document.querySelector('[data-test=question]')")
        page.run("document.querySelector('[data-test=question] .actions input').focus()")
        page.press("use the other folder", "\ue007")
        row = next_row(process)
        assert row["is_error"]
        assert "use the other folder" in json.dumps(row)
        assert not (ui_server.workspace.folder / "never").exists()

        send(process, call("toolu_3", "Bash", command="git init -q one"))
        page.wait("document.querySelector('[data-test=question] .always')?.textContent.includes('Bash(git init:*)')")
        page.press("j", "s")
        assert not next_row(process)["is_error"]
        send(process, call("toolu_4", "Bash", command="git init -q two"))
        assert not next_row(process)["is_error"]  # no question
        assert (ui_server.workspace.folder / "two").is_dir()

        send(process, call("toolu_5", "Bash", command="touch gone"))
        page.wait("document.querySelector('[data-test=question]')")
        process.kill()
        page.wait("!document.querySelector('[data-test=question]')")
    assert page.problems() == []


def test_a_session_with_an_open_question_waits_in_every_view(ui_server: UiServer, page: Browser) -> None:
    with ui_server.start("exec", "--approve", "web") as process:
        send(process, call("toolu_6", "Bash", command="touch later"))
        page.open("/", "[data-test=overview-live]")
        page.wait("document.querySelector('[data-test=overview-live]').textContent === '1 waiting'")
        page.open("/sessions")
        page.wait("document.querySelector('.sessions .badge')?.textContent === 'waiting for you'")
        page.open("/live", "[data-test=waiting].live-card")
        # the style of the count in the top bar does not apply to the card
        edges = "[...document.querySelectorAll('.live-card')].map((card) => card.getBoundingClientRect().left)"
        assert len(set(page.run(f"return {edges}"))) == 1
        process.kill()
        page.wait("!document.querySelector('[data-test=question]')")
    assert page.problems() == []


def permission_request(**fields: object) -> bytes:
    request = {"hook_event_name": "PermissionRequest", "session_id": "s", "cwd": "/x", "tool_name": "Bash"}
    return json.dumps({**request, "tool_input": {"command": "make"}, **fields}).encode()


def test_a_permission_request_of_the_client_is_answered_in_the_page(ui_server: UiServer, page: Browser) -> None:
    page.open("/live", ".live h1")
    page.wait("document.querySelector('.live [data-test=running]')")
    for button, expected in (("allow", {"behavior": "allow"}), ("deny", {"behavior": "deny"})):
        with ui_server.start("hook", "approve") as process:
            assert process.stdin is not None
            process.stdin.write(permission_request())
            process.stdin.close()
            process.stdin = None
            page.wait("document.querySelector('[data-test=question] .clock')?.innerText.includes('s left')")
            page.click(f"[data-test=question] [data-key={button}]")
            output, _ = process.communicate()
        decision = json.loads(output)["hookSpecificOutput"]["decision"]
        assert decision.items() >= expected.items()
        page.wait("!document.querySelector('[data-test=question]')")


def test_a_card_names_the_file_with_links_resolved(ui_server: UiServer, page: Browser) -> None:
    folder = ui_server.workspace.folder
    bashrc = folder.parent / ".bashrc"
    bashrc.write_text("one\n", encoding="utf-8")
    (folder / "notes").symlink_to(bashrc)
    page.open("/live", ".live h1")
    with ui_server.start("exec", "--approve", "web") as process:
        send(process, call("toolu_1", "Read", file_path=str(folder / "notes")))
        page.wait("document.querySelector('[data-test=file]')")
        assert page.texts("[data-test=file] b") == [str(bashrc)]
        assert page.texts("[data-test=file] .badge") == ["outside the project"]
        assert f"through the link {folder / 'notes'}" in page.texts("[data-test=file]")[0]
        page.click("[data-key=allow]")
        next_row(process)
        send(process, call("toolu_2", "Write", file_path=str(bashrc), content="one\n-- two\n"))
        page.wait("document.querySelector('.preview .diff-added')")
        assert page.texts("[data-test=file] b") == [str(bashrc)]
        assert page.texts(".preview .diff-added .line") == ["-- two"]
        assert page.barriers() == []
        page.click("[data-key=deny]")
        next_row(process)
        page.wait("!document.querySelector('[data-test=question]')")
        send(process, call("toolu_3", "Write", file_path="new.txt", content="x"))
        page.wait("document.querySelector('[data-test=file]')")
        assert page.texts("[data-test=file] b") == [str(folder / "new.txt")]
        assert page.texts("[data-test=file] .badge") == ["new file"]
        process.kill()
        page.wait("!document.querySelector('[data-test=question]')")
    with ui_server.start("hook", "approve") as process:
        edit = {"file_path": "notes", "old_string": "one", "new_string": "two"}
        rule = {"toolName": "Bash", "ruleContent": "npm \u202e:*"}
        suggestions = [{"type": "addRules", "rules": [rule], "behavior": "allow"}]
        send(process, permission_request(
            cwd=str(folder), tool_name="Edit", tool_input=edit, permission_suggestions=suggestions
        ))  # fmt: skip
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        page.wait("document.querySelector('[data-test=file]')")
        assert page.texts("[data-test=file] b") == [str(bashrc)]
        assert page.texts("[data-test=file] .badge") == ["outside the project"]
        assert page.texts(".preview .line")[1:] == ["one", "two"]
        assert page.texts(".always b") == ["Bash(npm <U+202E>:*)"]
        process.kill()
        page.wait("!document.querySelector('[data-test=question]')")
    assert page.problems() == []


def test_a_card_shows_invisible_characters_by_number(ui_server: UiServer, page: Browser) -> None:
    page.open("/live", ".live h1")
    with ui_server.start("exec", "--approve", "web") as process:
        send(process, call("toolu_1", "Bash", command="rm -rf \u202epmt ;selif-dlo\u202c # \u200b <U+200B>"))
        page.wait("document.querySelector('[data-test=question]')")
        assert page.texts(".preview .line") == ["rm -rf <U+202E>pmt ;selif-dlo<U+202C> # <U+200B> <U+200B>"]
        assert page.texts(".preview .escape") == ["<U+202E>", "<U+202C>", "<U+200B>"]
        assert not set("\u202e\u202c\u200b") & set(page.run("return document.body.textContent"))
        assert page.barriers() == []
        page.click("[data-key=deny]")
        next_row(process)
        page.wait("!document.querySelector('[data-test=question]')")
        send(process, call("toolu_2", "WebFetch", url="https://example.org/\u2066x", prompt="one\ntwo"))
        page.wait("document.querySelector('[data-test=question]')")
        assert page.texts(".preview .line") == ["url: https://example.org/<U+2066>x", "prompt:", "one", "two"]
        process.kill()
        page.wait("!document.querySelector('[data-test=question]')")
    assert page.problems() == []


def test_a_question_of_an_mcp_server_is_answered_in_the_page(ui_server: UiServer, page: Browser) -> None:
    folder = ui_server.workspace.folder
    (folder / "schemas.json").write_text(json.dumps({"ask": {"type": "object"}}), encoding="utf-8")
    server = {"command": sys.executable, "args": [str(ASKING_SERVER), str(folder / "schemas.json")]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"travel": server}}), encoding="utf-8")
    fields = {"city": {"type": "string"}, "room": {"type": "string", "enum": ["s", "d"]}, "note": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["city", "room"]}
    form = {"message": "Where \u202eto?", "requestedSchema": schema}
    page.open("/live", ".live h1")
    with ui_server.start(
        "exec", "--approve", "web", "--mcp-config", "servers.json", "--allowed-tools", "mcp__travel__ask"
    ) as process:
        send(process, call("toolu_1", "mcp__travel__ask", form=form))
        page.wait("document.querySelector('[data-test=question] fieldset')")
        (heading, *_) = page.texts("[data-test=question] legend")
        assert "travel" in heading
        assert "\u202e" not in heading
        assert page.run("return document.querySelector('[data-key=allow]').disabled")
        page.run("document.querySelector('fieldset input[type=text]').focus()")
        page.press("Rome")
        page.click("fieldset:nth-of-type(2) input[type=radio]")
        assert page.barriers() == []
        page.wait("!document.querySelector('[data-key=allow]').disabled")  # the note is optional
        page.click("[data-key=allow]")
        row = next_row(process)
        assert json.loads(row["content"][0]["text"]) == [{"action": "accept", "content": {"city": "Rome", "room": "s"}}]
        page.wait("!document.querySelector('[data-test=question]')")
    assert page.problems() == []


@pytest.mark.parametrize(
    "command",
    ["touch made-{0}\n" + "\n" * 300 + "touch last-{0}", "touch made-{0} " + "made-{0} " * 2000 + "last-{0}"],
    ids=["lines", "words"],
)
def test_a_long_command_can_be_allowed_only_after_all_of_it_is_shown(
    ui_server: UiServer, page: Browser, command: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    page.open("/live", ".live h1")
    is_allowed = "!document.querySelector('[data-key=allow]').disabled"
    with ui_server.start("exec", "--approve", "web") as process:
        send(process, call("toolu_1", "Bash", command=command.format(name)))
        page.wait("document.querySelector('[data-test=question]')")
        assert "lines not shown" in page.texts(".preview .cut")[0]
        assert page.texts(".preview .line")[-1].endswith(f"last-{name}")
        assert not page.run(f"return {is_allowed}")
        assert page.run("return [...document.querySelectorAll('.always button')].every((button) => button.disabled)")
        assert page.barriers() == []
        page.press("j", "a", "v")  # an accepted `a` would end the question before `v`
        page.wait(f"!document.querySelector('.preview .cut') && {is_allowed}")
        assert len(page.texts(".preview tr")) > 100
        box = "document.querySelector('.preview')"
        assert page.run(f"return {box}.scrollHeight <= {box}.clientHeight")  # no part of it is scrolled away
        assert page.barriers() == []
        page.press("a")
        assert not next_row(process)["is_error"]
    assert (ui_server.workspace.folder / f"last-{name}").exists()
    assert page.problems() == []


def test_calls_are_denied_without_waiting_if_no_page_is_open(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}

    def run(*arguments: str, stdin: bytes) -> str:
        result = run_toolspan(*arguments, env=env, stdin=stdin.decode())
        assert result.returncode == 0, result.stderr
        return result.stdout

    question = call("t", "Bash", command="touch x")
    row = json.loads(run("exec", "--approve", "web", "--cwd", str(tmp_path), stdin=question))
    assert row["is_error"]
    assert not (tmp_path / "x").exists()
    assert run("hook", "approve", stdin=permission_request()) == ""
    with running(tmp_path / "run", sample.archive()):  # a server, but no page
        assert run("hook", "approve", stdin=permission_request()) == ""
        assert run("hook", "approve", stdin=b"nonsense") == ""


def test_files_show_the_numbers_of_the_command_and_open_a_history(ui_server: UiServer, page: Browser) -> None:
    rows = sorted(command_rows("files", ui_server.archive, "--limit", "0"), key=lambda row: row["last"], reverse=True)
    page.open("/files", "table.rows tbody tr.link")
    assert page.texts("[data-test=count]") == [f"{len(rows)} files"]
    assert page.texts("tbody tr.link td:nth-child(3)") == [str(row["changes"]) for row in rows]
    assert page.texts("tbody tr.link td:nth-child(5)") == [str(row["unsuccessful"]) for row in rows]
    page.open("/files?q=plan.md", "table.rows tbody tr.link")
    page.press("j", "\ue007")
    page.wait("document.querySelector('.file .points')")
    (history,) = command_rows("files", ui_server.workspace.path("plan.md"), ui_server.archive, "--contents")
    assert len(page.texts(".points li")) == len(history["points"]) == 4
    page.wait("document.querySelector('.file .at .code')?.innerText.trim()")
    assert page.texts(".file .at .code") == ["<b>three</b>"]
    page.press("k")
    page.wait("document.querySelector('.file .at .code').innerText.trim() === 'two'")
    assert page.run("return document.querySelector('#point').value") == "2"
    assert page.texts(".bar .badge") == [history["points"][2]["confidence"]]
    links = page.run("return [...document.querySelectorAll('.reasons a')].map((a) => a.pathname)")
    assert f"/call/{history['points'][2]['call']}" in links
    assert "at=" in page.run("return location.search")
    page.run(
        "const e = document.querySelector('#point'); e.value = 0; e.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.wait("document.querySelector('.file .at').innerText.includes('did not exist')")
    calls = [point["call"] for point in history["points"]]
    page.open(
        f"/files?path={ui_server.workspace.path('plan.md')}&at={calls[3]}&from={calls[1]}&show=compare", ".difflines"
    )
    assert page.texts(".diff-removed .line") == ["one"]
    assert page.texts(".diff-added .line") == ["<b>three</b>"]
    assert page.barriers() == []
    assert page.problems() == []


def test_each_line_of_a_file_names_who_wrote_it(ui_server: UiServer, page: Browser) -> None:
    (history,) = command_rows("files", ui_server.workspace.path("plan.md"), ui_server.archive, "--contents")
    call = history["points"][2]["call"]
    page.open(f"/files?path={ui_server.workspace.path('plan.md')}&at={call}&show=blame", "[data-test=blame] code")
    assert page.texts("[data-test=blame] code") == ["two"]
    assert page.run("return document.querySelector('[data-test=blame] a').pathname") == f"/call/{call}"
    assert page.barriers() == []
    page.click("[data-test=blame] a")
    page.wait("location.pathname.startsWith('/call/')")
    assert page.problems() == []


def test_an_edit_links_to_the_whole_file_before_and_after_it(ui_server: UiServer, page: Browser) -> None:
    (history,) = command_rows("files", ui_server.workspace.path("plan.md"), ui_server.archive, "--contents")
    for number, (before, after) in ((1, ("The file did not exist.", "one")), (3, ("two", "<b>three</b>"))):
        for link, expected in enumerate((before, after), 1):
            page.open(f"/call/{history['points'][number]['call']}", ".whole-file")
            page.click(f".whole-file a:nth-of-type({link})")
            page.wait(
                f"document.querySelector('.file .at :is(.code, .empty)')?.innerText.trim() === {json.dumps(expected)}"
            )
    assert page.problems() == []


def test_a_file_is_restored_after_a_question_and_what_was_there_is_kept(ui_server: UiServer, page: Browser) -> None:
    (history,) = command_rows("files", ui_server.workspace.path("plan.md"), ui_server.archive, "--contents")
    page.open(f"/files?path={ui_server.workspace.path('plan.md')}&at={history['points'][1]['call']}", ".file .at .code")
    page.click("[data-key=restore]")
    page.wait("document.querySelector('dialog .difflines')")
    assert page.texts("dialog .diff-added .line") == ["one"]
    assert ui_server.workspace.content("plan.md") == "<b>three</b>\n"
    assert page.barriers() == []
    page.click("[data-test=confirm]")
    page.wait("document.querySelector('[data-test=restored]')")
    assert ui_server.workspace.content("plan.md") == "one\n"
    assert ui_server.workspace.content("plan.md.before-restore") == "<b>three</b>\n"


def test_a_restore_names_the_file_behind_a_link(ui_server: UiServer, page: Browser) -> None:
    path = Path(ui_server.workspace.path("linked.md"))
    (history,) = command_rows("files", path, ui_server.archive, "--contents")
    real = path.with_name("real.md")
    path.rename(real)
    path.symlink_to(real)
    page.open(f"/files?path={path}&at={history['points'][1]['call']}", ".file .at .code")
    page.click("[data-key=restore]")
    page.wait("document.querySelector('dialog .difflines')")
    assert page.texts("dialog [data-test=target]") == [f"{real} through the link {path}"]
    assert "real.md.before-restore" in page.texts("dialog")[0]
    page.click("[data-test=confirm]")
    page.wait("document.querySelector('[data-test=restored]')")
    assert page.texts("[data-test=restored] .mono") == [str(real)]
    assert path.is_symlink()
    assert real.read_text(encoding="utf-8") == "one\n"
    assert ui_server.workspace.content("real.md.before-restore") == "two\n"


def test_always_in_all_projects_needs_a_second_click(ui_server: UiServer, page: Browser) -> None:
    rule = {"toolName": "Bash", "ruleContent": "make:*"}
    suggestions = [{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "userSettings"}]
    button = "[data-test=question] [data-scope=user]"
    page.open("/live", ".live h1")
    with ui_server.start("hook", "approve") as process:
        assert process.stdin is not None
        process.stdin.write(permission_request(permission_suggestions=suggestions))
        process.stdin.close()
        process.stdin = None
        page.wait(f"document.querySelector('{button}')")
        label = page.texts(button)[0]
        page.run(f"const button = document.querySelector('{button}'); button.focus(); button.click()")
        page.wait(f"document.querySelector('{button}')?.innerText === 'Always, everywhere: click again'")
        page.run("document.activeElement.blur()")  # another thought
        page.wait(f"document.querySelector('{button}')?.innerText === {json.dumps(label)}")
        assert process.poll() is None
        page.click(button)
        page.wait(f"document.querySelector('{button}')?.innerText === 'Always, everywhere: click again'")
        assert process.poll() is None
        page.click(button)
        output, _ = process.communicate()
    decision = json.loads(output)["hookSpecificOutput"]["decision"]
    assert decision["behavior"] == "allow"
    assert [update["destination"] for update in decision["updatedPermissions"]] == ["userSettings"]
    page.wait("!document.querySelector('[data-test=question]')")


def test_a_question_is_answered_on_the_page_of_its_session(ui_server: UiServer, page: Browser) -> None:
    session = str(ui_server.workspace.builder.session_id)
    page.open(f"/session/{session}", ".session")
    for key in ("allow", "deny"):
        with ui_server.start("hook", "approve") as process:
            assert process.stdin is not None
            process.stdin.write(permission_request(session_id=session))
            process.stdin.close()
            process.stdin = None
            page.wait("document.querySelector('.session [data-test=question]')")
            page.click(f".session [data-test=question] [data-key={key}]")
            output, _ = process.communicate()
        assert json.loads(output)["hookSpecificOutput"]["decision"]["behavior"] == key
        page.wait("!document.querySelector('[data-test=question]')")
    assert page.problems() == []


def test_a_damaged_session_is_repaired_in_a_copy(ui_server: UiServer, page: Browser) -> None:
    reports = command_rows("doctor", ui_server.archive)
    bad = sorted((row for row in reports if not row["healthy"]), key=lambda row: DAMAGED not in row["file"])
    page.open("/doctor", "table.rows tbody tr.link")
    assert page.texts("[data-test=count]") == [f"{len(reports)} files checked"]
    assert page.texts("[data-test=bad]") == [f"{len(bad)} need{'s' * (len(bad) == 1)} repair"]
    page.open(f"/doctor?session={DAMAGED}", "[data-test=finding]")
    assert len(page.texts("[data-test=finding]")) == len(bad[0]["findings"])
    page.open(f"/doctor?session={DAMAGED}&tab=repair", "[data-test=change]")
    original = Path(bad[0]["file"])
    before = original.read_bytes()
    (plan,) = command_rows("repair", original, "--dry-run")
    assert len(page.texts("[data-test=change]")) == len(plan["changes"])
    files = set(original.parent.iterdir())
    page.click("[data-test=repair]")
    page.wait("document.querySelector('dialog [data-test=confirm]')")
    assert set(original.parent.iterdir()) == files
    page.click("[data-test=confirm]")
    page.wait("document.querySelector('[data-test=repaired]')")
    (copy,) = (path for path in set(original.parent.iterdir()) - files if path.suffix == ".jsonl")
    assert command_rows("doctor", copy)[0]["healthy"]
    assert original.read_bytes() == before
    assert page.problems() == []


def test_a_session_is_shared_after_a_preview_of_what_is_replaced(ui_server: UiServer, page: Browser) -> None:
    (file,) = ui_server.archive.rglob(f"{DAMAGED}.jsonl")
    replaced = command_rows("export", file, "--redact", "--preview")
    page.open(f"/doctor?session={DAMAGED}&tab=share&format=markdown", "[data-test=replacements]")
    values = len({row["placeholder"] for row in replaced})
    assert page.texts("[data-test=replacements]")[0].startswith(f"{len(replaced)} replacements of {values} value")
    text = page.driver.execute_async_script(
        "const done = arguments[0]; HTMLAnchorElement.prototype.click = function () {"
        "delete HTMLAnchorElement.prototype.click; fetch(this.href).then((response) => response.text()).then(done) };"
        "document.querySelector('[data-test=download]').click()"
    )
    assert "/home/[user-" in text
    assert "mira" not in text
    assert page.barriers() == []
    assert page.problems() == []

"""Generators of single calls, one per tool. Each draws names and texts from the case's folder."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from lab.explore.contents import Folder, png

Json = dict[str, Any]
Draw = tuple[str, Json]
"""A tool's name and its input."""


class Calls:
    """Draws calls for a version; keeps what it believes the files contain after them."""

    def __init__(self, folder: Folder, version: str) -> None:
        self.folder, self.rng, self.version = folder, folder.rng, version

    @property
    def is_old(self) -> bool:
        """Whether the version is from before the task tools."""
        return self.version.startswith("2.0.")

    # Files

    def read(self) -> Draw:
        """Draw a Read."""
        rng, given = self.rng, {}
        path = self.folder.text_path() if rng.random() < 0.4 else self.folder.any_path()
        if self.is_old and path == "/proc/version":
            path = "missing.txt"
        if rng.random() < 0.35:
            given["offset"] = rng.choice((0, 1, 2, 3, 5, 99, 2000, -1, "2"))
        if rng.random() < 0.3:
            given["limit"] = rng.choice((1, 2, 3, 10, 2000, 0, -1, "3"))
        if rng.random() < 0.04:
            given["pages"] = rng.choice(("1", "1-2", "0", "9", "x", ""))
        return "Read", {"file_path": self.folder.spell(path), **given}

    def write(self) -> Draw:
        """Draw a Write."""
        rng, folder = self.rng, self.folder
        roll = rng.random()
        if roll < 0.45:
            path = folder.text_path()
        elif roll < 0.75:
            path = rng.choice(
                ("new.txt", "fresh/x.txt", "deep/new/y.py", "new file.md", "n.json", "out.csv", "nn.ipynb")
            )
        else:
            path = folder.any_path()
        before = folder.texts.get(path, "")
        content = rng.choice((
            "hello\nworld\n", "no newline", "", "\n", "a\r\nb\r\n", "tab\there\n", "  \n", "ünï 🎉\n", "\ufeffbom\n",
            before, before + "more\n", before.replace("1", "2"), before[: len(before) // 2], before.upper(), "x\0y\n",
            before.rstrip("\n"), "top\n" + before, "l\n" * 30, before.replace("\n", "\r\n"),
        ))  # fmt: skip
        if path in folder.texts or path in ("new.txt", "fresh/x.txt", "deep/new/y.py", "new file.md", "n.json"):
            folder.texts[path] = content
        return "Write", {"file_path": folder.spell(path), "content": content}

    def edit(self) -> Draw:
        """Draw an Edit, mostly of text that is there."""
        rng, folder = self.rng, self.folder
        path = folder.text_path() if rng.random() < 0.85 else folder.any_path()
        old = self._old_text(folder.texts.get(path, ""))
        new = self._new_text(old)
        given: Json = {"file_path": folder.spell(path), "old_string": old, "new_string": new}
        replace_all = rng.random()
        if replace_all < 0.25:
            given["replace_all"] = rng.choice((True, True, True, False, "true", "false", None))
        text = folder.texts.get(path)
        if text is not None and old and (text.count(old) == 1 or (given.get("replace_all") is True and old in text)):
            folder.texts[path] = text.replace(old, new)
        return "Edit", given

    def _old_text(self, text: str) -> str:
        rng = self.rng
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        if not text or rng.random() < 0.06:
            return rng.choice(("", "nope", " ", "\n", "x"))
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        line = lines[at]
        options: list[Callable[[], str]] = [
            lambda: line, lambda: line, lambda: line + "\n", lambda: "\n".join(lines[at : at + rng.randint(2, 4)]),
            lambda: line[: max(1, len(line) // 2)], line.strip, lambda: text, lambda: lines[0],
            lambda: lines[-1], lambda: "\n".join(lines[-2:]), lambda: "\n" + line, lambda: line + "  ",
            line.upper, lambda: f"     {at + 1}→{line}", lambda: f"{at + 1}\t{line}",
            lambda: line.replace("\t", "    "),
            lambda: line.replace("“", '"').replace("”", '"').replace("’", "'").replace("‘", "'"), lambda: text[:1],
            lambda: line.replace(" ", "  ", 1), lambda: "\n".join(lines[at : at + 2]).replace("\n", "\r\n"),
            lambda: line.replace("\\", "\\\\"), lambda: "\n".join(part.lstrip() for part in lines[at : at + 2]),
            lambda: line.replace("é", "\\u00e9"), lambda: lines[0] + "\n", lambda: text.rstrip("\n"), lambda: "1",
            lambda: "e",
        ]  # fmt: skip
        return rng.choice(options)()

    def _new_text(self, old: str) -> str:
        rng = self.rng
        return rng.choice((
            "", "", "NEW", "NEW\n", "two\nlines", old, old + "!", "# " + old, old.upper(), old + "\nadded",
            "\n" + old, old + "  ", "trail   \nblank \t\n", 'a "quoted" word\'s', "x\ty", "\r\n", "\n\n", old.strip(),
            "$& $1 \\1 $$", old.replace("\n", "\n\n"), "ünï 🎉", old + "\n", old.rstrip("\n"),
        ))  # fmt: skip

    def notebook_edit(self) -> Draw:
        """Draw a NotebookEdit."""
        rng = self.rng
        names = self.folder.notebooks * 8 + [self.folder.any_path(), "none.ipynb"]
        given: Json = {
            "notebook_path": self.folder.spell(rng.choice(names)),
            "new_source": rng.choice(("x = 5", "", "a\nb\n", "# T")),
        }
        if rng.random() < 0.8:
            given["cell_id"] = rng.choice(
                ("c0", "c0", "c1", "c1", "c2", "cell-0", "cell-1", "cell-9", "zzz", "", "0", "1")
            )
        if rng.random() < 0.5:
            given["cell_type"] = rng.choice(("code", "markdown", "code", "markdown", "raw"))
        if rng.random() < 0.7:
            given["edit_mode"] = rng.choice(("replace", "insert", "insert", "delete", "bogus"))
        return "NotebookEdit", given

    def multi_edit(self) -> Draw:
        """Draw calls of tools that clients no longer have."""
        path = f"<cwd>/{self.folder.text_path()}"
        return self.rng.choice((
            ("MultiEdit", {"file_path": path, "edits": [{"old_string": "a", "new_string": "b"}]}),
            ("LS", {"path": "<cwd>"}),
            ("BashOutput", {"bash_id": "x"}),
            ("KillBash", {"shell_id": "x"}),
            ("KillShell", {"shell_id": "x"}),
            ("TodoRead", {}),
            ("NotebookRead", {"notebook_path": path}),
            ("read", {"file_path": path}),
            ("bash", {"command": "echo 1"}),
            ("mcp__none__x", {}),
            ("Nope", {"x": 1}),
            ("TaskList", {}),
            ("Glob", {"pattern": "*"}),
        ))  # fmt: skip

    # Searches

    def glob(self) -> Draw:
        """Draw a Glob."""
        rng = self.rng
        pattern = rng.choice((
            "*", "**/*", "*.py", "**/*.py", "src/*", "src/**", "*.{txt,py}", "**/a*", "[ab].*", "*.nothing", "?.txt",
            "", "<cwd>/*.txt", "./*.py", "../proj/*", "**", "src", "a.txt", "*.TXT", ".hidden/*", "**/.*", "ünï/*",
            "sub dir/*", "{src,deep}/**/*", "!*.py", "*/", "~/proj/*", "deep/**/x*", "[", "\\*", "**/*.{md,json}",
            "/etc/host*", "ln-*", "ln-dir/*", "**/keep.txt", "@(a|b).txt", "src/*.{py", "*.txt,*.py",
        ))  # fmt: skip
        given: Json = {"pattern": pattern}
        if rng.random() < 0.4:
            given["path"] = self.folder.spell(self._search_place())
        return "Glob", given

    def _search_place(self) -> str:
        places = ["src", "src", "deep", ".", "", "missing", "sub dir", "bare", "ln-dir", "<home>/other", "~/proj/src"]
        return self.rng.choice([*places, self.folder.text_path()])

    def grep(self) -> Draw:
        """Draw a Grep."""
        rng = self.rng
        pattern = rng.choice((
            "TODO", "alpha", "foo|bar", "def \\w+", "^x", "1$", "(", "[", "nomatchxyz", "", ".", "\\d+",
            "return.*\\n", "ünï", "a{2", "import\\s+os", "(?i)todo", "x = 1", "\\bfoo\\b", "-n", "--help", "\\", "é",
            "beta \\d\\ngamma", "\\.", "*", "interface\\{\\}", "(?=x)", "print\\(", "“", "\t",
        ))  # fmt: skip
        given: Json = {"pattern": pattern}
        for key, values, chance in (
            ("output_mode", ("content", "content", "files_with_matches", "count", "bogus"), 0.75),
            ("path", (None,), 0.4),
            ("glob", ("*.py", "*.{py,txt}", "src/**", "*.txt,*.md", "!*.py", "*.py *.txt", "", "**/a*"), 0.2),
            ("type", ("py", "js", "nosuch", "txt", "md", "json"), 0.12),
            ("-i", (True, False), 0.2),
            ("-n", (True, False), 0.2),
            ("-A", (1, 2, 0, -1), 0.12),
            ("-B", (1, 2, 0), 0.12),
            ("-C", (1, 2, 50), 0.12),
            ("context", (1, 2), 0.05),
            ("-o", (True, False), 0.05),
            ("multiline", (True, True, False), 0.15),
            ("head_limit", (1, 2, 5, 0, -1, 1000), 0.2),
            ("offset", (0, 1, 2, 99), 0.12),
        ):
            if rng.random() < chance:
                given[key] = self.folder.spell(self._search_place()) if key == "path" else rng.choice(values)
        if given.get("output_mode") == "files_with_matches" or "output_mode" not in given:
            given.pop("head_limit", None) if rng.random() < 0.5 else None
        return "Grep", given

    # Commands

    def bash(self) -> Draw:
        """Draw a command with an output that is the same everywhere."""
        rng = self.rng
        given: Json = {"command": self._command()}
        if rng.random() < 0.6:
            given["description"] = rng.choice(("Run it", "", "Say\nhello"))
        if rng.random() < 0.06:
            given["timeout"] = rng.choice((120000, 600000, "5000", 9999999, 0.5e5))
        return "Bash", given

    def _command(self) -> str:
        rng, path = self.rng, self.folder.text_path()
        name, number = f"'{path}'", rng.randint(1, 9)
        word = rng.choice(
            ("hello", "two words", "$HOME", "'quoted'", '"dq"', "a\\tb", "*", "~", "`echo bt`", "$((1+2))", "ünï")
        )
        return rng.choice((
            f"echo {word}", f"echo {word}; echo err >&2", f"echo {word} >&2", f"printf '{word}'", "true", "false",
            ":", "", f"exit {rng.choice((0, 1, 2, 3, 42, 126, 127, 130, 137, 143, 255))}",
            f"echo out; echo err >&2; exit {number}", f"cat {name}", f"cat {name} missing-{number}",
            f"head -n {number} {name}", f"wc -l {name}", f"tail -c {number} {name}", f"grep -n alpha {name}",
            f"grep -c nomatchxyz {name}", f"grep -q foo {name}", f"diff {name} {name}", "diff a b",
            f"echo line{number} >> {name}", f"sed -i 's/1/7/' {name}", f"rm -f {name}", f"touch {name}",
            f"mv {name} moved{number}", f"cp {name} copy{number}.txt", f"mkdir -p made/d{number} && ls made",
            f"ls -1 {name}", "ls -1", "pwd", "cd src && pwd", "cd deep/er 2>/dev/null; pwd", "cd /tmp; pwd",
            "cd ..; pwd", "cd nowhere", "cd", "cd <cwd>", "cd src", "cd -", "mkdir gone && cd gone && rmdir ../gone",
            "(cd src; pwd); pwd", "export V=1; echo $V", "echo [$V]", "set -e; false; echo no",
            f"for i in 1 2 {number}; do echo $i; done", "printf '\\n\\n lead\\n'", "printf 'trail  \\n\\n\\n'",
            "printf '  \\n\\t\\n'", "printf '\\033[31mred\\033[0m\\n'", "printf 'a\\rb\\rc\\n'",
            "printf 'nul\\0byte\\n'", "printf '\\xff\\xfe bad\\n'", "printf 'a\\bb\\n'", "printf '\\r\\n\\r\\n'",
            f"seq 1 {rng.choice((5, 2000, 6000, 7000, 20000))}",
            f"head -c {rng.choice((29998, 29999, 30000, 30001, 30010, 70000))} /dev/zero | tr '\\0' a",
            f"seq 1 {rng.choice((3000, 20000))}; exit {number}",
            f"head -c {rng.choice((9990, 10000, 10020, 40000))} /dev/zero | tr '\\0' b; exit 1", "nosuchcommand",
            "if then", "echo 'unclosed", "echo $(", "cat <<'EOF'\nhere\ndoc\nEOF", "cat <<EOF\n$((1+1))\nEOF",
            "kill -TERM $$", "kill -9 $$", "kill -INT $$", "sh -c 'exit 3' | cat",
            "cat < /dev/null", "read x < /dev/null; echo [$x]", "echo a | grep b", "test -f nofile", "[ -f nofile ]",
            "find . -name nofile", "find nofile", "which sh",
            "echo one && echo two || echo three", "sleep 0.2; echo slept", "echo a & wait; echo b",
            "printf 'x%.0s' 1 2 3", "echo -n", "echo -e 'a\\nb'", "type cd", "umask", "id -u", "echo $0", "echo $#",
            "shopt -q extglob; echo $?", "set -o | head -3", "ls nofile", "ls -a .hidden 2>&1", "stat -c %a .",
            "basename /a/b", "date -u -d @0 +%F", "tr a b <<< aaa", "git status",
            "git init -q . && git status --short | head -3", "python3 -c 'print(1)'",
            "python3 -c 'import sys; sys.exit(5)'",
            f"python3 -c 'import sys; sys.stderr.write(\"e\" * {number}); print(1)'", "echo x > new-by-bash.txt",
            "echo 'a b' | xargs -n1 echo", "yes | head -2", "true | false", "false | true", "! true", "alias ll=ls",
            "function f { echo in; }; f", "echo {1..3}", "echo *.none", "chmod 600 " + name,
            "ln -sf " + name + " ln-new; readlink ln-new", "test -d src && echo yes", "unset HOME; cd; pwd",
            "echo \\", "# just a comment", "\necho newline first", "echo a\necho b", "echo a;", ";", "&& echo x",
            "echo a;; echo b", "exec echo replaced", "trap 'echo bye' EXIT; echo hi", "exit", "return 3",
            "echo 'data:image/png;base64," + base64.b64encode(png(2, 2)).decode() + "'",
            "printf 'data:text/plain;base64,aGk='", "ulimit -c", "ps -o comm= -p $$",
            "echo ${BASH_VERSINFO[0]}",
        ))  # fmt: skip

    def slow_bash(self) -> Draw:
        """Draw a command that runs longer than its timeout."""
        rng = self.rng
        return "Bash", {
            "command": rng.choice(
                ("sleep 3", "echo a; sleep 3; echo b", "sleep 3; echo x", "exec sleep 3", "sleep 3 && true")
            ),
            "timeout": rng.choice((300, 700, 1000, 1500)),
        }

"""Measure how well `toolspan errors` groups failures by cause, with failures of real tools as the truth.

    python benchmarks/causes.py [--node DIR] [--archive DIR] [--failures FILE] [--show] [--json OUT] [--enforce]

Each case below is one cause. It is run several times in scratch folders, each time with other names, numbers and
folders and in another form (plain, after `cd`, with `timeout`, inside `bash -c`), and recorded in turn in a Claude Code
and in a Codex transcript, which are then read. Every pair of failures counts: precision is the share of pairs in one
group that have the same cause, recall the share of pairs with the same cause that are in one group. "Before" groups by
kind, tool and first line. Cases whose tool is not installed are left out. DIR of `--node` has `node_modules` with
`typescript`, `eslint` and `jest`; `--archive` adds the share of failed commands in groups with more than one telling
line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path

from toolspan.reading.facts import scan_file
from toolspan.reading.key_lines import normalize_line
from toolspan.reading.rows import CallRow
from toolspan.testing import RolloutBuilder, TranscriptBuilder, claude_results
from toolspan.testing.codex_builder import command_output

NAMES = ("parser", "billing_api", "userStore", "report2", "zeta")
OTHERS = ("total", "invoice_id", "fetchAll", "items3", "widget")
NUMBERS = ("3", "17", "204", "8", "91")
FORMS = ("{command}", "cd {folder} && {command}", "timeout 100 {command}", "bash -c {quoted}", "{command} 2>&1")
PRECISION, RECALL, NOTHING_FOUND, MIXED = 0.95, 0.9, 0.98, 0.02


@dataclass(frozen=True)
class Case:
    """One cause: files to write and a command that fails. `@N`, `@O` and `@M` become names and a number."""

    cause: str
    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    needs: str = ""


def python_case(cause: str, code: str) -> Case:
    return Case(f"python {cause}", "python3 @N.py", {"@N.py": "\n" * 2 + code}, needs="python3")


def pytest_case(cause: str, code: str) -> Case:
    return Case(f"pytest {cause}", "python3 -m pytest -q -p no:anyio test_@N.py", {"test_@N.py": code}, needs="pytest")


def c_case(cause: str, code: str, command: str = "gcc -o out @N.c") -> Case:
    return Case(f"gcc {cause}", command, {"@N.c": code}, needs="gcc")


def rust_case(cause: str, code: str) -> Case:
    return Case(f"rustc {cause}", "rustc --edition 2021 @N.rs", {"@N.rs": code}, needs="rustc")


def node_case(cause: str, code: str) -> Case:
    return Case(f"node {cause}", "node @N.js", {"@N.js": code}, needs="node")


def tsc_case(cause: str, code: str) -> Case:
    return Case(f"tsc {cause}", "npx tsc --noEmit --strict @N.ts", {"@N.ts": code}, needs="node_modules/.bin/tsc")


def eslint_case(cause: str, rule: str, code: str) -> Case:
    config = f"module.exports = [{{ rules: {{ '{rule}': 'error' }} }}];"
    files = {"@N.js": code, "eslint.config.cjs": config}
    return Case(f"eslint {cause}", "npx eslint @N.js", files, needs="node_modules/.bin/eslint")


GIT = "git init -q . && git config user.email a@b.c && git config user.name x && "
COMMIT = GIT + "echo @M > @N.txt && git add . && git commit -qm first"
RUFF = "python3 -m ruff check --isolated --no-cache"
ARGPARSE = "import argparse\np = argparse.ArgumentParser()\n"

CASES = (
    python_case("missing module", "import @N_missing\n"),
    python_case("missing attribute", "class @N:\n    pass\n@N().@O\n"),
    python_case("missing module attribute", "import json\njson.@O_x\n"),
    python_case("undefined name", "def main():\n    return @O_undefined\nmain()\n"),
    python_case("key error", "data = {}\ndata['@O']\n"),
    python_case("index error", "x = [@M]\nx[@M + 1]\n"),
    python_case("division by zero", "print(@M / 0)\n"),
    python_case("wrong type", "'@N' + @M\n"),
    python_case("missing argument", "def @N(@O):\n    pass\n@N()\n"),
    python_case("bad literal", "int('@O')\n"),
    python_case("missing file", "open('/nowhere/@N/@O.txt')\n"),
    python_case("syntax error", "def @N(:\n    pass\n"),
    python_case("indentation", "def @N():\nreturn @M\n"),
    python_case("bad json", "import json\njson.loads('{@O')\n"),
    python_case("missing table", "import sqlite3\nsqlite3.connect(':memory:').execute('select * from @O')\n"),
    python_case("import name", "from json import @O_missing\n"),
    python_case("assertion", "assert @M < 0, 'the balance is negative'\n"),
    python_case("recursion", "def @N():\n    return @N()\n@N()\n"),
    python_case("unpack", "a, b = range(@M, @M + 3)\n"),
    python_case("encoding", "b'\\xff@O'.decode()\n"),
    python_case("runtime error", "raise RuntimeError('gave up after @M attempts')\n"),
    pytest_case("comparison", "def test_@O():\n    assert @M == @M + 1\n"),
    pytest_case("missing fixture", "def test_@O(@N_fixture):\n    pass\n"),
    pytest_case("missing import", "import @N_missing\ndef test_@O():\n    pass\n"),
    pytest_case("did not raise", "import pytest\ndef test_@O():\n    with pytest.raises(ValueError):\n        pass\n"),
    pytest_case("error in code", "def @N():\n    return {}['@O']\ndef test_@O():\n    @N()\n"),
    Case("pytest no file", "python3 -m pytest -q -p no:anyio tests/test_@N.py", needs="pytest"),
    Case("unittest comparison", "python3 -m unittest -q test_@N", {"test_@N.py":
         "import unittest\nclass T(unittest.TestCase):\n    def test_@O(self):\n        self.assertEqual(@M, -1)\n"}),
    c_case("undeclared", "int main(void) { return @O_x; }\n"),
    c_case("missing header", "#include <@N_missing.h>\nint main(void) { return 0; }\n"),
    c_case("missing semicolon", "int main(void) { int @O = @M return 0; }\n"),
    c_case("undefined reference", "int @N_go(int);\nint main(void) { return @N_go(@M); }\n"),
    c_case("too few arguments", "int @O(int a, int b) { return a + b; }\nint main(void) { return @O(@M); }\n"),
    c_case("unknown type", "@O_t value;\nint main(void) { return 0; }\n"),
    Case("gcc no input", "gcc -o out @N_missing.c", needs="gcc"),
    Case("gcc bad option", "gcc --@O-wrong @N.c", {"@N.c": "int main(void){return 0;}\n"}, needs="gcc"),
    c_case("segmentation fault", "int main(void) { int *p = 0; *p = @M; return 0; }\n", "gcc -o out @N.c && ./out"),
    rust_case("moved value", "fn main() { let @O = String::from(\"a\"); let b = @O; println!(\"{} {}\", @O, b); }\n"),
    rust_case("unknown name", "fn main() { println!(\"{}\", @O_x); }\n"),
    rust_case("type mismatch", "fn main() { let @O: i32 = \"@M\"; println!(\"{}\", @O); }\n"),
    rust_case("unresolved import", "use std::@N_missing;\nfn main() {}\n"),
    rust_case("missing method", "fn main() { let v = vec![@M]; v.@O_go(); }\n"),
    Case("rust panic", "rustc -o out @N.rs && ./out", {"@N.rs":
         "fn main() { let v: Vec<i32> = vec![]; let i = std::env::args().count() + @M; println!(\"{}\", v[i]); }\n"},
         needs="rustc"),
    Case("cargo no manifest", "cargo build", needs="cargo"),
    node_case("undefined name", "console.log(@O_x)\n"),
    node_case("property of undefined", "const @N = undefined\n@N.@O\n"),
    node_case("not a function", "const @N = {}\n@N.@O()\n"),
    node_case("missing module", "require('./@N_missing')\n"),
    node_case("syntax error", "const @O = {\n"),
    node_case("bad json", "JSON.parse('{@O')\n"),
    node_case("missing file", "require('fs').readFileSync('/nowhere/@N/@O.txt')\n"),
    node_case("thrown error", "throw new Error('quota of @M exceeded')\n"),
    node_case("const assignment", "const @O = @M\n@O = 2\n"),
    tsc_case("unknown name", "console.log(@O_x)\n"),
    tsc_case("wrong type", "const @O: number = '@N'\n"),
    tsc_case("missing property", "const @N = { a: @M }\nconsole.log(@N.@O)\n"),
    tsc_case("missing module", "import { a } from './@N_missing'\nconsole.log(a)\n"),
    tsc_case("implicit any", "export function @N(@O) { return 1 }\n"),
    tsc_case("argument count", "function @N(a: number) { return a }\n@N(@M, 2)\n"),
    Case("tsc no file", "npx tsc --noEmit @N_missing.ts", needs="node_modules/.bin/tsc"),
    eslint_case("unused", "no-unused-vars", "const @O = @M\n"),
    eslint_case("undefined", "no-undef", "@O_x()\n"),
    eslint_case("equality", "eqeqeq", "export const @O = (a) => a == @M\n"),
    eslint_case("parse error", "no-undef", "const @O = {\n"),
    Case("jest comparison", "npx jest --rootDir . @N", {"@N.test.js": "test('@O', () => { expect(@M).toBe(-1) })\n",
         "package.json": "{}"}, needs="node_modules/.bin/jest"),
    Case("npm missing script", "npm run @O", {"package.json": '{"name": "@N", "version": "1.0.0"}'}),
    Case("npm no package.json", "npm run build"),
    Case("npm bad package.json", "npm run build", {"package.json": '{"name": "@N",,}'}),
    Case("npm script fails inside", "npm run build", {"package.json":
         '{"name": "@N", "version": "1.0.0", "scripts": {"build": "node @O.js"}}', "@O.js": "null.@N\n"}),
    Case("git not a repository", "git status", setup="rm -rf .git"),
    Case("git unknown revision", "git log @N_branch", setup=COMMIT),
    Case("git unknown pathspec", "git checkout @O_missing", setup=COMMIT),
    Case("git unmatched add", "git add @O_missing.py", setup=COMMIT),
    Case("git no remote", "git push @N main", setup=COMMIT),
    Case("git branch exists", "git branch @O", setup=COMMIT + " && git branch @O"),
    Case("git overwritten", "git checkout @O", setup=COMMIT + " && git checkout -qb @O && echo 1 > @N.txt && "
         "git commit -qam second && git checkout -q - && echo 2 > @N.txt"),
    Case("git merge conflict", "git merge @O", setup=COMMIT + " && git checkout -qb @O && echo 1 > @N.txt && "
         "git commit -qam second && git checkout -q - && echo 2 > @N.txt && git commit -qam third"),
    Case("git unknown command", "git @O_cmd", setup=COMMIT),
    Case("git bad clone", "git clone /nowhere/@N/@O.git", needs="git"),
    Case("git unknown option", "git status --@O-option", setup=COMMIT),
    Case("git no identity", "git -c user.useConfigOnly=true commit --allow-empty -m x", setup="git init -q ."),
    Case("make no rule", "make @O", {"Makefile": "all:\n\ttrue\n"}),
    Case("make no makefile", "make", needs="make"),
    Case("make missing separator", "make", {"Makefile": "all:\n    echo @N\n"}),
    Case("make recipe fails", "make @O", {"Makefile": "@O:\n\t@cp /nowhere/@N.txt .\n"}),
    Case("pip no distribution", "python3 -m pip install --no-index @N-missing-@M", needs="pip"),
    Case("pip no requirements", "python3 -m pip install -r @O.txt", needs="pip"),
    Case("curl no host", "curl -sS http://@N-missing.invalid/@O"),
    Case("curl refused", "curl -sS http://127.0.0.1:1@M/@O"),
    Case("curl bad option", "curl --@O-wrong http://127.0.0.1/"),
    Case("curl unknown scheme", "curl -sS x@M://127.0.0.1/@O", needs="curl"),
    Case("docker absent", "docker run -v /@N:/data @O:@M", needs="!docker"),
    Case("kubectl absent", "kubectl_absent get pod @N", needs="!kubectl_absent"),
    Case("ls no file", "ls /nowhere/@N/@O"),
    Case("cat no file", "cat src/@N/@O.py"),
    Case("cat directory", "cat @N_dir", setup="mkdir @N_dir"),
    Case("cp no file", "cp /nowhere/@O.txt @N.txt"),
    Case("mkdir exists", "mkdir @N_dir", setup="mkdir @N_dir"),
    Case("rm no file", "rm src/@N/@O.txt"),
    Case("rmdir not empty", "rmdir @N_dir", setup="mkdir -p @N_dir/@O"),
    Case("cd no folder", "cd /nowhere/@N", needs="bash"),
    Case("script not executable", "./@N.sh", {"@N.sh": "echo @M\n"}),
    Case("script not there", "bash scripts/@N.sh", needs="bash"),
    Case("shell syntax", "bash @N.sh", {"@N.sh": "if [ @M -gt 1 ]; then\necho @O\n"}),
    Case("unbound variable", "bash -u @N.sh", {"@N.sh": "echo $@O_value\n"}),
    Case("sed bad command", "sed s/@N @N.txt", {"@N.txt": "x\n"}),
    Case("grep no file", "grep @O src/@N.py"),
    Case("grep bad pattern", "grep -E '@O(' @N.txt", {"@N.txt": "x\n"}),
    Case("tar no archive", "tar xzf @N-@M.tar.gz"),
    Case("tar not gzip", "tar xzf @N.tar.gz", {"@N.tar.gz": "@O\n"}),
    Case("unzip no file", "unzip -q @N-@M.zip"),
    Case("jq parse error", "jq .@O @N.json", {"@N.json": "{\"a\": @M,,}"}),
    Case("jq wrong type", "jq .a.@O @N.json", {"@N.json": "{\"a\": @M}"}),
    Case("sqlite no table", "sqlite3 @N.db 'select * from @O'"),
    Case("sqlite syntax", "sqlite3 @N.db 'selec @O'"),
    Case("psql no server", "psql -h 127.0.0.1 -p 54@M -U @N -c 'select 1'", needs="psql"),
    Case("ssh no host", "ssh -o BatchMode=yes @N-missing.invalid true"),
    Case("cmake no source", "cmake -S /nowhere/@N -B out"),
    Case("java missing symbol", "javac @N.java", {"@N.java": "class A { int f() { return @O_x; } }\n"}, needs="javac"),
    Case("java exception", "java @N.java", {"@N.java":
         "class A { public static void main(String[] a) { int[] x = new int[1]; x[@M] = 1; } }\n"}, needs="java"),
    Case("java no class", "java @N_Missing", needs="java"),
    Case("perl undefined sub", "perl @N.pl", {"@N.pl": "@O_go(@M);\n"}),
    Case("perl missing module", "perl -e 'use @N_Missing;'"),
    Case("mypy return type", "python3 -m mypy --cache-dir=/dev/null @N.py", {"@N.py":
         "def @O() -> int:\n    return 'x'\n"}, needs="mypy"),
    Case("mypy missing name", "python3 -m mypy --cache-dir=/dev/null @N.py", {"@N.py": "print(@O_x)\n"}, needs="mypy"),
    Case("ruff unused import", f"{RUFF} @N.py", {"@N.py": "import json as @O\n"}, needs="ruff"),
    Case("ruff undefined name", f"{RUFF} @N.py", {"@N.py": "print(@O_x)\n"}, needs="ruff"),
    Case("terraform no init", "terraform plan -no-color", {"main.tf": 'resource "null_resource" "@O" {}\n'},
         needs="terraform"),
    Case("node bad option", "node --@O-wrong x.js", needs="node"),
    Case("kill no process", "kill -9 99@M99", needs="bash"),
    Case("dd no file", "dd if=/nowhere/@N/@O of=/dev/null", needs="dd"),
    Case("chmod denied", "chmod 777 /nowhere/@N", needs="chmod"),
)  # fmt: skip

HELD_OUT = (
    python_case("held: wrong keyword", "def @N():\n    pass\n@N(@O=@M)\n"),
    python_case("held: unhashable", "{[@M]: 1}\n"),
    python_case("held: none attribute", "x = None\nx.@O()\n"),
    python_case("held: stop", "next(iter([]))\n"),
    python_case("held: not callable", "@O = @M\n@O()\n"),
    python_case("held: unexpected eof", "print((@M\n"),
    python_case("held: date", "import datetime\ndatetime.date(2024, 13, 1)\n"),
    python_case("held: own exception",
                "class BudgetError(Exception):\n    pass\nraise BudgetError('@O is over by @M')\n"),
    python_case("held: timeout", "raise TimeoutError('no answer within @M seconds')\n"),
    python_case("held: subprocess", "import subprocess\nsubprocess.run(['false', '@O'], check=True)\n"),
    python_case("held: is a folder", "import os\nos.mkdir('@O')\nopen('@O')\n"),
    Case("held: python no script", "python3 tools/@N.py"),
    Case("held: python bad option", "python3 --@O x.py"),
    Case("held: argparse choice", "python3 @N.py @O", {"@N.py":
         ARGPARSE + "p.add_argument('mode', choices=['a', 'b'])\np.parse_args()\n"}),
    Case("held: argparse missing", "python3 @N.py", {"@N.py":
         ARGPARSE + "p.add_argument('--@O', required=True)\np.parse_args()\n"}),
    node_case("held: rejection", "Promise.reject(new TypeError('bad @M'))\n"),
    node_case("held: not iterable", "const [a] = @M\n"),
    node_case("held: invalid regexp", "new RegExp('(@O')\n"),
    node_case("held: exit with message", "console.error('fatal: @O not configured'); process.exit(@M)\n"),
    c_case("held: missing brace", "int main(void) { if (@M) { return 1; \n"),
    c_case("held: incompatible", "struct s { int a; };\nint main(void) { struct s @O; return @O; }\n"),
    c_case("held: redefinition", "int @O(void) { return 1; }\nint @O(void) { return 2; }\nint main(void){return 0;}\n"),
    c_case("held: no member", "struct s { int a; };\nint main(void) { struct s v; return v.@O; }\n"),
    Case("held: git nothing to commit", "git commit -m @O", setup=COMMIT),
    Case("held: git tag exists", "git tag @O", setup=COMMIT + " && git tag @O"),
    Case("held: git unknown remote", "git fetch @O", setup=COMMIT),
    Case("held: git apply", "git apply @N.patch", {"@N.patch": "not a patch @M\n"}, setup="git init -q ."),
    Case("held: git stash empty", "git stash pop", setup=COMMIT),
    Case("held: git worktree", "git worktree add /proc/@N @O", setup=COMMIT),
    Case("held: mv no file", "mv src/@N.txt dst/@O.txt"),
    Case("held: touch no folder", "touch /nowhere/@N/@O"),
    Case("held: ln exists", "ln -s a @N", setup="touch @N"),
    Case("held: head no file", "head -n @M logs/@N.log"),
    Case("held: sort bad option", "sort --@O x"),
    Case("held: find bad expression", "find . -@O x"),
    Case("held: xargs", "echo @N | xargs cat"),
    Case("held: awk syntax", "awk '{ print $@M' /dev/null"),
    Case("held: bash bad substitution", "bash @N.sh", {"@N.sh": "echo ${@O!}\n"}),
    Case("held: make circular include", "make -f @N.mk", {"@N.mk": "include /nowhere/@O.mk\n"}, needs="make"),
    Case("held: make syntax", "make", {"Makefile": "ifeq (1,1)\nall:\n\ttrue\n# @N\n"}),
    Case("held: curl bad url", "curl -sS 'http://[@M'"),
    Case("held: npm bad command", "npm @O-nothing"),
    Case("held: jq syntax", "jq '.[' @N.json", {"@N.json": "{}"}),
    Case("held: rust unwrap", "rustc @N.rs && ./@N", {"@N.rs":
         "fn main() { let v: Option<i32> = None; println!(\"{}\", v.unwrap() + @M); }\n"}, needs="rustc"),
    Case("held: lua nil", "lua @N.lua", {"@N.lua": "local @O = nil\nprint(@O.x)\n"}),
    Case("held: lua call", "lua @N.lua", {"@N.lua": "zz@O(@M)\n"}),
    Case("held: go unused", "go run @N.go", {"@N.go": "package main\nfunc main() { @O := @M }\n"}),
    Case("held: go nil map", "go run @N.go", {"@N.go":
         'package main\nfunc main() { var m map[string]int; m["@O"] = @M }\n'}),
    Case("held: ruby nil", "ruby @N.rb", {"@N.rb": "@Ox = nil\nputs @Ox.length\n"}),
    Case("held: ruby load", "ruby @N.rb", {"@N.rb": "require '@O_gem'\n"}),
    Case("held: php type", "php @N.php", {"@N.php":
         "<?php\ndeclare(strict_types=1);\nfunction f(int $a) {}\nf('@O');\n"}),
    Case("held: sqlite not a database", "sqlite3 @N.db .tables", {"@N.db": "not a database file @M\n" * 40}),
    Case("held: git merge conflict", "git merge side", setup=COMMIT + " && git checkout -qb side && echo 2 > @N.txt"
         " && git commit -qam s && git checkout -q - && echo third > @N.txt && git commit -qam m"),
    Case("held: unittest not raised", "python3 -m unittest test_@N", {"test_@N.py": "import unittest\n"
         "class T(unittest.TestCase):\n  def test_@O(self):\n    with self.assertRaises(ValueError): int('@M')\n"}),
)  # fmt: skip
"""Causes added after the rules were written, to see how they do on what they were not written for."""

NOTHING = (
    "grep @O @N.txt", "grep -q @O @N.txt", "grep -rn @O .", "cat @N.txt | grep @O", "ls | grep @O",
    "grep -E '@O|x@M' @N.txt", "egrep @O @N.txt", "fgrep @O @N.txt", "zgrep @O @N.txt", "rg @O", "rg -n @O @N.txt",
    "diff -q @N.txt other.txt > /dev/null", "diff @N.txt other.txt >/dev/null 2>&1", "cmp -s @N.txt other.txt",
    "test -f @O", "[ -d @O ]", "[[ @M == x ]]", "test -f @O && echo yes", "[ -f @O ] && cat @O", "command -v @O",
    "which @O", "pgrep -f @O-process-@M", "git diff --quiet", "git diff --exit-code > /dev/null", "git grep @O",
    "git diff --quiet HEAD -- @N.txt", "git check-ignore @N.txt", "git config --get user.nick",
    "git merge-base --is-ancestor HEAD HEAD~1", "git -C . grep -n @O", "echo checking; grep @O @N.txt",
    "echo start && grep -c @O @N.txt > /dev/null", "find . -name '*.txt' | xargs grep -l @O", "X=1 grep @O @N.txt",
    "timeout 10 grep @O @N.txt", "bash -c 'grep @O @N.txt'", "for f in *.txt; do grep @O $f; done",
    "if [ -d @O ]; then ls; else grep -q @O @N.txt; fi", "grep @O @N.txt | head -3; test ${PIPESTATUS[0]} = 0",
    "set -o pipefail; grep @O @N.txt | sort", "pidof @O-daemon-@M", "lsof -t @N.txt", "jq -e .@O @N.json > /dev/null",
    "git show-ref --verify --quiet refs/heads/@O", "git rev-parse --verify --quiet @O", "test @M -lt 1",
    "(( @M == 0 ))",
)  # fmt: skip
NOTHING_SETUP = (
    f"{COMMIT} && git commit -q --allow-empty -m second && echo more >> @N.txt && echo else > other.txt && "
    "echo '{}' > @N.json"
)
NOT_NOTHING = (
    "grep @O missing-@N.txt", "grep -E '(' @N.txt", "diff @N.txt missing.txt", "test 1 -lt @O", "python3 -c 'exit(1)'",
    "node -e 'process.exit(1)'", "false; python3 -c 'raise SystemExit(1)'", "git grep", "rg --@O-wrong x",
    "make -s -f /dev/null @O", "python3 -c 'print(@M); exit(1)'", "git diff missing-@O", "cat @O", "ls @O",
    "grep x @N.txt; python3 -c 'exit(1)'", "npm run --silent @O", "bash -c 'exit 1'", "cd missing-@N && grep x y",
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """One failed command and its cause."""

    cause: str
    command: str
    code: int
    output: str


def run_cases(cases: Iterable[Case], scratch: Path, node: Path | None, variants: int) -> Iterator[Failure]:
    for number, each in enumerate(cases):
        if not _is_installed(each.needs or each.command.split()[0], node):
            print(f"left out: {each.cause}", file=sys.stderr)
            continue
        for variant in range(variants):
            folder = scratch / f"{NAMES[-variant - 1]}-{number}" / f"work{variant * 7}"
            failure = _run_case(each, folder, variant, node)
            if failure is None:
                print(f"did not fail: {each.cause}", file=sys.stderr)
                break
            yield failure


def _is_installed(tool: str, node: Path | None) -> bool:
    if tool.startswith("!"):
        return True
    if tool.startswith("node_modules"):
        return node is not None and (node / tool).exists()
    if tool in ("pytest", "mypy", "ruff", "pip"):
        return not subprocess.run(["python3", "-m", tool, "--version"], capture_output=True, check=False).returncode
    return tool.startswith("./") or shutil.which(tool) is not None or tool in ("cd", "kill")


def _fill(text: str, variant: int) -> str:
    return text.replace("@N", NAMES[variant]).replace("@O", OTHERS[variant]).replace("@M", NUMBERS[variant])


def _run_case(each: Case, folder: Path, variant: int, node: Path | None) -> Failure | None:
    folder.mkdir(parents=True)
    for name, text in each.files.items():
        (folder / _fill(name, variant)).write_text(_fill(text, variant))
    if node is not None and each.needs.startswith("node_modules"):
        (folder / "node_modules").symlink_to(node / "node_modules")
    homes = {"RUSTUP_HOME": str(Path.home() / ".rustup"), "CARGO_HOME": str(Path.home() / ".cargo")}
    plain = {"NO_COLOR": "1", "LC_ALL": "C.UTF-8", "npm_config_update_notifier": "false"}
    environ = {**os.environ, **homes, **plain, "HOME": str(folder)}
    environ.pop("FORCE_COLOR", None)
    if each.needs == "!docker":
        environ["PATH"] = "/bin:/usr/bin"
    if each.setup:
        setup = ["bash", "-c", _fill(each.setup, variant)]
        subprocess.run(setup, cwd=folder, env=environ, capture_output=True, check=False)
    command = _fill(each.command, variant)
    form = FORMS[variant % len(FORMS)]
    if " && " in command and form.startswith("timeout"):
        form = FORMS[0]
    if command.startswith("cd "):
        form = FORMS[0]
    line = form.format(command=command, folder=folder, quoted="'" + command.replace("'", "'\\''") + "'")
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environ, capture_output=True, text=True, errors="replace",
        timeout=120, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    output = "\n".join(part for part in (done.stdout.rstrip("\n"), done.stderr.rstrip("\n")) if part)
    return Failure(each.cause, line, done.returncode, output) if done.returncode else None


def read_failures(failures: Sequence[Failure], scratch: Path) -> list[CallRow]:
    """Record the failures in transcripts of two clients and return the rows that are read from them."""
    rows: dict[int, CallRow] = {}
    claude = TranscriptBuilder(session_id="causes").prompt("go")
    codex = RolloutBuilder().prompt("go")
    numbers: dict[str, int] = {}
    for number, failure in enumerate(failures):
        if number % 2:
            call = claude.call("Bash", {"command": failure.command}, id=f"toolu_{number}")
            claude.result(call, claude_results.exited(failure.code, failure.output))
            numbers[f"toolu_{number}"] = number
        else:
            call = codex.call("exec_command", {"cmd": failure.command}, id=f"call_{number}")
            codex.output(call, command_output(failure.output, code=failure.code))
            numbers[f"call_{number}"] = number
    for path in (claude.write(scratch / "causes.jsonl"), codex.write(scratch)):
        for row in scan_file(str(path)).calls:
            rows[numbers[row.id]] = row
    return [rows[number] for number in range(len(failures))]


_PATH = re.compile(r"(?<![\w.~-])(?:[A-Za-z]:)?[\w.~-]*(?:[/\\][\w.@+~-]+)+[/\\]?")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")


def first_line_signature(row: CallRow) -> str:
    """Return the key by which failures were grouped before: kind, tool and masked first line."""
    line = (row.message or "").partition("\n")[0][:160]
    masked = re.sub(r"\d+", "N", _PATH.sub("PATH", _QUOTED.sub("'…'", line)))
    return f"{row.error_kind} {row.tool}: {masked[:60]}"


def pairwise(causes: Sequence[str], groups: Sequence[str]) -> tuple[float, float]:
    """Return precision and recall over all pairs."""
    same_group = same_cause = both = 0
    for (cause, group), (other_cause, other_group) in combinations(zip(causes, groups, strict=True), 2):
        same_cause += cause == other_cause
        same_group += group == other_group
        both += cause == other_cause and group == other_group
    return (both / same_group if same_group else 1.0), (both / same_cause if same_cause else 1.0)


def mixed_share(rows: Sequence[CallRow], keys: Sequence[str]) -> tuple[int, float]:
    """Return the number of groups, and the share of rows in groups with more than one distinct telling line."""
    lines: defaultdict[str, set[str]] = defaultdict(set)
    for row, key in zip(rows, keys, strict=True):
        lines[key].add(normalize_line(row.error_text or ""))
    mixed = sum(len(lines[key]) > 1 for key in keys)
    return len(lines), mixed / len(keys) if keys else 0.0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--node", type=Path)
    options.add_argument("--archive", type=Path)
    options.add_argument("--variants", type=int, default=3)
    options.add_argument("--failures", type=Path, help="a file to keep the failures in, or to read them from")
    options.add_argument("--show", action="store_true", help="print every group that is split or mixed")
    options.add_argument("--json", type=Path)
    options.add_argument("--enforce", action="store_true")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if asked.failures and asked.failures.exists():
            recorded = [Failure(**json.loads(line)) for line in asked.failures.read_text().splitlines()]
        else:
            quiet = [
                Case(cause, command, setup=NOTHING_SETUP, needs="rg" if command.startswith("rg ") else "git")
                for cause, commands in (("nothing", NOTHING), ("error", NOT_NOTHING))
                for command in commands
            ]
            recorded = list(run_cases(CASES, scratch / "run", asked.node, asked.variants))
            recorded += run_cases(HELD_OUT, scratch / "held", asked.node, asked.variants)
            recorded += run_cases(quiet, scratch / "quiet", asked.node, 2)
            if asked.failures:
                asked.failures.write_text("".join(json.dumps(asdict(failure)) + "\n" for failure in recorded))
        failures = [failure for failure in recorded if failure.cause not in ("nothing", "error")]
        searches = [failure for failure in recorded if failure.cause in ("nothing", "error")]
        rows = read_failures(failures, scratch)
        (scratch / "s").mkdir()
        search_rows = read_failures(searches, scratch / "s")
    causes = [failure.cause for failure in failures]
    groups = [row.error_group or "" for row in rows]
    before = pairwise(causes, [first_line_signature(row) for row in rows])
    precision, recall = pairwise(causes, groups)
    held = [index for index, cause in enumerate(causes) if "held: " in cause]
    held_causes = [causes[index] for index in held]
    held_precision, held_recall = pairwise(held_causes, [groups[index] for index in held])
    right = [
        (row.error_kind == "nothing_found") == (search.cause == "nothing")
        for row, search in zip(search_rows, searches, strict=True)
    ]
    if asked.show:
        _show(failures, rows)
        for row, search, is_right in zip(search_rows, searches, right, strict=True):
            if not is_right:
                print(
                    f"{search.cause}: {search.command!r} exit {search.code} {search.output[:100]!r}: {row.error_kind}"
                )
    figures = {
        "failures": len(failures), "causes": len(set(causes)), "groups": len(set(groups)),
        "precision": precision, "recall": recall, "held out: failures": len(held),
        "held out: causes": len(set(held_causes)), "held out: precision": held_precision,
        "held out: recall": held_recall, "precision before": before[0], "recall before": before[1],
        "nothing found": sum(right) / len(right) if right else 1.0, "searches": len(right),
    }  # fmt: skip
    met = precision >= PRECISION and recall >= RECALL and figures["nothing found"] >= NOTHING_FOUND
    if asked.archive:
        calls = [row for path in sorted(asked.archive.rglob("*.jsonl")) for row in scan_file(str(path)).calls]
        commands = [row for row in calls if row.error_kind == "command_failed"]
        figures["archive: failed commands"] = len(commands)
        for when, keys in (
            ("before", [first_line_signature(row) for row in commands]),
            ("after", [row.error_group or "" for row in commands]),
        ):
            figures[f"archive: groups {when}"], figures[f"archive: mixed {when}"] = mixed_share(commands, keys)
        met = met and figures["archive: mixed after"] <= MIXED
    for name, value in figures.items():
        print(f"{name:<28} {value:.3f}" if isinstance(value, float) else f"{name:<28} {value}")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1))
    return int(asked.enforce and not met)


def _show(failures: Sequence[Failure], rows: Sequence[CallRow]) -> None:
    by_cause: defaultdict[str, list[CallRow]] = defaultdict(list)
    by_group: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for failure, row in zip(failures, rows, strict=True):
        by_cause[failure.cause].append(row)
        by_group[row.error_group or ""][failure.cause] += 1
    for cause, members in by_cause.items():
        if len({row.error_group for row in members}) > 1:
            print(f"SPLIT {cause}")
            for row in members:
                print(f"    {row.error_program}: {normalize_line(row.error_text or '')}   <- {row.error_text!r}")
    for group, counts in by_group.items():
        if len(counts) > 1:
            row = next(row for row in rows if row.error_group == group)
            print(f"MIXED {dict(counts)}: {row.error_program}: {row.error_text}")


if __name__ == "__main__":
    sys.exit(main())

"""Everyday builds and test runs work in a sandbox."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from toolspan import Sandbox, Session
from toolspan.session import SingleCallRunner

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("bubblewrap")]
_GIT = "git -c user.name=a -c user.email=b@c -c init.defaultBranch=main"
_PACKAGE = '{"name": "app", "scripts": {"test": "node test.js"}, "dependencies": {"pkg": "file:./pkg"}}'
_SERVE = "python3 -m http.server 8139 --bind 127.0.0.1 >/dev/null 2>&1 &"
_FETCH = "for i in $(seq 50); do curl -sf http://127.0.0.1:8139/app.c >/dev/null && break; sleep 0.1; done"

BUILDS = {
    "git commit": f"git init -q repo && cd repo && echo 1 > a && git add . && {_GIT} commit -qm one && git log",
    "git branch and merge": f"cd repo && git checkout -qb b && echo 2 > b && git add . && {_GIT} commit -qm two"
    f" && git checkout -q - && {_GIT} merge -q b && test -f b",
    "git stash and diff": f"cd repo && echo 3 >> a && git diff --stat && {_GIT} stash -q && {_GIT} stash pop -q",
    "git clone": "git clone -q repo copy && git -C copy log --oneline",
    "git worktree": "cd repo && git worktree add -q ../tree && test -f ../tree/a",
    "gcc": "echo 'int main(void){return 0;}' > app.c && gcc -O2 -o app app.c && ./app",
    "make": "printf 'all: out\\nout: app.c\\n\\tgcc -c app.c -o out\\n' > Makefile && make -s -j2 && make -q",
    "static library": "gcc -c app.c && ar rcs libapp.a app.o && nm libapp.a | grep -q main",
    "python venv": "python3 -m venv --without-pip env && env/bin/python -c 'import sys; print(sys.prefix)'",
    "pip install": "python3 -m pip -q --disable-pip-version-check install --no-index --target lib wheels/*.whl"
    "; PYTHONPATH=lib python3 -c 'import sample'",
    "pytest": 'echo \'def test_it(tmp_path): (tmp_path / "a").write_text("b")\' > test_it.py'
    " && python3 -m pytest -q -p no:cacheprovider test_it.py",
    "unittest": "printf 'import unittest\\nclass T(unittest.TestCase):\\n def test_a(self): pass\\n' > test_u.py"
    " && python3 -m unittest -q test_u",
    "multiprocessing": "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))'",
    "sqlite": 'python3 -c \'import sqlite3; sqlite3.connect("db").execute("create table t(a)")\' && test -s db',
    "node": 'node -e \'require("fs").writeFileSync("n", "1"); console.log(require("os").tmpdir())\'',
    "node child process": 'node -e \'console.log(require("child_process").execSync("echo hi") + "")\' | grep hi',
    "npm install": f"mkdir -p pkg && echo 'module.exports = 42' > pkg/index.js && echo '{_PACKAGE}' > package.json"
    ' && echo \'{"name": "pkg", "version": "1.0.0"}\' > pkg/package.json'
    " && npm install --offline --no-audit --no-fund",
    "npm test": "echo 'if (require(\"pkg\") !== 42) process.exit(1)' > test.js && npm test",
    "cargo build": "cargo init -q --vcs none --name x crate && cd crate && cargo build --offline -q",
    "cargo test": "cd crate && cargo test --offline -q",
    "archives": "tar czf r.tgz repo && mkdir un && tar xzf r.tgz -C un && diff -r repo un/repo",
    "temporary files": 'f=$(mktemp) && echo a > "$f" && sort "$f" | tee b && mkfifo p && (echo x > p & cat p)',
    "local server": f"{_SERVE} {_FETCH}; kill %1",
}
_QUICK = ("git commit", "gcc", "make", "temporary files")


async def run_builds(folder: Path, names: list[str], sandbox: Sandbox | None = None) -> dict[str, object]:
    """Run builds one after the other and return the results of those that failed."""
    failed: dict[str, object] = {}
    async with Session(cwd=folder, sandbox=sandbox or Sandbox(), transcript=None) as session:
        for name in names:
            command = f"({BUILDS[name]})"
            finished = (await SingleCallRunner(session).run_call("Bash", {"command": command})).finished
            if finished.span.state != "succeeded":
                failed[name] = finished.content
    return failed


async def test_a_repository_and_a_program_are_built(folder: Path) -> None:
    names = [name for name in _QUICK if shutil.which("gcc") or name not in ("gcc", "make")]

    assert await run_builds(folder, names) == {}


@pytest.mark.slow
@pytest.mark.parametrize("private_caches", [False, True])
async def test_everyday_builds_and_test_runs_work(folder: Path, *, private_caches: bool) -> None:
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / "wheels/sample-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sample.py", "")
        wheel.writestr("sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
        wheel.writestr("sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("sample-1.0.dist-info/RECORD", "")
    missing = [program for program in ("cargo", "gcc", "make", "node", "npm") if shutil.which(program) is None]
    names = [name for name in BUILDS if not any(re.search(rf"\b{program}\b", BUILDS[name]) for program in missing)]

    assert await run_builds(folder, names, Sandbox(private_caches=private_caches, allowed_domains=["*:*"])) == {}
    assert missing or len(names) >= 20

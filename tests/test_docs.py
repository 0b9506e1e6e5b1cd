"""What the reference says is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from toolspan.cli.app import COMMANDS
from toolspan.read.damage import CODES

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)#:]+)\)")


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/docs.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_and_finding_is_documented() -> None:
    commands = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    findings = (ROOT / "docs/findings.md").read_text(encoding="utf-8")

    assert [name for name in COMMANDS if f"## {name}\n" not in commands] == []
    assert [code for code in CODES if f"`{code}`" not in findings] == []


def test_the_readme_shows_both_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "make run" in readme
    assert "make test" in readme


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]

    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]

    assert broken == []

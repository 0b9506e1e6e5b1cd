"""The files of a project that decide what other programs run later, for permissions and for the sandbox."""

from __future__ import annotations

from typing import Literal

Layer = Literal["both", "permissions", "sandbox"]

PROTECTED_FILES: dict[str, Layer] = {
    # Shells and terminals
    ".bash_aliases": "both", ".bash_login": "both", ".bash_logout": "both", ".bash_profile": "both", ".bashrc": "both",
    ".profile": "both", ".zlogin": "both", ".zlogout": "both", ".zprofile": "both", ".zshenv": "both",
    ".zshrc": "both", ".envrc": "both", ".mise.toml": "sandbox", "mise.toml": "sandbox",
    # Version control. The sandbox protects parts of `.git`, because commits must work.
    ".git/": "permissions", ".gitconfig": "both", ".gitmodules": "both", ".hg/hgrc": "sandbox",
    ".jj/repo/config.toml": "sandbox", ".husky/": "both", ".lefthook.yaml": "both", ".lefthook.yml": "both",
    "lefthook.yaml": "both", "lefthook.yml": "both", ".pre-commit-config.yaml": "both",
    # Editors and containers
    ".devcontainer/": "both", ".devcontainer.json": "both", ".idea/": "both", ".vscode/": "both", ".zed/": "sandbox",
    ".fleet/": "sandbox", ".exrc": "sandbox", ".nvimrc": "sandbox", ".nvim.lua": "sandbox", ".vimrc": "sandbox",
    ".dir-locals.el": "sandbox", ".gdbinit": "sandbox", ".lldbinit": "sandbox",
    # Coding agents. The sandbox protects the parts of `.claude` that matter in added folders.
    ".claude/": "permissions", ".claude.json": "both", ".mcp.json": "both", "CLAUDE.md": "sandbox",
    "CLAUDE.local.md": "sandbox", "AGENTS.md": "sandbox", "AGENTS.override.md": "sandbox", "GEMINI.md": "sandbox",
    ".codex/": "sandbox", ".gemini/": "sandbox", ".cursor/": "sandbox", ".cursorrules": "sandbox",
    ".windsurf/": "sandbox", ".windsurfrules": "sandbox", ".clinerules": "sandbox", ".roo/": "sandbox",
    ".kiro/": "sandbox", ".opencode/": "sandbox", "opencode.json": "sandbox", ".aider.conf.yml": "sandbox",
    # Build services
    ".github/workflows/": "sandbox", ".github/actions/": "sandbox", ".github/copilot-instructions.md": "sandbox",
    ".gitlab-ci.yml": "sandbox", ".circleci/": "sandbox", "azure-pipelines.yml": "sandbox", "Jenkinsfile": "sandbox",
    # Package managers. Builds write to `.yarn`, `.cargo`, `.mvn` and `.pnp.cjs`; the sandbox protects their settings.
    ".bazeliskrc": "both", ".bazelrc": "both", ".bazelversion": "both", ".bunfig.toml": "both", "bunfig.toml": "both",
    ".cargo/": "permissions", ".cargo/config": "sandbox", ".cargo/config.toml": "sandbox", ".mvn/": "permissions",
    ".mvn/extensions.xml": "sandbox", ".mvn/jvm.config": "sandbox", ".mvn/maven.config": "sandbox",
    ".mvn/wrapper/maven-wrapper.properties": "sandbox", "maven-wrapper.properties": "permissions",
    "gradle/wrapper/gradle-wrapper.properties": "sandbox", "gradle-wrapper.properties": "permissions",
    ".npmrc": "both", ".pnp.cjs": "permissions", ".pnp.loader.mjs": "permissions", ".pnpmfile.cjs": "both",
    ".yarn/": "permissions", ".yarn/releases/": "sandbox", ".yarn/plugins/": "sandbox", ".yarnrc": "both",
    ".yarnrc.yml": "both",
    # Other tools
    ".ripgreprc": "both", "pyrightconfig.json": "both",
}  # fmt: skip
"""The layer that protects each file, or, with a slash at the end, each folder.

The permission layer asks before Edit, Write and understood commands change a file with such a name, in any folder. The
sandbox makes the paths read-only at the top of each writable folder.
"""

READ_ONLY_PATHS = tuple(name.rstrip("/") for name, layer in PROTECTED_FILES.items() if layer != "permissions")
"""The paths that the sandbox protects."""
_ASKED = [name for name, layer in PROTECTED_FILES.items() if layer != "sandbox"]
ASKED_FOLDERS = frozenset(name.rstrip("/") for name in _ASKED if name.endswith("/"))
"""The folders that the permission layer protects, with everything below them."""
ASKED_FILES = frozenset(name for name in _ASKED if not name.endswith("/"))
"""The file names that the permission layer protects."""

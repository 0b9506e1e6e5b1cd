"""A strict sandbox hides the usual secrets, and shows the toolchains that builds need."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan import Permissions, Sandbox, Session
from toolspan.runtime.sandbox.secrets import PASSED_VARIABLES, SECRET_FILES, SECRET_VARIABLE, SHOWN_FILES
from toolspan.session import SingleCallRunner

pytestmark = [pytest.mark.anyio]

# Files in which programs store keys, tokens and passwords, or in which people type them. Most are on no list.
FILES = shlex.split("""
.ssh/id_ed25519 .ssh/config .gnupg/private-keys-v1.d/key .aws/credentials .aws/config .azure/accessTokens.json
.config/gcloud/application_default_credentials.json .config/doctl/config.yaml .config/rclone/rclone.conf .s3cfg .boto
.config/hcloud/cli.toml .fly/config.yml .cloudflared/cert.pem .wrangler/config/default.toml .oci/config
.pulumi/credentials.json .terraform.d/credentials.tfrc.json .terraformrc .vault-token .kube/config .docker/config.json
.config/containers/auth.json .config/helm/registry/config.json .npmrc .yarnrc.yml .pypirc .config/pip/pip.conf
.config/pypoetry/auth.toml .cargo/credentials .cargo/credentials.toml .gem/credentials .bundle/config
.composer/auth.json .config/composer/auth.json .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties
.nuget/NuGet/NuGet.Config .config/NuGet/NuGet.Config .hex/hex.config .ivy2/.credentials .netrc .curlrc .git-credentials
.config/git/credentials .config/gh/hosts.yml .config/hub .config/glab-cli/config.yml .subversion/auth/svn.simple/x
.hgrc .pgpass .my.cnf .mylogin.cnf .mongorc.js .rediscli_auth .config/dbeaver/credentials.json .bash_history
.zsh_history .zhistory .local/share/fish/fish_history .python_history .node_repl_history .psql_history .mysql_history
.sqlite_history .irb_history .local/share/atuin/history.db .viminfo .lesshst .bashrc .zshrc .profile .envrc .env
.mozilla/firefox/x.default/logins.json .config/google-chrome/Default/Cookies .config/chromium/Default/Cookies
.config/BraveSoftware/Default/Cookies .thunderbird/x/logins.json .config/Slack/Cookies .config/discord/Cookies
.config/Signal/config.json .local/share/TelegramDesktop/tdata/key .password-store/mail.gpg
.local/share/keyrings/login.keyring .config/Bitwarden/data.json .config/op/config .authinfo .claude.json
.claude/.credentials.json .claude/projects/x/session.jsonl .codex/auth.json .gemini/oauth_creds.json
.copilot/config.json .config/github-copilot/hosts.json .local/share/opencode/auth.json .cursor/mcp.json
.aider.conf.yml .cache/huggingface/token .huggingface/token .kaggle/kaggle.json .config/wandb/settings
.config/sops/age/keys.txt .age/key.txt .circleci/cli.yml .sentryclirc .config/configstore/x.json .Xauthority
.config/Code/User/globalStorage/state.vscdb .config/filezilla/sitemanager.xml .msmtprc .databrickscfg
.config/solana/id.json .bitcoin/wallet.dat Documents/passwords.txt notes/token.txt .some-new-tool/auth.json
.config/some-new-tool/token .cache/some-new-tool/session .local/share/some-new-tool/key other-project/.env
""")

VARIABLES = shlex.split("""
PGPASSWORD MYSQL_PWD DB_PASS DB_PASSWORD SSHPASS OPENAI_KEY OPENAI_API_KEY ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN
CLAUDE_CODE_OAUTH_TOKEN STRIPE_KEY STRIPE_SECRET_KEY SSH_KEY SSH_AUTH_SOCK RAILS_MASTER_KEY SECRET_KEY_BASE
SLACK_WEBHOOK_URL SLACK_BOT_TOKEN DISCORD_WEBHOOK AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
GOOGLE_APPLICATION_CREDENTIALS AZURE_CLIENT_SECRET GITHUB_TOKEN GH_TOKEN GITLAB_TOKEN CI_JOB_TOKEN NPM_TOKEN
NODE_AUTH_TOKEN YARN_NPM_AUTH_TOKEN npm_config__auth npm_config__authToken PIP_PASSWORD UV_PUBLISH_TOKEN
POETRY_PYPI_TOKEN_PYPI POETRY_HTTP_BASIC_X_PASSWORD TWINE_PASSWORD CARGO_REGISTRY_TOKEN BUNDLE_GEMS__EXAMPLE__COM
COMPOSER_AUTH NUGET_API_KEY DATABASE_URL REDIS_URL MONGODB_URI AMQP_URL SENTRY_DSN HF_TOKEN KAGGLE_KEY
WANDB_API_KEY DOCKER_PASSWORD DOCKER_AUTH_CONFIG VAULT_TOKEN KUBECONFIG_DATA TF_TOKEN_app_terraform_io
TF_VAR_db_password SOPS_AGE_KEY GPG_PASSPHRASE JWT_SECRET COOKIE_SECRET SESSION_SECRET ENCRYPTION_KEY
TWILIO_AUTH_TOKEN SENDGRID_KEY MAILGUN_KEY CLOUDFLARE_API_TOKEN DO_TOKEN HEROKU_API_KEY SOME_NEW_TOOL
DBUS_SESSION_BUS_ADDRESS MISE_GITHUB_TOKEN CONDA_TOKEN
""")

TOOLCHAINS = shlex.split("""
.local/bin/tool .pyenv/versions/3.12/bin/python .nvm/versions/node/v22/bin/node .cargo/bin/cargo
.cargo/registry/cache/x/a.crate .rustup/toolchains/stable/bin/rustc go/pkg/mod/x/go.mod .npm/_cacache/index
.m2/repository/a/a.jar .gradle/caches/modules-2/a.jar .sdkman/candidates/java/bin/java .rbenv/versions/3/bin/ruby
.local/share/uv/tools/ruff/bin/ruff .local/share/pipx/venvs/x/bin/x .cache/pip/http/a .cache/uv/a .cache/go-build/a
.cache/huggingface/hub/model .gitconfig .config/git/ignore .claude/skills/x/SKILL.md .deno/bin/deno .bun/bin/bun
.dotnet/dotnet .nuget/packages/a/a.dll .ghcup/bin/ghc .opam/default/bin/ocaml tools/bin/mine tools/lib/mine.so
jdk/lib/modules
""")


def plant_files(home: Path, names: list[str], text: str) -> None:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def run_bash(project: Path, command: str, sandbox: Sandbox | None) -> str:
    permissions = Permissions.allow_all()
    async with Session(cwd=project, sandbox=sandbox, permissions=permissions, transcript=None) as session:
        finished = (await SingleCallRunner(session).run_call("Bash", {"command": command})).finished
        return str(finished.content)


def read_all(home: Path, names: list[str]) -> str:
    """Return a command that prints the names of the files that it can read."""
    words = " ".join(shlex.quote(str(home / name)) for name in names)
    return f'for f in {words}; do cat "$f" > /dev/null 2>&1 && echo "$f"; done; true'


@pytest.fixture
def home(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with toolchains, and with secrets in files and in variables."""
    home = user_folder / "home"
    plant_files(home, FILES, "secret")
    plant_files(home, TOOLCHAINS, "tool")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/tools/bin:{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", f"{home}/jdk")
    for name in VARIABLES:
        monkeypatch.setenv(name, "secret-value")
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret-value@example.org/simple")
    monkeypatch.setenv("NODE_ENV", "test")
    return home


@requirement("sandbox.hides-secrets")
@pytest.mark.usefixtures("bubblewrap")
async def test_no_usual_secret_is_readable_and_every_toolchain_is(home: Path, folder: Path) -> None:
    seen = await run_bash(folder, read_all(home, [*FILES, *TOOLCHAINS]), Sandbox())
    without = await run_bash(folder, read_all(home, FILES), None)

    assert seen.split() == [f"{home}/{name}" for name in TOOLCHAINS]
    assert len(without.split()) == len(FILES) >= 80


@requirement("sandbox.hides-secrets")
@pytest.mark.usefixtures("bubblewrap", "home")
async def test_no_usual_secret_variable_is_passed(folder: Path) -> None:
    inside, outside = [await run_bash(folder, "env", sandbox) for sandbox in (Sandbox(), None)]

    assert "secret-value" not in inside
    assert "NODE_ENV=test" in inside.splitlines()
    assert outside.count("secret-value") == len(VARIABLES) + 1 >= 40


@pytest.mark.usefixtures("bubblewrap", "home")
async def test_named_variables_and_those_set_for_commands_are_passed(folder: Path) -> None:
    sandbox = Sandbox(pass_variables=["GH_TOKEN"], hide_variables=["NODE_ENV"])
    async with Session(cwd=folder, sandbox=sandbox, permissions=Permissions.allow_all(), transcript=None) as session:
        workspace = session.runner.runner_context.workspace
        workspace.environment = {**workspace.environment, "MY_OPTION": "set", "MY_API_KEY": "secret"}
        finished = (await SingleCallRunner(session).run_call("Bash", {"command": "env"})).finished
    lines = str(finished.content).splitlines()

    assert {"GH_TOKEN=secret-value", "MY_OPTION=set"} <= set(lines)
    assert not [line for line in lines if line.startswith(("MY_API_KEY", "NODE_ENV"))]


@pytest.mark.usefixtures("bubblewrap")
async def test_allow_read_shows_a_folder_of_the_home_without_its_secrets(home: Path, folder: Path) -> None:
    plant_files(home, [".config/app/settings", ".config/gh/config.yml"], "text")
    names = ["notes/token.txt", ".config/app/settings", ".config/gh/hosts.yml", ".aws/config", ".ssh/config"]
    sandbox = Sandbox(allow_read=["~/notes", "~/.config", "~/.aws"])
    seen = await run_bash(folder, read_all(home, names), sandbox)
    everything = await run_bash(folder, read_all(home, names), Sandbox(allow_read=["~"]))

    assert seen.split() == [f"{home}/{name}" for name in (names[0], names[1], names[3])]
    assert everything.split() == [f"{home}/{name}" for name in names[:2]]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_link_in_a_shown_folder_may_be_shown_by_itself_too(home: Path, folder: Path) -> None:
    """As in a virtual environment on the PATH, whose `lib64` leads to its `lib`."""
    plant_files(home, ["tools/lib/module"], "text")
    (home / "tools/lib64").symlink_to("lib")

    seen = await run_bash(
        folder, read_all(home, ["tools/lib64/module"]), Sandbox(allow_read=["~/tools", "~/tools/lib64"])
    )

    assert seen.split() == [f"{home}/tools/lib64/module"]


@pytest.mark.usefixtures("bubblewrap")
async def test_links_in_the_home_lead_to_what_is_shown_and_not_to_secrets(home: Path, user_folder: Path) -> None:
    project = home / "work/project"
    project.mkdir(parents=True)
    elsewhere = user_folder / "elsewhere"
    plant_files(elsewhere, ["cargo/bin/tool", "cargo/credentials.toml"], "text")
    (home / ".cargo").rename(home / "old")
    (home / ".cargo").symlink_to(elsewhere / "cargo")
    (home / ".gitconfig").unlink()
    plant_files(home, ["dotfiles/gitconfig"], "text")
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    (home / ".rustup").rename(home / ".rustup-old")
    (home / ".rustup").symlink_to(home)  # which would show everything
    (project / "keys").symlink_to(home / ".ssh")
    names = [".cargo/bin/tool", ".cargo/credentials.toml", ".gitconfig", "dotfiles/gitconfig", ".rustup/.npmrc",
             "work/project/keys/config", "old/credentials"]  # fmt: skip

    seen = await run_bash(project, read_all(home, names), Sandbox())

    assert seen.split() == [f"{home}/{name}" for name in (names[0], names[2], names[3])]


@pytest.mark.usefixtures("bubblewrap")
async def test_the_home_is_read_only_and_refusals_are_explained(home: Path, folder: Path) -> None:
    written = await run_bash(folder, "sh -c 'echo x > ~/.bashrc'", Sandbox())
    changed = await run_bash(folder, "sh -c 'echo x > ~/.local/bin/tool'", Sandbox())
    hidden = await run_bash(folder, "cat ~/notes/token.txt", Sandbox())

    assert f"The sandbox denied writing {home}/.bashrc" in written
    assert f"The sandbox denied writing {home}/.local/bin/tool" in changed
    assert f"The sandbox denied reading {home}/notes/token.txt" in hidden
    assert ((home / ".bashrc").read_text(), (home / ".local/bin/tool").read_text()) == ("secret", "tool")


@pytest.mark.usefixtures("bubblewrap")
async def test_a_private_cache_is_writable_and_belongs_to_the_project(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLSPAN_NO_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    other = folder.parent / "other"
    other.mkdir()
    sandbox = Sandbox(private_caches=True)
    write = 'mkdir -p "$CARGO_HOME" && echo made > ~/.cache/pip-made && cat ~/.cache/huggingface/hub/model'
    assert await run_bash(folder, write, sandbox) == "tool"

    assert await run_bash(folder, "cat ~/.cache/pip-made", sandbox) == "made"
    assert "No such file" in await run_bash(other, "cat ~/.cache/pip-made", sandbox)
    assert "No such file" in await run_bash(folder, "cat ~/.cache/huggingface/token ~/.cache/pip/http/a", sandbox)
    assert not (home / ".cache/pip-made").exists()


def test_the_page_names_the_groups_of_the_lists() -> None:
    page = (Path(__file__).parents[2] / "docs/sandbox.md").read_text(encoding="utf-8")
    groups = [name for table in (SECRET_FILES, SHOWN_FILES, PASSED_VARIABLES) for name in table]

    assert [name for name in groups if f"| {name} |" not in page] == []


def test_the_lists_do_not_contradict_each_other() -> None:
    secrets = [name for names in SECRET_FILES.values() for name in names]
    shown = [name for names in SHOWN_FILES.values() for name in names]

    assert set(secrets) & set(shown) == set()
    assert len(secrets) == len(set(secrets))
    assert len(shown) == len(set(shown))
    assert not [name for names in PASSED_VARIABLES.values() for name in names if SECRET_VARIABLE.search(name)]

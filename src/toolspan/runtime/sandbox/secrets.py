"""Data: the files and variables that a strict sandbox hides, and those that it shows.

A strict sandbox denies by default. Of the home folders, it shows only `SHOWN_FILES`; of the variables, only
`PASSED_VARIABLES`. `SECRET_FILES` and `SECRET_VARIABLE` apply in addition, to secrets inside of what is shown, and to
a home folder that the project contains. `docs/sandbox.md` names the groups of each table.
"""

from __future__ import annotations

import re

SECRET_FILES: dict[str, tuple[str, ...]] = {
    "keys": (
        ".ssh", ".gnupg", ".pki", ".age", ".config/age", ".config/sops", ".config/step", ".step", ".keystore",
        ".minisign", ".signify", ".putty", ".config/filezilla", ".android/adbkey", ".android/debug.keystore",
    ),
    "password managers": (
        ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/op", ".op", ".config/Bitwarden",
        ".config/Bitwarden CLI", ".config/1Password", ".config/keepassxc", ".cache/keepassxc", ".lastpass",
        ".config/lastpass", ".config/gopass", ".local/share/gopass", ".config/rbw", ".authinfo", ".authinfo.gpg",
        ".vault-token", ".config/bw", "Library/Keychains",
    ),
    "clouds": (
        ".aws", ".azure", ".config/gcloud", ".oci", ".boto", ".s3cfg", ".config/doctl", ".config/rclone",
        ".rclone.conf", ".config/hcloud", ".config/linode-cli", ".config/scw", ".config/fly", ".fly", ".config/flyctl",
        ".wrangler", ".config/.wrangler", ".cloudflared", ".config/cloudflared", ".cf", ".bluemix", ".aliyun",
        ".tccli", ".exoscale", ".config/exoscale", ".vultr-cli.yaml", ".config/heroku", ".local/share/heroku",
        ".netlify", ".config/netlify", ".vercel", ".config/vercel", ".local/share/com.vercel.cli", ".config/railway",
        ".railway", ".config/render", ".supabase", ".config/supabase", ".firebase", ".config/configstore",
        ".config/firebase", ".mc", ".mcli", ".config/gsutil", ".openstack", ".config/openstack", ".config/stripe",
        ".config/ngrok", ".ngrok2", ".config/tailscale", ".databrickscfg", ".snowflake", ".snowsql",
        ".dbt/profiles.yml", ".config/planetscale",
    ),
    "infrastructure": (
        ".terraform.d/credentials.tfrc.json", ".terraformrc", ".pulumi", ".config/pulumi", ".ansible_vault_pass",
        ".vault_pass", ".vault_pass.txt", ".chef", ".puppetlabs", ".kube", ".config/helm", ".helm", ".config/argocd",
        ".argocd", ".config/k9s", ".talos", ".minikube", ".rancher", ".config/consul", ".nomad-token", ".config/nomad",
    ),
    "containers": (
        ".docker", ".config/containers", ".local/share/containers", ".config/docker", ".podman", ".lima", ".colima",
        ".config/lxc", ".config/incus", ".skopeo",
    ),
    "package registries": (
        ".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", ".config/pnpm", ".pypirc", ".config/pip", ".pip",
        ".config/pypoetry", ".local/share/python_keyring", ".config/hatch", ".local/share/hatch", ".config/uv",
        ".local/share/uv/credentials", ".condarc", ".conda/.condarc", ".continuum", ".config/conda",
        ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".local/share/gem/credentials",
        ".bundle/config", ".composer/auth.json", ".config/composer", ".m2/settings.xml", ".m2/settings-security.xml",
        ".gradle/gradle.properties", ".gradle/init.gradle", ".gradle/init.d", ".ivy2/.credentials", ".sbt",
        ".config/NuGet", ".nuget/NuGet", ".hex", ".config/hex", ".config/dart", ".pub-cache/credentials.json",
        ".conan/.conan.db", ".conan2/credentials.json", ".config/cpan", ".pause", ".opam/config", ".cabal/config",
        ".luarocks", ".bazelrc", ".config/helm/registry", ".nuget/config",
    ),
    "version control": (
        ".git-credentials", ".config/git/credentials", ".cache/git", ".git-credential-cache", ".config/gh",
        ".config/hub", ".config/glab-cli", ".config/tea", ".config/berg", ".hgrc", ".config/hg", ".subversion",
        ".p4tickets", ".p4enviro", ".config/jj", ".gitlab-token", ".jira.d", ".config/.jira", ".config/jira",
        ".config/github-copilot", ".config/sourcegraph", ".src-config.json", ".config/lazygit", ".config/gitui",
    ),
    "databases": (
        ".pgpass", ".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".mongodb", ".config/mongodb",
        ".rediscli_auth", ".config/redis", ".cassandra", ".clickhouse-client", ".config/dbeaver",
        ".local/share/DBeaverData", ".dbshell", ".odbc.ini", ".config/usql", ".config/pgcli", ".config/mycli",
        ".myclirc", ".sqliterc", ".influxdbv2", ".config/litecli", ".neo4j",
    ),
    "network": (
        ".netrc", "_netrc", ".curlrc", ".wgetrc", ".config/curl", ".smbcredentials", ".cifs", ".davfs2",
        ".fetchmailrc", ".msmtprc", ".config/msmtp", ".mbsyncrc", ".offlineimaprc", ".muttrc", ".mutt",
        ".config/neomutt", ".mailrc", ".config/openvpn", ".openvpn", ".config/wireguard", ".cert",
        ".local/share/networkmanagement", ".config/aerc", ".krb5", ".k5login", ".Xauthority", ".ICEauthority", ".vnc",
        ".config/tigervnc", ".rdesktop", ".config/remmina", ".local/share/remmina", ".httpie", ".config/httpie",
        ".config/Postman", ".config/Insomnia",
    ),
    "histories": (
        ".bash_history", ".zsh_history", ".zhistory", ".histfile", ".history", ".sh_history", ".ash_history",
        ".local/share/fish", ".config/fish", ".local/state/bash", ".local/state/zsh", ".local/share/zsh",
        ".zsh_sessions", ".bash_sessions", ".local/share/atuin", ".local/share/mcfly", ".local/share/nushell",
        ".config/nushell", ".local/share/powershell", ".python_history", ".node_repl_history", ".irb_history",
        ".pry_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".mongo_history",
        ".ipython", ".jupyter", ".local/share/jupyter/runtime", ".Rhistory", ".julia/logs", ".php_history",
        ".lua_history", ".scala_history", ".ghc", ".erlang-history", ".cache/erlang-history", ".lesshst", ".viminfo",
        ".local/share/nvim", ".local/state/nvim", ".vim", ".emacs.d", ".wget-hsts", ".local/share/recently-used.xbel",
        ".tmux/resurrect", ".local/share/zoxide",
    ),
    "start-up files": (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile",
        ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".login", ".pam_environment", ".envrc", ".env", ".env.local",
        ".config/direnv", ".config/environment.d", ".secrets", ".credentials", ".tokens",
    ),
    "browsers": (
        ".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
        ".config/vivaldi", ".config/opera", ".config/Arc", ".librewolf", ".zen", ".tor-browser", ".w3m", ".lynx",
        ".config/qutebrowser", ".local/share/qutebrowser", ".config/falkon", ".local/share/epiphany", "snap",
        ".var/app", ".cache/mozilla", ".cache/google-chrome", ".cache/chromium", ".cache/BraveSoftware",
        ".cache/microsoft-edge", ".cache/thumbnails", "Library/Cookies", "Library/Safari",
        "Library/Application Support", "Library/Containers",
    ),
    "mail and chat": (
        ".thunderbird", ".config/evolution", ".local/share/evolution", ".config/Slack", ".config/discord",
        ".config/Signal", ".local/share/TelegramDesktop", ".config/Element", ".config/teams", ".config/Microsoft",
        ".config/skypeforlinux", ".config/zoom.conf", ".zoom", ".weechat", ".config/weechat", ".irssi", ".purple",
        ".config/geary", "Mail", ".mail", ".config/goa-1.0",
    ),
    "AI clients": (
        ".claude.json", ".claude/.credentials.json", ".claude/projects", ".claude/history.jsonl", ".claude/todos",
        ".claude/debug", ".claude/shell-snapshots", ".claude/statsig", ".claude/settings.json", ".config/claude",
        ".config/Claude", ".cache/claude-cli-nodejs", ".codex", ".gemini", ".copilot", ".config/opencode",
        ".local/share/opencode", ".cursor", ".config/Cursor", ".continue", ".aider.conf.yml", ".aider",
        ".config/aider", ".codeium", ".windsurf", ".config/goose", ".local/share/goose", ".config/amp",
        ".local/share/amp", ".factory", ".qwen", ".kiro", ".amazonq", ".local/share/amazon-q", ".config/openai",
        ".openai", ".config/io.datasette.llm", ".config/shell_gpt", ".config/mods", ".ollama/id_ed25519",
        ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface", ".replicate",
        ".config/replicate", ".kaggle", ".config/kaggle", ".config/wandb", ".comet.config", ".cache/toolspan",
        ".config/toolspan",
    ),
    "editors and desktops": (
        ".config/Code", ".vscode", ".vscode-server", ".config/VSCodium", ".config/JetBrains", ".local/share/JetBrains",
        ".cache/JetBrains", ".config/zed", ".local/share/zed", ".config/sublime-text", ".config/obsidian",
        ".config/dconf", ".dbus", ".local/share/gvfs-metadata", ".config/syncthing", ".local/state/syncthing",
        ".dropbox", ".config/Nextcloud", ".bitcoin", ".ethereum", ".config/solana", ".electrum", ".monero", ".gnucash",
    ),
    "continuous integration": (
        ".circleci", ".config/circleci", ".travis", ".buildkite-agent", ".config/buildkite", ".config/drone",
        ".sentryclirc", ".config/sentry", ".codecov", ".snyk", ".config/snyk", ".sonar", ".jenkins", ".config/doppler",
        ".doppler", ".infisical", ".config/infisical", ".config/gitlab-runner", ".gitlab-runner", ".act", ".actrc",
    ),
}  # fmt: skip
"""Files and folders in a home folder that contain secrets, by group."""

SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/krb5.keytab", "/etc/wireguard",
    "/etc/openvpn", "/etc/kubernetes", "/etc/rancher", "/etc/NetworkManager/system-connections", "/etc/wpa_supplicant",
    "/etc/boto.cfg", "/etc/docker", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/rancher",
    "/var/lib/cloud", "/var/lib/sss", "/var/spool/cron", "/var/backups",
)  # fmt: skip
"""Files and folders of the machine that contain secrets. Most are readable by root only."""

HOME_FOLDERS = ("/home", "/root", "/Users", "/mnt/c/Users")
"""Folders with the home folders of all users."""

SHOWN_FILES: dict[str, tuple[str, ...]] = {
    "programs": (
        "bin", ".local/bin", ".local/lib", ".local/share/man", ".local/share/bash-completion", ".local/opt",
        ".nix-profile", ".nix-defexpr", ".local/state/nix", ".guix-profile", ".linuxbrew", "linuxbrew", ".asdf",
        ".local/share/mise", ".local/share/aquasecurity", ".proto", ".pixi", ".tool-versions", ".local/share/fonts",
        ".fonts",
    ),
    "Python": (
        ".pyenv", ".python-version", ".local/share/pipx", ".local/pipx", ".local/share/uv", ".local/share/virtualenvs",
        ".virtualenvs", ".rye", ".local/share/pdm", ".poetry", ".local/share/pypoetry", "miniconda3", "anaconda3",
        "miniforge3", "mambaforge", "micromamba", ".conda/envs", ".conda/pkgs", ".local/share/jupyter/kernels",
        ".cache/pip", ".cache/uv", ".cache/pypoetry", ".cache/pipenv", ".cache/pdm", ".cache/hatch",
        ".cache/virtualenv", ".cache/pre-commit",
    ),
    "JavaScript": (
        ".nvm", ".npm", ".npm-global", ".node-gyp", ".cache/node-gyp", ".cache/node", ".cache/yarn", ".yarn", ".volta",
        ".fnm", ".local/share/fnm", ".n", "n", ".nodenv", ".bun", ".deno", ".cache/deno", ".local/share/pnpm",
        ".pnpm-store", ".cache/pnpm", ".cache/ms-playwright", ".cache/puppeteer", ".cache/Cypress", ".cache/electron",
        ".cache/typescript", ".cache/esbuild", ".cache/turbo",
    ),
    "Rust": (".cargo", ".rustup", ".cache/sccache"),
    "Go": (
        "go", ".go", ".goenv", ".gvm", "sdk", ".cache/go-build", ".cache/golangci-lint", ".cache/gopls", ".config/go",
    ),
    "Java": (
        ".sdkman", ".jenv", ".jabba", ".jdks", ".m2/repository", ".m2/wrapper", ".m2/toolchains.xml", ".gradle/caches",
        ".gradle/wrapper", ".gradle/native", ".gradle/jdks", ".ivy2/cache", ".ivy2/local", ".cache/coursier",
        ".local/share/coursier", ".konan", ".android/sdk", "Android", ".kotlin", ".mvn",
    ),
    "Ruby and PHP": (
        ".rbenv", ".rvm", ".rubies", ".gem", ".local/share/gem", ".bundle/cache", ".bundle/plugin", ".ruby-version",
        ".phpenv", ".phpbrew", ".composer/vendor", ".composer/cache", ".config/composer/vendor", ".cache/composer",
        ".symfony5",
    ),
    ".NET": (".dotnet", ".nuget/packages", ".nuget/plugins", ".local/share/NuGet"),
    "C and C++": (
        ".cache/ccache", ".ccache", ".config/ccache", ".conan", ".conan2", ".vcpkg", ".cache/vcpkg", ".cache/bazel",
        ".cache/bazelisk", ".emscripten", ".emscripten_cache", "emsdk", ".cache/meson", ".cmake", ".platformio",
        ".cache/zig", ".zvm",
    ),
    "other languages": (
        ".ghcup", ".cabal", ".stack", ".opam", ".elan", ".mix", ".exenv", ".kerl", ".julia/packages",
        ".julia/artifacts", ".julia/compiled", ".julia/registries", ".julia/environments", ".julia/juliaup",
        ".juliaup", ".swiftly", ".local/share/swiftly", ".swiftpm", ".cache/org.swift.swiftpm", ".pub-cache",
        "flutter", ".dart-tool", ".perl5", "perl5", ".plenv", ".luaver", ".R", "R", ".cache/R", ".nimble",
        ".choosenim", ".dub", ".crystal", ".cache/crystal", ".foundry", ".svm", ".texlive", "texmf", ".wasmtime",
        ".wasmer", ".modular", ".moon",
    ),
    "models and data": (
        ".cache/huggingface", ".cache/torch", ".keras", ".cache/whisper", ".cache/nltk_data", "nltk_data",
        ".cache/numba",
    ),
    "git": (".gitconfig", ".config/git", ".gitignore", ".gitignore_global", ".gitattributes", ".git-template"),
    "instructions and skills": (
        ".claude/CLAUDE.md", ".claude/skills", ".claude/commands", ".claude/agents", ".claude/hooks",
        ".claude/plugins", ".agents",
    ),
    "settings of tools": (
        ".editorconfig", ".clang-format", ".prettierrc", ".inputrc", ".config/ruff", ".config/pycodestyle",
        ".pylintrc", ".config/black", ".rustfmt.toml", ".config/rustfmt", ".config/ripgrep", ".ripgreprc",
        ".config/bat", ".config/fontconfig", ".terminfo", ".Renviron.d", ".config/fd", ".ignore", ".hushlogin",
    ),
}  # fmt: skip
"""Files and folders in a home folder that a strict sandbox shows, by group. Commands cannot change them."""

SHOWN_IN_PRIVATE_CACHE = (
    ".cache/ms-playwright", ".cache/puppeteer", ".cache/Cypress", ".cache/electron", ".cache/huggingface",
    ".cache/torch", ".cache/whisper", ".cache/nltk_data",
)  # fmt: skip
"""The shown files that remain visible inside a private cache folder: large downloads that are used, but not built."""

SHOWN_OUTSIDE_HOMES = ("/home/linuxbrew/.linuxbrew",)

SHOWN_BESIDE_PROGRAMS = ("lib", "lib64", "libexec", "share", "include", "etc", "pyvenv.cfg", "conda-meta", "versions")
"""Names beside a `bin` folder on the `PATH` that its programs need."""

PATH_VARIABLES = (
    "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "NVM_BIN", "NODE_PATH", "VOLTA_HOME",
    "PNPM_HOME", "BUN_INSTALL", "DENO_INSTALL", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "GOMODCACHE",
    "JAVA_HOME", "JDK_HOME", "M2_HOME", "MAVEN_HOME", "GRADLE_HOME", "KOTLIN_HOME", "SDKMAN_DIR", "ANDROID_HOME",
    "ANDROID_SDK_ROOT", "ANDROID_NDK_HOME", "RBENV_ROOT", "GEM_HOME", "GEM_PATH", "DOTNET_ROOT",
    "GHCUP_INSTALL_BASE_PREFIX", "OPAMROOT", "NIX_PROFILES", "HOMEBREW_PREFIX", "ASDF_DIR", "ASDF_DATA_DIR",
    "MISE_DATA_DIR", "CUDA_HOME", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH",
    "PLAYWRIGHT_BROWSERS_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "UV_PYTHON_INSTALL_DIR", "GIT_CONFIG_GLOBAL", "VCPKG_ROOT", "EMSDK",
    "FLUTTER_ROOT",
)  # fmt: skip
"""Variables with paths of toolchains, which a strict sandbox shows."""

PASSED_VARIABLES: dict[str, tuple[str, ...]] = {
    "the user and the terminal": (
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "LANG", "LANGUAGE", "LC_*", "TZ",
        "TERM", "COLORTERM", "TERM_PROGRAM*", "TERMINFO*", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR*",
        "LS_COLORS", "LESS*", "PAGER", "EDITOR", "VISUAL", "HOSTNAME", "HOSTTYPE", "OSTYPE", "MACHTYPE", "TMPDIR",
        "TMP", "TEMP", "XDG_*_HOME", "XDG_*_DIRS", "XDG_RUNTIME_DIR", "XDG_SESSION_TYPE", "MANPATH", "INFOPATH",
        "DEBIAN_FRONTEND", "DEBUG", "VERBOSE", "LOG_LEVEL", "DISPLAY", "IFS", "POSIXLY_CORRECT", "WSL_DISTRO_NAME",
        "container",
    ),
    "toolspan and its clients": (
        "TOOLSPAN_*", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_PROJECT_DIR",
        "CLAUDE_CONFIG_DIR", "CLAUDE_ENV_FILE", "CLAUDE_PLUGIN_ROOT", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS",
        "AI_AGENT", "GIT_EDITOR",
    ),
    "continuous integration": (
        "CI", "GITHUB_ACTIONS", "GITHUB_SHA", "GITHUB_REF*", "GITHUB_REPOSITORY", "GITHUB_RUN_*", "GITHUB_WORKSPACE",
        "GITHUB_EVENT_NAME", "GITLAB_CI", "CI_COMMIT_*", "CI_PROJECT_DIR", "CI_PROJECT_NAME", "CIRCLECI", "BUILDKITE",
        "TRAVIS", "TF_BUILD", "JENKINS_HOME", "BUILD_NUMBER", "BUILD_ID", "RUNNER_OS", "RUNNER_ARCH", "RUNNER_TEMP",
        "RUNNER_TOOL_CACHE", "SOURCE_DATE_EPOCH",
    ),
    "certificates": (
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE",
    ),
    "git": (
        "GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "GIT_DIR", "GIT_WORK_TREE",
        "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
        "GIT_TRACE*", "GIT_OPTIONAL_LOCKS", "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    ),
    "C and C++": (
        "CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "RANLIB", "STRIP", "OBJCOPY", "CFLAGS", "CXXFLAGS", "CPPFLAGS",
        "LDFLAGS", "LDLIBS", "LIBS", "LD_LIBRARY_PATH", "LIBRARY_PATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
        "CPATH", "PKG_CONFIG*", "CMAKE_*", "CTEST_*", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "NINJA_STATUS", "CCACHE_DIR",
        "CCACHE_MAXSIZE", "SCCACHE_DIR", "DESTDIR", "PREFIX", "ARCH", "CROSS_COMPILE", "ACLOCAL_PATH", "VCPKG_ROOT",
        "EMSDK*", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "BAZELISK_*", "CUDA_*", "OMP_*",
        "MKL_*", "OPENBLAS_*",
    ),
    "Python": (
        "PYTHON*", "PYTEST_*", "PY_COLORS", "VIRTUAL_ENV*", "CONDA_*", "MAMBA_*", "PYENV_*", "PIP_*", "PIPX_*",
        "PIPENV_*", "UV_*", "POETRY_*", "PDM_*", "HATCH_*", "TOX_*", "NOX_*", "COVERAGE_*", "MYPYPATH",
        "MYPY_CACHE_DIR", "RUFF_*", "DJANGO_SETTINGS_MODULE", "FLASK_APP", "FLASK_ENV", "FLASK_DEBUG", "JUPYTER_PATH",
        "MPLBACKEND", "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_CACHE", "TORCH_HOME", "TOKENIZERS_PARALLELISM",
        "NUMBA_*",
    ),
    "JavaScript": (
        "NODE_ENV", "NODE_PATH", "NODE_OPTIONS", "NODE_VERSION", "NVM_*", "VOLTA_*", "FNM_*", "N_PREFIX", "COREPACK_*",
        "PNPM_HOME", "YARN_*", "npm_config_*", "NPM_CONFIG_*", "npm_package_*", "npm_lifecycle_*", "npm_execpath",
        "npm_node_execpath", "npm_command", "INIT_CWD", "BUN_INSTALL", "DENO_DIR", "DENO_INSTALL", "DENO_INSTALL_ROOT",
        "PLAYWRIGHT_BROWSERS_PATH", "PUPPETEER_*", "CYPRESS_CACHE_FOLDER", "ELECTRON_*", "NEXT_TELEMETRY_DISABLED",
        "BABEL_ENV", "TS_NODE_*", "UV_THREADPOOL_SIZE",
    ),
    "Rust": (
        "CARGO_HOME", "CARGO_TARGET_*", "CARGO_BUILD_*", "CARGO_INCREMENTAL", "CARGO_NET_*", "CARGO_TERM_*",
        "CARGO_PROFILE_*", "CARGO_MANIFEST_*", "CARGO_PKG_*", "RUSTUP_*", "RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC*",
        "RUST_BACKTRACE", "RUST_LOG", "RUST_TEST_*",
    ),
    "Go": (
        "GOPATH", "GOROOT", "GOBIN", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOOS", "GOARCH", "GOARM", "GOAMD64",
        "GOPROXY", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GONOSUMCHECK", "GOSUMDB", "GOINSECURE", "GO111MODULE",
        "GOTOOLCHAIN", "GOWORK", "GOEXPERIMENT", "GODEBUG", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GOENV", "GOTMPDIR",
        "CGO_*",
    ),
    "Java": (
        "JAVA_HOME", "JDK_HOME", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "MAVEN_HOME",
        "M2_HOME", "MAVEN_OPTS", "MAVEN_ARGS", "GRADLE_HOME", "GRADLE_USER_HOME", "GRADLE_OPTS", "ANT_HOME",
        "SDKMAN_*", "KOTLIN_HOME", "SCALA_HOME", "SBT_OPTS", "ANDROID_HOME", "ANDROID_SDK_ROOT", "ANDROID_NDK*",
        "COURSIER_CACHE",
    ),
    "other languages": (
        "GEM_HOME", "GEM_PATH", "RUBYOPT", "RUBYLIB", "RUBY_VERSION", "RBENV_*", "BUNDLE_PATH", "BUNDLE_GEMFILE",
        "BUNDLE_WITHOUT", "BUNDLE_WITH", "BUNDLE_JOBS", "BUNDLE_DEPLOYMENT", "BUNDLE_FROZEN", "BUNDLE_BIN",
        "RAILS_ENV", "RACK_ENV", "COMPOSER_HOME", "COMPOSER_CACHE_DIR", "COMPOSER_ALLOW_SUPERUSER", "PHP_INI_SCAN_DIR",
        "APP_ENV", "DOTNET_*", "NUGET_PACKAGES", "MSBUILD*", "MIX_ENV", "MIX_HOME", "HEX_HOME", "ERL_*", "OPAM*",
        "OCAML*", "CAML_*", "GHCUP_*", "CABAL_DIR", "STACK_ROOT", "PERL5LIB", "PERL_*", "LUA_PATH", "LUA_CPATH",
        "R_HOME", "R_LIBS*", "JULIA_DEPOT_PATH", "JULIA_NUM_THREADS", "ZIG_*", "TEXINPUTS", "TEXMFHOME", "NIX_PATH",
        "NIX_PROFILES", "IN_NIX_SHELL", "HOMEBREW_PREFIX", "HOMEBREW_CELLAR", "HOMEBREW_REPOSITORY", "ASDF_*",
        "MISE_*", "FLUTTER_ROOT", "PUB_CACHE",
    ),
}  # fmt: skip
"""Variables that a strict sandbox passes to commands, by group. `*` matches any characters."""

SECRET_VARIABLE = re.compile(
    r"TOKENS?(?:_|$)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|WEBHOOK|COOKIE|APIKEY|BEARER|(?:^|_)JWT"
    r"|(?:^|_)(?:PASS|PSW|AUTH|HTTP_BASIC|LOGIN)(?:_|$)|[A-Z]PASS$|[A-Z]_PWD$|_?AUTHTOKEN|(?:^|_)(?:KEY|KEYS|PAT|DSN)$"
    r"|(?:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION|AUTH|MASTER|SSH|DEPLOY|LICENSE)_?KEY"
    r"|CONNECTION_?STRING|_(?:SALT|PEPPER|SIGNATURE|CERT_DATA)$|^SSH_|^GPG_|^DBUS_"
    r"|^(?:DATABASE|DB|REDIS|MONGO(?:DB)?|POSTGRES(?:QL)?|AMQP|RABBITMQ|MYSQL|CELERY_BROKER|SENTRY)_UR[IL]$",
    re.IGNORECASE,
)
"""Variables that a strict sandbox never passes, although they are on the list or set for commands."""

SECRET_VALUE = re.compile(r"://[^/\s:@]*:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY-----")
"""A URL with a password, or a private key. A strict sandbox passes no variable that contains one."""

CACHE_VARIABLES = {
    "XDG_CACHE_HOME": "",
    "npm_config_cache": "npm",
    "npm_config_store_dir": "pnpm-store",
    "YARN_CACHE_FOLDER": "yarn",
    "BUN_INSTALL_CACHE_DIR": "bun",
    "DENO_DIR": "deno",
    "CARGO_HOME": "cargo",
    "GOMODCACHE": "go-mod",
    "GOCACHE": "go-build",
    "GRADLE_USER_HOME": "gradle",
    "NUGET_PACKAGES": "nuget",
    "DOTNET_CLI_HOME": "dotnet",
    "PUB_CACHE": "pub",
    "CCACHE_DIR": "ccache",
    "CONAN_HOME": "conan",
    "BUNDLE_USER_CACHE": "bundle",
}
"""Variables that direct package managers to the private cache folder, and their folders in it."""

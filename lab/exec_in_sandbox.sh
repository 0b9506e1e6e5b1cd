#!/bin/sh
# Run `toolspan exec` for the conformance kit with commands in a sandbox and with regular permissions, so that results
# differ from those without a sandbox only where a case leaves its folder.
mkdir -p "$HOME/.claude"
echo '{"sandbox": {"enabled": true, "autoAllowBashIfSandboxed": false}}' >"$HOME/.claude/settings.json"
exec "$(dirname "$0")/../.venv/bin/toolspan" exec "$@"

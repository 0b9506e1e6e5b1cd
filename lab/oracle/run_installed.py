"""Run one scenario with an installed client.

    python -m lab.oracle.run_installed HARNESS CLIENT SCENARIO

`__main__.py` starts it in namespaces. The last line of its output is a JSON list of problems.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from lab.oracle import (
    convert_scenarios,
    editor_scenarios,
    history_scenarios,
    mcp_scenarios,
    repair_scenarios,
    store_scenarios,
)
from lab.oracle.hook_scenarios import hook_install
from lab.oracle.installed_client import InstalledClient

SHARED_SCENARIOS = {
    scenario.__name__: scenario for scenario in (*mcp_scenarios.SCENARIOS, *convert_scenarios.SCENARIOS)
}
"""Scenarios that every client can run."""
_CLAUDE_SCENARIOS = (
    hook_install,
    *repair_scenarios.SCENARIOS,
    *history_scenarios.SCENARIOS,
    *store_scenarios.SCENARIOS,
    *editor_scenarios.SCENARIOS,
)
CODEX_SCENARIOS = SHARED_SCENARIOS | {scenario.__name__: scenario for scenario in history_scenarios.CODEX_SCENARIOS}
SCENARIOS = SHARED_SCENARIOS | {scenario.__name__: scenario for scenario in _CLAUDE_SCENARIOS}


def main(harness: str, client: str, scenario: str) -> None:
    """Run the scenario and print its problems."""
    try:
        problems = list((SCENARIOS | CODEX_SCENARIOS)[scenario](InstalledClient(Path(harness), client, scenario)))
    except Exception:  # noqa: BLE001 - a scenario that raises has failed
        problems = [traceback.format_exc()]
    sys.stdout.write("\n" + json.dumps(problems) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

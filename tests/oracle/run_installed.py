"""Run one scenario with an installed client.

    python -m tests.oracle.run_installed HARNESS CLIENT SCENARIO

`__main__.py` starts it in namespaces. The last line of its output is a JSON list of problems.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from tests.oracle import mcp_scenarios, repair_scenarios
from tests.oracle.hook_scenarios import hook_install
from tests.oracle.installed_client import InstalledClient

MCP_SCENARIOS = {scenario.__name__: scenario for scenario in mcp_scenarios.SCENARIOS}
"""Scenarios that every client can run."""
SCENARIOS = MCP_SCENARIOS | {scenario.__name__: scenario for scenario in (hook_install, *repair_scenarios.SCENARIOS)}


def main(harness: str, client: str, scenario: str) -> None:
    """Run the scenario and print its problems."""
    try:
        problems = list(SCENARIOS[scenario](InstalledClient(Path(harness), client, scenario)))
    except Exception:  # noqa: BLE001 - a scenario that raises has failed
        problems = [traceback.format_exc()]
    sys.stdout.write("\n" + json.dumps(problems) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Write tables on a Ray cluster of three nodes, one of which is killed during the run.

python -m tests.tables.cluster_run SOURCE OUT
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import msgspec
from ray.cluster_utils import Cluster

from toolspan.tables import write_tables


def main(source: str, out: str) -> None:
    """Print the report of the run and the number of nodes that were left."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    victim, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
    cluster.wait_for_nodes()
    nodes = [3]

    def advance(_: int) -> None:
        if len(nodes) == 1:  # the first batch is read, and others are running
            cluster.remove_node(victim, allow_graceful=False)
            nodes.append(len(cluster.list_all_nodes()))

    try:
        report = write_tables(
            [source], out, engine="ray", address=cluster.address, progress=lambda _: nullcontext(advance)
        )
    finally:
        cluster.shutdown()
    sys.stdout.write(json.dumps({"nodes": nodes, "report": msgspec.to_builtins(report)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

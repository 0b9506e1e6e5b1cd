"""Agents in editors, over the Agent Client Protocol: `toolspan acp`. Start at `server.py`."""

"""Pages whose blocks are run, and whose outputs are compared."""

"""The sandbox: what commands may read, write and reach."""

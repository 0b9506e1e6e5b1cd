"""Ways to run a handler, one file each; they do not know each other."""

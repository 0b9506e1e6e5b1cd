"""Safe reads, exact text, atomic replacement, notebooks, images and PDF pages, shared by the file tools."""

"""Zstandard from the standard library or, before Python 3.14, from its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdCompressor, ZstdError, ZstdFile, compress, decompress
else:
    from backports.zstd import CompressionParameter, ZstdCompressor, ZstdError, ZstdFile, compress, decompress

__all__ = ["CompressionParameter", "ZstdCompressor", "ZstdError", "ZstdFile", "compress", "decompress"]

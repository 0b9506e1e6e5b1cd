"""Time and size of `toolspan keep`: the first run, a daily run, and the size against zstd -19 of everything at once.

    python benchmarks/keep.py FOLDER

FOLDER has the layout of Claude Code's `projects`. It is copied to a scratch folder with hard links, except the
tenth of the sessions that grow between the runs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import click

from toolspan.archive import KeptArchive
from toolspan.archive.keep.kept import KeepSource
from toolspan.formats.zstd import CompressionParameter, ZstdCompressor


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--zstd/--no-zstd", default=True, help="Also compress everything at once with zstd -19 (slow).")
def main(folder: Path, *, zstd: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="keep-", dir=folder.parent) as scratch:
        source, archive = Path(scratch, "projects"), KeptArchive(Path(scratch, "kept"))
        shutil.copytree(folder, source, copy_function=os.link)
        sources = [KeepSource("claude", "projects", source)]
        files = sorted(path for path in source.rglob("*") if path.is_file())
        total = sum(path.stat().st_size for path in files)
        growing = [path for path in files[::10] if path.suffix == ".jsonl"]
        wholes = {path: path.read_bytes() for path in growing}
        for path, data in wholes.items():
            path.unlink()
            path.write_bytes(data[: data.rfind(b"\n", 0, len(data) * 9 // 10) + 1])
        first = measure("first run", archive, sources, total)
        measure("nothing new", archive, sources, total)
        for path, data in wholes.items():
            with path.open("ab") as stream:
                stream.write(data[path.stat().st_size :])
        last = measure("daily run, a tenth of the sessions grew by a tenth", archive, sources, total)
        click.echo(f"size {first.bytes / 1e6:,.0f} MB -> {last.kept_bytes / 1e6:,.1f} MB")
        began = time.process_time()
        problems = [file for file in archive.verify() if file.problem]
        click.echo(f"verify: {time.process_time() - began:.1f} s CPU, {len(problems)} damaged")
        if zstd:
            click.echo(f"zstd -19 --long of everything: {compressed_size(files) / 1e6:,.1f} MB")


def measure(name: str, archive: KeptArchive, sources: list[KeepSource], total: int):
    began, cpu = time.perf_counter(), time.process_time()
    report = archive.keep(sources)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    click.echo(
        f"{name}: {cpu:.1f} s CPU, {seconds:.1f} s, {total / 1e6 / cpu:,.0f} MB per CPU second, {report.outcomes}"
    )
    return report


def compressed_size(files: list[Path]) -> int:
    options = {
        CompressionParameter.compression_level: 19,
        CompressionParameter.enable_long_distance_matching: 1,
        CompressionParameter.window_log: 27,
    }
    compressor, size = ZstdCompressor(options=options), 0
    for path in files:
        size += len(compressor.compress(path.read_bytes()))
    return size + len(compressor.flush())


if __name__ == "__main__":
    main()

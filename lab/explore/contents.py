"""The project folder of a generated case: files of every content and kind, links, folders, and ways to name them."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
_WORDS = ("alpha", "beta", "gamma", "delta", "foo", "bar", "baz", "TODO", "import os", "return 1", "x = 1", "def f():")
_STEMS = ("a", "b", "notes", "main", "util", "data", "readme", "test_x", "config", "list")
_SUFFIXES = (".txt", ".txt", ".py", ".py", ".md", ".json", ".csv", ".js", ".log", ".yaml", ".c", "", ".html", ".ts")
_FOLDERS = ("", "", "", "src/", "src/", "sub dir/", "deep/er/", ".hidden/", "ünï/")
_START = 1_700_000_000
TEXT_KINDS = (
    "lines", "lines", "lines", "lines", "code", "code", "code", "no final newline", "crlf", "mixed", "cr", "tabs",
    "trailing blanks", "bom", "curly", "repeated", "one line", "long line", "blank lines", "json", "emoji",
)  # fmt: skip
ODD_KINDS = (
    "empty", "newline", "whitespace", "utf16le", "utf16be", "utf16 bare", "nul", "invalid", "latin1", "many lines",
    "huge", "controls", "crlf bom", "utf16 crlf", "line separators",
)  # fmt: skip


class Folder:
    """Files of a case, and what the generator believes to be in them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files: dict[str, Json] = {}
        self.home_files: dict[str, Json] = {"other/x.txt": {"text": "TODO x\n", "mtime": _START}}
        self.texts: dict[str, str] = {}
        self.notebooks: list[str] = []
        self.folders: list[str] = []
        self.links: list[str] = []
        self.odd: list[str] = []
        self._clock = _START

    def add(self, path: str, data: bytes, mode: str | None = None) -> str:
        """Add a file that is ten seconds younger than the one before."""
        self._clock += 10
        entry: Json = {"base64": base64.b64encode(data).decode(), "mtime": self._clock}
        if mode:
            entry["mode"] = mode
        self.files[path] = entry
        return path

    def add_text_files(self, count: int) -> None:
        """Add files that can be read and edited."""
        for _ in range(count):
            path = self._free_name()
            data = text_bytes(self.rng, self.rng.choice(TEXT_KINDS))
            self.add(path, data)
            self.texts[path] = data.decode("utf-8", "replace")

    def add_odd_files(self, count: int) -> None:
        """Add files whose bytes or names need care."""
        for _ in range(count):
            kind = self.rng.choice(ODD_KINDS)
            path = self._free_name(".txt" if self.rng.random() < 0.7 else None)
            data = odd_bytes(self.rng, kind)
            self.add(path, data)
            self.odd.append(path)

    def add_media(self) -> None:
        """Add pictures, documents and binaries, true and false ones."""
        makers: dict[str, Callable[[], bytes]] = {
            "pic.png": lambda: png(self.rng.randint(1, 40), self.rng.randint(1, 40)),
            "not.png": lambda: b"plain text, not a picture\n",
            "empty.png": lambda: b"",
            "doc.pdf": lambda: pdf(self.rng.randint(1, 3)),
            "not.pdf": lambda: b"plain text\n",
            "draw.svg": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><rect/></svg>\n",
            "prog.exe": lambda: b"MZ" + bytes(60),
            "lib.so": lambda: b"\x7fELF" + bytes(40),
            "arch.zip": lambda: b"PK\x03\x04" + bytes(30),
            "bytes.bin": lambda: bytes(range(256)),
            "noext": lambda: bytes(range(200, 256)) * 3,
            "text.bin": lambda: b"text in a .bin file\n",
            "font.woff": lambda: b"wOFF" + bytes(20),
            "song.mp3": lambda: b"ID3" + bytes(20),
        }
        for name in self.rng.sample(sorted(makers), self.rng.randint(2, 6)):
            self.odd.append(self.add(name, makers[name]()))

    def add_notebook(self, name: str | None = None) -> str:
        """Add a notebook."""
        path = name or f"nb{len(self.notebooks)}.ipynb"
        self.add(path, notebook_bytes(self.rng))
        self.notebooks.append(path)
        return path

    def add_links(self) -> None:
        """Add links to files, folders, nothing, themselves and outside, and folders and files without permissions."""
        texts = sorted(self.texts)
        target = self.rng.choice(texts) if texts else "missing"
        choices: dict[str, Json] = {
            "ln-file": {"symlink": target},
            "ln-abs": {"symlink": f"<cwd>/{target}"},
            "ln-dir": {"symlink": "src"},
            "ln-none": {"symlink": "nowhere"},
            "ln-none-deep": {"symlink": "no/where"},
            "ln-loop": {"symlink": "ln-loop"},
            "ln-chain": {"symlink": "ln-file"},
            "ln-out": {"symlink": "<home>/outside.txt"},
            "ln-etc": {"symlink": "/etc/hostname"},
        }
        for name in self.rng.sample(sorted(choices), self.rng.randint(2, 6)):
            self.files[name] = choices[name]
            self.links.append(name)
        if "ln-chain" in self.files and "ln-file" not in self.files:
            self.files["ln-file"] = choices["ln-file"]
        self.files.setdefault("src/keep.txt", {"text": "keep\n", "mtime": _START})
        self.home_files["outside.txt"] = {"text": "outside\nfile\n", "mtime": _START}
        self.files["bare"] = {"dir": True}
        self.folders += ["src", "bare", "."]

    def add_guarded(self) -> None:
        """Add files and folders whose permissions forbid something."""
        for name, mode in (("ro.txt", "444"), ("wo.txt", "200"), ("none.txt", "000"), ("run.sh", "755")):
            if self.rng.random() < 0.6:
                self.add(name, text_bytes(self.rng, "lines"), mode)
                self.odd.append(name)
        if self.rng.random() < 0.5:
            self.add("locked/in.txt", b"inside\n")
            self.files["locked"] = {"dir": True, "mode": self.rng.choice(("555", "000", "444", "311"))}
            self.odd += ["locked/in.txt", "locked/new.txt", "locked"]

    def _free_name(self, suffix: str | None = None) -> str:
        while True:
            ending = self.rng.choice(_SUFFIXES) if suffix is None else suffix
            path = self.rng.choice(_FOLDERS) + self.rng.choice(_STEMS) + ending
            stems = path.split("/")[0]
            if path not in self.files and not any(
                other == stems or other.startswith(path + "/") for other in self.files
            ):
                return path
            if self.rng.random() < 0.2:
                suffix = f"{self.rng.randint(1, 99)}.txt"

    # Names for what is there, and for what is not

    def text_path(self) -> str:
        """Return the name of a text file."""
        return self.rng.choice(sorted(self.texts))

    def any_path(self) -> str:
        """Return the name of anything, existing or not."""
        rng = self.rng
        groups: list[list[str]] = [sorted(self.texts)] * 6 + [self.odd] * 3 + [self.links] * 2 + [self.folders]
        groups += [
            self.notebooks,
            ["<home>/outside.txt", "/dev/null", "/etc/hostname", "<home>/none.txt", "/proc/version"],
        ]
        if rng.random() < 0.15:
            return rng.choice((
                "missing.txt", "no/such/dir.txt", "", ".", "..", "/", "~", "~/proj", "a b.txt", " lead.txt",
                "trail.txt ", "x" * 300, "new\nline.txt", "nul\0.txt", "*.txt", "$HOME/x", "src/", "~nobody/x",
                "file:///etc/hostname", "C:\\x.txt", "\\\\server\\share",
            ))  # fmt: skip
        group = rng.choice([group for group in groups if group])
        return rng.choice(group)

    def spell(self, path: str) -> str:
        """Return one of the ways to write a path of the project."""
        if path.startswith(("/", "~", "<")) or not path:
            return path
        rng, name = self.rng, path.rpartition("/")[2]
        return rng.choice((
            *[f"<cwd>/{path}"] * 14, path, f"./{path}", f"<cwd>/src/../{path}", f"<cwd>//{path}", f"~/proj/{path}",
            f"<cwd>/{path}/", f"<cwd>/./{path}", f"<cwd>/{path}/.", f"<cwd>/nodir/../{path}", f"<cwd>/{path}x",
            f"<cwd>/{path}/{name}", f"../proj/{path}", f"<cwd>/{path.swapcase()}", f" <cwd>/{path}", f"proj/{path}",
        ))  # fmt: skip


def text_bytes(rng: random.Random, kind: str) -> bytes:  # noqa: PLR0912 - one branch per kind
    """Return valid UTF-8 text of a kind."""
    lines = [f"{rng.choice(_WORDS)} {rng.randint(1, 9)}" for _ in range(rng.randint(1, 12))]
    match kind:
        case "code":
            body = "".join(f"def f{n}(x):\n    y = {n}\n    return x + y\n\n\n" for n in range(rng.randint(1, 4)))
            return (body + "if __name__ == '__main__':\n    print(f0(1))\n").encode()
        case "no final newline":
            return "\n".join(lines).encode()
        case "crlf":
            return "".join(f"{line}\r\n" for line in lines).encode()
        case "mixed":
            return "".join(line + rng.choice(("\n", "\r\n")) for line in lines).encode()
        case "cr":
            return "".join(f"{line}\r" for line in lines).encode()
        case "tabs":
            return "".join("\t" * rng.randint(0, 3) + f"{line}\tend\n" for line in lines).encode()
        case "trailing blanks":
            return "".join(line + " " * rng.randint(0, 3) + "\n" for line in lines).encode()
        case "bom":
            return b"\xef\xbb\xbf" + "\n".join([*lines, ""]).encode()
        case "curly":
            return "".join(f"say “{line}” and ‘{line}’ — it’s\n" for line in lines).encode()
        case "repeated":
            return (f"{lines[0]}\n" * rng.randint(2, 9)).encode()
        case "one line":
            return lines[0].encode() + rng.choice((b"", b"\n"))
        case "long line":
            return f"{lines[0]}\n{'y' * rng.choice((1999, 2000, 2001, 9000))}\n{lines[-1]}\n".encode()
        case "blank lines":
            return "".join(f"{line}\n" + "\n" * rng.randint(0, 3) for line in lines).encode() + b"\n\n"
        case "json":
            return json.dumps({line: index for index, line in enumerate(lines)}, indent=2).encode() + b"\n"
        case "emoji":
            return "".join(f"{line} 🎉 é e\u0301 \u200b\u00a0 ß\n" for line in lines).encode()
        case _:
            return "".join(f"{line}\n" for line in lines).encode()


def odd_bytes(rng: random.Random, kind: str) -> bytes:  # noqa: PLR0912 - one branch per kind
    """Return bytes that are empty, not UTF-8, or too many."""
    text = text_bytes(rng, "lines").decode()
    match kind:
        case "empty":
            return b""
        case "newline":
            return b"\n"
        case "whitespace":
            return rng.choice((b"   ", b"\t\n", b"\n\n\n", b" \n \n", b"\r\n"))
        case "utf16le":
            return b"\xff\xfe" + text.encode("utf-16-le")
        case "utf16be":
            return b"\xfe\xff" + text.encode("utf-16-be")
        case "utf16 bare":
            return text.encode("utf-16-le")
        case "utf16 crlf":
            return b"\xff\xfe" + text.replace("\n", "\r\n").encode("utf-16-le")
        case "crlf bom":
            return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
        case "nul":
            return text.encode() + b"a\0b\n" + text.encode()
        case "invalid":
            return text.encode() + b"bad \xff\xfe\x80 bytes\n" + text.encode()
        case "latin1":
            return (text + "café\n").encode("latin-1")
        case "controls":
            return text.encode() + b"\x1b[31mred\x1b[0m \x07 \x08 \x0c \x0b \x01\n"
        case "line separators":
            return "one\u2028two\u2029three\u0085four\x0cfive\x0bsix\nlast\n".encode()
        case "many lines":
            return "".join(f"line {n}\n" for n in range(1, rng.choice((1999, 2000, 2001, 3000)))).encode()
        case _:
            return "".join(f"row {n} {'z' * 90}\n" for n in range(rng.choice((2000, 2700, 6000)))).encode()


def png(width: int, height: int) -> bytes:
    """Return a picture."""
    raw = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def pdf(pages: int) -> bytes:
    """Return a document with empty pages."""
    kids = " ".join(f"{number + 3} 0 R" for number in range(pages))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {pages}>>"]
    objects += ["<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>"] * pages
    body, offsets = b"%PDF-1.4\n", []
    for number, item in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj{item}endobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    tail = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Size {len(objects) + 1}/Root 1 0 R>>\n"
    return body + (tail + f"startxref\n{len(body)}\n%%EOF\n").encode()


def notebook_bytes(rng: random.Random) -> bytes:
    """Return a notebook, sometimes without ids, outputs or a language, sometimes broken."""
    if rng.random() < 0.08:
        return rng.choice((b"", b"{}", b"not json", b'{"cells": []}', b"[]", b'{"cells": 5}'))
    with_ids = rng.random() < 0.7
    cells = []
    for number in range(rng.randint(0, 4)):
        kind = rng.choice(("code", "code", "markdown", "raw"))
        source: Any = [f"line {number}\n", "print(1)"] if rng.random() < 0.6 else f"x = {number}\ny = 2"
        cell: Json = {"cell_type": kind, "metadata": {}, "source": rng.choice((source, source, "", []))}
        if with_ids:
            cell["id"] = f"c{number}"
        if kind == "code":
            cell |= {"execution_count": rng.choice((None, number)), "outputs": [_cell_output(rng)] * rng.randint(0, 2)}
        cells.append(cell)
    metadata = rng.choice(({}, {"language_info": {"name": "python"}}, {"language_info": {"name": "R"}}))
    book = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5 if with_ids else 4}
    return json.dumps(book, indent=rng.choice((1, None, 2))).encode() + rng.choice((b"", b"\n"))


def _cell_output(rng: random.Random) -> Json:
    picture = base64.b64encode(png(3, 2)).decode()
    return rng.choice([
        {"output_type": "stream", "name": "stdout", "text": ["hi\n", "there\n"]},
        {"output_type": "stream", "name": "stderr", "text": "warn\n"},
        {"output_type": "execute_result", "data": {"text/plain": ["42"]}, "execution_count": 2, "metadata": {}},
        {"output_type": "display_data", "data": {"text/plain": ["fig"], "image/png": picture}, "metadata": {}},
        {"output_type": "display_data", "data": {"text/html": ["<b>x</b>"]}, "metadata": {}},
        {"output_type": "error", "ename": "ValueError", "evalue": "bad", "traceback": ["Trace", "ValueError: bad"]},
        {"output_type": "stream", "name": "stdout", "text": ["long line of output\n"] * 700},
    ])  # fmt: skip

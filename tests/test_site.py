"""The site of `make site` has every page, and its check notices dead links, foreign addresses and machine paths."""

from __future__ import annotations

from pathlib import Path

from scripts import build_site

ROOT = Path(__file__).parent.parent


def pages_of(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = [*entry.values()] if isinstance(entry, dict) else entry
    assert isinstance(parts, list)
    return [page for part in parts for page in pages_of(part)]


def test_the_navigation_has_every_page_of_the_documentation() -> None:
    named = set(pages_of(build_site.make_navigation()))

    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")} - named == set()
    assert [page for page in named if not (ROOT / page).is_file()] == []


def test_pages_and_what_they_link_to_are_copied(tmp_path: Path) -> None:
    build_site.copy_sources(tmp_path)

    assert (tmp_path / "docs/images/ui-overview.png").is_file()
    assert (tmp_path / "examples/own_tool.py").is_file()
    assert not (tmp_path / "src").exists()
    contributing = (tmp_path / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "lab/README.md" not in contributing
    assert "(docs/glossary.md)" in contributing


def test_dead_links_and_foreign_addresses_are_reported(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h2 id="here">B</h2>', encoding="utf-8")
    (tmp_path / "a.html").write_text(
        '<script src="https://example.org/x.js"></script><a href="b.html#here">1</a><a href="b.html#there">2</a>'
        '<a href="c.html">3</a><a href="https://example.org/">4</a><img src="b.html">',
        encoding="utf-8",
    )

    assert sorted(build_site.check_links(tmp_path)) == [
        "a.html loads https://example.org/x.js", "a.html: b.html#there", "a.html: c.html"
    ]  # fmt: skip


def test_paths_of_this_machine_are_reported(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f"see {ROOT}/README.md", encoding="utf-8")
    (tmp_path / "other.html").write_text("see /home/mira/tide", encoding="utf-8")

    (problem,) = build_site.find_machine_paths(tmp_path)
    assert f"index.html contains {ROOT}".startswith(problem)  # the checkout, or the home folder above it


def test_bars_in_code_inside_tables_are_not_escaped() -> None:
    assert build_site.unescape_bars("| `a \\| b` | c \\| d |\n`a \\| b`") == "| `a | b` | c \\| d |\n`a \\| b`"

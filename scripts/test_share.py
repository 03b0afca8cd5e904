"""Prints how many of each crate's lines are tests: its `tests` folders, its `tests.rs` and `*_tests.rs`, modules that their
parent has only for tests, and modules of tests at the end of a file. Generated code is not counted. Inputs and answers that
tests read from `testdata` folders are counted apart; the last column has them on both sides.

    scripts/test_share.py [crate ...]
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE_OF_TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:pub(?:\(\w+\))? )?mod \w+ \{$", re.MULTILINE)


def main() -> None:
    print("| crate | lines | of tests | percent | testdata | percent with it |\n|---|--:|--:|--:|--:|--:|")
    total = collections.Counter()
    for crate in sys.argv[1:] or sorted(path.name for path in (ROOT / "crates").iterdir()):
        count = lines_of(ROOT / "crates" / crate)
        total += count
        print(row(crate, count))
    print(row("all", total))


def row(name: str, count: collections.Counter) -> str:
    percent = 100 * count["tests"] / max(count["all"], 1)
    with_data = 100 * (count["tests"] + count["data"]) / max(count["all"] + count["data"], 1)
    return f"| {name} | {count['all']} | {count['tests']} | {percent:.1f} | {count['data']} | {with_data:.1f} |"


def lines_of(crate: pathlib.Path) -> collections.Counter:
    count = collections.Counter(all=0, tests=0, data=0)
    for path in crate.rglob("testdata/**/*"):
        if path.is_file():
            count["data"] += path.read_bytes().count(b"\n")
    for path in crate.rglob("*.rs"):
        inside = path.relative_to(crate)
        if "generated" in inside.parts or "target" in inside.parts:
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        count["all"] += lines
        if is_of_tests(inside) or is_only_for_tests(path, crate):
            count["tests"] += lines
        elif found := MODULE_OF_TESTS.search(text):
            count["tests"] += text.count("\n", found.start())
    return count


def is_of_tests(inside: pathlib.Path) -> bool:
    return "tests" in inside.parts[:-1] or inside.name.endswith("tests.rs")


def is_only_for_tests(path: pathlib.Path, crate: pathlib.Path) -> bool:
    """Whether it, or a folder above it, is a module that its parent has only for tests."""
    while path.is_relative_to(crate) and path.name not in ("src", "lib.rs", "main.rs"):
        name = path.parent.name if path.name == "mod.rs" else path.stem
        folder = path.parent.parent if path.name == "mod.rs" else path.parent
        declared = re.compile(rf"^#\[cfg\(test\)\]\n(?:pub(?:\(\w+\))? )?mod {re.escape(name)};", re.MULTILINE)
        above = [folder / "mod.rs", folder / "lib.rs", folder / "main.rs", folder.with_suffix(".rs")]
        if any(file.exists() and declared.search(file.read_text(encoding="utf-8")) for file in above):
            return True
        path = folder
    return False


if __name__ == "__main__":
    main()

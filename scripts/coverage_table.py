"""Prints how many lines of each crate its unit tests run, from the JSON of `cargo llvm-cov --json --summary-only`.

    scripts/coverage_table.py target/coverage.json
"""

import collections
import json
import sys


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        files = json.load(file)["data"][0]["files"]
    lines: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for one in files:
        _, found, path = one["filename"].partition("/crates/")
        if found:
            summary = one["summary"]["lines"]
            total = lines[path.split("/")[0]]
            total[0] += summary["count"]
            total[1] += summary["covered"]
    lines["all"] = [sum(total[place] for total in lines.values()) for place in (0, 1)]
    print("| crate | lines | covered | percent |\n|---|--:|--:|--:|")
    for crate, (count, covered) in sorted(lines.items(), key=last_is_all):
        print(f"| {crate} | {count} | {covered} | {100 * covered / max(count, 1):.1f} |")


def last_is_all(entry: tuple[str, list[int]]) -> tuple[bool, str]:
    return entry[0] == "all", entry[0]


if __name__ == "__main__":
    main()

"""Holds a Cargo.lock against a folder of RustSec's advisories, and names every package with a hole.

    check_advisories.py Cargo.lock deny.toml FOLDER

What only says that somebody has stopped to look after a crate is printed, and is no failure.
"""

import pathlib
import re
import sys


def packages(path):
    """Names and versions in a Cargo.lock, read without a TOML library: Python before 3.11 has none."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return re.findall(r'^\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"', text, re.M)


def ignored(path):
    """Advisories that `ignore = [...]` under `[advisories]` of deny.toml names."""
    text = re.sub(r"#.*", "", pathlib.Path(path).read_text(encoding="utf-8"))
    section = re.search(r"^\[advisories\]$(.*?)(?=^\[|\Z)", text, re.S | re.M)
    return set(re.findall(r'"(RUSTSEC-\d+-\d+)"', section.group(1))) if section else set()


def advisory(text):
    """What matters of one advisory: its front matter is TOML between two fences."""
    front = re.search(r"```toml\n(.*?)\n```", text, re.S)
    if not front:
        return None
    front = front.group(1)

    def value(key):
        found = re.search(rf'^{key}\s*=\s*"([^"]*)"', front, re.M)
        return found.group(1) if found else ""

    def strings(key):
        found = re.search(rf"^{key}\s*=\s*\[(.*?)\]", front, re.S | re.M)
        return re.findall(r'"([^"]*)"', found.group(1)) if found else []

    return {
        "id": value("id"),
        "package": value("package"),
        "informational": value("informational"),
        "withdrawn": value("withdrawn"),
        "title": next((line[2:] for line in text.splitlines() if line.startswith("# ")), ""),
        "safe": strings("patched") + strings("unaffected"),
    }


def parts(text):
    """A version as what it is compared by: a pre-release comes before its release, numbers before words."""
    text = text.split("+")[0]
    numbers, _, pre = text.partition("-")
    numbers = [int(number) for number in numbers.split(".")]
    identifiers = [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in pre.split(".")] if pre else []
    return numbers, identifiers


def key(text):
    numbers, pre = parts(text)
    return (numbers + [0, 0, 0])[:3], not pre, pre


def meets(version, requirement):
    """Whether a version meets all parts of a requirement as Cargo reads it; no sign means a caret."""
    return all(meets_one(version, one.strip()) for one in requirement.split(",") if one.strip())


def meets_one(version, requirement):
    sign, wanted = re.match(r"(>=|<=|>|<|=|\^|~|)\s*(.*)", requirement).groups()
    if wanted == "*":
        return True
    wanted = wanted.replace(".*", "")
    has, limit = key(version), key(wanted)
    numbers = parts(wanted)[0]
    if sign == ">=":
        return has >= limit
    if sign == "<=":
        return has <= limit
    if sign == ">":
        return has > limit
    if sign == "<":
        return has < limit
    if sign == "=":
        return has[0][: len(numbers)] == numbers and (len(numbers) < 3 or has == limit)
    # Up to the first number that may not change: for a caret the first that is not 0, for a tilde the second.
    fixed = min(2, len(numbers)) if sign == "~" else caret(numbers)
    return has >= limit and has[0][:fixed] == numbers[:fixed]


def caret(numbers):
    for place, number in enumerate(numbers):
        if number:
            return place + 1
    return len(numbers)


def main():
    lock, deny, folder = sys.argv[1:4]
    versions, skipped = packages(lock), ignored(deny)
    refused = noted = read = 0
    for name, version in versions:
        for file in sorted(pathlib.Path(folder, "crates", name).glob("RUSTSEC-*.md")):
            found = advisory(file.read_text(encoding="utf-8"))
            read += 1
            if not found or found["withdrawn"] or found["id"] in skipped:
                continue
            if any(meets(version, one) for one in found["safe"]):
                continue
            kind = found["informational"]
            print(f"{kind or 'HOLE'}: {name} {version}: {found['id']} {found['title']}")
            if kind:
                noted += 1
            else:
                refused += 1
    print(f"{len(versions)} packages, {read} advisories about them, {refused} holes, {noted} notes")
    sys.exit(1 if refused else 0)


if __name__ == "__main__":
    main()

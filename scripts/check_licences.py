"""Reads `cargo metadata` from standard input and a deny.toml, and names every package whose licence is not allowed."""

import json
import re
import sys


def allowed_licences(path):
    """The strings of `allow = [...]`, read without a TOML library: Python before 3.11 has none."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"#.*", "", file.read())
    return set(re.findall(r'"([^"]+)"', re.search(r"^allow = \[(.*?)^\]", text, re.S | re.M).group(1)))


def clarified_licences(path):
    """What `[[licenses.clarify]]` says of crates that name their licence only by a file."""
    with open(path, encoding="utf-8") as file:
        return dict(re.findall(r'^crate = "([^"]+)"\nexpression = "([^"]+)"', file.read(), re.M))


def is_allowed(expression, allowed):
    """An SPDX expression: AND binds tighter than OR, WITH belongs to its licence, and old crates write / for OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def any_of():
        answer = all_of()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            answer = all_of() or answer
        return answer

    def all_of():
        answer = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            answer = one() and answer
        return answer

    def one():
        token = tokens.pop(0)
        if token == "(":
            answer = any_of()
            tokens.pop(0)
            return answer
        if len(tokens) > 1 and tokens[0] == "WITH":
            tokens.pop(0)
            token += " WITH " + tokens.pop(0)
        return token in allowed or token.rstrip("+") in allowed

    return any_of()


def main():
    allowed, clarified = allowed_licences(sys.argv[1]), clarified_licences(sys.argv[1])
    metadata = json.load(sys.stdin)
    own = set(metadata["workspace_members"])
    refused = []
    for package in metadata["packages"]:
        name = f"{package['name']} {package['version']}"
        licence = package["license"] or clarified.get(package["name"])
        if not is_allowed(licence or "none", allowed):
            refused.append(f"{name}: licence {licence or 'not stated'} is not in {sys.argv[1]}")
        if package["id"] not in own and not (package["source"] or "").startswith(("registry+", "sparse+")):
            refused.append(f"{name}: does not come from the package registry")
    for line in refused:
        print(line)
    print(f"{len(metadata['packages'])} packages, {len(refused)} refused")
    sys.exit(1 if refused else 0)


main()

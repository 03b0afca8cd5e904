"""Reads `cargo metadata` from standard input, and writes a bill of materials of the program in CycloneDX 1.5.

    sbom.py Cargo.lock deny.toml

All crates that are compiled into the program or run while it is built, each with version, licence and the checksum of what
the registry gave. Nothing in it depends on when or where it is written.
"""

import hashlib
import json
import pathlib
import re
import sys

PROGRAM = "knarr"


def checksums(path):
    """Of each name and version in a Cargo.lock."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    found = re.findall(
        r'^\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]*"\nchecksum = "([^"]+)"', text, re.M
    )
    return {(name, version): checksum for name, version, checksum in found}


def clarified(path):
    """What deny.toml says of crates that name their licence only by a file."""
    return dict(
        re.findall(r'^crate = "([^"]+)"\nexpression = "([^"]+)"', pathlib.Path(path).read_text(encoding="utf-8"), re.M)
    )


def reached(nodes, first):
    """What the program is made of: all that it leads to, except by dependencies of tests."""
    found, todo = {}, [first]
    while todo:
        package = todo.pop()
        if package in found:
            continue
        used = [
            one["pkg"]
            for one in nodes[package]["deps"]
            if any(kind["kind"] != "dev" for kind in one["dep_kinds"])
        ]
        found[package] = sorted(set(used))
        todo.extend(used)
    return found


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def licence(package, clear):
    """An SPDX expression; old crates write / for OR."""
    stated = package["license"] or clear.get(package["name"], "NOASSERTION")
    return " ".join(stated.replace("/", " OR ").split())


def component(package, checksum, clear):
    described = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
        "licenses": [{"expression": licence(package, clear)}],
    }
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def main():
    lock, deny = sys.argv[1:3]
    metadata = json.load(sys.stdin)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    first = next(one for one in metadata["workspace_members"] if packages[one]["name"] == PROGRAM)
    sums, clear = checksums(lock), clarified(deny)
    graph = reached(nodes, first)
    parts = sorted((packages[one] for one in graph if one != first), key=purl)
    program = component(packages[first], None, clear) | {"type": "application"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [component(one, sums.get((one["name"], one["version"])), clear) for one in parts],
        "dependencies": sorted(
            ({"ref": purl(packages[one]), "dependsOn": [purl(packages[used]) for used in uses]} for one, uses in graph.items()),
            key=lambda one: one["ref"],
        ),
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    serial = "-".join((digest[:8], digest[8:12], "4" + digest[13:16], "8" + digest[17:20], digest[20:32]))
    document["serialNumber"] = f"urn:uuid:{serial}"
    json.dump(document, sys.stdout, indent=1)
    print()


main()

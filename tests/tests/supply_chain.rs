//! What the program is made of: known holes of its dependencies, its bill of materials, its checksums. None of it needs a build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn script(name: &str) -> Command {
    let mut command = Command::new(root().join("scripts").join(name));
    command.current_dir(root());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A lock with one package, and a database with one advisory about it.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new(version: &str, advisory: &str) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let lock = format!("version = 4\n\n[[package]]\nname = \"thing\"\nversion = \"{version}\"\n");
        std::fs::write(folder.path().join("Cargo.lock"), lock).unwrap();
        std::fs::write(folder.path().join("deny.toml"), "[advisories]\nignore = [\"RUSTSEC-2020-0009\"] # why\n")
            .unwrap();
        let crates = folder.path().join("db/crates/thing");
        std::fs::create_dir_all(&crates).unwrap();
        let front = format!("```toml\n[advisory]\n{advisory}\n```\n\n# A hole in thing\n");
        std::fs::write(crates.join("RUSTSEC-2020-0001.md"), front).unwrap();
        Scene(folder)
    }

    fn check(&self) -> Output {
        let program = root().join("scripts/check_advisories.py");
        let paths = ["Cargo.lock", "deny.toml", "db"].map(|name| self.0.path().join(name));
        Command::new("python3").arg(program).args(paths).output().unwrap()
    }
}

#[test]
fn a_known_hole_fails_the_check() {
    let hole = |versions: &str| format!("id = \"RUSTSEC-2020-0001\"\npackage = \"thing\"\n\n[versions]\n{versions}");
    let check = |version: &str, versions: &str, fails: bool| {
        let output = Scene::new(version, &hole(versions)).check();
        assert_eq!(output.status.success(), !fails, "{version} with {versions}: {}", text(&output));
        assert_eq!(text(&output).contains("HOLE: thing"), fails, "{}", text(&output));
    };
    check("1.2.2", "patched = [\">= 1.2.3\"]", true);
    check("1.2.3", "patched = [\">= 1.2.3\"]", false);
    check("1.2.3-rc.1", "patched = [\">= 1.2.3\"]", true);
    check("1.10.0", "patched = [\">= 1.9.0\"]", false);
    check("0.4.9", "patched = [\"^0.4.9\", \">= 0.5.2\"]", false);
    check("0.5.1", "patched = [\"^0.4.9\", \">= 0.5.2\"]", true);
    check("1.4.0", "patched = [\"~1.3.2\"]", true);
    check("1.3.5", "patched = [\"~1.3.2\"]", false);
    check("0.9.0", "patched = [\n    \">= 2.0.0\",\n]\nunaffected = [\"< 1.0.0\"]", false);
    check("2.0.0", "patched = [\">= 1.0.0, < 2.0.0\"]", true);
    check("3.0.0", "patched = []", true);
}

#[test]
fn notes_and_what_is_ignored_do_not_fail_it() {
    for more in ["informational = \"unmaintained\"", "withdrawn = \"2021-01-01\""] {
        let output =
            Scene::new("1.0.0", &format!("id = \"RUSTSEC-2020-0001\"\n{more}\n\n[versions]\npatched = []")).check();
        assert!(output.status.success(), "{}", text(&output));
    }
    let output = Scene::new("1.0.0", "id = \"RUSTSEC-2020-0009\"\n\n[versions]\npatched = []").check();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn without_advisories_the_check_says_that_it_was_skipped() {
    if Command::new("cargo-deny").arg("--version").output().is_ok() {
        return println!("cargo-deny is here and has a database of its own");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = script("check-advisories").env("ADVISORY_DB", folder.path().join("none")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("skipping the check of dependencies"), "{}", text(&output));
}

/// The checksum of each package that came from the registry.
fn locked() -> BTreeMap<String, String> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let value = |part: &str, key: &str| {
        let line = part.lines().find_map(|line| line.strip_prefix(&format!("{key} = \""))?.strip_suffix('"'));
        line.map(str::to_owned)
    };
    let packages = lock.split("[[package]]").skip(1);
    let one = |part: &str| {
        Some((format!("pkg:cargo/{}@{}", value(part, "name")?, value(part, "version")?), value(part, "checksum")?))
    };
    packages.filter_map(one).collect()
}

#[test]
fn a_release_has_its_bill_of_materials_and_checksums_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("knarr"), "the program").unwrap();
    let make = || {
        let output = script("release-files").arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        std::fs::read_to_string(folder.path().join("knarr.cdx.json")).unwrap()
    };
    let made = make();
    assert_eq!(made, make(), "the same tree gives the same bill");
    let mut verify = Command::new("sha256sum");
    let output = verify.args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let bill: Value = serde_json::from_str(&made).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["component"]["name"], "knarr");
    let (components, locked) = (bill["components"].as_array().unwrap(), locked());
    let mut refs = BTreeSet::from(["pkg:cargo/knarr@0.1.0"]);
    for component in components {
        let purl = component["purl"].as_str().unwrap();
        refs.insert(component["bom-ref"].as_str().unwrap());
        assert_eq!(component["hashes"][0]["content"].as_str(), locked.get(purl).map(String::as_str), "{purl}");
        let licence = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.is_empty() && licence != "NOASSERTION" && !licence.contains('/'), "{purl}: {licence}");
    }
    assert_eq!(refs.len(), components.len() + 1, "each component is there once");
    for name in ["pkg:cargo/rustls@", "pkg:cargo/kube-apiserver@", "pkg:cargo/tokio@"] {
        assert!(refs.iter().any(|one| one.starts_with(name)), "{name}");
    }
    // What only tests use is no part of the program.
    assert!(!refs.iter().any(|one| one.starts_with("pkg:cargo/testkit@")));
    for dependency in bill["dependencies"].as_array().unwrap() {
        let used = dependency["dependsOn"].as_array().unwrap().iter().chain([&dependency["ref"]]);
        for one in used {
            assert!(refs.contains(one.as_str().unwrap()), "{one}");
        }
    }
}

//! A machine that has nothing: a Debian made by debootstrap, the Rust toolchain, `make`, and a copy of what is in the
//! repository. What this machine has installed or built is not there and can fool nobody.
//!
//! Building everything takes as long as it takes. Here stands what can break on another machine, the crates that have a build
//! script or link a library; the whole of `make run` and `make test` is `make fresh`.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Debian, Hub, Place, Terminal};

/// The longest takes four minutes of one processor, and others may be busy on it.
const STEP_PATIENCE: Duration = Duration::from_secs(3600);
/// Everything, on a busy machine.
const WHOLE_PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// What nobody has who did not install it.
const FOREIGN: [&str; 8] = ["cc", "protoc", "cmake", "pkg-config", "clang", "python3", "kubectl", "etcd"];
/// Has a build script of a few lines that needs nothing, and depends on everything.
const WHOLE: &str = "knarr";

#[test]
fn what_compiles_or_links_foreign_code_builds_on_a_fresh_debian() {
    let (host, mut terminal) = fresh();
    for program in FOREIGN {
        let (_, code) = terminal.run(&format!("command -v {program}"), STEP_PATIENCE).unwrap();
        assert_ne!(code, 0, "the fresh Debian has {program}");
    }
    ok(&mut terminal, "scripts/install-tools build");
    // Where a second look finds something to do, the first did not do its work.
    assert_eq!(ok(&mut terminal, "scripts/install-tools build"), Vec::<String>::new());
    assert_eq!(terminal.run("command -v protoc", STEP_PATIENCE).unwrap().1, 1, "nothing needs protoc");
    // Build scripts run for a check as well, with all the C that they compile.
    let (foreign, own) = with_build_scripts();
    // Named together with our own, others' are looked for only among what those need.
    for packages in [foreign, own] {
        let named: String = packages.iter().map(|one| format!(" -p {one}")).collect();
        ok(&mut terminal, &format!("cargo check --locked{named}"));
    }
    ok(&mut terminal, "rustc --edition 2024 -o /tmp/build-script crates/knarr/build.rs && /tmp/build-script");
    // A library is linked only into a program.
    ok(
        &mut terminal,
        "echo 'fn main() {}' > /tmp/linked.rs && \
         rustc -o /tmp/linked -C link-arg=-Wl,--no-as-needed -lseccomp /tmp/linked.rs && /tmp/linked",
    );
    drop((terminal, host));
}

/// `make fresh` runs this. The network that `make run` starts its cluster in leads nowhere, so what needs another is done before,
/// by the same target: packages, and the dashboard's.
#[test]
#[ignore = "builds everything; `make fresh` runs it"]
fn make_run_makes_a_cluster_on_a_fresh_debian() {
    let (host, mut connected) = fresh();
    let began = Instant::now();
    let (printed, code) = connected.run("time make build PROFILE=quick", WHOLE_PATIENCE).unwrap();
    assert_eq!(code, 0, "make build:\n{}", printed.join("\n"));
    eprintln!("make build: {:.0} s, {}", began.elapsed().as_secs_f64(), printed[printed.len() - 3..].join(", "));
    let mut running = host.terminal().unwrap();
    let is_ready = |lines: &[String]| lines.iter().any(|line| line.starts_with("knarr is ready on "));
    running.begin("make run", WHOLE_PATIENCE, is_ready).unwrap();
    eprintln!("make run: ready after {:.0} s", began.elapsed().as_secs_f64());
    let mut terminal = host.terminal().unwrap();
    for command in [
        "export KUBECONFIG=$PWD/target/cluster/admin.kubeconfig PATH=$PATH:$PWD/target/bin",
        "kubectl create deployment web --image=knarr.dev/demo --port=8080",
        "kubectl scale deployment web --replicas=3",
        "kubectl rollout status deployment web",
        "kubectl get pods -o wide",
        // Its page, not the one that says that there is none.
        "kubectl get --raw /dashboard/ | grep '<script'",
        "kubectl delete deployment web --wait --cascade=foreground",
    ] {
        ok(&mut terminal, command);
    }
    drop((running, terminal, connected, host));
}

/// `make fresh` runs this, too. Tests have networks of their own, and some fetch a Debian.
#[test]
#[ignore = "builds and tests everything; `make fresh` runs it"]
fn make_test_passes_on_a_fresh_debian() {
    let (host, mut terminal) = fresh();
    // Who waits for an hour may read along, in the upper folder of that Debian below `target/readme`.
    let command = "bash -c 'set -o pipefail; make test 2>&1 | tee /var/log/make-test.log'";
    let (printed, code) = terminal.run(command, WHOLE_PATIENCE).unwrap();
    println!("{}", printed.join("\n"));
    assert_eq!(code, 0, "make test fails");
    drop((terminal, host));
}

/// A machine with Rust and `make`, and a shell there that can install packages.
fn fresh() -> (Debian, Terminal) {
    let hub = Arc::new(Hub::start(1).unwrap());
    let host = Debian::start_fresh(&hub, Place { link: 0, host: 1 }, &[]).unwrap();
    let mut terminal = host.connected_terminal().unwrap();
    ok(&mut terminal, "apt-get update -qq && apt-get install -qq -y --no-install-recommends make");
    (host, terminal)
}

fn ok(terminal: &mut Terminal, command: &str) -> Vec<String> {
    let began = Instant::now();
    let (printed, code) = terminal.run(command, STEP_PATIENCE).unwrap();
    assert_eq!(code, 0, "{command}:\n{}", printed.join("\n"));
    eprintln!("{:.0} s: {command}", began.elapsed().as_secs_f64());
    printed
}

/// The packages that knarr is made of and that have a build script: others' as `name@version`, and our own.
fn with_build_scripts() -> (BTreeSet<String>, BTreeSet<String>) {
    // What is part of it with the features that it has; `metadata` lists what any feature could bring. Cargo cannot check
    // by name what only procedural macros need; they are built on the way.
    let tree = cargo(&["tree", "-p", WHOLE, "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    let parts: BTreeSet<String> = tree.lines().filter_map(part).collect();
    // Of this platform only: a build has brought nothing of others to a machine that had nothing.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", &platform]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let (mut foreign, mut own) = (BTreeSet::new(), BTreeSet::new());
    for package in metadata["packages"].as_array().unwrap() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, id) = (text("name"), format!("{}@{}", text("name"), text("version")));
        if !parts.contains(&id) || name == WHOLE || !has_script(package) {
            continue;
        }
        match package["source"].is_null() {
            true => own.insert(name.to_owned()),
            false => foreign.insert(id),
        };
    }
    (foreign, own)
}

/// `name vVERSION (...)` as `name@VERSION`.
fn part(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some(format!("{name}@{version}"))
}

fn has_script(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets.filter_map(|target| target["kind"].as_array()).flatten().any(|kind| kind == "custom-build")
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--locked", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn packages_with_build_scripts_are_found_by_the_graph() {
    let (foreign, own) = with_build_scripts();
    let has = |name: &str| foreign.iter().any(|one| one.starts_with(&format!("{name}@")));
    assert!(has("libseccomp-sys") && has("ring") && has("tikv-jemalloc-sys"), "{foreign:?}");
    assert!(own.contains("api") && own.contains("demo-image") && !own.contains(WHOLE), "{own:?}");
    // Only tests make code from interfaces.
    assert!(!has("prost-build") && !has("protox"), "{foreign:?}");
}

#[test]
fn nothing_that_is_built_runs_protoc() {
    let tree = cargo(&["tree", "--workspace", "-e", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let generators: Vec<String> = tree.lines().filter_map(part).filter(|one| one.starts_with("prost-build@")).collect();
    assert_eq!(generators, Vec::<String>::new(), "a build script makes code from interfaces");
}

//! Hosts on which a start would be in vain: knarr ends at once, with one sentence that says what is wrong and what to do.
//! Each host is this one with something taken away, in namespaces of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::Machine;

/// Ends with the program's own words in place of `KNARR`, in a machine that has a network and mounts of its own.
fn run_in(machine: &Machine, script: &str) -> Output {
    let program = testkit::server::binary().unwrap();
    let command = script.replace("KNARR", &program.display().to_string());
    // Where it does start, against what is expected here, it must not go on for ever.
    let mut shell = machine.command("timeout");
    shell.args(["--signal=KILL", "60", "bash", "-ec", &command]).stdin(Stdio::null()).output().unwrap()
}

/// The one sentence on standard error; warnings of the log may stand before it.
fn refusal(output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let sentences: Vec<&str> = printed.lines().filter(|line| line.starts_with("Error: ")).collect();
    assert_eq!(sentences.len(), 1, "{printed}");
    sentences[0].trim_start_matches("Error: ").to_owned()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
    // Those who are not root are to come as far as to be refused for that.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    folder
}

fn server(data_dir: &Path) -> String {
    format!("KNARR server --data-dir {}", data_dir.display())
}

#[test]
fn a_port_that_is_taken_is_named() {
    let (folder, taken) = (folder(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = taken.local_addr().unwrap().port();
    let output = Command::new(testkit::server::binary().unwrap())
        .args(["server", "--disable-agent", "--bind-address=127.0.0.1", &format!("--https-port={port}"), "--data-dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert_eq!(
        refusal(&output),
        format!(
            "the Kubernetes API: port {port} is taken by another program, perhaps another knarr: stop it (ss -ltnp names it), \
             or choose another with --https-port"
        )
    );
    let left: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "nothing was begun: {left:?}");
}

#[test]
fn a_node_without_root_or_without_its_privileges_is_refused() {
    let (machine, folder) = (Machine::start().unwrap(), folder());
    let server = server(folder.path());
    // The program may lie where only root can read it.
    let copied = format!("cp KNARR {0}/program; chmod 755 {0}/program", folder.path().display());
    let nobody = format!(
        "{copied}; setpriv --reuid=65534 --regid=65534 --clear-groups {}",
        server.replace("KNARR", &folder.path().join("program").display().to_string())
    );
    assert_eq!(
        refusal(&run_in(&machine, &nobody)),
        "root: only root can make containers: use sudo, or run the control plane alone with --disable-agent"
    );
    // Whether this machine itself is a container decides about the words in between; rules of their own hold those.
    let restricted = format!("setpriv --bounding-set=-sys_admin,-net_admin {server}");
    let told = refusal(&run_in(&machine, &restricted));
    assert!(
        told.starts_with("privileges: ") && told.contains(" is without CAP_SYS_ADMIN and CAP_NET_ADMIN: "),
        "{told}"
    );
    assert!(told.ends_with(", or run the control plane alone with --disable-agent"), "{told}");
}

#[test]
fn a_container_with_read_only_cgroups_is_refused() {
    let (machine, folder) = (Machine::start().unwrap(), folder());
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let mount = if unified { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" };
    let script = format!("mount --bind {mount} {mount}; mount -o remount,bind,ro {mount}; {}", server(folder.path()));
    let told = refusal(&run_in(&machine, &script));
    assert!(told.starts_with("cgroups: /sys/fs/cgroup is read-only: ") && told.contains("--privileged"), "{told}");
}

#[test]
fn a_new_cluster_on_a_full_disk_is_refused() {
    let (machine, folder) = (Machine::start().unwrap(), folder());
    let path = folder.path().display();
    let script = format!("mount -t tmpfs -o size=8m knarr-test {path}; {}", server(folder.path()));
    assert_eq!(
        refusal(&run_in(&machine, &script)),
        format!(
            "disk: 8 MiB free in {path}, and a new cluster needs 64: free some, or choose another folder with --data-dir"
        )
    );
    let read_only = format!("mount -t tmpfs -o ro knarr-test {path}; {}", server(folder.path()));
    assert_eq!(
        refusal(&run_in(&machine, &read_only)),
        format!("disk: {path}: read-only filesystem or storage medium; choose another folder with --data-dir")
    );
}

#[test]
fn a_foreign_firewall_is_told_of_with_what_to_do() {
    let (machine, folder) = (Machine::start().unwrap(), folder());
    let check = format!("KNARR check --data-dir {}", folder.path().display());
    let printed = |rules: &str| {
        let output = run_in(&machine, &format!("nft flush ruleset; {rules}; {check}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let line = |text: &str| text.lines().find(|line| line.contains("  firewall ")).unwrap_or_default().to_owned();
    assert!(line(&printed("true")).starts_with("ok "));
    let dropping = "nft 'table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }'";
    let told = line(&printed(dropping));
    assert!(told.starts_with("warning") && told.contains("chain FORWARD of table filter drops"), "{told}");
    let firewalld = "nft 'table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; }; }'";
    let told = line(&printed(firewalld));
    assert!(told.starts_with("warning") && told.contains("firewall-cmd --permanent --zone=trusted"), "{told}");
}

/// `make run` itself says so before it builds for minutes.
#[test]
fn make_run_says_what_stands_in_its_way_before_it_builds() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let before_run = |data_dir: &Path, port: &str| {
        let program = Path::new(checkout).join("scripts/before-run");
        Command::new(program).arg(data_dir).args([port, "/bin/true"]).output().unwrap()
    };
    let output = before_run(folder.path(), &port);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.starts_with(&format!("make run: port {port} is taken")) && told.lines().count() == 1, "{told}");
    drop(taken);
    let output = before_run(folder.path(), &port);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let machine = Machine::start().unwrap();
    let path = folder.path().display();
    let script = format!(
        "mount -t tmpfs -o size=8m knarr-test {path}; {checkout}/scripts/before-run {path}/cluster 6443 /bin/true"
    );
    let told = String::from_utf8_lossy(&run_in(&machine, &script).stderr).into_owned();
    assert!(told.contains("8 MiB are free") && told.contains("make run DATA_DIR=..."), "{told}");
}

//! `knarr install` and `knarr uninstall` on a machine of its own, whose /etc, /usr/local and /var are not the host's. A
//! script stands in for systemctl: it does with the unit what systemd would.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use testkit::Machine;

/// Folders that are the machine's alone, and what it needs to believe in systemd.
const OWN_FOLDERS: &str = r#"
set -e
for folder in /etc /var /usr/local; do
  work=$(mktemp -d); mount -t tmpfs knarr-test "$work"; mkdir "$work/upper" "$work/work"
  mount -t overlay knarr-test -o "lowerdir=$folder,upperdir=$work/upper,workdir=$work/work" "$folder"
  umount -l "$work"; rmdir "$work"
done
mkdir -p /var/lib/knarr /var/log/pods /var/log/containers
mount -t tmpfs knarr-test /var/lib
mount -t tmpfs knarr-test /var/log
mount -t tmpfs knarr-test /run
mkdir -p /run/systemd/system /run/knarr
rm -f /usr/local/bin/*
"#;

const SYSTEMCTL: &str = r#"#!/bin/bash
echo "$*" >> "$CALLS"
unit=/etc/systemd/system/$2
case $1 in
restart|stop)
  [ -e "$unit" ] || { echo "Unit $2 not found." >&2; exit 5; }
  if [ -e "/run/$2.pid" ]; then
    kill -TERM "$(cat "/run/$2.pid")"
    while kill -0 "$(cat "/run/$2.pid")" 2>/dev/null; do sleep 0.05; done
    rm "/run/$2.pid"
  fi ;;&
restart)
  line=$(sed -n 's/^ExecStart=//p' "$unit" | sed 's/%%/%/g')
  set -a; . "$(sed -n 's/^EnvironmentFile=-//p' "$unit")"; set +a
  eval "exec setsid ${line//</\\<}" >> "/run/$2.log" 2>&1 < /dev/null &
  echo $! > "/run/$2.pid" ;;
esac
exit 0
"#;

struct Host {
    machine: Machine,
    folder: tempfile::TempDir,
    notified: UnixDatagram,
}

impl Host {
    fn new() -> Host {
        let machine = Machine::start().unwrap();
        machine.shell(OWN_FOLDERS).unwrap();
        let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let systemctl = folder.path().join("systemctl");
        std::fs::write(&systemctl, SYSTEMCTL).unwrap();
        std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(testkit::server::binary().unwrap(), folder.path().join("knarr")).unwrap();
        let notified = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        notified.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Host { machine, folder, notified }
    }

    fn knarr(&self, line: &str) -> Output {
        let path = format!("{}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", self.folder.path().display());
        let mut command = self.machine.command("env");
        command.arg(format!("PATH={path}")).arg(format!("CALLS={}", self.folder.path().join("calls").display()));
        command.arg(format!("NOTIFY_SOCKET={}", self.folder.path().join("notify").display()));
        command.args(line.split_whitespace()).stdin(Stdio::null()).output().unwrap()
    }

    fn ok(&self, line: &str) -> String {
        let output = self.knarr(line);
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let log = std::fs::read_to_string(self.path("/run/knarr.service.log")).unwrap_or_default();
        assert!(output.status.success(), "{line}: {said}{complained}\n{log}");
        said.into_owned()
    }

    fn refused(&self, line: &str) -> String {
        let output = self.knarr(line);
        assert!(!output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.machine.path(inside)
    }

    fn read(&self, inside: &str) -> String {
        std::fs::read_to_string(self.path(inside)).unwrap_or_else(|error| panic!("{inside}: {error}"))
    }

    fn mode(&self, inside: &str) -> u32 {
        std::fs::metadata(self.path(inside)).unwrap().permissions().mode() & 0o7777
    }

    fn calls(&self) -> String {
        let calls = self.folder.path().join("calls");
        let said = std::fs::read_to_string(&calls).unwrap_or_default();
        std::fs::write(calls, "").unwrap();
        said
    }

    /// What the service tells systemd next.
    fn told(&self) -> String {
        let mut buffer = [0; 512];
        let length = self.notified.recv(&mut buffer).unwrap_or_else(|error| {
            panic!("the service says nothing: {error}\n{}", self.read("/run/knarr.service.log"))
        });
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    fn until(&self, what: &str, script: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.machine.shell(script).is_err() {
            assert!(Instant::now() < until, "{what}\n{}", self.read("/run/knarr.service.log"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What a node leaves in the kernel.
    fn traces(&self) -> String {
        let script = "ip -o link | grep -E 'knarr|veth' ; ip route show table all | grep 'proto 107'; nft list tables; \
                      grep -E '/(run|var/lib)/knarr/' /proc/self/mounts; pgrep -l '^knarr'; true";
        self.machine.shell(script).unwrap()
    }
}

#[test]
fn a_service_is_installed_changed_and_taken_away() {
    let host = Host::new();
    let program = host.folder.path().join("knarr").display().to_string();
    let flags = format!(
        "--node-name node-1 --node-ip {} --cgroup-root /{} --eviction-hard memory.available<10Mi",
        testkit::machine::ADDRESS,
        host.machine.name()
    );

    // The words are the machine's; the flags are checked before anything is written.
    assert!(host.refused(&format!("{program} install server --no-such-flag")).contains("--no-such-flag"));
    assert!(host.refused(&format!("{program} install agent")).contains("knarr token create"));
    assert!(!host.path("/usr/local/bin/knarr").exists());

    let said = host.ok(&format!("{program} install server {flags} --token let-me-in-please"));
    assert!(host.told().starts_with("READY=1\n"));
    assert!(said.contains("export KUBECONFIG=/var/lib/knarr/admin.kubeconfig"), "{said}");
    assert_eq!(host.calls(), "daemon-reload\nenable knarr.service\nrestart knarr.service\n");
    assert_eq!((host.mode("/usr/local/bin/knarr"), host.mode("/etc/knarr/knarr.env")), (0o755, 0o600));
    let unit = host.read("/etc/systemd/system/knarr.service");
    assert!(unit.contains("ExecStart=/usr/local/bin/knarr server ") && !unit.contains("let-me-in-please"), "{unit}");
    assert!(host.read("/etc/knarr/knarr.env").contains("KNARR_TOKEN=\"let-me-in-please\"\n"));
    for file in ["man/man1/knarr-install.1", "bash-completion/completions/knarr", "zsh/site-functions/_knarr"] {
        assert!(host.path("/usr/local/share").join(file).exists(), "{file}");
    }

    let kubectl = "KUBECONFIG=/var/lib/knarr/admin.kubeconfig HOME=/run /usr/local/bin/knarr kubectl";
    host.until("the node is ready", &format!("{kubectl} wait --for=condition=Ready node/node-1 --timeout=5s"));
    host.until("a pod is made", &format!("{kubectl} run hello --image=knarr.dev/demo"));
    host.until("the pod runs", &format!("{kubectl} wait --for=condition=Ready pod/hello --timeout=5s"));
    let container = format!("{kubectl} get pod hello -o jsonpath={{.status.containerStatuses[0].containerID}}");
    let before = host.machine.shell(&container).unwrap();

    // Again, with one flag more: the environment is kept, the service is another process, the pod goes on.
    host.ok(&format!("{program} install server {flags} --max-pods 42"));
    assert_eq!(host.told(), "STOPPING=1\n");
    assert!(host.told().starts_with("READY=1\n"));
    assert!(host.read("/etc/systemd/system/knarr.service").contains("--max-pods=42"));
    assert!(host.read("/etc/knarr/knarr.env").contains("let-me-in-please"));
    let capacity = format!("{kubectl} get node node-1 -o jsonpath={{.status.capacity.pods}}");
    host.until("the node has room for so many", &format!("{capacity} | grep -qx 42"));
    assert_eq!(host.machine.shell(&container).unwrap(), before);
    assert!(host.refused(&format!("{program} install agent --server https://10.0.0.1:6443")).contains("uninstall"));

    // Nobody is there to be asked.
    assert!(host.refused("/usr/local/bin/knarr uninstall").contains("--yes"));
    assert!(host.traces().contains("knarr-cni"), "{}", host.traces());
    host.calls();
    host.ok("/usr/local/bin/knarr uninstall --yes");
    assert_eq!(host.calls(), "disable knarr.service\nstop knarr.service\ndaemon-reload\n");
    for path in ["/usr/local/bin/knarr", "/etc/knarr", "/etc/systemd/system/knarr.service", "/var/lib/knarr"] {
        assert!(!host.path(path).exists(), "{path} is left");
    }
    let groups =
        host.machine.shell(&format!("find /sys/fs/cgroup -path '*/{}/kubepods*'", host.machine.name())).unwrap();
    assert_eq!(groups, "");
    assert_eq!(host.traces(), "");
    let share = host.machine.shell("find /usr/local/share /var/log -name '*knarr*' -o -name '*hello*'");
    assert_eq!(share.unwrap(), "");
    // Once more finds nothing to do.
    host.ok(&format!("{program} uninstall --yes"));
}

#[test]
fn another_root_is_filled_and_nothing_is_started() {
    let host = Host::new();
    let program = host.folder.path().join("knarr").display().to_string();
    let root = host.folder.path().join("root").display().to_string();
    let agent = "install agent --server https://10.0.0.1:6443 --token K10abc --no-kubectl";
    let said = host.ok(&format!("{program} {agent} --root {root}"));
    assert!(said.contains("systemctl --root"), "{said}");
    assert!(
        host.read(&format!("{root}/etc/systemd/system/knarr-agent.service")).contains("knarr agent --server=https")
    );
    assert!(!host.path(&format!("{root}/usr/local/bin/kubectl")).exists());
    host.ok(&format!("{program} install agent --server https://10.0.0.1:6443 --root {root}"));
    assert!(host.read(&format!("{root}/etc/knarr/knarr-agent.env")).contains("K10abc"));
    let link = host.path(&format!("{root}/usr/local/bin/kubectl"));
    assert_eq!(std::fs::read_link(link).unwrap(), PathBuf::from("knarr"));
    host.ok(&format!("{program} uninstall --yes --root {root}"));
    assert_eq!(host.machine.shell(&format!("find {root} -type f -o -type l")).unwrap(), "");
    assert_eq!(host.machine.shell(&format!("ls {root}/usr/local/share")).unwrap().trim(), "man");
    assert_eq!(host.calls(), "");

    // Where nobody manages services, it says what to run.
    host.machine.shell("rmdir /run/systemd/system").unwrap();
    let said = host.ok(&format!("{program} install server --cluster-init --data-dir /var/lib/other"));
    assert!(said.contains("  /usr/local/bin/knarr server --data-dir=/var/lib/other --cluster-init\n"), "{said}");
    // And whoever is not root is told so.
    let said = host.refused(&format!("setpriv --reuid=65534 --clear-groups {program} install"));
    assert!(said.contains("sudo knarr install"), "{said}");
    let said = host.refused(&format!("setpriv --reuid=65534 --clear-groups {program} uninstall --yes"));
    assert!(said.contains("sudo knarr uninstall"), "{said}");
}

//! Real containers from real specifications: what they may do, and the ways out that they must not find.
//!
//! libcontainer forks, so every container is made by a process of its own: this program again, with the container's folder
//! as its argument, in network, IPC and UTS namespaces of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use container_runtime::image::ImageConfig;
use container_runtime::spec::seccomp::Programs;
use container_runtime::spec::{Confinement, Host, Input, Namespaces, cgroups_path, spec};
use cri::v1;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::workload::default::DefaultExecutor;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        std::process::exit(contain(Path::new(&folder)));
    }
    let only: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: containers need root");
        return;
    }
    let mut failed = Vec::new();
    for (name, case) in CASES {
        if !only.is_empty() && !only.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let outcome = std::panic::catch_unwind(case);
        println!("{name}: {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

const FOLDER: &str = "CONFINED_TEST_FOLDER";

static CASES: &[(&str, fn())] = &[
    ("defaults", defaults),
    ("paths_are_masked_and_read_only", paths_are_masked_and_read_only),
    ("devices_are_denied", devices_are_denied),
    ("namespaces_and_mounts_are_denied", namespaces_and_mounts_are_denied),
    ("privileged", privileged),
    ("users_and_groups", users_and_groups),
    ("no_new_privileges", no_new_privileges),
    ("limits_are_written", limits_are_written),
    ("mounts_propagate_as_asked", mounts_propagate_as_asked),
    ("users_of_their_own", users_of_their_own),
    ("no_way_out_through_descriptors", no_way_out_through_descriptors),
];

fn defaults() {
    let output = run("cat /proc/self/status; env; pwd; id", |_| {});
    for line in [
        "CapPrm:\t00000000a80425fb",
        "CapEff:\t00000000a80425fb",
        "CapBnd:\t00000000a80425fb",
        "CapInh:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "Seccomp:\t2",
        "NoNewPrivs:\t0",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOSTNAME=confined",
    ] {
        assert!(output.lines().any(|found| found == line), "{line} is missing in\n{output}");
    }
}

fn paths_are_masked_and_read_only() {
    let output = run(
        "echo keys $(wc -c < /proc/keys); echo firmware $(ls /sys/firmware | wc -l); \
         echo x > /proc/sys/kernel/domainname; echo 7 > /sys/fs/cgroup/pids/pids.max; mkdir /sys/fs/cgroup/memory/own; \
         touch /sys/kernel/x; touch /proc/irq/x; \
         echo 1 > /sys/fs/cgroup/cgroup.procs; ls /sys/fs/cgroup/memory/cgroup.procs /sys/fs/cgroup/cgroup.procs 2>/dev/null; \
         mount -o remount,rw /proc/sys; echo end",
        |_| {},
    );
    assert!(output.contains("keys 0"), "{output}");
    assert!(output.contains("firmware 0"), "{output}");
    assert!(output.contains("cgroup.procs"), "the container's own group is to be seen: {output}");
    assert!(output.contains("end"), "{output}");
    if Host::detect().cgroup == linux::cgroup::Hierarchy::V1 {
        assert!(output.contains("/sys/fs/cgroup/pids/pids.max: Read-only file system"), "{output}");
    }
    assert!(output.contains("/proc/sys/kernel/domainname: Read-only file system"), "{output}");
    assert!(output.matches("ermission denied").count() + output.matches("not permitted").count() >= 1, "{output}");
}

fn devices_are_denied() {
    let output = run(
        "mknod /disk b 253 0; mknod /disk2 b 8 0; mknod /mem c 1 1; \
         for device in /disk /disk2 /mem; do head -c1 $device && echo OPEN; done; \
         head -c 3 /dev/zero | wc -c; echo x > /dev/full; ls /dev",
        |_| {},
    );
    assert!(!output.contains("OPEN"), "{output}");
    assert!(output.matches("Operation not permitted").count() >= 3, "{output}");
    assert!(output.lines().any(|line| line == "3"), "{output}");
    for device in ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue"] {
        assert!(output.lines().any(|line| line == device), "{device} is missing in\n{output}");
    }
}

fn namespaces_and_mounts_are_denied() {
    let output = run(
        "mkdir /m; mount -t tmpfs none /m && echo MOUNTED; unshare -U true && echo UNSHARED; \
         unshare -Ur mount -t proc proc /m && echo MOUNTED; \
         nsenter -t 1 -m true && echo ENTERED; chroot / true && echo chroot works; dmesg && echo LOG",
        |_| {},
    );
    for word in ["MOUNTED", "UNSHARED", "ENTERED", "LOG"] {
        assert!(!output.contains(word), "{word} in {output}");
    }
    assert!(output.contains("chroot works"), "{output}");
    // Without a filter it is the missing capability that forbids mounts, but a user namespace would give it.
    let output = run("unshare -U true && echo UNSHARED; mount -t tmpfs none /tmp && echo MOUNTED", |config| {
        security(config).seccomp = None;
    });
    assert!(output.contains("UNSHARED") && !output.contains("MOUNTED"), "{output}");
}

fn privileged() {
    let output = run(
        "cat /proc/self/status; mkdir /m; mount -t tmpfs none /m && echo MOUNTED; ls /dev; touch /proc/sys/x; wc -c < /proc/keys",
        |config| {
            security(config).privileged = true;
        },
    );
    let host = Host::detect();
    assert!(output.contains("Seccomp:\t0"), "{output}");
    assert!(output.contains("MOUNTED"), "{output}");
    let bits = output.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities").trim().to_owned();
    assert_eq!(u64::from_str_radix(&bits, 16).expect("a mask").count_ones() as usize, host.capabilities.len());
    let block = host.devices.iter().map(|device| device.path().clone()).find(|path| path.starts_with("/dev/vda"));
    if let Some(name) = block.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str()) {
        assert!(output.lines().any(|line| line == name), "{output}");
    }
}

fn users_and_groups() {
    let output = run("id; touch /x; cat /proc/self/status", |config| {
        let security = security(config);
        security.run_as_user = Some(v1::Int64Value { value: 1000 });
        security.run_as_group = Some(v1::Int64Value { value: 3000 });
        security.supplemental_groups = vec![2000];
        security.readonly_rootfs = true;
    });
    assert!(output.contains("uid=1000(tester) gid=3000 groups=2000,3000,4000(extra)"), "{output}");
    assert!(output.contains("/x: Read-only file system"), "{output}");
    assert!(output.contains("CapEff:\t0000000000000000"), "{output}");
    assert!(output.contains("CapBnd:\t00000000a80425fb"), "{output}");
}

fn no_new_privileges() {
    let output = run("cat /proc/self/status; unshare -U true || echo refused", |config| {
        security(config).no_new_privs = true;
        security(config).capabilities =
            Some(v1::Capability { drop_capabilities: vec!["ALL".to_owned()], ..Default::default() });
    });
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000", "refused"] {
        assert!(output.lines().any(|found| found == line), "{line} is missing in\n{output}");
    }
}

fn limits_are_written() {
    let host = Host::detect();
    if host.cgroup == linux::cgroup::Hierarchy::V2 {
        return;
    }
    let output = run(
        "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes cpu/cpu.shares cpu/cpu.cfs_quota_us; cat /proc/self/oom_score_adj",
        |config| {
            config.linux.get_or_insert_default().resources = Some(v1::LinuxContainerResources {
                memory_limit_in_bytes: 64 << 20,
                cpu_shares: 512,
                cpu_quota: 50_000,
                cpu_period: 100_000,
                oom_score_adj: 987,
                ..Default::default()
            });
        },
    );
    assert_eq!(output.lines().collect::<Vec<_>>(), ["67108864", "512", "50000", "987"], "{output}");
}

fn mounts_propagate_as_asked() {
    // The maker of the container mounts a file system below each volume after the start, see `contain`.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -e /slave/later/file ] && break; \
                  sleep 0.1; done; ls /slave/later /private/later; echo end";
    let output = run(script, |config| {
        for (name, propagation) in [
            ("slave", v1::MountPropagation::PropagationHostToContainer),
            ("private", v1::MountPropagation::PropagationPrivate),
        ] {
            let mut mount =
                v1::Mount { container_path: format!("/{name}"), host_path: name.to_owned(), ..Default::default() };
            mount.set_propagation(propagation);
            config.mounts.push(mount);
        }
    });
    assert_eq!(output.lines().collect::<Vec<_>>(), ["/private/later:", "", "/slave/later:", "file", "end"], "{output}");
}

/// Descriptors of whoever made the container are not the container's, neither as they are nor as a working directory.
fn no_way_out_through_descriptors() {
    let output = run("ls /proc/self/fd; echo end", |_| {});
    let numbers: Vec<&str> = output.lines().collect();
    assert_eq!(numbers, ["0", "1", "2", "3", "end"], "3 is the folder that is listed: {output}");
    for number in 3..12 {
        let output = run("pwd; ls ../../../../../../../..; echo began", |config| {
            config.working_dir = format!("/proc/self/fd/{number}");
        });
        // This machine's root has it, the container's has not.
        assert!(!output.lines().any(|line| line == "usr"), "out by descriptor {number}: {output}");
        assert!(!output.lines().any(|line| line == "began"), "began with descriptor {number}: {output}");
    }
}

/// `hostUsers: false`: root inside is nobody outside.
fn users_of_their_own() {
    let mut holder = Holder::new();
    let namespaces = holder.namespaces();
    let output = run_in(
        &namespaces,
        "id -u; cat /proc/self/uid_map; cat /proc/self/status; touch /made && ls -ln /made; \
         mknod /disk b 253 0 && echo MADE; echo x > /proc/sys/kernel/domainname; head -c1 /dev/zero | wc -c; \
         mount -t tmpfs none /tmp && echo MOUNTED; echo 7 > /sys/fs/cgroup/pids/pids.max; echo end",
        |_| {},
    );
    holder.end();
    assert!(output.lines().any(|line| line.split_whitespace().eq(["0", "100000", "65536"])), "{output}");
    for line in ["0", "1", "end", "Seccomp:\t2", "CapEff:\t00000000a80425fb"] {
        assert!(output.lines().any(|found| found == line), "{line} is missing in\n{output}");
    }
    assert!(output.contains(" 0        0 ") || output.contains(" 0 0 "), "the file is root's: {output}");
    assert!(!output.contains("MADE") && !output.contains("MOUNTED"), "{output}");
    assert!(output.contains("/proc/sys/kernel/domainname: Read-only file system"), "{output}");
}

/// A process that keeps user, network, IPC and UTS namespaces, as a pod's shim does.
struct Holder(std::process::Child);

impl Holder {
    fn new() -> Holder {
        let mut child = Command::new("unshare")
            .args(["--user", "--net", "--ipc", "--uts", "sh", "-c", "echo ready; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a process with namespaces of its own");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("it is ready");
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", child.id()), "0 100000 65536").expect("a mapping");
        }
        Holder(child)
    }

    fn namespaces(&self) -> Namespaces {
        let path = |name: &str| Some(PathBuf::from(format!("/proc/{}/ns/{name}", self.0.id())));
        Namespaces { network: path("net"), ipc: path("ipc"), uts: path("uts"), pid: None, user: path("user") }
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("its end");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Its input is closed with it, so it ends by itself; a failed test need not wait.
        drop(self.0.stdin.take());
    }
}

fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    config.linux.get_or_insert_default().security_context.get_or_insert_default()
}

/// Ends and removes what a container left, also when the test fails.
struct Cleanup(PathBuf);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Ok(group) = linux::cgroup::Cgroups::detect().group(&self.0) {
            let _ = group.kill();
            let _ = group.remove();
        }
    }
}

/// What a shell in a container printed, both streams.
fn run(script: &str, change: impl Fn(&mut v1::ContainerConfig)) -> String {
    run_in(&Namespaces::default(), script, change)
}

fn run_in(namespaces: &Namespaces, script: &str, change: impl Fn(&mut v1::ContainerConfig)) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let id =
        format!("confined-{}", path.file_name().and_then(|name| name.to_str()).unwrap_or_default().replace('.', ""));
    let rootfs = make_rootfs(path);
    let mut config =
        v1::ContainerConfig { command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(), ..Default::default() };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    security(&mut config).seccomp = Some(v1::SecurityProfile::default());
    security(&mut config).masked_paths = words("/proc/acpi /proc/kcore /proc/keys /proc/timer_list /sys/firmware");
    security(&mut config).readonly_paths = words("/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger");
    security(&mut config).namespace_options = Some(v1::NamespaceOption { pid: 1, ..Default::default() });
    change(&mut config);
    for mount in &mut config.mounts {
        mount.host_path = path.join(&mount.host_path).to_string_lossy().into_owned();
        fs::create_dir_all(&mount.host_path).expect("a volume");
    }
    let sandbox = v1::PodSandboxConfig {
        hostname: "confined".to_owned(),
        linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: format!("/{id}"), ..Default::default() }),
        ..Default::default()
    };
    let mut description = spec(&Input {
        id: &id,
        config: &config,
        sandbox: &sandbox,
        image: &ImageConfig::default(),
        rootfs,
        passwd: "root:x:0:0::/root:/bin/sh\ntester:x:1000:1000::/:/bin/sh\n",
        group: "root:x:0:\nextra:x:4000:tester\n",
        namespaces,
        host: &Host::detect(),
        resolv_conf: file(path, "resolv.conf"),
        hostname_file: file(path, "hostname"),
        dev_shm: path.join("state"),
        labels: None,
    })
    .expect("a specification");
    let confinement = Confinement::take(&mut description, &Programs::default()).expect("a confinement");
    description.save(path.join("config.json")).expect("save the specification");
    let confinement = serde_json::to_vec(&confinement).expect("the confinement as JSON");
    fs::write(path.join("confinement.json"), confinement).expect("save the confinement");
    fs::write(path.join("id"), &id).expect("save the id");
    if namespaces.user.is_some() {
        // What a mount with moved owners does for layers and volumes.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a folder for all");
        let owned = Command::new("chown").args(["-R", "100000:100000"]).arg(path.join("rootfs")).status();
        assert!(owned.expect("chown").success());
    }

    let group = cgroups_path(&sandbox, &id);
    let _cleanup = Cleanup(group.parent().expect("a pod's group").to_owned());
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).env(FOLDER, path).output().expect("a container");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn file(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, name).expect("a file");
    path
}

fn make_rootfs(folder: &Path) -> PathBuf {
    let rootfs = folder.join("rootfs");
    for name in ["bin", "etc", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(rootfs.join(name)).expect("a folder of the root");
    }
    fs::create_dir_all(folder.join("state")).expect("a folder");
    let busybox = rootfs.join("bin/busybox");
    fs::copy("/bin/busybox", &busybox).expect("busybox is installed");
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).expect("busybox can run");
    for name in [
        "sh", "cat", "env", "id", "ls", "touch", "mkdir", "mknod", "mount", "unshare", "nsenter", "chroot", "wc",
        "head", "sleep", "true", "dmesg",
    ] {
        symlink("busybox", rootfs.join("bin").join(name)).expect("a link");
    }
    fs::write(rootfs.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\ntester:x:1000:1000::/:/bin/sh\n").expect("users");
    fs::write(rootfs.join("etc/group"), "root:x:0:\nextra:x:4000:tester\n").expect("groups");
    rootfs
}

/// Makes the container of a folder, waits for its end, and removes it.
fn contain(folder: &Path) -> i32 {
    nix::sched::unshare(
        CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWNS,
    )
    .expect("namespaces of its own");
    let none = None::<&str>;
    nix::mount::mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).expect("private mounts");
    let volumes: Vec<PathBuf> =
        ["slave", "private"].map(|name| folder.join(name)).into_iter().filter(|path| path.exists()).collect();
    for volume in &volumes {
        nix::mount::mount(Some("tmpfs"), volume, Some("tmpfs"), MsFlags::empty(), none).expect("a volume");
        nix::mount::mount(none, volume, none, MsFlags::MS_SHARED, none).expect("a shared volume");
        fs::create_dir(volume.join("later")).expect("a folder in the volume");
    }
    let confinement = fs::read(folder.join("confinement.json")).expect("the confinement");
    let confinement: Confinement = serde_json::from_slice(&confinement).expect("the confinement from JSON");
    let id = fs::read_to_string(folder.join("id")).expect("the id");
    let mut container = ContainerBuilder::new(id, SyscallType::default())
        .with_root_path(folder.join("state"))
        .expect("a folder for the state")
        .with_executor(Confined { confinement })
        .as_init(folder)
        .with_systemd(false)
        .build()
        .unwrap_or_else(|error| panic!("create the container: {error:?}"));
    let pid = container.pid().expect("a process");
    container.start().unwrap_or_else(|error| panic!("start the container: {error:?}"));
    for volume in &volumes {
        nix::mount::mount(Some("tmpfs"), &volume.join("later"), Some("tmpfs"), MsFlags::empty(), none)
            .expect("a mount");
        fs::write(volume.join("later/file"), "").expect("a file in the mount");
    }
    let pid = nix::unistd::Pid::from_raw(pid.as_raw());
    let status = nix::sys::wait::waitpid(pid, None).expect("the container ends");
    container.delete(true).unwrap_or_else(|error| panic!("delete the container: {error:?}"));
    match status {
        nix::sys::wait::WaitStatus::Exited(_, code) => code,
        _ => 128,
    }
}

#[derive(Clone)]
struct Confined {
    confinement: Confinement,
}

impl Executor for Confined {
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        self.confinement.prepare().map_err(|error| ExecutorValidationError::ArgValidationError(error.to_string()))?;
        DefaultExecutor {}.validate(spec)
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        self.confinement.seal().map_err(|error| ExecutorError::Other(error.to_string()))?;
        DefaultExecutor {}.exec(spec)
    }
}

//! Groups of this machine, and a folder that looks like v2.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::devices::evaluate;
use super::resources::shares_to_weight;
use super::{Cgroups, DeviceKind, DeviceRule, Error, Group, Hierarchy, HugepageLimit, Resources};

/// A group of this machine that goes away with the test, also when it fails.
struct Own(Group);

impl Own {
    fn new(cgroups: &Cgroups) -> Own {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("knarr-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let group = cgroups.group(name).expect("a path");
        let own = Own(group);
        own.0.create().expect("a group");
        own
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.remove();
    }
}

/// A shell that waits for a line before it runs a script, so that it can be moved first.
fn shell(group: &Group, script: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", &format!("read line; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    group.add(child.id()).expect("the shell enters");
    let mut input = child.stdin.take().expect("its input");
    std::io::Write::write_all(&mut input, b"go\n").expect("the shell reads");
    child
}

fn eventually(what: &str, check: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn mounts_are_told_apart() {
    let hybrid = "\
30 29 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:5 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
";
    let found = Cgroups::from_mountinfo(hybrid);
    assert_eq!(found.hierarchy, Hierarchy::V1);
    assert_eq!(found.tree("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
    assert_eq!(found.tree("memory"), Some(Path::new("/sys/fs/cgroup/memory")));
    assert!(!found.has("pids"));
    assert_eq!(found.mounts().len(), 2);

    let unified = "31 30 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    assert_eq!(Cgroups::from_mountinfo(unified), Cgroups::v2("/sys/fs/cgroup"));
}

#[test]
fn paths_stay_below_the_root() {
    let cgroups = Cgroups::v2("/nowhere");
    for path in ["", "/", "../x", "/a/../../b", "."] {
        assert!(matches!(cgroups.group(path), Err(Error::Path { .. })), "{path}");
    }
    assert_eq!(cgroups.group("a/b").expect("a path").path(), Path::new("/a/b"));
}

#[test]
fn weights_are_shares() {
    assert_eq!([0, 2, 1024, 2048, 262_144, u64::MAX].map(shares_to_weight), [1, 1, 100, 174, 10_000, 10_000]);
}

#[test]
fn limits_and_readings_are_real() {
    let own = Own::new(&Cgroups::detect());
    let group = &own.0;
    assert!(group.exists());
    group
        .apply(&Resources {
            cpu_shares: Some(512),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            memory_max: Some(64 << 20),
            memory_and_swap_max: Some(64 << 20),
            pids_max: Some(32),
            ..Resources::default()
        })
        .expect("limits");
    if group.cgroups.hierarchy == Hierarchy::V1 {
        assert_eq!(group.read("cpu", "cpu.shares").as_deref(), Some("512\n"));
        assert_eq!(group.read("cpu", "cpu.cfs_quota_us").as_deref(), Some("50000\n"));
        assert_ne!(group.read("cpuset", "cpuset.cpus").unwrap_or_default().trim(), "");
    }
    let mut child = shell(group, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; sleep 60");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("it works");
    let stats = group.stats();
    assert!(stats.cpu.usage_ns > 1_000_000, "{stats:?}");
    assert!(stats.memory.usage_bytes > 0 && stats.memory.working_set_bytes <= stats.memory.usage_bytes, "{stats:?}");
    // The kernel gathers some counts only every two seconds.
    eventually("page faults are counted", || group.stats().memory.page_faults > 0);
    assert_eq!(stats.memory.limit_bytes, Some(64 << 20));
    assert_eq!(stats.pids.limit, Some(32));
    assert!(stats.pids.current >= 1);
    assert!(group.procs().expect("processes").contains(&child.id()));
    // Raised and lowered again, memory and swap together in the right order.
    for limit in [512 << 20, 32 << 20] {
        let both = Resources { memory_max: Some(limit), memory_and_swap_max: Some(limit), ..Resources::default() };
        group.apply(&both).expect("changed limits");
        assert_eq!(group.stats().memory.limit_bytes, Some(limit as u64));
    }
    let freed =
        Resources { memory_max: Some(-1), memory_and_swap_max: Some(-1), pids_max: Some(-1), ..Resources::default() };
    group.apply(&freed).expect("no limits");
    assert_eq!((group.stats().memory.limit_bytes, group.stats().pids.limit), (None, None));
    group.kill().expect("an end");
    let status = child.wait().expect("its status");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

#[test]
fn running_out_of_memory_is_noticed() {
    let own = Own::new(&Cgroups::detect());
    let limit = Resources { memory_max: Some(16 << 20), memory_and_swap_max: Some(16 << 20), ..Resources::default() };
    own.0.apply(&limit).expect("a limit");
    assert_eq!(own.0.oom_kills(), 0);
    // The shell doubles a string until the kernel ends it.
    let mut child = shell(&own.0, "x=0123456789abcdef; while :; do x=$x$x; done");
    let status = child.wait().expect("its status");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    eventually("the kill is counted", || own.0.oom_kills() == 1);
    // A watcher that starts anew still sees what happened.
    let again = Cgroups::detect().group(own.0.path()).expect("a path");
    assert_eq!(again.oom_kills(), 1);
}

#[test]
fn forks_end_at_the_limit() {
    let own = Own::new(&Cgroups::detect());
    own.0.apply(&Resources { pids_max: Some(8), ..Resources::default() }).expect("a limit");
    let mut child = shell(&own.0, "while :; do sleep 60 & done");
    eventually("the limit is reached", || own.0.stats().pids.current == 8);
    let all = own.0.procs().expect("processes");
    assert!(all.len() <= 8);
    own.0.kill().expect("an end to all of them");
    assert_eq!(own.0.procs().expect("processes"), Vec::<u32>::new());
    child.wait().expect("its status");
    own.0.remove().expect("a removal");
    assert!(own.0.folders().iter().all(|folder| !folder.exists()));
    own.0.remove().expect("nothing left to do");
}

#[test]
fn groups_below_belong_to_it() {
    let own = Own::new(&Cgroups::detect());
    let below = own.0.child("a").and_then(|group| group.child("b")).expect("a path");
    below.create().expect("a group below");
    let mut child = shell(&below, "sleep 60");
    assert_eq!(own.0.children(), ["a"]);
    eventually("the process is seen from above", || own.0.procs().is_ok_and(|all| all.contains(&child.id())));
    own.0.kill().expect("an end");
    child.wait().expect("its status");
    own.0.remove().expect("a removal of both");
    assert!(!below.exists());
}

/// The v2 tree of a hybrid machine has no controllers, but processes, kills and pressure.
fn hybrid_v2() -> Option<Cgroups> {
    ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .into_iter()
        .find(|root| Path::new(root).join("cgroup.controllers").exists())
        .map(Cgroups::v2)
}

#[test]
fn v2_ends_processes_for_real() {
    let Some(cgroups) = hybrid_v2() else { return };
    let own = Own::new(&cgroups);
    let below = own.0.child("below").expect("a path");
    below.create().expect("a group below");
    let mut child = shell(&below, "sleep 60 & sleep 60 & wait");
    eventually("all are there", || own.0.procs().is_ok_and(|all| all.len() == 3));
    own.0.freeze(true).expect("a pause");
    eventually("they are frozen", || own.0.read("", "cgroup.events").is_some_and(|text| text.contains("frozen 1")));
    own.0.freeze(false).expect("an end of the pause");
    assert!(own.0.kill_at_once().expect("cgroup.kill"), "this kernel has cgroup.kill");
    own.0.kill().expect("an end");
    child.wait().expect("its status");
    assert!(own.0.stats().cpu.usage_ns > 0);
    if Path::new("/proc/pressure/cpu").exists() {
        assert!(own.0.stats().pressure.is_some());
    }
    own.0.remove().expect("a removal");
}

/// A folder laid out like cgroupfs v2.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("knarr-cgroup2-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).expect("a file")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn v2_hands_controllers_down() {
    let folder = Folder::new();
    folder.put("cgroup.controllers", "cpu memory pids rare\n");
    folder.put("cgroup.subtree_control", "cpu memory\n");
    folder.put("a/cgroup.controllers", "pids\n");
    folder.put("a/cgroup.subtree_control", "");
    let cgroups = Cgroups::v2(&folder.0);
    assert!(cgroups.has("pids") && !cgroups.has("hugetlb"));
    let group = cgroups.group("/a/b").expect("a path");
    group.create().expect("the groups");
    // The kernel takes each write as a change; a file keeps the last.
    assert!(folder.get("cgroup.subtree_control").starts_with("+pids"));
    assert_eq!(folder.get("a/cgroup.subtree_control"), "+pids");
    assert!(group.exists());
}

#[test]
fn v2_takes_limits_in_its_own_words() {
    let folder = Folder::new();
    for file in ["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.low", "memory.high", "memory.min"] {
        folder.put(&format!("g/{file}"), "");
    }
    for file in ["pids.max", "hugetlb.2MB.max", "cpuset.cpus", "memory.oom.group"] {
        folder.put(&format!("g/{file}"), "");
    }
    let group = Cgroups::v2(&folder.0).group("g").expect("a path");
    let resources = Resources {
        cpu_shares: Some(1024),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        cpuset_cpus: Some("0-1".to_owned()),
        memory_max: Some(1 << 20),
        memory_and_swap_max: Some(3 << 20),
        memory_min: Some(1),
        memory_low: Some(2),
        memory_high: Some(3),
        pids_max: Some(-1),
        hugepages: vec![HugepageLimit { page_size: "2MB".to_owned(), limit: 4 << 20 }],
        unified: vec![("memory.oom.group".to_owned(), "1".to_owned())],
        ..Resources::default()
    };
    group.apply(&resources).expect("limits");
    let expected = [
        ("cpu.weight", "100"),
        ("cpu.max", "50000 100000"),
        ("cpuset.cpus", "0-1"),
        ("memory.max", "1048576"),
        ("memory.swap.max", "2097152"),
        ("memory.min", "1"),
        ("memory.low", "2"),
        ("memory.high", "3"),
        ("pids.max", "max"),
        ("hugetlb.2MB.max", "4194304"),
        ("memory.oom.group", "1"),
    ];
    for (file, value) in expected {
        assert_eq!(folder.get(&format!("g/{file}")), value, "{file}");
    }
    // A limit that the kernel has no file for is not lost in silence.
    let lost = Resources { unified: vec![("io.max".to_owned(), "x".to_owned())], ..Resources::default() };
    assert!(group.apply(&lost).is_err());
}

#[test]
fn v2_readings() {
    let folder = Folder::new();
    folder.put(
        "g/cpu.stat",
        "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 9\n",
    );
    folder.put("g/memory.current", "10000\n");
    folder.put("g/memory.stat", "anon 4000\nfile 5000\ninactive_file 3000\npgfault 11\npgmajfault 1\n");
    folder.put("g/memory.max", "max\n");
    folder.put("g/memory.swap.current", "512\n");
    folder.put("g/memory.events", "low 0\nhigh 0\nmax 4\noom 2\noom_kill 2\noom_group_kill 0\n");
    folder.put("g/pids.current", "3\n");
    folder.put("g/pids.max", "100\n");
    folder.put("g/io.stat", "253:0 rbytes=100 wbytes=20 rios=1 wios=1\n8:0 rbytes=1 wbytes=2 rios=1 wios=1\n");
    folder.put(
        "g/cpu.pressure",
        "some avg10=1.50 avg60=0.25 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
    );
    let group = Cgroups::v2(&folder.0).group("g").expect("a path");
    let stats = group.stats();
    assert_eq!((stats.cpu.usage_ns, stats.cpu.user_ns, stats.cpu.throttled_ns), (5_000_000, 3_000_000, 9_000));
    assert_eq!(
        (stats.memory.usage_bytes, stats.memory.working_set_bytes, stats.memory.rss_bytes),
        (10_000, 7_000, 4_000)
    );
    assert_eq!((stats.memory.limit_bytes, stats.memory.swap_usage_bytes), (None, Some(512)));
    assert_eq!((stats.memory.page_faults, stats.memory.major_page_faults), (11, 1));
    assert_eq!((stats.pids.current, stats.pids.limit), (3, Some(100)));
    assert_eq!((stats.io.read_bytes, stats.io.write_bytes), (101, 22));
    let pressure = stats.pressure.expect("pressure");
    assert_eq!((pressure.cpu.some.avg10, pressure.cpu.some.total_us, pressure.cpu.full.total_us), (1.5, 123, 7));
    assert_eq!(group.oom_kills(), 2);

    folder.put("g/memory.events", "oom_kill 3\n");
    assert_eq!(group.oom_kills(), 3);
    assert_eq!(Cgroups::v2(&folder.0).group("gone").expect("a path").stats(), super::Stats::default());
}

fn rule(allow: bool, kind: DeviceKind, major: Option<u32>, minor: Option<u32>, access: &str) -> DeviceRule {
    let has = |letter| access.contains(letter);
    DeviceRule { allow, kind, major, minor, read: has('r'), write: has('w'), make: has('m') }
}

/// Nothing but `/dev/null`, whole, and `/dev/zero`, to read.
fn two_devices() -> Vec<DeviceRule> {
    vec![
        rule(false, DeviceKind::All, None, None, "rwm"),
        rule(true, DeviceKind::Character, Some(1), Some(3), "rwm"),
        rule(true, DeviceKind::Character, Some(1), Some(5), "r"),
        rule(true, DeviceKind::Character, None, None, "m"),
    ]
}

#[test]
fn device_rules_are_asked_from_the_last() {
    let (make, read, write, block, character) = (1, 2, 4, 1, 2);
    let allowed = |kind, access, major, minor| evaluate(&two_devices(), kind, access, major, minor);
    assert!(allowed(character, read | write, 1, 3));
    assert!(allowed(character, read, 1, 5));
    assert!(!allowed(character, read | write, 1, 5));
    assert!(!allowed(character, write, 1, 5));
    assert!(!allowed(block, read, 1, 3));
    assert!(!allowed(character, read, 1, 8));
    assert!(allowed(character, make, 99, 99));
    assert!(!allowed(block, make, 99, 99));
    assert!(evaluate(&[rule(true, DeviceKind::All, None, None, "rwm")], block, write, 8, 0));
    assert!(!evaluate(&[], character, read, 1, 3));
    let but_writing = [rule(true, DeviceKind::All, None, None, "rwm"), rule(false, DeviceKind::Block, None, None, "w")];
    assert!(!evaluate(&but_writing, block, read | write, 8, 0));
    assert!(evaluate(&but_writing, block, read, 8, 0));
}

#[test]
fn devices_are_denied_for_real() {
    let script = "echo x > /dev/null && echo null; head -c1 /dev/zero > /dev/null && echo zero; \
                  echo x > /dev/zero && echo wrote; head -c1 /dev/urandom > /dev/null && echo random; echo end";
    for cgroups in [Some(Cgroups::detect()), hybrid_v2()].into_iter().flatten() {
        if cgroups.hierarchy == Hierarchy::V1 && !cgroups.has("devices") {
            continue;
        }
        let own = Own::new(&cgroups);
        own.0.restrict_devices(&two_devices()).expect("rules");
        let child = shell(&own.0, script);
        let output = child.wait_with_output().expect("its output");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "null\nzero\nend\n", "{:?}", cgroups.hierarchy);
    }
}

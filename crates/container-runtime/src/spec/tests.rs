//! Small configurations and what becomes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cri::v1;
use linux::cgroup::Hierarchy;
use oci_spec::runtime::{Capability, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceType, LinuxNamespaceType, Spec};

use super::*;
use crate::image::ImageConfig;

const PASSWD: &str =
    "# users\nroot:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/:/bin/sh\n\nbroken\nother:x:1000:1001::/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nweb:x:34:\nlogs:x:4:web,other\naudio:x:29:other\n";

/// A configuration under change.
struct Case {
    config: v1::ContainerConfig,
    sandbox: v1::PodSandboxConfig,
    image: ImageConfig,
    namespaces: Namespaces,
    host: Host,
}

fn device(path: &str, kind: LinuxDeviceType, major: i64, minor: i64) -> LinuxDevice {
    let builder = LinuxDeviceBuilder::default().path(path).typ(kind).major(major).minor(minor).file_mode(0o660u32);
    builder.build().expect("a device")
}

fn case() -> Case {
    Case {
        config: v1::ContainerConfig { command: vec!["run".to_owned()], ..Default::default() },
        sandbox: v1::PodSandboxConfig {
            hostname: "pod-0".to_owned(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: "/kubepods/burstable/podu".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        },
        image: ImageConfig::default(),
        namespaces: Namespaces { network: Some(PathBuf::from("/ns/net")), ..Namespaces::default() },
        host: Host {
            cgroup: Hierarchy::V1,
            cgroup_mounts: vec![("memory".to_owned(), PathBuf::from("/sys/fs/cgroup/memory"))],
            apparmor: false,
            apparmor_profiles: Vec::new(),
            selinux: None,
            devices: vec![
                device("/dev/fuse", LinuxDeviceType::C, 10, 229),
                device("/dev/snd/a", LinuxDeviceType::C, 116, 1),
                device("/dev/snd/b", LinuxDeviceType::C, 116, 2),
                device("/dev/vda", LinuxDeviceType::B, 253, 0),
            ],
            device_links: BTreeMap::from([(PathBuf::from("/dev/disk/by-id/x"), PathBuf::from("/dev/vda"))]),
            capabilities: host::NUMBERED.iter().copied().filter(|one| *one != Capability::SysResource).collect(),
            oom_score_adj_min: 0,
            swap: true,
            hugetlb: false,
            hostname: "node".to_owned(),
        },
    }
}

impl Case {
    fn spec(&self) -> cri::Result<Spec> {
        spec(&Input {
            id: "id",
            config: &self.config,
            sandbox: &self.sandbox,
            image: &self.image,
            rootfs: PathBuf::from("/rootfs"),
            passwd: PASSWD,
            group: GROUP,
            namespaces: &self.namespaces,
            host: &self.host,
            resolv_conf: PathBuf::from("/pod/resolv.conf"),
            hostname_file: PathBuf::from("/pod/hostname"),
            dev_shm: PathBuf::from("/pod/shm"),
            labels: None,
        })
    }

    fn made(&self) -> Spec {
        self.spec().expect("a specification")
    }

    fn security(&mut self) -> &mut v1::LinuxContainerSecurityContext {
        self.config.linux.get_or_insert_default().security_context.get_or_insert_default()
    }

    fn resources(&mut self) -> &mut v1::LinuxContainerResources {
        self.config.linux.get_or_insert_default().resources.get_or_insert_default()
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn refusal(result: cri::Result<Spec>) -> String {
    result.expect_err("a refusal").message
}

#[test]
fn commands_and_arguments() {
    let check = |entrypoint: &[&str], cmd: &[&str], command: &[&str], args: &[&str]| {
        let mut case = case();
        case.image.entrypoint = strings(entrypoint);
        case.image.cmd = strings(cmd);
        case.config.command = strings(command);
        case.config.args = strings(args);
        case.spec().map(|spec| spec.process().as_ref().unwrap().args().clone().unwrap().join(" "))
    };
    assert_eq!(check(&["e"], &["c"], &[], &[]).unwrap(), "e c");
    assert_eq!(check(&["e"], &["c"], &[], &["a"]).unwrap(), "e a");
    assert_eq!(check(&["e"], &["c"], &["k"], &[]).unwrap(), "k");
    assert_eq!(check(&["e"], &["c"], &["k"], &["a"]).unwrap(), "k a");
    assert_eq!(check(&[], &[], &[], &["a"]).unwrap(), "a");
    assert_eq!(check(&[], &[], &[], &[]).unwrap_err().message, "no command specified");
}

#[test]
fn the_environment_is_laid_over_the_images() {
    let mut case = case();
    case.image.env = strings(&["PATH=/image", "A=1", "EMPTY"]);
    case.image.working_dir = "srv".to_owned();
    case.config.tty = true;
    let pair = |key: &str, value: &str| v1::KeyValue { key: key.to_owned(), value: value.to_owned() };
    case.config.envs = vec![pair("A", "2=3"), pair("B", ""), pair("HOSTNAME", "mine"), pair("B", "4")];
    let made = case.made();
    let process = made.process().as_ref().unwrap();
    let expected = ["PATH=/image", "TERM=xterm", "HOSTNAME=mine", "A=2=3", "EMPTY", "B=4"];
    assert_eq!(process.env().clone().unwrap(), expected);
    assert_eq!(process.cwd(), Path::new("/srv"));
    assert_eq!(process.terminal(), Some(true));
    assert_eq!(made.hostname(), &None);

    case.image.env.clear();
    case.config.envs.clear();
    case.config.tty = false;
    case.sandbox.hostname.clear();
    case.config.working_dir = "/own".to_owned();
    let made = case.made();
    let process = made.process().as_ref().unwrap();
    assert_eq!(process.env().clone().unwrap(), [process::DEFAULT_PATH, "HOSTNAME=node"]);
    assert_eq!(process.cwd(), Path::new("/own"));
}

#[test]
fn users_and_groups() {
    struct Asked<'a> {
        image: &'a str,
        uid: Option<i64>,
        name: &'a str,
        gid: Option<i64>,
        groups: &'a [i64],
        strict: bool,
    }
    let nobody = || Asked { image: "", uid: None, name: "", gid: None, groups: &[], strict: false };
    let check = |asked: Asked| {
        let mut case = case();
        case.image.user = asked.image.to_owned();
        let security = case.security();
        security.run_as_user = asked.uid.map(|value| v1::Int64Value { value });
        security.run_as_group = asked.gid.map(|value| v1::Int64Value { value });
        security.run_as_username = asked.name.to_owned();
        security.supplemental_groups = asked.groups.to_vec();
        security.supplemental_groups_policy = i32::from(asked.strict);
        case.spec().map_err(|error| error.message).map(|spec| {
            let user = spec.process().as_ref().unwrap().user().clone();
            format!("{}:{} {:?}", user.uid(), user.gid(), user.additional_gids().clone().unwrap())
        })
    };
    let cases = [
        (nobody(), "0:0 [0]"),
        (Asked { image: "web", ..nobody() }, "33:34 [34, 4]"),
        (Asked { image: "33", ..nobody() }, "33:34 [34, 4]"),
        (Asked { image: "web:audio", ..nobody() }, "33:29 [29, 4]"),
        (Asked { image: "web:7", ..nobody() }, "33:7 [7, 4]"),
        (Asked { image: "4242", ..nobody() }, "4242:0 [0]"),
        (Asked { image: "4242:4243", ..nobody() }, "4242:4243 [4243]"),
        (Asked { image: "web:audio", uid: Some(1000), ..nobody() }, "1000:1001 [1001, 4, 29]"),
        (Asked { image: "web", uid: Some(0), ..nobody() }, "0:0 [0]"),
        (Asked { name: "other", gid: Some(5), ..nobody() }, "1000:5 [5, 4, 29]"),
        (Asked { uid: Some(1000), groups: &[7, 4, 7], ..nobody() }, "1000:1001 [1001, 4, 29, 7]"),
        (Asked { uid: Some(1000), groups: &[7], strict: true, ..nobody() }, "1000:1001 [1001, 7]"),
        (Asked { image: "web", gid: Some(9), ..nobody() }, "33:9 [9, 4]"),
    ];
    for (asked, expected) in cases {
        assert_eq!(check(asked), Ok(expected.to_owned()));
    }
    let missing = "unable to find user ghost: no matching entries in passwd file";
    assert_eq!(check(Asked { image: "ghost", ..nobody() }), Err(missing.to_owned()));
    let missing = "unable to find group ghosts: no matching entries in group file";
    assert_eq!(check(Asked { image: "web:ghosts", ..nobody() }), Err(missing.to_owned()));
    assert!(check(Asked { uid: Some(-1), ..nobody() }).is_err());
    assert!(check(Asked { uid: Some(1 << 32), ..nobody() }).is_err());
}

#[test]
fn capabilities_are_added_and_dropped() {
    let check = |add: &[&str], drop: &[&str]| {
        let mut case = case();
        case.security().capabilities = Some(v1::Capability {
            add_capabilities: strings(add),
            drop_capabilities: strings(drop),
            ..Default::default()
        });
        case.spec().map_err(|error| error.message).map(|spec| {
            let sets = spec.process().as_ref().unwrap().capabilities().clone().unwrap();
            assert_eq!(sets.bounding(), sets.effective());
            assert_eq!(sets.bounding(), sets.permitted());
            assert!(sets.ambient().as_ref().unwrap().is_empty() && sets.inheritable().as_ref().unwrap().is_empty());
            let mut names: Vec<String> = sets.bounding().iter().flatten().map(ToString::to_string).collect();
            names.sort();
            names
        })
    };
    assert_eq!(check(&[], &[]).unwrap().len(), 14);
    assert_eq!(check(&["NET_ADMIN"], &["ALL"]).unwrap(), ["NET_ADMIN"]);
    assert_eq!(check(&["CAP_NET_ADMIN", "net_raw"], &["ALL"]).unwrap(), ["NET_ADMIN", "NET_RAW"]);
    assert_eq!(check(&["ALL"], &["SYS_ADMIN"]).unwrap().len(), 39);
    assert_eq!(check(&[], &["CHOWN"]).unwrap().len(), 13);
    assert_eq!(check(&["SYS_RESOURCE"], &["ALL"]).unwrap(), Vec::<String>::new(), "the host has none to give");
    assert_eq!(check(&["FLY"], &[]).unwrap_err(), "unknown capability \"CAP_FLY\" to add");
}

#[test]
fn mounts_are_in_order() {
    let mut case = case();
    let mount = |container_path: &str, host_path: &str| v1::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        ..Default::default()
    };
    let mut slave = mount("/data/", "/v/data");
    slave.set_propagation(v1::MountPropagation::PropagationHostToContainer);
    let mut read_only = mount("/data/in/side", "/v/inside");
    read_only.readonly = true;
    let mut recursive = mount("ro", "/v/ro");
    recursive.readonly = true;
    recursive.recursive_read_only = true;
    case.config.mounts =
        vec![read_only, slave, mount("/etc/hosts", "/v/hosts"), recursive, mount("/dev/shm", "/v/shm")];
    let made = case.made();
    let lines: Vec<String> = made
        .mounts()
        .iter()
        .flatten()
        .map(|mount| {
            let options = mount.options().clone().unwrap_or_default().join(",");
            let source = mount.source().clone().unwrap_or_default();
            format!("{} {} {options}", mount.destination().display(), source.display())
        })
        .collect();
    assert_eq!(
        lines,
        [
            "/proc proc nosuid,noexec,nodev",
            "/dev tmpfs nosuid,strictatime,mode=755,size=65536k",
            "/dev/pts devpts nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5",
            "/dev/mqueue mqueue nosuid,noexec,nodev",
            "/sys sysfs nosuid,noexec,nodev,ro",
            "/sys/fs/cgroup tmpfs nosuid,noexec,nodev,mode=755",
            "/sys/fs/cgroup/memory /sys/fs/cgroup/memory/kubepods/burstable/podu/id bind,nosuid,noexec,nodev,ro",
            "/data /v/data rbind,rslave,rw",
            "/ro /v/ro rbind,rprivate,rro",
            "/etc/hosts /v/hosts rbind,rprivate,rw",
            "/dev/shm /v/shm rbind,rprivate,rw",
            "/etc/hostname /pod/hostname rbind,rprivate,rw",
            "/etc/resolv.conf /pod/resolv.conf rbind,rprivate,rw",
            "/data/in/side /v/inside rbind,rprivate,ro",
        ]
    );
    assert_eq!(made.linux().as_ref().unwrap().rootfs_propagation().as_deref(), Some("slave"));
    // All but the one that asked for it are taken out of the host's reach.
    let confinement = Confinement::take(&mut made.clone(), &seccomp::Programs::default()).expect("a confinement");
    assert_eq!(confinement.mounts.len(), 6);
    assert!(!confinement.mounts.iter().any(|(path, _)| path == Path::new("/data")));

    case.config.mounts[3].readonly = false;
    assert!(refusal(case.spec()).contains("must be read-only"));
    let (root, below) = mounts::place_of(&case.config.mounts, Path::new("/rootfs"), Path::new("/data/in/work"));
    assert_eq!((root.as_path(), below.as_path()), (Path::new("/v/data"), Path::new("in/work")));
    let (root, below) = mounts::place_of(&case.config.mounts, Path::new("/rootfs"), Path::new("/srv/x"));
    assert_eq!((root.as_path(), below.as_path()), (Path::new("/rootfs"), Path::new("srv/x")));
}

#[test]
fn limits() {
    let mut case = case();
    *case.resources() = v1::LinuxContainerResources {
        cpu_shares: 512,
        cpu_quota: 50_000,
        cpu_period: 100_000,
        cpuset_cpus: "0-1".to_owned(),
        memory_limit_in_bytes: 1 << 20,
        oom_score_adj: -997,
        hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".to_owned(), limit: 4 }],
        unified: [("memory.high".to_owned(), "5".to_owned())].into(),
        ..Default::default()
    };
    let made = case.made();
    assert_eq!(made.process().as_ref().unwrap().oom_score_adj(), Some(0), "not below what this process has");
    let linux = made.linux().as_ref().unwrap();
    assert_eq!(linux.cgroups_path().as_deref(), Some(Path::new("/kubepods/burstable/podu/id")));
    let resources = linux.resources().as_ref().unwrap();
    let cpu = resources.cpu().as_ref().unwrap();
    assert_eq!((cpu.shares(), cpu.quota(), cpu.period()), (Some(512), Some(50_000), Some(100_000)));
    assert_eq!(cpu.cpus().as_deref(), Some("0-1"));
    let memory = resources.memory().as_ref().unwrap();
    assert_eq!((memory.limit(), memory.swap()), (Some(1 << 20), Some(1 << 20)));
    assert_eq!((resources.hugepage_limits(), resources.unified()), (&None, &None), "this host has neither");

    case.host.cgroup = Hierarchy::V2;
    case.host.hugetlb = true;
    case.host.swap = false;
    case.host.oom_score_adj_min = -1000;
    let made = case.made();
    assert_eq!(made.process().as_ref().unwrap().oom_score_adj(), Some(-997));
    let resources = made.linux().as_ref().unwrap().resources().clone().unwrap();
    assert_eq!(resources.memory().as_ref().unwrap().swap(), None);
    assert_eq!(resources.unified().as_ref().unwrap()["memory.high"], "5");
    assert_eq!(resources.hugepage_limits().as_ref().unwrap()[0].limit(), 4);
}

#[test]
fn devices_and_their_rules() {
    let mut case = case();
    let wanted = |host: &str, container: &str, permissions: &str| v1::Device {
        host_path: host.to_owned(),
        container_path: container.to_owned(),
        permissions: permissions.to_owned(),
    };
    case.config.devices = vec![
        wanted("/dev/fuse", "/dev/fuse", ""),
        wanted("/dev/snd", "/dev/sound", "r"),
        wanted("/dev/disk/by-id/x", "/dev/disk", "rw"),
    ];
    let made = case.made();
    let linux = made.linux().as_ref().unwrap();
    let paths: Vec<_> = linux.devices().iter().flatten().map(|one| one.path().display().to_string()).collect();
    assert_eq!(paths, ["/dev/fuse", "/dev/sound/a", "/dev/sound/b", "/dev/disk"]);
    let rules = |spec: &Spec| -> Vec<String> {
        let resources = spec.linux().as_ref().unwrap().resources().clone().unwrap();
        let rules = resources.devices().clone().unwrap();
        rules.iter().map(|rule| format!("{} {rule}", if rule.allow() { "allow" } else { "deny" })).collect()
    };
    assert_eq!(
        rules(&made),
        ["deny a *:* rwm", "allow c 10:229 rwm", "allow c 116:1 r", "allow c 116:2 r", "allow b 253:0 rw"]
    );
    // A raw volume may be wanted anywhere. It is no device for libcontainer then, but bound, under the same rule.
    case.config.devices = vec![wanted("/dev/disk/by-id/x", "/mnt/volume1", "r")];
    let made = case.made();
    assert_eq!(made.linux().as_ref().unwrap().devices().iter().flatten().count(), 0);
    let bound = made.mounts().iter().flatten().find(|mount| mount.destination() == Path::new("/mnt/volume1"));
    assert_eq!(bound.and_then(|mount| mount.source().clone()), Some(PathBuf::from("/dev/vda")));
    assert_eq!(rules(&made), ["deny a *:* rwm", "allow b 253:0 r"]);
    case.config.devices = vec![wanted("/dev/fuse", "/dev/fuse", "")];
    case.config.devices.push(wanted("/dev/none", "/dev/none", ""));
    assert!(refusal(case.spec()).contains("/dev/none"));
    case.config.devices.clear();
    case.security().privileged = true;
    let made = case.made();
    assert_eq!(made.linux().as_ref().unwrap().devices().as_ref().unwrap().len(), 4);
    assert_eq!(rules(&made), ["allow a *:* rwm"]);
}

#[test]
fn privileged_containers_are_not_confined() {
    let mut case = case();
    let security = case.security();
    security.seccomp = Some(v1::SecurityProfile::default());
    security.masked_paths = strings(&["/proc/keys"]);
    security.readonly_paths = strings(&["/proc/sys"]);
    security.no_new_privs = true;
    let made = case.made();
    let linux = made.linux().as_ref().unwrap();
    assert!(linux.seccomp().is_some());
    assert_eq!(linux.masked_paths().clone().unwrap(), ["/proc/keys"]);
    assert_eq!(linux.readonly_paths().clone().unwrap(), ["/proc/sys"]);
    assert_eq!(made.process().as_ref().unwrap().no_new_privileges(), Some(true));

    case.security().privileged = true;
    case.security().no_new_privs = false;
    case.host.cgroup = Hierarchy::V2;
    let made = case.made();
    let linux = made.linux().as_ref().unwrap();
    assert!(linux.seccomp().is_none());
    assert_eq!(linux.masked_paths().clone().unwrap(), Vec::<String>::new());
    assert_eq!(made.process().as_ref().unwrap().no_new_privileges(), None);
    let kinds: Vec<_> = linux.namespaces().iter().flatten().map(|one| one.typ()).collect();
    assert!(!kinds.contains(&LinuxNamespaceType::Cgroup));
    let sys = made.mounts().iter().flatten().find(|mount| mount.destination() == Path::new("/sys")).cloned().unwrap();
    assert!(sys.options().as_ref().unwrap().contains(&"rw".to_owned()));
}

#[test]
fn namespaces_are_joined_or_made() {
    let check = |pid: Option<v1::NamespaceMode>, hierarchy: Hierarchy, change: fn(&mut Case)| {
        let mut case = case();
        case.host.cgroup = hierarchy;
        case.namespaces.pid = Some(PathBuf::from("/ns/pid"));
        case.security().namespace_options =
            pid.map(|mode| v1::NamespaceOption { pid: mode.into(), ..Default::default() });
        change(&mut case);
        let made = case.made();
        let namespaces = made.linux().as_ref().unwrap().namespaces().clone().unwrap();
        let text =
            |path: &Option<PathBuf>| path.as_ref().map(|path| format!("={}", path.display())).unwrap_or_default();
        namespaces.iter().map(|one| format!("{}{}", one.typ(), text(one.path()))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(check(None, Hierarchy::V1, |_| {}), "mnt net=/ns/net pid");
    assert_eq!(check(Some(v1::NamespaceMode::Pod), Hierarchy::V1, |_| {}), "mnt net=/ns/net pid=/ns/pid");
    assert_eq!(check(Some(v1::NamespaceMode::Node), Hierarchy::V2, |_| {}), "mnt net=/ns/net cgroup");
    assert_eq!(check(Some(v1::NamespaceMode::Target), Hierarchy::V1, |_| {}), "mnt net=/ns/net pid=/ns/pid");
    let own_users = |case: &mut Case| {
        let mapping = v1::IdMapping { host_id: 65_536, container_id: 0, length: 65_536 };
        let users = v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] };
        case.security().namespace_options =
            Some(v1::NamespaceOption { userns_options: Some(users), pid: 1, ..Default::default() });
    };
    assert_eq!(check(None, Hierarchy::V1, own_users), "mnt net=/ns/net user pid");
    let mut case = case();
    own_users(&mut case);
    assert_eq!(case.made().linux().as_ref().unwrap().uid_mappings().as_ref().unwrap()[0].host_id(), 65_536);
    case.namespaces.user = Some(PathBuf::from("/ns/user"));
    let made = case.made();
    assert_eq!(made.linux().as_ref().unwrap().uid_mappings(), &None, "the pod's namespace has them already");
}

#[test]
fn apparmor() {
    use v1::security_profile::ProfileType;
    let given = |profile: Option<v1::SecurityProfile>, privileged: bool, loaded: &[&str]| {
        let mut case = case();
        case.host.apparmor = !loaded.is_empty();
        case.host.apparmor_profiles = strings(loaded);
        case.security().apparmor = profile;
        case.security().privileged = privileged;
        case.spec()
            .map_err(|error| error.message)
            .map(|spec| spec.process().as_ref().unwrap().apparmor_profile().clone())
    };
    let profile = |kind: ProfileType, name: &str| {
        Some(v1::SecurityProfile { profile_type: kind.into(), localhost_ref: name.to_owned() })
    };
    let check = |kind: ProfileType, name: &str, loaded: &[&str]| given(profile(kind, name), false, loaded);
    let default = crate::apparmor::DEFAULT;
    // Nothing is asked for: the default, unless there is none or the container may do everything anyway.
    assert_eq!(given(None, false, &[default]), Ok(Some(default.to_owned())));
    assert_eq!(given(None, false, &[]), Ok(None));
    assert_eq!(given(None, false, &["another"]), Ok(None));
    assert_eq!(given(None, true, &[default]), Ok(None));
    assert_eq!(given(profile(ProfileType::RuntimeDefault, ""), true, &[default]), Ok(None));
    assert_eq!(given(profile(ProfileType::Localhost, "mine"), true, &["mine"]), Ok(Some("mine".to_owned())));
    let unsupported = "apparmor is not supported: knarr-default is not loaded";
    assert_eq!(check(ProfileType::RuntimeDefault, "", &[]), Err(unsupported.to_owned()));
    assert_eq!(check(ProfileType::RuntimeDefault, "", &[default]), Ok(Some(default.to_owned())));
    assert_eq!(check(ProfileType::Localhost, "mine", &["mine"]), Ok(Some("mine".to_owned())));
    assert_eq!(check(ProfileType::Unconfined, "", &[default]), Ok(None));
    assert_eq!(check(ProfileType::Localhost, "mine", &[default]), Err("apparmor profile not found mine".to_owned()));
    assert!(check(ProfileType::Localhost, "mine", &[]).is_err());
}

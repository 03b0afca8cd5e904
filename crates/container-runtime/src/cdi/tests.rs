use oci_spec::runtime::{LinuxDeviceType, Spec};

use super::file::File;
use super::{Error, inject_from};

const GPU: &str = r#"
cdiVersion: 0.7.0
kind: vendor.test/gpu
containerEdits:
  env: [ALL=1]
devices:
- name: "0"
  containerEdits:
    env: [GPU=zero, PATH=/vendor]
    deviceNodes:
    - {path: /dev/gpu0, hostPath: /dev/null, permissions: r}
    mounts:
    - {hostPath: /usr/lib/vendor, containerPath: /usr/lib/vendor, options: [ro, nosuid, nodev, rbind]}
    hooks:
    - {hookName: createContainer, path: /usr/bin/vendor-hook, args: [vendor-hook, update]}
    additionalGids: [44, 0]
- name: "1"
  containerEdits:
    deviceNodes:
    - {path: /dev/gpu1, type: c, major: 195, minor: 1, fileMode: 438, uid: 7}
"#;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn inject(folders: &[&tempfile::TempDir], names: &[&str]) -> Result<Spec, Error> {
    let mut spec = Spec::default();
    let folders: Vec<_> = folders.iter().map(|folder| folder.path()).collect();
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    inject_from(&folders, &mut spec, &names).map(|()| spec)
}

#[test]
fn a_container_gets_what_its_devices_want() {
    let folder = folder(&[("gpu.yaml", GPU), ("notes.txt", "no")]);
    let spec = inject(&[&folder], &["vendor.test/gpu=0", "vendor.test/gpu=1"]).unwrap();
    let env = spec.process().as_ref().unwrap().env().clone().unwrap();
    assert!(["ALL=1", "GPU=zero", "PATH=/vendor"].iter().all(|one| env.iter().any(|it| it == one)), "{env:?}");
    assert_eq!(env.iter().filter(|one| one.starts_with("PATH=") || *one == "ALL=1").count(), 2, "{env:?}");
    let linux = spec.linux().as_ref().unwrap();
    let devices = linux.devices().clone().unwrap();
    let device = |path: &str| devices.iter().find(|one| one.path() == std::path::Path::new(path)).cloned().unwrap();
    let zero = device("/dev/gpu0");
    assert_eq!((zero.typ(), zero.major(), zero.minor()), (LinuxDeviceType::C, 1, 3));
    let one = device("/dev/gpu1");
    assert_eq!((one.major(), one.minor(), one.file_mode(), one.uid()), (195, 1, Some(438), Some(7)));
    let rules = linux.resources().as_ref().unwrap().devices().clone().unwrap();
    let allowed: Vec<_> = rules
        .iter()
        .filter(|rule| rule.allow())
        .map(|rule| (rule.major(), rule.minor(), rule.access().clone().unwrap_or_default()))
        .collect();
    assert!(allowed.contains(&(Some(1), Some(3), "r".into())) && allowed.contains(&(Some(195), Some(1), "rwm".into())));
    let mounts = spec.mounts().clone().unwrap();
    let mount = mounts.iter().find(|one| one.destination().ends_with("vendor")).unwrap();
    assert_eq!(mount.options().clone().unwrap(), ["ro", "nosuid", "nodev", "rbind"]);
    let hooks = spec.hooks().clone().unwrap().create_container().clone().unwrap();
    assert_eq!((hooks.len(), hooks[0].timeout()), (1, Some(60)));
    let groups = spec.process().as_ref().unwrap().user().additional_gids().clone().unwrap();
    assert_eq!(groups, [44]);
}

#[test]
fn names_are_looked_up_as_the_library_does() {
    let other = GPU.replace("GPU=zero", "GPU=other");
    let one = folder(&[("a.yaml", GPU), ("broken.json", "{\"cdiVersion\": 1}")]);
    let two = folder(&[("a.yaml", GPU), ("b.yaml", &other)]);
    let later = folder(&[("c.yaml", &other)]);
    let check = |folders: &[&tempfile::TempDir], names: &[&str], expected: Result<Option<&str>, &str>| {
        let found = inject(folders, names).map_err(|error| error.to_string());
        let found = found.map(|spec| {
            let env = spec.process().clone().unwrap().env().clone().unwrap();
            env.iter().find_map(|one| one.strip_prefix("GPU=")).map(str::to_owned)
        });
        let expected = expected.map(|gpu| gpu.map(str::to_owned)).map_err(str::to_owned);
        assert_eq!(found, expected, "{names:?}");
    };
    check(&[&one], &[], Ok(None));
    check(&[&one], &["vendor.test/gpu=0"], Ok(Some("zero")));
    let missing = "unresolvable CDI devices vendor.test/gpu=9, other.test/x=1";
    check(&[&one], &["vendor.test/gpu=9", "vendor.test/gpu=0", "other.test/x=1"], Err(missing));
    check(&[&two], &["vendor.test/gpu=0"], Err("unresolvable CDI devices vendor.test/gpu=0"));
    check(&[&one, &later], &["vendor.test/gpu=0"], Ok(Some("other")));
    check(&[&two, &later], &["vendor.test/gpu=0"], Ok(Some("other")));
    check(&[&later, &two], &["vendor.test/gpu=0"], Err("unresolvable CDI devices vendor.test/gpu=0"));
}

#[test]
fn files_that_are_not_as_they_should_be_do_not_count() {
    let check = |before: &str, after: &str, expected: &str| {
        assert!(GPU.contains(before), "{before}");
        let found = File::parse(GPU.replace(before, after).as_bytes()).map(drop).map_err(|error| error.to_string());
        let error = found.expect_err(after);
        assert!(error.contains(expected), "{after}: {error}");
    };
    assert!(File::parse(GPU.as_bytes()).is_ok());
    check("0.7.0", "9.9.9", "invalid CDI version \"9.9.9\"");
    check("0.7.0", "0.6.0", "the spec version must be at least v0.7.0");
    check("vendor.test/gpu", "vendor.test", "invalid kind");
    check("vendor.test/gpu", "-vendor/gpu", "invalid kind");
    check("name: \"1\"", "name: \"0\"", "multiple device");
    check("name: \"1\"", "name: \"1/2\"", "invalid device name");
    check("permissions: r", "permissions: rx", "permissions of a device");
    check("hookName: createContainer", "hookName: whenever", "invalid hook");
    check("env: [ALL=1]", "env: [ALL]", "environment variable");
    check("env: [ALL=1]", "environment: [ALL=1]", "unknown field");
    check("path: /dev/gpu0", "path: /dev/../etc/shadow", "path of a device");
    let unsupported = GPU.replace("env: [ALL=1]", "intelRdt: {closID: x}");
    let folder = folder(&[("gpu.yaml", &unsupported)]);
    let error = inject(&[&folder], &["vendor.test/gpu=1"]).unwrap_err();
    assert_eq!(error.to_string(), "CDI device vendor.test/gpu=1 needs Intel RDT, which this runtime does not have");
}

//! Ways out of a container that were found in other runtimes.

mod support;

use cri::Runtime;
use support::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_shims_program_cannot_be_overwritten_through_proc() {
    let world = World::new().await;
    let (sandbox, _) = world.run("pod", "sleep 1000").await;
    let folder = world.folder.path().join("state").join(&sandbox);
    let shim = std::fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        arguments == format!("knarr\0shim\0{}\0", folder.display()).into_bytes()
    });
    let program = shim.expect("the shim runs").path().join("exe");
    // While it runs nobody can write to it anyhow; afterwards the mount it is reached through refuses.
    let flags = rustix::fs::statvfs(&program).unwrap().f_flag;
    assert!(flags.contains(rustix::fs::StatVfsMountFlags::RDONLY), "{flags:?}");
    let plain = rustix::fs::statvfs(env!("CARGO_BIN_EXE_container-shim")).unwrap().f_flag;
    assert!(!plain.contains(rustix::fs::StatVfsMountFlags::RDONLY), "else this says nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_folder_cannot_be_a_descriptor_of_ours() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    for number in 3..20 {
        let script = "grep -q user:x:1000::/home/user ../../../../../../etc/passwd";
        let mut config = world.container_config("main", &["sh", "-c", script]);
        config.working_dir = format!("/proc/self/fd/{number}");
        let Ok(container) = world.runtime().create_container(&sandbox, config, world.sandbox_config("pod")).await
        else {
            continue;
        };
        // Either it does not start, or upwards from there lies the container's own root.
        if world.runtime().start_container(&container).await.is_ok() {
            assert_eq!(world.ended(&container).await.exit_code, 0, "/proc/self/fd/{number}");
        }
        world.runtime().remove_container(&container).await.unwrap();
    }
}

/// Drivers of storage mount the machine's `/dev`. They see it as it is, and it stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_at_dev_is_the_machines_and_stays_so() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let machine = world.folder.path().join("dev");
    std::fs::create_dir_all(machine.join("shm")).unwrap();
    std::os::unix::fs::symlink("/proc/self/fd", machine.join("fd")).unwrap();
    for (name, text) in [("ptmx", "the machine's"), ("shm/theirs", ""), ("null", "")] {
        std::fs::write(machine.join(name), text).unwrap();
    }
    let script = "set -e; test \"$(cat /dev/ptmx)\" = \"the machine's\"; test ! -e /dev/zero; test ! -e /dev/pts; \
                  test ! -e /dev/shm/theirs; echo ours > /dev/shm/ours; echo bye > /dev/termination-log; echo new > /dev/made";
    let log = world.folder.path().join("log");
    std::fs::write(&log, "").unwrap();
    let mut config = world.container_config("main", &["sh", "-c", script]);
    let mount = |host_path: &std::path::Path, container_path: &str| cri::v1::Mount {
        host_path: host_path.display().to_string(),
        container_path: container_path.into(),
        ..cri::v1::Mount::default()
    };
    config.mounts.extend([mount(&log, "/dev/termination-log"), mount(&machine, "/dev")]);
    let container =
        world.runtime().create_container(&sandbox, config.clone(), world.sandbox_config("pod")).await.unwrap();
    world.runtime().start_container(&container).await.unwrap();
    assert_eq!(world.ended(&container).await.exit_code, 0);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "bye\n");
    // Only the place for the log was made, and what the program wrote.
    let mut names: Vec<_> = std::fs::read_dir(&machine).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["fd", "made", "null", "ptmx", "shm", "termination-log"]);
    assert_eq!(std::fs::read_to_string(machine.join("ptmx")).unwrap(), "the machine's");
    assert!(!machine.join("shm/ours").exists());
    // Links in it lead nothing elsewhere.
    let mut led = config.clone();
    led.metadata.as_mut().unwrap().name = "led".into();
    std::os::unix::fs::symlink("/proc/self", machine.join("link")).unwrap();
    led.mounts.push(mount(&log, "/dev/link/attr/exec"));
    let container = world.runtime().create_container(&sandbox, led, world.sandbox_config("pod")).await.unwrap();
    let refused = world.runtime().start_container(&container).await.unwrap_err().to_string();
    assert!(refused.contains("mount volume at /dev: /dev/link/attr/exec: "), "{refused}");
    std::fs::remove_file(machine.join("link")).unwrap();
    // Read-only, it cannot be changed.
    config.metadata.as_mut().unwrap().name = "reader".into();
    config.mounts.last_mut().unwrap().readonly = true;
    config.args = vec!["sh".into(), "-c".into(), "test -e /dev/made && ! touch /dev/other".into()];
    config.command = Vec::new();
    let container = world.runtime().create_container(&sandbox, config, world.sandbox_config("pod")).await.unwrap();
    world.runtime().start_container(&container).await.unwrap();
    assert_eq!(world.ended(&container).await.exit_code, 0);
}

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

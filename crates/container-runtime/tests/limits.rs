//! Limits hold, and what goes against them is told.

mod support;

use std::io::Read;

use cri::{Runtime, v1};
use support::{World, wait};

#[tokio::test(flavor = "multi_thread")]
async fn running_out_of_memory_is_told() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let mut config = world.container_config("main", &["sh", "-c", "tail /dev/zero"]);
    let linux = config.linux.as_mut().unwrap();
    linux.resources = Some(v1::LinuxContainerResources { memory_limit_in_bytes: 16 << 20, ..Default::default() });
    let container = world.create(&sandbox, "pod", config).await;
    world.runtime().start_container(&container).await.unwrap();
    let status = world.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_stays_in_its_pod() {
    let world = World::new().await;
    let cgroups = linux::cgroup::Cgroups::detect();
    let pod = world.sandbox_config("pod");
    let group = cgroups.group(&pod.linux.as_ref().unwrap().cgroup_parent).unwrap();
    group.create().unwrap();
    group.apply(&linux::cgroup::Resources { pids_max: Some(40), ..Default::default() }).unwrap();
    let (_, container) = world.run("pod", "bomb() { bomb | bomb & }; bomb; sleep 1000").await;
    wait("the limit is reached", || async { (group.stats().pids.current >= 38).then_some(()) }).await;
    let (_, other) = world.run("other", "sleep 1000").await;
    assert_eq!(world.output(&other, "echo fine").await, "fine");
    world.runtime().stop_container(&container, 0).await.unwrap();
    assert_eq!(world.status(&container).await.exit_code, 137);
    wait("all are gone", || async { group.procs().unwrap().is_empty().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_can_be_changed_while_it_runs() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "sleep 1000").await;
    let limits = v1::LinuxContainerResources { memory_limit_in_bytes: 64 << 20, cpu_shares: 512, ..Default::default() };
    world.runtime().update_container_resources(&container, limits.clone()).await.unwrap();
    let stats = world.runtime().list_container_stats().await.unwrap();
    assert_eq!(stats.len(), 1);
    let memory = stats[0].memory.as_ref().unwrap();
    let limit = memory.available_bytes.unwrap().value + memory.working_set_bytes.unwrap().value;
    assert_eq!(limit, 64 << 20);
    assert!(stats[0].cpu.as_ref().unwrap().usage_core_nano_seconds.unwrap().value > 0);
    assert_eq!(world.status(&container).await.resources.unwrap().linux, Some(limits));
    let pods = world.runtime().list_pod_sandbox_stats().await.unwrap();
    assert_eq!(pods[0].linux.as_ref().unwrap().containers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn much_output_is_kept_in_order_rotated_and_packed() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "seq 1 200000").await;
    world.ended(&container).await;
    let path = world.folder.path().join("logs/pod/main/0.log");
    let packed = |file: &std::path::Path| file.extension().is_some_and(|extension| extension == "gz");
    // The newest of the old ones stays as it is.
    let old = wait("the older ones are packed", || async {
        let old = container_runtime::logs::rotated_files(&path).unwrap();
        (old.len() == 2 && packed(&old[0]) && !packed(&old[1])).then_some(old)
    })
    .await;
    let mut numbers = Vec::new();
    for file in old.iter().chain([&path]) {
        let mut text = String::new();
        let reading = std::fs::File::open(file).unwrap();
        if packed(file) {
            flate2::read::GzDecoder::new(reading).read_to_string(&mut text).unwrap()
        } else {
            { reading }.read_to_string(&mut text).unwrap()
        };
        assert!(text.len() < 2 << 20);
        numbers.extend(text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()));
    }
    assert_eq!(numbers.last(), Some(&200_000));
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no line is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_moved_is_opened_again() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "echo one; read x < /dev/shm/go; echo two; sleep 1000").await;
    wait("it begins", || async { world.log("pod", "main").contains("one").then_some(()) }).await;
    let path = world.folder.path().join("logs/pod/main/0.log");
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    world.runtime().reopen_container_log(&container).await.unwrap();
    let result = world.exec(&container, "echo three > /proc/1/fd/1").await;
    assert_eq!(result.exit_code, 0);
    wait("it goes on in the new file", || async { world.log("pod", "main").contains("three").then_some(()) }).await;
    assert!(!world.log("pod", "main").contains("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_shim_is_small() {
    let world = World::new().await;
    let (sandbox, _) = world.run("pod", "seq 1 10000; sleep 1000").await;
    let folder = world.folder.path().join("state").join(&sandbox);
    let shim = std::fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        arguments == format!("knarr\0shim\0{}\0", folder.display()).into_bytes()
    });
    let shim = shim.expect("the shim runs").path();
    wait("the log is written", || async { world.log("pod", "main").contains(" 10000").then_some(()) }).await;
    let usage = std::fs::read_to_string(shim.join("smaps")).unwrap();
    // What the program's file brings is the linker's and differs between builds; this is what the shim itself allocates.
    let mut anonymous = false;
    let mut own = 0;
    for line in usage.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "Private_Dirty:" if anonymous => own += words[1].parse::<u64>().unwrap(),
            first if !first.ends_with(':') => anonymous = words.get(5).is_none_or(|name| name.starts_with('[')),
            _ => {}
        }
    }
    println!("memory of an idle shim: {own} KiB");
    assert!(own > 0, "something is counted");
    assert!(own < 512, "{usage}");
}

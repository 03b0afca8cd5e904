//! Pods outlive knarr, and knarr outlives their shims.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use cri::{Runtime, v1};
use support::{World, wait};

const STOP: i32 = 19;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_start_finds_everything_as_it_is() {
    let mut world = World::new().await;
    let (sandbox, lasting) = world.run("lasting", "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.01; done").await;
    let (_, dying) = world.run("dying", "while [ ! -e /tmp/end ]; do sleep 0.01; done; echo last words; exit 33").await;
    let created = world.create(&sandbox, "lasting", world.container_config("later", &["sh", "-c", "exit 4"])).await;
    let (_, over) = world.run("over", "exit 11").await;
    world.ended(&over).await;
    let pid = world.runtime().pid(&lasting).unwrap();
    let dying_pid = world.runtime().pid(&dying).unwrap();
    let before = world.status(&lasting).await;
    let address = world.runtime().pod_sandbox_status(&sandbox).await.unwrap().network;

    world.close();
    std::fs::write(format!("/proc/{dying_pid}/root/tmp/end"), "").unwrap();
    wait("it ends while nobody watches", || async {
        (!std::path::Path::new(&format!("/proc/{dying_pid}")).exists()).then_some(())
    })
    .await;
    world.open().await;

    assert_eq!(world.runtime().pid(&lasting), Some(pid));
    assert_eq!(world.status(&lasting).await, before);
    assert_eq!(world.runtime().pod_sandbox_status(&sandbox).await.unwrap().network, address);
    let status = world.ended(&dying).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (33, "Error"));
    assert_eq!(world.lines("dying", "main"), ["stdout F last words"]);
    assert_eq!(world.status(&over).await.exit_code, 11);
    // What was only made can still be started, and what runs can be used.
    world.runtime().start_container(&created).await.unwrap();
    assert_eq!(world.ended(&created).await.exit_code, 4);
    assert_eq!(world.output(&lasting, "echo here").await, "here");
    world.runtime().stop_container(&lasting, 0).await.unwrap();
    assert_eq!(world.status(&lasting).await.exit_code, 137);
    let lines = world.lines("lasting", "main");
    let expected: Vec<String> = (0..lines.len()).map(|number| format!("stdout F line {number}")).collect();
    assert!(!lines.is_empty());
    assert_eq!(lines, expected, "no line is lost");
}

fn shim_of(world: &World, sandbox: &str) -> i32 {
    let folder = world.folder.path().join("state").join(sandbox);
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if arguments == format!("knarr\0shim\0{}\0", folder.display()).into_bytes() {
            return entry.file_name().to_str().unwrap().parse().unwrap();
        }
    }
    panic!("no shim of {sandbox}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shim_costs_its_pod_and_nothing_else() {
    let world = World::new().await;
    let (sandbox, container) = world.run("pod", "sleep 1000").await;
    let (_, other) = world.run("other", "sleep 1000").await;
    let pid = world.runtime().pid(&container).unwrap();
    linux::process::kill(shim_of(&world, &sandbox), 9).unwrap();
    let status = world.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Unknown"));
    assert!(!std::path::Path::new(&format!("/proc/{pid}/root/bin")).exists(), "its processes are ended");
    let sandbox_status = world.runtime().pod_sandbox_status(&sandbox).await.unwrap();
    assert_eq!(sandbox_status.state(), v1::PodSandboxState::SandboxNotready);
    world.runtime().stop_pod_sandbox(&sandbox).await.unwrap();
    world.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
    assert_eq!(world.output(&other, "echo fine").await, "fine");
    assert_eq!(world.network.attached.lock().len(), 1);
}

/// Stopped, as one that hangs in the kernel or waits for memory for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_does_not_answer_costs_its_pod_and_nothing_else() {
    let mut world = World::new().await;
    let (sandbox, container) = world.run("pod", "sleep 1000").await;
    let (_, other) = world.run("other", "sleep 1000").await;
    let (lost_sandbox, lost) = world.run("lost", "sleep 1000").await;
    world.close();
    world.shim_answers_within = Duration::from_secs(2);
    let lost_shim = shim_of(&world, &lost_sandbox);
    linux::process::kill(lost_shim, STOP).unwrap();
    // A start of knarr waits for it no longer than that, and finds the others.
    world.open().await;
    assert_eq!(world.status(&lost).await.state(), v1::ContainerState::ContainerExited);
    wait("it is ended", || async { (!Path::new(&format!("/proc/{lost_shim}/exe")).exists()).then_some(()) }).await;
    world.runtime().remove_pod_sandbox(&lost_sandbox).await.unwrap();

    let pid = world.runtime().pid(&container).unwrap();
    let shim = shim_of(&world, &sandbox);
    linux::process::kill(shim, STOP).unwrap();
    let command = ["true".to_string()];
    let error = world.runtime().exec_sync(&container, &command, 0).await.unwrap_err();
    assert_eq!(error.code, cri::Code::DeadlineExceeded);
    assert!(error.message.contains("the shim of the sandbox does not answer"), "{error}");
    let begun = Instant::now();
    let error = world.runtime().exec_sync(&container, &command, 1).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_millis(1900), "a command has its own limit too");
    assert_eq!((error.code, error.message.as_str()), (cri::Code::DeadlineExceeded, "command \"true\" timed out"));
    assert_eq!(world.status(&container).await.state(), v1::ContainerState::ContainerRunning);
    // Who wants it ended gets it ended.
    world.runtime().stop_container(&container, 1).await.unwrap();
    assert_eq!(world.status(&container).await.exit_code, 137);
    assert!(!Path::new(&format!("/proc/{pid}/root/bin")).exists(), "its processes are ended");
    world.runtime().stop_pod_sandbox(&sandbox).await.unwrap();
    world.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(!Path::new(&format!("/proc/{shim}/exe")).exists(), "the shim is ended");
    assert_eq!(world.output(&other, "echo fine").await, "fine");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_all_is_over_but_known() {
    let mut world = World::new().await;
    let (sandbox, container) = world.run("pod", "sleep 1000").await;
    let shim = shim_of(&world, &sandbox);
    world.close();
    linux::process::kill(shim, 9).unwrap();
    let state = world.folder.path().join("state").join(&sandbox);
    linux::mount::unmount(&state.join("shm")).unwrap();
    std::fs::remove_dir_all(&state).unwrap();
    world.open().await;
    let status = world.status(&container).await;
    assert_eq!(status.state(), v1::ContainerState::ContainerExited);
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    world.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(world.runtime().list_containers(None).await.unwrap().is_empty());
    assert!(world.images.snapshots().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_of_everything() {
    use futures::StreamExt;
    let world = World::new().await;
    let mut events = world.runtime().events().await.unwrap();
    let (sandbox, container) = world.run("pod", "exit 6").await;
    world.ended(&container).await;
    world.runtime().remove_container(&container).await.unwrap();
    world.runtime().stop_pod_sandbox(&sandbox).await.unwrap();
    world.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 8 {
        let event = events.next().await.unwrap();
        let code =
            event.containers_statuses.iter().find(|status| status.id == container).map(|status| status.exit_code);
        let who = if event.container_id == sandbox { "pod" } else { "container" };
        let kind = event.container_event_type().as_str_name().to_string();
        if (who, kind.as_str()) == ("container", "CONTAINER_STOPPED_EVENT") {
            assert_eq!(code, Some(6));
        }
        seen.push(format!("{who} {kind}"));
    }
    seen.sort();
    let expected: Vec<String> = ["container", "pod"]
        .iter()
        .flat_map(|who| {
            ["CREATED", "DELETED", "STARTED", "STOPPED"].map(|kind| format!("{who} CONTAINER_{kind}_EVENT"))
        })
        .collect();
    assert_eq!(seen, expected);
}

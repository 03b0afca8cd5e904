//! Pods and containers from their beginning to their end, on real processes.

mod support;

use cri::{Runtime, v1};
use support::{World, wait};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_writes_and_ends() {
    let world = World::new().await;
    let (sandbox, container) = world.run("pod", "echo hello; echo trouble >&2; exit 3").await;
    let status = world.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.started_at >= status.created_at && status.finished_at >= status.started_at);
    let mut lines = world.lines("pod", "main");
    lines.sort();
    assert_eq!(lines, ["stderr F trouble", "stdout F hello"]);

    let runtime = world.runtime();
    runtime.remove_container(&container).await.unwrap();
    assert_eq!(runtime.container_status(&container).await.unwrap_err().code, cri::Code::NotFound);
    runtime.stop_pod_sandbox(&sandbox).await.unwrap();
    let status = runtime.pod_sandbox_status(&sandbox).await.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    runtime.remove_pod_sandbox(&sandbox).await.unwrap();
    // Everything may be repeated.
    runtime.remove_container(&container).await.unwrap();
    runtime.stop_pod_sandbox(&sandbox).await.unwrap();
    runtime.remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(world.images.snapshots().is_empty());
    assert!(world.network.attached.lock().is_empty());
    assert_eq!(std::fs::read_dir(world.folder.path().join("state")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.folder.path().join("root/sandboxes")).unwrap().count(), 0);
}

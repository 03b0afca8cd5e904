//! What clients of the CRI socket make beside the kubelet: each sees what is its own to see.

mod support;

use cri::{Code, Runtime, v1};
use futures::StreamExt;
use support::{World, wait};

fn pods(list: Vec<v1::PodSandbox>) -> Vec<String> {
    let mut names: Vec<String> = list.into_iter().map(|pod| pod.metadata.unwrap().name).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_does_not_see_pods_of_others() {
    let mut world = World::new().await;
    let socket = world.runtime().for_socket();
    let mut kubelet_events = world.runtime().events().await.unwrap();
    let (own, _) = world.run("own", "sleep 1000").await;
    let foreign = socket.run_pod_sandbox(world.sandbox_config("foreign"), "").await.unwrap();
    let config = world.container_config("main", &["sleep", "1000"]);
    let sandbox_config = world.sandbox_config("foreign");
    let container = socket.create_container(&foreign, config, sandbox_config).await.unwrap();
    socket.start_container(&container).await.unwrap();

    assert_eq!(pods(world.runtime().list_pod_sandboxes(None).await.unwrap()), ["own"]);
    assert_eq!(pods(socket.list_pod_sandboxes(None).await.unwrap()), ["foreign", "own"]);
    assert_eq!(world.runtime().list_containers(None).await.unwrap().len(), 1);
    assert_eq!(socket.list_containers(None).await.unwrap().len(), 2);
    assert_eq!(world.runtime().list_container_stats().await.unwrap().len(), 1);
    assert_eq!(world.runtime().list_pod_sandbox_stats().await.unwrap().len(), 1);
    assert_eq!(socket.list_pod_sandbox_stats().await.unwrap().len(), 2);
    // The image is in use by somebody whom the kubelet does not see.
    assert!(world.runtime().list_images().await.unwrap()[0].pinned);
    assert!(!socket.list_images().await.unwrap()[0].pinned);
    assert!(socket.pid(&container).unwrap() > 1 && socket.pid(&foreign).unwrap() > 1);

    // After a restart it is still nobody's but the client's.
    drop(socket);
    world.close();
    world.open().await;
    let socket = world.runtime().for_socket();
    assert_eq!(pods(world.runtime().list_pod_sandboxes(None).await.unwrap()), ["own"]);
    assert_eq!(pods(socket.list_pod_sandboxes(None).await.unwrap()), ["foreign", "own"]);
    socket.remove_pod_sandbox(&foreign).await.unwrap();
    assert_eq!(pods(socket.list_pod_sandboxes(None).await.unwrap()), ["own"]);
    assert!(!world.runtime().list_images().await.unwrap()[0].pinned);

    let mut told = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(std::time::Duration::from_millis(100), kubelet_events.next()).await
    {
        told.push(event.pod_sandbox_status.unwrap().id);
    }
    assert!(!told.is_empty() && told.iter().all(|id| *id == own), "the kubelet hears of its own pods: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_one_pods_name() {
    let world = World::new().await;
    let socket = world.runtime().for_socket();
    let (own, _) = world.run("web", "sleep 1000").await;
    let refused = socket.run_pod_sandbox(world.sandbox_config("web"), "").await.unwrap_err();
    assert_eq!(refused.code, Code::AlreadyExists);
    let name = "web_default_uid-web_0";
    let expected = format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {own:?}");
    assert_eq!(refused.message, expected);
    let other = socket.run_pod_sandbox(world.sandbox_config("other"), "").await.unwrap();
    let create = async || {
        let config = world.container_config("main", &["sleep", "1000"]);
        socket.create_container(&other, config, world.sandbox_config("other")).await
    };
    let first = create().await.unwrap();
    let refused = create().await.unwrap_err();
    assert!(refused.message.ends_with(&format!("is reserved for {first:?}")), "{refused}");
    socket.remove_container(&first).await.unwrap();
    create().await.unwrap();
    let nameless = v1::PodSandboxConfig { metadata: None, ..world.sandbox_config("nameless") };
    assert_eq!(socket.run_pod_sandbox(nameless, "").await.unwrap_err().code, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_a_sandbox_are_kept() {
    let mut world = World::new().await;
    let sandbox = world.sandbox("web").await;
    let resources = v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() };
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: sandbox.clone(),
        overhead: None,
        resources: Some(resources),
    };
    world.runtime().update_pod_sandbox_resources(request).await.unwrap();
    world.close();
    world.open().await;
    let record =
        std::fs::read_to_string(world.folder.path().join("root/sandboxes").join(&sandbox).join("sandbox.json"));
    assert!(record.unwrap().contains("\"cpu_shares\":512"));
    let unknown = v1::UpdatePodSandboxResourcesRequest { pod_sandbox_id: "nobody".into(), ..Default::default() };
    assert_eq!(world.runtime().update_pod_sandbox_resources(unknown).await.unwrap_err().code, Code::NotFound);
    wait("it is ready", || async {
        let status = world.runtime().pod_sandbox_status(&sandbox).await.unwrap();
        (status.state() == v1::PodSandboxState::SandboxReady).then_some(())
    })
    .await;
}

//! Asks a kubelet which container has which device, as agents of a node do.

use std::path::Path;

use devices::podresources::pod_resources_lister_client::PodResourcesListerClient;
use devices::podresources::*;
use tonic::transport::Channel;

fn client(root: &Path) -> anyhow::Result<(tokio::runtime::Runtime, PodResourcesListerClient<Channel>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let channel = csi::channel::channel(&root.join("pod-resources/kubelet.sock"));
    drop(_inside);
    Ok((runtime, PodResourcesListerClient::new(channel)))
}

/// The devices, processors and memory of one pod, as lines such as `main vendor.test/gpu a`, `main claim first gpu.test/node-1/a`, `main cpus 1,2`
/// and `main memory 1024 of 0`.
pub fn of_pod(root: &Path, namespace: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let (runtime, mut client) = client(root)?;
    let request = GetPodResourcesRequest { pod_name: name.to_owned(), pod_namespace: namespace.to_owned() };
    let answer = runtime.block_on(client.get(request))?.into_inner();
    Ok(answer.pod_resources.iter().flat_map(lines).collect())
}

/// The same of all pods, with the pod's name before.
pub fn of_all_pods(root: &Path) -> anyhow::Result<Vec<String>> {
    let (runtime, mut client) = client(root)?;
    let answer = runtime.block_on(client.list(ListPodResourcesRequest {}))?.into_inner();
    let all =
        answer.pod_resources.iter().flat_map(|pod| lines(pod).into_iter().map(|line| format!("{} {line}", pod.name)));
    let mut all: Vec<String> = all.collect();
    all.sort();
    Ok(all)
}

/// Devices that are well, such as `vendor.test/gpu a`.
pub fn allocatable(root: &Path) -> anyhow::Result<Vec<String>> {
    let (runtime, mut client) = client(root)?;
    let answer = runtime.block_on(client.get_allocatable_resources(AllocatableResourcesRequest {}))?.into_inner();
    let mut all: Vec<String> =
        answer.devices.iter().map(|one| format!("{} {}", one.resource_name, one.device_ids.join(","))).collect();
    all.sort();
    Ok(all)
}

fn lines(pod: &PodResources) -> Vec<String> {
    let mut lines = Vec::new();
    for container in &pod.containers {
        for device in &container.devices {
            lines.push(format!("{} {} {}", container.name, device.resource_name, device.device_ids.join(",")));
        }
        let numbers = |all: &mut dyn Iterator<Item = i64>| all.map(|one| one.to_string()).collect::<Vec<_>>().join(",");
        if !container.cpu_ids.is_empty() {
            lines.push(format!("{} cpus {}", container.name, numbers(&mut container.cpu_ids.iter().copied())));
        }
        for memory in &container.memory {
            let nodes = numbers(&mut memory.topology.iter().flat_map(|topology| &topology.nodes).map(|node| node.id));
            lines.push(format!("{} {} {} of {nodes}", container.name, memory.memory_type, memory.size));
        }
        for claim in &container.dynamic_resources {
            for device in &claim.claim_resources {
                let (driver, pool, name) = (&device.driver_name, &device.pool_name, &device.device_name);
                lines.push(format!("{} claim {} {driver}/{pool}/{name}", container.name, claim.claim_name));
            }
        }
    }
    lines.sort();
    lines
}

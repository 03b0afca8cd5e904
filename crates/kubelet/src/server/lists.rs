//! The pods of this node as lists: as they are wished, and as they run.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::Server;
use super::answers::{self, Answer};

/// Every pod with the status that was worked out here.
pub fn pods(server: &Server) -> Answer {
    let pods = server
        .pods
        .list()
        .into_iter()
        .map(|state| Pod { status: Some(state.status.clone()), ..Pod::clone(&state.pod) });
    list(pods.collect())
}

/// What the runtime runs, as far as it shows: names, containers and their images.
pub(crate) fn running_pods(server: &Server) -> Answer {
    let states = server.pods.list();
    let running = states.iter().filter_map(|state| {
        let spec = state.pod.spec.as_ref()?;
        let runs = |name: &str| state.containers.iter().any(|container| container.running && container.name == name);
        let specified = spec.init_containers.iter().flatten().chain(&spec.containers);
        let containers: Vec<Container> = specified
            .filter(|container| runs(&container.name))
            .map(|container| Container {
                name: container.name.clone(),
                image: container.image.clone(),
                ..Container::default()
            })
            .collect();
        let metadata = &state.pod.metadata;
        (!containers.is_empty()).then(|| Pod {
            metadata: ObjectMeta {
                name: metadata.name.clone(),
                namespace: metadata.namespace.clone(),
                uid: metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec { containers, ..PodSpec::default() }),
            status: Some(PodStatus::default()),
        })
    });
    list(running.collect())
}

fn list(items: Vec<Pod>) -> Answer {
    let items: Vec<_> = items
        .iter()
        .map(|pod| {
            let mut value = serde_json::to_value(pod).unwrap_or_default();
            // Items of a list say neither.
            if let Some(members) = value.as_object_mut() {
                members.remove("kind");
                members.remove("apiVersion");
            }
            value
        })
        .collect();
    answers::json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}).to_string())
}

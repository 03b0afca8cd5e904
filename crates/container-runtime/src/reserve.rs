//! Names of pods and containers that are made through the CRI socket: one name, one pod, so that a client never takes the place of a
//! pod of the kubelet, and repeating a request that was answered does not make a second one.

use cri::{Code, v1};

use crate::runtime::Inner;
use crate::sandbox::Sandbox;

pub(crate) fn sandbox(inner: &Inner, config: &v1::PodSandboxConfig) -> cri::Result<()> {
    let metadata = config.metadata.as_ref();
    let metadata =
        metadata.ok_or_else(|| cri::Error::new(Code::InvalidArgument, "sandbox config must include metadata"))?;
    let known: Vec<_> = inner.table.lock().sandboxes.values().cloned().collect();
    let holder = known.iter().find(|sandbox| sandbox.record.lock().config.metadata.as_ref() == Some(metadata));
    match holder {
        Some(holder) => Err(reserved("sandbox", &sandbox_name(metadata), &holder.id)),
        None => Ok(()),
    }
}

pub(crate) fn container(inner: &Inner, sandbox: &Sandbox, config: &v1::ContainerConfig) -> cri::Result<()> {
    let metadata = config.metadata.as_ref();
    let metadata =
        metadata.ok_or_else(|| cri::Error::new(Code::InvalidArgument, "container config must include metadata"))?;
    let known = inner.containers_of(&sandbox.id);
    let holder = known.iter().find(|container| container.record.lock().config.metadata.as_ref() == Some(metadata));
    let Some(holder) = holder else { return Ok(()) };
    let pod = sandbox.config().metadata.unwrap_or_default();
    let name = format!("{}_{}_{}_{}_{}", metadata.name, pod.name, pod.namespace, pod.uid, metadata.attempt);
    Err(reserved("container", &name, &holder.id))
}

fn sandbox_name(metadata: &v1::PodSandboxMetadata) -> String {
    format!("{}_{}_{}_{}", metadata.name, metadata.namespace, metadata.uid, metadata.attempt)
}

fn reserved(what: &str, name: &str, holder: &str) -> cri::Error {
    let text = format!("failed to reserve {what} name {name:?}: name {name:?} is reserved for {holder:?}");
    cri::Error::new(Code::AlreadyExists, text)
}

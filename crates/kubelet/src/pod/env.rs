//! A container's environment: `env`, `envFrom` and the addresses of services, and `$(VAR)` in commands.

mod downward;
mod expand;
mod links;
mod sources;

pub(crate) use downward::container_of;
pub use downward::{DownwardError, field, resource};
pub use expand::{expand, expand_all};

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::Kubelet;
use crate::objects::ObjectError;
use crate::pod::files::Warning;
use crate::volumes::Mounted;

/// Why a container cannot be configured; the text is the message of its waiting reason CreateContainerConfigError.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error(transparent)]
    Downward(#[from] DownwardError),
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// `kind` is ConfigMap or Secret.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    #[error("failed to read file {path:?}: {source}")]
    ReadFile { path: String, source: std::io::Error },
    #[error("failed to parse environment file {path}: invalid line {line}")]
    InvalidLine { path: String, line: usize },
    #[error("environment variable key {key:?} not found in file {path:?} of volume {volume:?}")]
    NoKeyInFile { key: String, path: String, volume: String },
}

/// What is known about a pod beside its object.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The pod's own, the first is the main one. Empty until the sandbox has them.
    pub pod_ips: Vec<String>,
    /// The node's.
    pub host_ips: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Sorted by name; each name once.
    pub variables: Vec<(String, String)>,
    /// Warning events about the pod.
    pub warnings: Vec<Warning>,
}

/// Reads all that the container's environment is made of, and makes it.
pub async fn environment(
    kubelet: &Kubelet,
    pod: &Pod,
    container: &Container,
    addresses: &Addresses,
    mounted: &Mounted,
) -> Result<Environment, EnvironmentError> {
    let sources = sources::read(&kubelet.objects, &kubelet.config.node_name, pod, container, mounted).await?;
    make(pod, container, addresses, &sources)
}

fn make(
    pod: &Pod,
    container: &Container,
    addresses: &Addresses,
    sources: &sources::Sources,
) -> Result<Environment, EnvironmentError> {
    let mut own: BTreeMap<String, String> = BTreeMap::new();
    let mut warnings = Vec::new();
    for source in &sources.env_from {
        let mut skipped = Vec::new();
        for (key, value) in &source.values {
            let name = format!("{}{key}", source.prefix);
            if is_variable_name(&name) { drop(own.insert(name, value.clone())) } else { skipped.push(name) }
        }
        if !skipped.is_empty() {
            warnings.push(Warning {
                reason: "InvalidEnvironmentVariableNames",
                message: format!(
                    "Keys [{}] from the EnvFrom {} were skipped since they are considered invalid environment variable names.",
                    skipped.join(", "),
                    source.described
                ),
            });
        }
    }
    let services = links::variables(pod, &sources.services);
    for variable in container.env.iter().flatten() {
        let value = match (variable.value.as_deref().unwrap_or_default(), &variable.value_from) {
            ("", None) => Some(String::new()),
            ("", Some(source)) => sources.value(pod, container, addresses, source)?,
            (text, _) => Some(expand(text, |name| own.get(name).or_else(|| services.get(name)).cloned())),
        };
        // An optional reference to what is not there leaves the variable out.
        if let Some(value) = value {
            own.insert(variable.name.clone(), value);
        }
    }
    let mut variables = services;
    variables.extend(own);
    Ok(Environment { variables: variables.into_iter().collect(), warnings })
}

/// Any printable ASCII but `=`, as since the relaxed rule.
fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

#[cfg(test)]
mod tests;

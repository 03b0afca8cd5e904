//! What a container's environment is made of, read before anything is decided.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, FileKeySelector, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Addresses, EnvironmentError, downward};
use crate::objects::{ObjectError, Objects};
use crate::volumes::{Mounted, Volume};

#[derive(Default)]
pub(super) struct Sources {
    /// In the order of `envFrom`; an optional one that is not there is left out.
    pub env_from: Vec<EnvFrom>,
    pub services: Vec<Arc<Service>>,
    pub config_maps: HashMap<String, Option<Arc<ConfigMap>>>,
    pub secrets: HashMap<String, Option<Arc<Secret>>>,
    pub allocatable: BTreeMap<String, Quantity>,
    /// The content of each file that a `fileKeyRef` names, by volume and path.
    pub files: HashMap<(String, String), Option<String>>,
}

pub(super) struct EnvFrom {
    pub prefix: String,
    /// `configMap <namespace>/<name>`
    pub described: String,
    pub values: BTreeMap<String, String>,
}

/// The largest file of variables that is read.
const FILE_MAX: u64 = 64 * 1024;

pub(super) async fn read(
    objects: &Objects,
    node_name: &str,
    pod: &Pod,
    container: &Container,
    mounted: &Mounted,
) -> Result<Sources, EnvironmentError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut sources = Sources { services: objects.services().await?, ..Default::default() };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            let found = optional(objects.config_map(namespace, &reference.name).await, reference.optional)?;
            let described = format!("configMap {namespace}/{}", reference.name);
            let values = found.map(|found| found.data.clone().unwrap_or_default());
            sources.env_from.extend(values.map(|values| EnvFrom { prefix: prefix.clone(), described, values }));
        }
        if let Some(reference) = &source.secret_ref {
            let found = optional(objects.secret(namespace, &reference.name).await, reference.optional)?;
            let described = format!("secret {namespace}/{}", reference.name);
            let values = found.map(|found| {
                let data = found.data.iter().flatten();
                data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned())).collect()
            });
            sources.env_from.extend(values.map(|values| EnvFrom { prefix, described, values }));
        }
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(reference) = &source.config_map_key_ref {
            let found = optional(objects.config_map(namespace, &reference.name).await, reference.optional)?;
            sources.config_maps.insert(reference.name.clone(), found);
        }
        if let Some(reference) = &source.secret_key_ref {
            let found = optional(objects.secret(namespace, &reference.name).await, reference.optional)?;
            sources.secrets.insert(reference.name.clone(), found);
        }
        if source.resource_field_ref.is_some() && sources.allocatable.is_empty() {
            sources.allocatable = objects.allocatable(node_name).await?;
        }
        if let Some(reference) = &source.file_key_ref {
            let text = read_file(mounted, reference).await?;
            sources.files.insert((reference.volume_name.clone(), reference.path.clone()), text);
        }
    }
    Ok(sources)
}

impl Sources {
    /// The value of a reference; nothing when it is optional and not there.
    pub fn value(
        &self,
        pod: &Pod,
        container: &Container,
        addresses: &Addresses,
        source: &EnvVarSource,
    ) -> Result<Option<String>, EnvironmentError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(reference) = &source.field_ref {
            return Ok(Some(downward::field(pod, &reference.field_path, addresses)?));
        }
        if let Some(reference) = &source.resource_field_ref {
            let named = reference.container_name.as_deref().filter(|name| !name.is_empty());
            let container = match named {
                Some(name) => downward::container_of(pod, name)?,
                None => container,
            };
            return Ok(Some(downward::resource(pod, container, reference, &self.allocatable)?));
        }
        if let Some(reference) = &source.config_map_key_ref {
            let found = self.config_maps.get(&reference.name).cloned().flatten();
            let value = found.as_ref().and_then(|found| found.data.as_ref()?.get(&reference.key).cloned());
            let missing = || no_key("ConfigMap", namespace, &reference.name, &reference.key);
            return or_missing(value, reference.optional, missing);
        }
        if let Some(reference) = &source.secret_key_ref {
            let found = self.secrets.get(&reference.name).cloned().flatten();
            let value = found.as_ref().and_then(|found| found.data.as_ref()?.get(&reference.key).cloned());
            let value = value.map(|value| String::from_utf8_lossy(&value.0).into_owned());
            let missing = || no_key("Secret", namespace, &reference.name, &reference.key);
            return or_missing(value, reference.optional, missing);
        }
        if let Some(reference) = &source.file_key_ref {
            let text = self.files.get(&(reference.volume_name.clone(), reference.path.clone())).cloned().flatten();
            let values = text
                .as_deref()
                .map(parse_variables)
                .transpose()
                .map_err(|line| EnvironmentError::InvalidLine { path: reference.path.clone(), line })?;
            let value = values.and_then(|mut values| values.remove(&reference.key));
            let missing = || {
                let FileKeySelector { key, path, volume_name, .. } = reference.clone();
                EnvironmentError::NoKeyInFile { key, path, volume: volume_name }
            };
            return or_missing(value, reference.optional, missing);
        }
        Ok(Some(String::new()))
    }
}

fn no_key(kind: &'static str, namespace: &str, name: &str, key: &str) -> EnvironmentError {
    EnvironmentError::NoKey { kind, namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() }
}

fn optional<K>(found: Result<Arc<K>, ObjectError>, optional: Option<bool>) -> Result<Option<Arc<K>>, EnvironmentError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() && optional == Some(true) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn or_missing(
    value: Option<String>,
    optional: Option<bool>,
    missing: impl Fn() -> EnvironmentError,
) -> Result<Option<String>, EnvironmentError> {
    match value {
        None if optional != Some(true) => Err(missing()),
        value => Ok(value),
    }
}

/// The file's text, nothing when it does not exist. Its path cannot lead out of the volume, whatever a container put there.
async fn read_file(mounted: &Mounted, reference: &FileKeySelector) -> Result<Option<String>, EnvironmentError> {
    let Some(Volume::Path { path: root, .. }) = mounted.get(&reference.volume_name).cloned() else {
        return Err(EnvironmentError::NoVolume(reference.volume_name.clone()));
    };
    let path = reference.path.clone();
    let read = tokio::task::spawn_blocking(move || linux::path::read_inside(&root, Path::new(&path), FILE_MAX)).await;
    let failed = |source: std::io::Error| EnvironmentError::ReadFile { path: reference.path.clone(), source };
    let bytes = match read.map_err(|error| failed(error.into()))? {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(failed(std::io::Error::other("not text"))),
    }
}

/// `NAME='value'` lines; the value is what stands between the quotes, over several lines if it must. Empty lines and lines
/// that begin with `#` are skipped. The error is the number of the line.
fn parse_variables(text: &str) -> Result<HashMap<String, String>, usize> {
    let mut values = HashMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let number = text[..text.len() - rest.len()].matches('\n').count() + 1;
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            rest = after;
            continue;
        }
        let (name, _) = line.split_once("='").ok_or(number)?;
        let value_and_rest = &rest[name.len() + 2..];
        let (value, tail) = value_and_rest.split_once('\'').ok_or(number)?;
        let (remains, after) = tail.split_once('\n').unwrap_or((tail, ""));
        let name = name.trim();
        if name.is_empty() || !(remains.trim().is_empty() || remains.trim_start().starts_with('#')) {
            return Err(number);
        }
        values.insert(name.to_owned(), value.to_owned());
        rest = after;
    }
    Ok(values)
}

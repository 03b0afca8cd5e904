//! For tests: objects in a map, users in one line.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Objects, User};

#[derive(Default)]
pub struct Map {
    objects: BTreeMap<(String, String, String), Arc<Value>>,
    changes: BTreeMap<String, u64>,
}

impl Map {
    /// Puts objects of one resource, each under its own namespace and name.
    pub fn with(mut self, resource: &str, objects: impl IntoIterator<Item = Value>) -> Map {
        objects.into_iter().for_each(|object| self.put(resource, object));
        self
    }

    pub fn put(&mut self, resource: &str, object: Value) {
        let meta = |field: &str| object["metadata"][field].as_str().unwrap_or("").to_string();
        self.objects.insert((resource.to_string(), meta("namespace"), meta("name")), Arc::new(object));
        *self.changes.entry(resource.to_string()).or_default() += 1;
    }

    pub fn remove(&mut self, resource: &str, namespace: &str, name: &str) {
        self.objects.remove(&(resource.to_string(), namespace.to_string(), name.to_string()));
        *self.changes.entry(resource.to_string()).or_default() += 1;
    }
}

impl Objects for Map {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (resource.to_string(), namespace.to_string(), name.to_string());
        self.objects.get(&key).cloned()
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let of = |(key, _): &(&(String, String, String), &Arc<Value>)| {
            key.0 == resource && (namespace.is_empty() || key.1 == namespace)
        };
        self.objects.iter().filter(of).map(|(_, object)| object.clone()).collect()
    }

    fn last_changed(&self, resource: &str) -> u64 {
        self.changes.get(resource).copied().unwrap_or(0)
    }
}

pub fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|group| group.to_string()).collect(), ..User::default() }
}

pub fn headers(lines: &[(&str, &str)]) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in lines {
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    headers
}

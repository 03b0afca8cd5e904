//! Record of the objects that a manifest file created, in a ConfigMap of kube-system: one for each file of each server. Pure.

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use serde_json::{Value, json};

use super::digest;
use super::plan::Reference;

pub const NAMESPACE: &str = "kube-system";
/// Marks the ConfigMaps that are records.
pub const LABEL: &str = "knarr.dev/manifest-record";

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    server: String,
    file: String,
    pub objects: Vec<Reference>,
    /// The text that was applied last.
    pub text: String,
    /// Of the ConfigMap, once it is there.
    pub uid: Option<String>,
}

impl Record {
    pub fn new(server: &str, file: &str) -> Record {
        Record { server: server.into(), file: file.into(), objects: Vec::new(), text: String::new(), uid: None }
    }

    /// Whether this one is new.
    pub fn add(&mut self, reference: &Reference) -> bool {
        let is_new = !self.objects.contains(reference);
        if is_new {
            self.objects.push(reference.clone());
        }
        is_new
    }

    /// None where the ConfigMap is another server's, or someone has spoiled it.
    pub fn read(map: &ConfigMap, server: &str) -> Option<(String, Record)> {
        let data = map.data.as_ref()?;
        let field = |name: &str| data.get(name).cloned().unwrap_or_default();
        if field("server") != server {
            return None;
        }
        let objects = serde_json::from_str(&field("objects")).ok()?;
        let (file, uid) = (field("file"), map.metadata.uid.clone());
        let record = Record { server: server.into(), file: file.clone(), objects, text: field("digest"), uid };
        Some((file, record))
    }

    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name(), "namespace": NAMESPACE, "labels": {LABEL: "true"}},
            "data": {
                "server": self.server,
                "file": self.file,
                "digest": self.text,
                "objects": json!(self.objects).to_string(),
            },
        })
    }

    /// The file's name for people, and something that tells servers and folders apart.
    pub fn name(&self) -> String {
        const SHOWN_MAX: usize = 100;
        let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let name: String = self.file.chars().take(SHOWN_MAX).map(letter).collect();
        format!("manifest-{}-{}", name.trim_matches('-'), digest(super::owner(&self.server, &self.file).as_bytes()))
    }

    /// What events are about.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("ConfigMap".into()),
            namespace: Some(NAMESPACE.into()),
            name: Some(self.name()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_it_was_written() {
        let mut record = Record::new("one", "sub/Web App.yaml");
        let service =
            Reference::of(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"}}));
        assert!(record.add(&service.clone().unwrap()) && !record.add(&service.unwrap()));
        record.text = "abc".into();
        assert!(record.name().starts_with("manifest-sub-web-app-yaml-"), "{}", record.name());
        let map: ConfigMap = serde_json::from_value(record.object()).unwrap();
        assert_eq!(Record::read(&map, "one"), Some(("sub/Web App.yaml".into(), record.clone())));
        assert_eq!(Record::read(&map, "two"), None);
        assert_ne!(Record::new("two", "sub/Web App.yaml").name(), record.name());
    }
}

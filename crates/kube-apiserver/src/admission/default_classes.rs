//! DefaultStorageClass and DefaultIngressClass: who names no class gets the one that is marked as default. Of several,
//! the youngest is it.

use std::cmp::Reverse;
use std::sync::Arc;

use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

pub struct DefaultStorageClass;

#[async_trait::async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        // An empty name is a choice: no class at all.
        let chosen = object.annotation("volume.beta.kubernetes.io/storage-class").is_some()
            || object.pointer("/spec/storageClassName").is_some_and(|name| !name.is_null());
        if !chosen {
            let marks =
                ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
            set(object, "storageClassName", &request.app.views.all("storageclasses", ""), &marks);
        }
        Ok(())
    }
}

pub struct DefaultIngressClass;

#[async_trait::async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is("networking.k8s.io", "ingresses") {
            return Ok(());
        }
        let chosen = object.annotation("kubernetes.io/ingress.class").is_some_and(|name| !name.is_empty())
            || object.pointer("/spec/ingressClassName").is_some_and(|name| !name.is_null());
        if !chosen {
            let classes = request.app.views.all("ingressclasses", "");
            set(object, "ingressClassName", &classes, &["ingressclass.kubernetes.io/is-default-class"]);
        }
        Ok(())
    }
}

fn set(object: &mut Value, field: &str, classes: &[Arc<Value>], marks: &[&str]) {
    if let Some(name) = default(classes, marks) {
        child_mut(object, "spec").insert(field.into(), name.into());
    }
}

fn default<'a>(classes: &'a [Arc<Value>], marks: &[&str]) -> Option<&'a str> {
    let marked = classes.iter().filter(|class| marks.iter().any(|mark| class.annotation(mark) == Some("true")));
    // Times of this form sort as text.
    let age = |class: &Value| class.meta("creationTimestamp").and_then(Value::as_str).unwrap_or("").to_string();
    marked.min_by_key(|class| (Reverse(age(class)), class.name().to_string())).map(|class| class.name())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_youngest_default_is_taken() {
        const MARK: &str = "storageclass.kubernetes.io/is-default-class";
        let class = |name: &str, time: &str, mark: &str| {
            Arc::new(json!({"metadata": {"name": name, "creationTimestamp": time, "annotations": {MARK: mark}}}))
        };
        let check = |classes: &[Arc<Value>], expected: Option<&str>| assert_eq!(default(classes, &[MARK]), expected);
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        check(&[], None);
        check(&[class("a", late, "false")], None);
        check(&[class("a", early, "true"), class("b", late, "true")], Some("b"));
        check(&[class("b", early, "true"), class("a", early, "true")], Some("a"));
        let mut claim = json!({"spec": {}});
        set(&mut claim, "storageClassName", &[class("a", early, "true")], &[MARK]);
        assert_eq!(claim, json!({"spec": {"storageClassName": "a"}}));
    }
}

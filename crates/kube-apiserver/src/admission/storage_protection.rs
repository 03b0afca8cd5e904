//! StorageObjectInUseProtection and PersistentVolumeClaimResize: storage that is in use stays, and grows only where
//! its class can make it grow.

use std::sync::Arc;

use machinery::object::Meta;
use machinery::quantity::Quantity;
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};
use crate::refusal::Refusal;

pub struct StorageObjectInUseProtection;

#[async_trait::async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.subresource.is_empty() {
            return Ok(());
        }
        match (request.resource.kind.group, request.resource.kind.plural) {
            ("", "persistentvolumes") => protect(object, "kubernetes.io/pv-protection"),
            ("", "persistentvolumeclaims") => protect(object, "kubernetes.io/pvc-protection"),
            ("storage.k8s.io", "volumeattributesclasses") => protect(object, "kubernetes.io/vac-protection"),
            _ => {}
        }
        Ok(())
    }
}

pub struct PersistentVolumeClaimResize;

#[async_trait::async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let (Operation::Update, Some(old), Some(new)) = (request.operation, request.old, object) else { return Ok(()) };
        if !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let class = |name: &str| request.app.views.one("storageclasses", "", name);
        check_resize(new, old, class).map_err(|why| request.forbidden(Some(new), why))
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    if object.finalizers().contains(&finalizer) {
        return;
    }
    let list = object.meta_mut().entry("finalizers").or_insert(Value::Null);
    match list.as_array_mut() {
        Some(list) => list.push(finalizer.into()),
        None => *list = vec![Value::from(finalizer)].into(),
    }
}

fn check_resize(new: &Value, old: &Value, class: impl Fn(&str) -> Option<Arc<Value>>) -> Result<(), Refusal> {
    let size = |claim: &Value| {
        claim.pointer("/spec/resources/requests/storage").and_then(|size| Quantity::from_value(size).ok())
    };
    if size(new) <= size(old) {
        return Ok(());
    }
    if old.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
        return Err("Only bound persistent volume claims can be expanded".into());
    }
    let grows = !class_of(new).is_empty() && class_of(new) == class_of(old);
    let grows = grows && class(class_of(new)).is_some_and(|class| class["allowVolumeExpansion"] == true);
    if grows {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
               resize";
    Err(why.into())
}

fn class_of(claim: &Value) -> &str {
    let named = || claim.pointer("/spec/storageClassName")?.as_str();
    claim.annotation("volume.beta.kubernetes.io/storage-class").or_else(named).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finalizer_is_added_once() {
        let mut claim = json!({"metadata": {"finalizers": ["mine"]}});
        protect(&mut claim, "f");
        protect(&mut claim, "f");
        assert_eq!(claim["metadata"]["finalizers"], json!(["mine", "f"]));
    }

    #[test]
    fn claims_grow_where_their_class_allows() {
        let claim = |size: &str, phase: &str| json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}}, "status": {"phase": phase}});
        let check = |new: &str, phase: &str, expands: bool, fine: bool| {
            let class = |_: &str| Some(Arc::new(json!({"allowVolumeExpansion": expands})));
            assert_eq!(check_resize(&claim(new, phase), &claim("1Gi", phase), class).is_ok(), fine);
        };
        check("1Gi", "Pending", false, true);
        check("2Gi", "Pending", true, false);
        check("2Gi", "Bound", false, false);
        check("2Gi", "Bound", true, true);
    }
}

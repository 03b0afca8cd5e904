//! AlwaysPullImages: every image is asked of its registry anew, so that nobody runs an image that another tenant's
//! credentials have brought to the node.

use std::collections::BTreeSet;

use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

const ALWAYS: &str = "Always";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub struct AlwaysPullImages;

#[async_trait::async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if concerns(request, object) {
            set_policies(&mut object["spec"]);
        }
        Ok(())
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(pod) = object.filter(|pod| concerns(request, pod)) else { return Ok(()) };
        match other_policy(&pod["spec"]) {
            Some(why) => Err(request.forbidden(Some(pod), &why)),
            None => Ok(()),
        }
    }
}

fn concerns(request: &Request<'_>, pod: &Value) -> bool {
    let writes = matches!(request.operation, Operation::Create | Operation::Update);
    if !writes || !request.is("", "pods") {
        return false;
    }
    !request
        .old
        .is_some_and(|old| request.operation == Operation::Update && has_same_images(&pod["spec"], &old["spec"]))
}

/// Whether every image of the new spec is one of the old.
fn has_same_images(new: &Value, old: &Value) -> bool {
    let known: BTreeSet<&str> = containers(old).map(|(_, _, container)| text(container, "image")).collect();
    containers(new).all(|(_, _, container)| known.contains(text(container, "image")))
}

fn set_policies(spec: &mut Value) {
    for list in CONTAINERS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container["imagePullPolicy"] = ALWAYS.into();
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = volume.get_mut("image").filter(|image| image.is_object()) {
            image["pullPolicy"] = ALWAYS.into();
        }
    }
}

/// The first field that does not say `Always`, in upstream's words.
fn other_policy(spec: &Value) -> Option<String> {
    let unsupported =
        |field: String, value: &str| format!("{field}: Unsupported value: {value:?}: supported values: {ALWAYS:?}");
    let of_container = containers(spec)
        .map(|(list, index, container)| (list, index, text(container, "imagePullPolicy")))
        .find(|(_, _, policy)| *policy != ALWAYS)
        .map(|(list, index, policy)| unsupported(format!("spec.{list}[{index}].imagePullPolicy"), policy));
    let mut volumes = spec["volumes"].as_array().into_iter().flatten().enumerate();
    of_container.or_else(|| {
        volumes.find_map(|(index, volume)| {
            let image = volume.get("image").filter(|image| image.is_object())?;
            let policy = text(image, "pullPolicy");
            (policy != ALWAYS).then(|| unsupported(format!("spec.volumes[{index}].image.pullPolicy"), policy))
        })
    })
}

fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    CONTAINERS.into_iter().flat_map(move |list| {
        spec[list].as_array().into_iter().flatten().enumerate().map(move |(index, one)| (list, index, one))
    })
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_container_and_image_volume_is_pulled_always() {
        let mut spec = json!({
            "initContainers": [{"image": "a"}], "containers": [{"image": "b", "imagePullPolicy": "Never"}],
            "volumes": [{"emptyDir": {}}, {"image": {"reference": "c", "pullPolicy": "IfNotPresent"}}],
        });
        assert_eq!(
            other_policy(&spec).as_deref(),
            Some("spec.initContainers[0].imagePullPolicy: Unsupported value: \"\": supported values: \"Always\"")
        );
        set_policies(&mut spec);
        assert_eq!(other_policy(&spec), None);
        assert_eq!(spec["volumes"], json!([{"emptyDir": {}}, {"image": {"reference": "c", "pullPolicy": "Always"}}]));
        spec["volumes"][1]["image"]["pullPolicy"] = "Never".into();
        assert_eq!(
            other_policy(&spec).as_deref(),
            Some("spec.volumes[1].image.pullPolicy: Unsupported value: \"Never\": supported values: \"Always\"")
        );
    }

    #[test]
    fn an_update_without_a_new_image_is_left_alone() {
        let spec =
            |images: &[&str]| json!({"containers": images.iter().map(|i| json!({"image": i})).collect::<Vec<_>>()});
        assert!(has_same_images(&spec(&["a"]), &spec(&["a", "b"])));
        assert!(!has_same_images(&spec(&["a", "c"]), &spec(&["a", "b"])));
    }
}

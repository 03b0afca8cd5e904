//! What ResourceClaims take: the one kind whose usage depends on other objects.

use component_helpers::quota::devices::{Classes, pod_of};
use jiff::Timestamp;
use machinery::object::Meta;
use serde_json::Value;

use super::super::pod_resources::Amounts;
use super::usage;
use crate::app::App;

/// The classes of devices, where objects of this resource count by them.
pub(super) fn classes(app: &App, group: &str, plural: &str) -> Classes {
    if !usage::is_device_claim(group, plural) {
        return Classes::default();
    }
    let all = app.views.all("deviceclasses", "");
    let entry = |class: &Value| {
        let resource = class.pointer("/spec/extendedResourceName").and_then(Value::as_str);
        (class.name().to_owned(), resource.map(str::to_owned))
    };
    Classes::new(all.iter().map(|class| entry(class)))
}

pub(super) fn of_object(
    app: &App,
    classes: &Classes,
    (group, plural): (&str, &str),
    object: &Value,
    now: Timestamp,
) -> Amounts {
    let mut taken = usage::of_object(group, plural, object, now);
    if usage::is_device_claim(group, plural) {
        let namespace = object.namespace();
        let pod = |name: &str| app.views.one("pods", namespace, name).map(|pod| (*pod).clone());
        let pod = pod_of(object, pod, || app.views.all("resourceclaims", namespace));
        let of_pod = pod.map(|pod| usage::of_object("", "pods", &pod, now)).unwrap_or_default();
        classes.add_extended(&mut taken, &of_pod);
    }
    taken
}

//! resource.k8s.io/v1beta1: a request's fields stand beside its name instead of below `exactly`, a device's below `basic`.
//! What is stored is v1.

use machinery::kind::{Convert, Kind};
use serde_json::{Map, Value};

use super::{deviceclass, resourceclaim, resourceclaimtemplate, resourceslice};
use crate::optional::named;

const STORED: &str = "resource.k8s.io/v1";
const SHOWN: &str = "resource.k8s.io/v1beta1";

pub(crate) static DEVICE_CLASS: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.resource.v1beta1.DeviceClass",
    convert: convert(|class| named(class, STORED), |class| named(class, SHOWN)),
    ..deviceclass::KIND
};

pub(crate) static RESOURCE_CLAIM: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.resource.v1beta1.ResourceClaim",
    convert: convert(claim_to_storage, claim_from_storage),
    defaults: |claim| default_as_stored(claim, claim_to_storage, resourceclaim::KIND.defaults, claim_from_storage),
    ..resourceclaim::KIND
};

pub(crate) static RESOURCE_CLAIM_TEMPLATE: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.resource.v1beta1.ResourceClaimTemplate",
    convert: convert(template_to_storage, template_from_storage),
    defaults: |template| {
        let defaults = resourceclaimtemplate::KIND.defaults;
        default_as_stored(template, template_to_storage, defaults, template_from_storage);
    },
    ..resourceclaimtemplate::KIND
};

pub(crate) static RESOURCE_SLICE: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.resource.v1beta1.ResourceSlice",
    convert: convert(slice_to_storage, slice_from_storage),
    ..resourceslice::KIND
};

const fn convert(to_storage: fn(Value) -> Value, from_storage: fn(Value) -> Value) -> Option<Convert> {
    Some(Convert { group: "resource.k8s.io", version: "v1", to_storage, from_storage })
}

/// The defaults of v1, in the shape of this version.
fn default_as_stored(
    object: &mut Value,
    to_storage: fn(Value) -> Value,
    defaults: fn(&mut Value),
    from_storage: fn(Value) -> Value,
) {
    let mut stored = to_storage(object.take());
    defaults(&mut stored);
    *object = from_storage(stored);
}

fn claim_to_storage(claim: Value) -> Value {
    each(named(claim, STORED), "/spec/devices/requests", |request| below(request, "exactly", REQUEST))
}

fn claim_from_storage(claim: Value) -> Value {
    each(named(claim, SHOWN), "/spec/devices/requests", |request| beside(request, "exactly"))
}

fn template_to_storage(template: Value) -> Value {
    each(named(template, STORED), "/spec/spec/devices/requests", |request| below(request, "exactly", REQUEST))
}

fn template_from_storage(template: Value) -> Value {
    each(named(template, SHOWN), "/spec/spec/devices/requests", |request| beside(request, "exactly"))
}

fn slice_to_storage(slice: Value) -> Value {
    each(named(slice, STORED), "/spec/devices", |device| beside(device, "basic"))
}

/// Every device is a basic one, also one that says nothing about itself.
fn slice_from_storage(slice: Value) -> Value {
    each(named(slice, SHOWN), "/spec/devices", |device| {
        let fields = |name: &str| name != "name";
        let basic = take(device, fields);
        device.insert("basic".into(), basic.into());
    })
}

/// What makes a request one for exactly these devices.
const REQUEST: &[&str] =
    &["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

fn each(mut object: Value, path: &str, change: impl Fn(&mut Map<String, Value>)) -> Value {
    let list = object.pointer_mut(path).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut).for_each(change);
    object
}

/// Moves the fields into one of their own, where one of them is there.
fn below(map: &mut Map<String, Value>, field: &str, moved: &[&str]) {
    let inner = take(map, |name| moved.contains(&name));
    if inner.values().any(|value| value.as_str() != Some("")) {
        map.insert(field.into(), inner.into());
    }
}

/// Moves the fields of a field beside it.
fn beside(map: &mut Map<String, Value>, field: &str) {
    if let Some(Value::Object(inner)) = map.remove(field) {
        map.extend(inner);
    }
}

fn take(map: &mut Map<String, Value>, wanted: impl Fn(&str) -> bool) -> Map<String, Value> {
    let (taken, kept) = std::mem::take(map).into_iter().partition(|(name, _)| wanted(name));
    *map = kept;
    taken
}

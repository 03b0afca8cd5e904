//! Label selectors of typed objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use machinery::selector::LabelSelector;

pub type Labels = BTreeMap<String, String>;

pub fn selects(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}

/// A selector of an API object, ready to be asked. One that cannot be read selects nothing; validation keeps such from
/// being stored. Absent, it selects nothing too; empty, it selects everything.
pub fn compiled(selector: Option<&meta::LabelSelector>) -> Option<LabelSelector> {
    let value = serde_json::to_value(selector?).ok()?;
    LabelSelector::from_object(&value).ok()
}

/// The selector of a Service or ReplicationController: all of these labels. Empty or absent, it selects nothing.
pub fn of_map(selector: Option<&Labels>) -> Option<LabelSelector> {
    let labels = selector.filter(|labels| !labels.is_empty())?;
    let labels = labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    Some(LabelSelector::from_labels(&labels))
}

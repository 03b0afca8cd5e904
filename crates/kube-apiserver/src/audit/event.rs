//! One audit event, with upstream's fields in upstream's order.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::authn::User;

/// Longer ones are cut, as upstream.
const USER_AGENT_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub level: &'static str,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: &'static str,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: String,
    pub user: EventUser,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<EventUser>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<Value>,
    pub request_received_timestamp: String,
    pub stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<std::borrow::Cow<'static, str>, String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct EventUser {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl EventUser {
    pub fn of(user: &User) -> EventUser {
        let User { name, uid, groups, extra } = user.clone();
        EventUser { username: name, uid, groups, extra }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// With microseconds, always.
pub fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

pub fn user_agent(text: &str) -> String {
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= USER_AGENT_BYTES_MAX) {
        Some(at) => format!("{}...TRUNCATED", &text[..at]),
        None => text.to_string(),
    }
}

/// From where a request came: what proxies say, then who is at the other end.
pub(crate) fn source_ips(forwarded: &str, real: &str, peer: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let claimed = forwarded.split(',').map(str::trim).chain([real.trim()]);
    for text in claimed.filter(|text| text.parse::<std::net::IpAddr>().is_ok()) {
        if !found.iter().any(|known| known == text) {
            found.push(text.into());
        }
    }
    if !peer.is_empty() && found.last().is_none_or(|last| last != peer) {
        found.push(peer.into());
    }
    found
}

/// What is left out of objects where the policy says so; lists have it in each item.
pub fn without_managed_fields(mut object: Value) -> Value {
    let drop = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    drop(&mut object);
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(drop);
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_have_microseconds() {
        assert_eq!(stamp("2026-01-02T03:04:05Z".parse().unwrap()), "2026-01-02T03:04:05.000000Z");
        assert_eq!(stamp("2026-01-02T03:04:05.123456789Z".parse().unwrap()), "2026-01-02T03:04:05.123456Z");
    }

    #[test]
    fn sources_are_proxies_first() {
        let check = |forwarded: &str, real: &str, peer: &str, expected: &[&str]| {
            assert_eq!(source_ips(forwarded, real, peer), expected, "{forwarded} {real} {peer}");
        };
        check("", "", "10.0.0.1", &["10.0.0.1"]);
        check("1.1.1.1, 2.2.2.2", "", "10.0.0.1", &["1.1.1.1", "2.2.2.2", "10.0.0.1"]);
        check("1.1.1.1, nonsense", "1.1.1.1", "10.0.0.1", &["1.1.1.1", "10.0.0.1"]);
        check("", "10.0.0.1", "10.0.0.1", &["10.0.0.1"]);
    }

    #[test]
    fn long_agents_are_cut() {
        assert_eq!(user_agent("kubectl"), "kubectl");
        assert_eq!(user_agent(&"x".repeat(2000)).len(), USER_AGENT_BYTES_MAX + "...TRUNCATED".len());
    }

    #[test]
    fn managed_fields_go() {
        let item = json!({"metadata": {"name": "a", "managedFields": []}});
        let bare = json!({"metadata": {"name": "a"}});
        assert_eq!(without_managed_fields(item.clone()), bare);
        assert_eq!(without_managed_fields(json!({"items": [item]})), json!({"items": [bare]}));
    }
}

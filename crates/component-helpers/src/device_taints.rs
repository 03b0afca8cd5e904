//! Taints of devices and tolerations of claims.

use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};

/// Whether the toleration is meant for that taint.
pub fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let any = |field: &Option<String>, value: &str| field.as_deref().is_none_or(|one| one.is_empty() || one == value);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
    };
    any(&toleration.effect, &taint.effect) && any(&toleration.key, &taint.key) && value
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_toleration_names_what_it_tolerates() {
        let taint = json!({"key": "a", "value": "1", "effect": "NoExecute"});
        let tolerated = |toleration: Value| {
            tolerates(&serde_json::from_value(toleration).unwrap(), &serde_json::from_value(taint.clone()).unwrap())
        };
        assert!(tolerated(json!({"operator": "Exists"})));
        assert!(tolerated(json!({"key": "a", "value": "1"})));
        assert!(tolerated(json!({"key": "a", "operator": "Exists", "effect": "NoExecute"})));
        assert!(!tolerated(json!({"key": "a"})));
        assert!(!tolerated(json!({"key": "b", "operator": "Exists"})));
        assert!(!tolerated(json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"})));
    }
}

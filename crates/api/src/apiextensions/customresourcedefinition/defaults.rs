//! Defaults of CustomResourceDefinition.

use machinery::object::set_default;
use serde_json::{Value, json};

pub(super) fn defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if let Some(names) = spec.get_mut("names").filter(|names| names.is_object()) {
        let kind = names["kind"].as_str().unwrap_or("").to_string();
        if !kind.is_empty() {
            fill(names, "singular", kind.to_lowercase());
            fill(names, "listKind", format!("{kind}List"));
        }
    }
    set_default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        set_default(service, "port", 443);
    }
}

fn fill(value: &mut Value, field: &str, text: String) {
    if value[field].as_str().unwrap_or("").is_empty() {
        value[field] = text.into();
    }
}

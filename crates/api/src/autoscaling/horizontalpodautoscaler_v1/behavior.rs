//! Behavior as v1's annotation writes it: upstream prints its internal type there, whose fields have capitals.

use serde_json::{Map, Value};

/// v2 field, name in the annotation, in the order in which upstream prints them.
const DIRECTIONS: [(&str, &str); 2] = [("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown")];
const RULES: [(&str, &str); 4] = [
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("tolerance", "Tolerance"),
];
const POLICY: [(&str, &str); 3] = [("type", "Type"), ("value", "Value"), ("periodSeconds", "PeriodSeconds")];

/// The text of the annotation; every field stands in it, null where there is none.
pub(super) fn to_annotation(behavior: &Value) -> String {
    struct_text(behavior, &DIRECTIONS, |_, rules| {
        if rules.is_null() {
            "null".into()
        } else {
            struct_text(rules, &RULES, |field, value| match (field, value.as_array()) {
                ("policies", Some(items)) => {
                    let texts: Vec<String> =
                        items.iter().map(|item| struct_text(item, &POLICY, |_, value| value.to_string())).collect();
                    format!("[{}]", texts.join(","))
                }
                _ => value.to_string(),
            })
        }
    })
}

fn struct_text(value: &Value, fields: &[(&str, &str)], text: impl Fn(&str, &Value) -> String) -> String {
    let parts: Vec<String> =
        fields.iter().map(|(field, capital)| format!("\"{capital}\":{}", text(field, &value[*field]))).collect();
    format!("{{{}}}", parts.join(","))
}

/// Go reads field names without regard to capitals, so both spellings are understood.
pub(super) fn to_v2(annotation: &Value) -> Value {
    match annotation {
        Value::Object(map) => {
            let known = |key: &str| {
                let all = DIRECTIONS.iter().chain(&RULES).chain(&POLICY);
                all.map(|(field, _)| *field).find(|field| field.eq_ignore_ascii_case(key))
            };
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            let named = fields.filter_map(|(key, value)| Some((known(key)?.to_string(), to_v2(value))));
            Value::Object(named.collect::<Map<String, Value>>())
        }
        Value::Array(items) => items.iter().map(to_v2).collect(),
        other => other.clone(),
    }
}

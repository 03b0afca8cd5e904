//! What rules may cost, by an estimate from the schema: each of them, and all of a schema together.

use machinery::cel::{Declaration, Program};
use machinery::field::{Errors, Path};
use machinery::node::Node;

/// The most that one expression may cost, as often as it can be evaluated for one object.
const EXPRESSION_MAX: u64 = 10_000_000;
/// The most that all expressions of a schema may cost.
const SCHEMA_MAX: u64 = 100_000_000;
/// Of a schema that costs too much so many expressions are named, those that cost most.
const NAMED_MAX: usize = 4;

/// How many values of a schema one object can have; nothing where lists and maps above it are not bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats(Option<u64>);

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats(Some(1))
    }
}

impl Repeats {
    /// The same for a part of that schema.
    pub fn below(self, schema: &Node) -> Repeats {
        let factor = match schema.text("type") {
            "object" if schema.has("additionalProperties") => bound(schema, "maxProperties"),
            "array" => bound(schema, "maxItems"),
            _ => Some(1),
        };
        Repeats(self.0.zip(factor).map(|(repeats, factor)| repeats.saturating_mul(factor)))
    }
}

fn bound(schema: &Node, field: &'static str) -> Option<u64> {
    schema.has(field).then(|| u64::try_from(schema.at(field).int().unwrap_or(0)).unwrap_or(0))
}

/// The costs of all expressions of a schema.
pub(super) struct Costs {
    /// Whether each expression is held to its own limit.
    unchanged: bool,
    total: u64,
    dearest: Vec<(Path, u64)>,
}

impl Costs {
    pub fn new(unchanged: bool) -> Costs {
        Costs { unchanged, total: 0, dearest: Vec::new() }
    }

    /// Counts an expression that compiles, and refuses it where it costs too much by itself.
    pub fn add(
        &mut self,
        rule: &Node,
        field: &'static str,
        own: Option<&Declaration>,
        repeats: Repeats,
        errors: &mut Errors,
    ) {
        let Some(own) = own else { return };
        let Some(cost) = Program::cost(rule.text(field), own, rule.flag("optionalOldSelf")) else { return };
        let (cost, name) = match field {
            // A message is made for the first rule that fails.
            "messageExpression" => (cost, "estimated messageExpression cost"),
            _ => (cost.saturating_mul(repeats.0.unwrap_or(own.repeats_max())), "estimated rule cost"),
        };
        let at = rule.at(field);
        if !self.unchanged && cost > EXPRESSION_MAX {
            errors.forbidden(&at, exceeds(name, cost, EXPRESSION_MAX));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_MAX / 100 {
            self.dearest.push((at.path.clone(), cost));
            self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED_MAX);
        }
    }

    /// Refuses the schema where all its expressions together cost too much.
    pub(crate) fn refuse_total(self, schema: &Path, errors: &mut Errors) {
        if self.total <= SCHEMA_MAX {
            return;
        }
        let nothing = serde_json::Value::Null;
        for (path, _) in self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.forbidden(&Node::new(&nothing, path), detail);
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(&Node::new(&nothing, schema.clone()), exceeds(name, self.total, SCHEMA_MAX));
    }
}

fn exceeds(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        // Beyond that the figure says nothing.
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::schema;
    use super::*;

    const RULE: &str = "x-kubernetes-validations[0].rule: ";
    const TOO_MUCH: &str = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
    const TRY: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                       strings are declared)";

    fn told(properties: Value, unchanged: bool) -> Vec<String> {
        let schema = json!({"type": "object", "properties": properties});
        let mut errors = Errors::default();
        schema::validate(&Node::new(&schema, Path::new("s")), unchanged, &mut errors);
        let shown = errors.0.iter().map(|error| format!("{}: {}", error.field, error.detail));
        shown.map(|text| text.replace("s.properties", "").replace(&format!(" {TRY}"), "")).collect()
    }

    fn nested(max_length: Option<u64>, max_items: Option<u64>, max_properties: Option<u64>) -> Value {
        let mut key = json!({"type": "string"});
        let mut map = json!({"type": "object", "additionalProperties": {"type": "object", "required": ["key"]}});
        if let Some(max) = max_length {
            key["maxLength"] = max.into();
        }
        map["additionalProperties"]["properties"] = json!({"key": key});
        if let Some(max) = max_properties {
            map["maxProperties"] = max.into();
        }
        let rules = json!([{"rule": "self.all(x, x.all(y, x[y].key == x[y].key))"}]);
        let mut value = json!({"type": "array", "items": map, "x-kubernetes-validations": rules});
        if let Some(max) = max_items {
            value["maxItems"] = max.into();
        }
        json!({"value": value})
    }

    #[test]
    fn rules_without_bounds_cost_too_much() {
        let refused = [
            format!("[value].{RULE}estimated rule cost exceeds budget by factor of more than 100x"),
            format!("[value].{RULE}{TOO_MUCH}"),
            "s: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor \
             of more than 100x"
                .to_owned(),
        ];
        assert_eq!(told(nested(None, None, None), false), refused);
        assert_eq!(told(nested(Some(10), None, None), false), refused);
        // What was there may stay, as far as each rule goes.
        assert_eq!(told(nested(None, None, None), true), refused[1..]);
        assert_eq!(told(nested(Some(10), Some(10), Some(10)), false), Vec::<String>::new());
    }

    #[test]
    fn what_repeats_costs_as_often() {
        let text = json!({"type": "string", "maxLength": 5000, "x-kubernetes-validations": [
            {"rule": "self.contains('keyword')"}]});
        let properties = json!({
            "list": {"type": "array", "maxItems": 100_000, "items": text},
            "map": {"type": "object", "maxProperties": 1000, "additionalProperties": text},
            "field": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 50 && self < 100"}]},
        });
        let expected = [
            format!("[list].items.{RULE}estimated rule cost exceeds budget by factor of 20.0x"),
            format!("[list].items.{RULE}{TOO_MUCH}"),
            format!("[map].additionalProperties.{RULE}{TOO_MUCH}"),
            "s: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor \
             of 2.0x"
                .to_owned(),
        ];
        assert_eq!(told(properties, false), expected);
        let bounded = json!({"f": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5},
            "x-kubernetes-validations": [{"rule": "self.all(x, self.exists_one(y, x.lowerAscii() == y.lowerAscii()))"}]}});
        assert_eq!(told(bounded, false), Vec::<String>::new());
    }

    #[test]
    fn messages_cost_too() {
        let with = |message: &str| {
            json!({"f": {"type": "array", "items": {"type": "string"},
                "x-kubernetes-validations": [{"rule": "true", "messageExpression": message}]}})
        };
        let eight: Vec<String> = (0..8).map(|at| format!("self[{at}]")).collect();
        let told = told(with(&eight.join(" + ")), false);
        assert_eq!(told.len(), 1, "{told:?}");
        let start =
            "[f].x-kubernetes-validations[0].messageExpression: estimated messageExpression cost exceeds budget";
        assert!(told[0].starts_with(start), "{told:?}");
        let whole = super::tests::told(with("string(self[0]) + string(self[1]) + string(self[2])"), false);
        assert_eq!(whole.len(), 3, "{whole:?}");
    }
}

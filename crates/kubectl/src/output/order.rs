//! JSON of the built-in types as Go writes it from its structs: fields in the order of their declaration, which stands in
//! `order.txt`. Upstream prints so what it has decoded into types; what it keeps as it came has its keys sorted.

use std::collections::HashMap;
use std::sync::OnceLock;

use machinery::schema::{Struct, Type, TypeRef};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

const TABLE: &str = include_str!("order.txt");

/// In several lines, with four spaces for each level and no end of line.
pub(crate) fn pretty(object: &Value) -> String {
    InOrder::of(object).pretty()
}

/// The same with another indentation.
pub(crate) fn indented(object: &Value, indent: &[u8]) -> String {
    written(&InOrder::of(object), indent)
}

fn written(value: &InOrder, indent: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(indent));
    // Writing a value to memory cannot fail.
    let _ = value.serialize(&mut serializer);
    super::json::escape(&String::from_utf8_lossy(&bytes))
}

/// In one line.
pub(crate) fn compact(object: &Value) -> String {
    // As above.
    super::json::escape(&serde_json::to_string(&InOrder::of(object)).unwrap_or_default())
}

/// What says in which order keys come.
#[derive(Clone, Copy)]
enum By {
    Sorted,
    /// A list of objects, each in the order of its own type.
    List,
    Type(TypeRef<'static>),
    /// At every level; keys that are not named come behind.
    Names(&'static [&'static str]),
}

/// A value whose keys come in an order.
pub(crate) struct InOrder<'a> {
    value: &'a Value,
    by: By,
}

impl<'a> InOrder<'a> {
    pub(crate) fn sorted(value: &'a Value) -> InOrder<'a> {
        InOrder { value, by: By::Sorted }
    }

    pub(crate) fn named(value: &'a Value, names: &'static [&'static str]) -> InOrder<'a> {
        InOrder { value, by: By::Names(names) }
    }

    /// In several lines.
    pub(crate) fn pretty(&self) -> String {
        written(self, b"    ")
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// What is inside of a map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a String, InOrder<'a>)> {
        let order = match self.by {
            By::Names(names) => names,
            By::Type(ty) => match ty.get() {
                Type::Struct(shape) => order_of(shape),
                _ => &[],
            },
            By::List => &["kind", "apiVersion", "metadata", "items"],
            By::Sorted => &[],
        };
        let place = |key: &str| order.iter().position(|known| *known == key).unwrap_or(usize::MAX);
        let mut entries: Vec<(&'a String, &'a Value)> = self.value.as_object().into_iter().flatten().collect();
        // Stable: what is not listed stays sorted, at the end.
        entries.sort_by_key(|(key, _)| place(key));
        entries.into_iter().map(|(key, value)| (key, self.inner(key, value)))
    }

    /// What is inside of a list.
    pub(crate) fn items(&self) -> impl Iterator<Item = InOrder<'a>> + use<'a> {
        let by = match self.by {
            By::Type(ty) => match ty.get() {
                Type::List { item, .. } => By::Type(ty.of(*item)),
                _ => By::Sorted,
            },
            other => other,
        };
        let item = move |value| match by {
            By::List => InOrder::of(value),
            by => InOrder { value, by },
        };
        self.value.as_array().into_iter().flatten().map(item)
    }

    pub(crate) fn of(object: &'a Value) -> InOrder<'a> {
        if object["items"].is_array() {
            return InOrder { value: object, by: By::List };
        }
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let ty = api::schema::type_named(group, version, object["kind"].as_str().unwrap_or_default());
        InOrder { value: object, by: ty.map_or(By::Sorted, By::Type) }
    }

    fn inner(&self, key: &str, value: &'a Value) -> InOrder<'a> {
        let ty = match self.by {
            By::Type(ty) => match ty.get() {
                Type::Struct(shape) => shape.field(key).map(|field| ty.of(field.ty)),
                Type::Map { value, .. } => Some(ty.of(*value)),
                _ => None,
            },
            By::Sorted => None,
            By::List => return InOrder { value, by: if key == "items" { By::List } else { By::Sorted } },
            By::Names(_) => return InOrder { value, by: self.by },
        };
        InOrder { value, by: ty.map_or(By::Sorted, By::Type) }
    }
}

impl Serialize for InOrder<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Array(_) => serializer.collect_seq(self.items()),
            Value::Object(_) => serializer.collect_map(self.entries()),
            other => other.serialize(serializer),
        }
    }
}

/// The order of a type's fields; nothing where they are sorted.
fn order_of(shape: &Struct) -> &'static [&'static str] {
    static ORDERS: OnceLock<HashMap<&'static str, Vec<Vec<&'static str>>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let mut orders: HashMap<_, Vec<_>> = HashMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            orders.entry(name).or_default().push(words.collect());
        }
        orders
    });
    let known = orders.get(shape.name.as_ref()).map(Vec::as_slice).unwrap_or_default();
    let fits = |order: &&Vec<&str>| shape.fields.iter().all(|field| order.contains(&field.name.as_ref()));
    known.iter().find(fits).or(known.first()).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_stand_as_go_declares_them() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"labels": {"b": "1", "a": "2"}, "name": "x"},
            "spec": {"containers": [{"image": "i", "env": [], "name": "c", "resources": {}}], "dnsPolicy": "D"},
        });
        let spec = r#"{"containers":[{"name":"c","image":"i","env":[],"resources":{}}],"dnsPolicy":"D"}"#;
        let metadata = r#"{"name":"x","labels":{"a":"2","b":"1"}}"#;
        assert_eq!(compact(&pod), format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{spec}}}"#));
        assert_eq!(compact(&json!({"b": 1, "a": "<"})), r#"{"a":"\u003c","b":1}"#);
    }

    #[test]
    fn the_table_names_fields_that_exist() {
        let pod = api::schema::type_named("", "v1", "Pod").unwrap();
        let Type::Struct(shape) = pod.get() else { panic!("a pod is a struct") };
        let order = order_of(shape);
        assert!(shape.fields.iter().all(|field| order.contains(&field.name.as_ref())), "{order:?}");
    }
}

//! The columns of `kubectl get` for a custom resource: its name, and what its definition adds.

use jiff::Timestamp;
use machinery::jsonpath::Template;
use machinery::kind::since;
use machinery::table::Cell;
use serde_json::{Value, json};

pub struct Columns {
    columns: Vec<Column>,
    definitions: Value,
}

struct Column {
    kind: Box<str>,
    /// None where the definition names no path; such a column stays empty.
    path: Option<Template>,
}

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may \
    allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence \
    and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in \
    RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

impl Columns {
    pub fn read(given: &[Value]) -> Columns {
        let mut definitions = vec![definition("Name", "string", "name", NAME_DESCRIPTION, 0)];
        if given.is_empty() {
            definitions.push(definition("Age", "date", "", AGE_DESCRIPTION, 0));
            let age = Column { kind: "date".into(), path: Template::relaxed(".metadata.creationTimestamp").ok() };
            return Columns { columns: vec![age], definitions: definitions.into() };
        }
        let mut columns = Vec::with_capacity(given.len());
        for column in given {
            let text = |field: &str| column[field].as_str().unwrap_or("");
            let path = text("jsonPath");
            let description = match text("description") {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                given => given.to_string(),
            };
            let priority = column["priority"].as_i64().unwrap_or(0);
            definitions.push(definition(text("name"), text("type"), text("format"), &description, priority));
            columns.push(Column { kind: text("type").into(), path: Template::relaxed(path.trim()).ok() });
        }
        Columns { columns, definitions: definitions.into() }
    }

    pub fn definitions(&self) -> Value {
        self.definitions.clone()
    }

    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Cell> {
        let name = object.pointer("/metadata/name").cloned().unwrap_or_else(|| "".into());
        std::iter::once(name).chain(self.columns.iter().map(|column| column.cell(object, now))).collect()
    }
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

impl Column {
    /// Null where there is nothing, or nothing of the column's type.
    fn cell(&self, object: &Value, now: Timestamp) -> Cell {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
        match (&*self.kind, value) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(_)) => value.clone(),
            ("string", other) => other.to_string().into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(whole) => whole.into(),
                // Go cuts what is behind the point.
                None => number.as_f64().map_or(Value::Null, |number| (number as i64).into()),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(time)) => match time.parse::<Timestamp>() {
                Ok(_) => since(time, now).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_take_the_type_of_their_column() {
        let column = |kind: &str, path: &str| json!({"name": "x", "type": kind, "jsonPath": path});
        let columns = Columns::read(&[
            column("integer", ".spec.n"),
            column("string", ".spec.n"),
            column("string", ".spec.map"),
            column("date", ".spec.at"),
            column("date", ".spec.word"),
            column("boolean", ".spec.n"),
            column("string", ".spec.missing"),
        ]);
        let object = json!({"metadata": {"name": "a"}, "spec": {
            "n": 3, "map": {"a": 1}, "at": "2026-01-01T00:00:00Z", "word": "soon",
        }});
        let cells = columns.cells(&object, "2026-01-01T00:01:00Z".parse().expect("a time"));
        assert_eq!(Value::from(cells), json!(["a", 3, "3", "{\"a\":1}", "60s", "<invalid>", null, null]));
    }
}

//! JSON patch (RFC 6902), with the liberties of the library upstream uses: `replace` of a missing member adds it,
//! `copy` of a missing member copies null, and negative indices count from the end.

use serde_json::{Map, Value};

use crate::status::Status;

pub(crate) const OPERATIONS_MAX: usize = 10_000;

/// How much all `copy` operations of one patch may add, measured as JSON text.
pub(crate) const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How deep operations may nest a document. Everything that walks objects recurses, so depth must have a bound.
const DEPTH_MAX: usize = 1_000;

/// How deep a document can be that came out of the parser.
const PARSED_DEPTH_MAX: usize = 128;

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum JsonPatchError {
    /// The patch is not a list of operations.
    #[error("error decoding patch: {0}")]
    Decode(String),
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// An operation does not apply to this document. Upstream keeps the reason to itself.
    #[error(transparent)]
    Rejected(OperationError),
}

/// Why an operation does not apply, in the words of the library upstream uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    #[error("Unexpected kind: {0}")]
    Kind(String),
    #[error("Unable to remove nonexistent key: {0}")]
    NoKey(String),
    #[error("replace operation value must be object or array")]
    Document,
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy operation is {0}, \
         exceeding the limit {COPIED_BYTES_MAX}"
    )]
    CopiedBytes(usize),
    #[error("testing value {0} failed: test failed")]
    Test(String),
    #[error("doc is missing path: {0}")]
    NoPath(String),
    #[error("the patch would nest the document deeper than {DEPTH_MAX} levels")]
    Depth,
    #[error("value was not a proper array index: '{0}'")]
    NoIndex(String),
    #[error("Unable to access invalid index: {0}")]
    Index(i64),
}

impl JsonPatchError {
    pub fn status(&self) -> Status {
        match self {
            JsonPatchError::Decode(_) => Status::bad_request(self.to_string()),
            JsonPatchError::TooManyOperations(_) => Status::too_large(format!("Request entity too large: {self}")),
            JsonPatchError::Rejected(_) => super::rejected(),
        }
    }
}

/// Applies the operations in order; on an error the document is partly changed and must be thrown away.
pub fn apply(document: &mut Value, patch: &Value) -> Result<(), JsonPatchError> {
    let operations = decode(patch)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(JsonPatchError::TooManyOperations(operations.len()));
    }
    let mut patcher = Patcher { document, copied_bytes: 0, depth_max: PARSED_DEPTH_MAX };
    for operation in &operations {
        patcher.apply(operation).map_err(JsonPatchError::Rejected)?;
    }
    Ok(())
}

/// The fields that operations of a JSON patch do not have, as strict field validation names them.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let known = |name: &str| matches!(name, "op" | "path" | "from" | "value");
    let items = patch.as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
    let members =
        items.flat_map(|(index, item)| item.as_object().into_iter().flatten().map(move |entry| (index, entry.0)));
    let unknown = members.filter(|(_, name)| !known(name));
    unknown.map(|(index, name)| format!("unknown field \"[{index}].{name}\"")).collect()
}

impl JsonPatchError {
    /// Whether a `test` of the patch did not hold.
    pub fn is_failed_test(&self) -> bool {
        matches!(self, JsonPatchError::Rejected(OperationError::Test(_)))
    }
}

struct Operation<'a> {
    op: &'a str,
    path: &'a str,
    from: &'a str,
    value: &'a Value,
}

fn decode(patch: &Value) -> Result<Vec<Operation<'_>>, JsonPatchError> {
    let items = match patch {
        Value::Array(items) => items,
        other => return Err(wrong_type(other, "value of type []handlers.jsonPatchOp")),
    };
    items.iter().map(decode_operation).collect()
}

fn decode_operation(item: &Value) -> Result<Operation<'_>, JsonPatchError> {
    let Value::Object(members) = item else {
        return Err(wrong_type(item, "value of type handlers.jsonPatchOp"));
    };
    let text = |name: &str| match members.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(wrong_type(other, &format!("struct field jsonPatchOp.{name} of type string"))),
    };
    let value = members.get("value").unwrap_or(&Value::Null);
    Ok(Operation { op: text("op")?, path: text("path")?, from: text("from")?, value })
}

fn wrong_type(found: &Value, wanted: &str) -> JsonPatchError {
    JsonPatchError::Decode(format!("json: cannot unmarshal {} into Go {wanted}", crate::go::json_type(found)))
}

struct Patcher<'a> {
    document: &'a mut Value,
    copied_bytes: usize,
    /// The document is at most this deep; counted up cheaply, and measured when the count passes the bound.
    depth_max: usize,
}

impl Patcher<'_> {
    fn apply(&mut self, operation: &Operation) -> Result<(), OperationError> {
        let Operation { op, path, from, value } = operation;
        match *op {
            "add" => self.add(path, (*value).clone(), PARSED_DEPTH_MAX),
            "remove" => self.remove(path).map(drop),
            "replace" => self.replace(path, value),
            "move" => {
                let value = self.remove(from)?;
                self.add(path, value, self.depth_max)
            }
            "copy" => self.copy(from, path),
            "test" => self.test(path, value),
            other => Err(OperationError::Kind(other.to_owned())),
        }
    }

    fn add(&mut self, path: &str, value: Value, value_depth_max: usize) -> Result<(), OperationError> {
        self.deepen(path, value_depth_max)?;
        let (container, key) = self.find(path)?;
        match container {
            Container::Map(map) => {
                map.insert(key, value);
            }
            Container::List(list) if key == "-" => list.push(value),
            Container::List(list) => {
                let index = index(&key, list.len() + 1)?;
                list.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<Value, OperationError> {
        let (container, key) = self.find(path)?;
        match container {
            Container::Map(map) => map.remove(&key).ok_or(OperationError::NoKey(key)),
            Container::List(list) => {
                let index = index(&key, list.len())?;
                Ok(list.remove(index))
            }
        }
    }

    fn replace(&mut self, path: &str, value: &Value) -> Result<(), OperationError> {
        self.deepen(path, PARSED_DEPTH_MAX)?;
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err(OperationError::Document);
            }
            *self.document = value.clone();
            return Ok(());
        }
        let (container, key) = self.find(path)?;
        match container {
            Container::Map(map) => {
                map.insert(key, value.clone());
            }
            Container::List(list) => {
                let index = index(&key, list.len())?;
                list[index] = value.clone();
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), OperationError> {
        let value = self.get(from)?;
        let bytes = value.map_or(0, json_length);
        let value = value.cloned().unwrap_or(Value::Null);
        self.copied_bytes += bytes;
        if self.copied_bytes > COPIED_BYTES_MAX {
            return Err(OperationError::CopiedBytes(self.copied_bytes));
        }
        self.add(path, value, self.depth_max)
    }

    fn test(&mut self, path: &str, wanted: &Value) -> Result<(), OperationError> {
        let found = match path {
            "" => Some(&*self.document),
            _ => self.get(path)?,
        };
        if found.unwrap_or(&Value::Null) == wanted { Ok(()) } else { Err(OperationError::Test(path.to_owned())) }
    }

    /// The value at the path: an error where the way there or an index is missing, none where only a member is.
    fn get(&mut self, path: &str) -> Result<Option<&Value>, OperationError> {
        let (container, key) = self.find(path)?;
        match container {
            Container::Map(map) => Ok(map.get(&key)),
            Container::List(list) => {
                let index = index(&key, list.len())?;
                Ok(list.get(index))
            }
        }
    }

    /// The map or list that holds the last step of the path, and that step.
    fn find(&mut self, path: &str) -> Result<(Container<'_>, String), OperationError> {
        let missing = || OperationError::NoPath(path.to_owned());
        // As upstream, what stands before the first slash is not looked at.
        let mut steps = path.split('/').skip(1);
        let mut key = unescape(steps.next().ok_or_else(missing)?);
        let mut here = &mut *self.document;
        for step in steps {
            here = match here {
                Value::Object(map) => map.get_mut(&key).ok_or_else(missing)?,
                Value::Array(list) => {
                    let index = index(&key, list.len())?;
                    &mut list[index]
                }
                _ => return Err(missing()),
            };
            key = unescape(step);
        }
        match here {
            Value::Object(map) => Ok((Container::Map(map), key)),
            Value::Array(list) => Ok((Container::List(list), key)),
            _ => Err(missing()),
        }
    }

    /// Refuses to put a value so deep that the document passes the bound.
    fn deepen(&mut self, path: &str, value_depth_max: usize) -> Result<(), OperationError> {
        let steps = path.bytes().filter(|byte| *byte == b'/').count();
        self.depth_max = self.depth_max.max(steps + value_depth_max);
        if self.depth_max <= DEPTH_MAX {
            return Ok(());
        }
        let measured = depth(self.document);
        self.depth_max = measured.max(steps + value_depth_max.min(measured.max(PARSED_DEPTH_MAX)));
        if self.depth_max > DEPTH_MAX { Err(OperationError::Depth) } else { Ok(()) }
    }
}

enum Container<'a> {
    Map(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn index(key: &str, length: usize) -> Result<usize, OperationError> {
    let index: i64 = key.parse().map_err(|_| OperationError::NoIndex(key.to_owned()))?;
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let counted = if index < 0 { index + length } else { index };
    match usize::try_from(counted) {
        Ok(position) if counted < length => Ok(position),
        _ => Err(OperationError::Index(index)),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(entries) => 1 + entries.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn json_length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("a JSON value can be written and the counter takes every byte");
    count.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: Value) -> Result<Value, JsonPatchError> {
        let mut document = document;
        apply(&mut document, &patch)?;
        Ok(document)
    }

    #[track_caller]
    fn check(document: Value, patch: Value, expected: Value) {
        assert_eq!(patched(document, patch), Ok(expected));
    }

    #[track_caller]
    fn check_error(document: Value, patch: Value, code: u16, message: &str) {
        let status = patched(document, patch).expect_err("refused").status();
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }

    const REJECTED: &str = "the server rejected our request due to an error in our request";

    #[test]
    fn operations() {
        check(
            json!({"data": {"a": "1", "b": "2"}}),
            json!([
                {"op": "add", "path": "/data/c", "value": "3"},
                {"op": "remove", "path": "/data/a"},
                {"op": "move", "from": "/data/b", "path": "/data/d"},
                {"op": "copy", "from": "/data/d", "path": "/data/e"},
                {"op": "test", "path": "/data/e", "value": "2"},
            ]),
            json!({"data": {"c": "3", "d": "2", "e": "2"}}),
        );
        let list = json!({"l": [1, 2, 3]});
        check(list.clone(), json!([{"op": "add", "path": "/l/-", "value": 4}]), json!({"l": [1, 2, 3, 4]}));
        check(list.clone(), json!([{"op": "add", "path": "/l/1", "value": 4}]), json!({"l": [1, 4, 2, 3]}));
        check(list.clone(), json!([{"op": "add", "path": "/l/-1", "value": 4}]), json!({"l": [1, 2, 3, 4]}));
        check(list.clone(), json!([{"op": "remove", "path": "/l/-1"}]), json!({"l": [1, 2]}));
        check(
            list.clone(),
            json!([{"op": "replace", "path": "/l/0", "value": {"a": 1}}]),
            json!({"l": [{"a": 1}, 2, 3]}),
        );
        check(list, json!([{"op": "replace", "path": "", "value": {}}]), json!({}));
    }

    #[test]
    fn liberties_of_upstream() {
        check(json!({"a": {}}), json!([{"op": "replace", "path": "/a/b", "value": 1}]), json!({"a": {"b": 1}}));
        check(json!({"a": 1}), json!([{"op": "copy", "from": "/x", "path": "/y"}]), json!({"a": 1, "y": null}));
        check(json!({"a": 1}), json!([{"op": "test", "path": "/x", "value": null}]), json!({"a": 1}));
        check(json!({"a/b": {"~": 1}}), json!([{"op": "remove", "path": "/a~1b/~0"}]), json!({"a/b": {}}));
    }

    #[test]
    fn refusals() {
        for operation in [
            json!({"op": "test", "path": "/a", "value": "x"}),
            json!({"op": "remove", "path": "/nope"}),
            json!({"op": "add", "path": "/no/where", "value": 1}),
            json!({"op": "add", "path": "/a/b", "value": 1}),
            json!({"op": "add", "path": "/l/7", "value": 1}),
            json!({"op": "replace", "path": "/l/1", "value": 1}),
            json!({"op": "remove", "path": "/l/-2"}),
            json!({"op": "remove", "path": "/l/x"}),
            json!({"op": "move", "from": "/nope", "path": "/b"}),
            json!({"op": "frob", "path": "/a"}),
            json!({"op": "add", "value": 1}),
        ] {
            check_error(json!({"a": 1, "l": [1]}), json!([operation]), 422, REJECTED);
        }
    }

    #[test]
    fn undecodable() {
        let start = "error decoding patch: json: cannot unmarshal";
        for (patch, rest) in [
            (json!({"x": 1}), "object into Go value of type []handlers.jsonPatchOp"),
            (json!(["x"]), "string into Go value of type handlers.jsonPatchOp"),
            (json!([{"op": "add", "path": 1}]), "number into Go struct field jsonPatchOp.path of type string"),
        ] {
            check_error(json!({}), patch, 400, &format!("{start} {rest}"));
        }
    }

    #[test]
    fn unknown_members() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "add", "path": "/b", "valeu": 1}]);
        assert_eq!(unknown_fields(&patch), ["unknown field \"[1].valeu\""]);
    }

    #[test]
    fn recorded_conversation() {
        let mut live = Value::Null;
        for line in include_str!("testdata/json-patch.jsonl").lines() {
            let step: Value = serde_json::from_str(line).expect("test data is JSON");
            let answer = &step["response"];
            if step["contentType"] == "application/json-patch+json" {
                match patched(live.clone(), step["body"].clone()) {
                    // A number as data is refused later, by the schema.
                    Ok(_) if step["code"] == 422 => assert_eq!(step["body"][0]["value"], 5),
                    Ok(document) => assert_eq!(document["data"], answer["data"]),
                    Err(error) => assert_eq!(&error.status().to_value(), answer),
                }
            }
            if step["code"] == 200 || step["code"] == 201 {
                live = answer.clone();
            }
        }
    }

    #[test]
    fn cost_is_bounded() {
        let many = vec![json!({"op": "test", "path": "/a", "value": 1}); OPERATIONS_MAX + 1];
        let message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
        check_error(json!({"a": 1}), Value::Array(many), 413, message);

        let doubling = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 40];
        check_error(json!({"a": ["x".repeat(1000)]}), Value::Array(doubling), 422, REJECTED);

        let nesting = vec![json!({"op": "copy", "from": "/a", "path": "/a/x"}); 2000];
        check_error(json!({"a": {}}), Value::Array(nesting), 422, REJECTED);

        let back_and_forth =
            [json!({"op": "move", "from": "/a/x", "path": "/b"}), json!({"op": "move", "from": "/b", "path": "/a/x"})];
        let patch = Value::Array(back_and_forth.iter().cycle().take(OPERATIONS_MAX).cloned().collect());
        check(json!({"a": {"x": 1}}), patch, json!({"a": {"x": 1}}));
    }
}

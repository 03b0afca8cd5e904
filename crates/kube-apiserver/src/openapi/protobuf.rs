//! Version 2 in protobuf: the messages of `openapi.v2` that kubectl reads, encoded from the JSON form. Only what our
//! documents contain is known here. Field numbers are those of gnostic's OpenAPIv2.proto.

use serde_json::{Map, Value};

/// A document while it grows: paths and definitions are added one by one.
pub struct Document {
    info: Message,
    paths: Message,
    definitions: Message,
    parameters: Message,
}

impl Document {
    pub fn new(info: &Value) -> Document {
        let mut described = Message::default();
        described.text(1, info, "title");
        described.text(2, info, "version");
        Document {
            info: described,
            paths: Message::default(),
            definitions: Message::default(),
            parameters: Message::default(),
        }
    }

    pub fn path(&mut self, name: &str, item: &Value) {
        self.paths.named(2, name, path_item(item));
    }

    pub fn definition(&mut self, name: &str, definition: &Value) {
        self.definitions.named(1, name, schema(definition));
    }

    pub fn parameter(&mut self, name: &str, described: &Value) {
        self.parameters.named(1, name, parameter(described));
    }

    pub fn finish(self, security_definitions: &Value) -> Vec<u8> {
        let mut document = Message::default();
        document.string(1, "2.0");
        document.message(2, &self.info);
        document.message(8, &self.paths);
        document.message(9, &self.definitions);
        document.message(10, &self.parameters);
        let mut security = Message::default();
        for (name, described) in entries(security_definitions) {
            // A requirement is a list of scopes by name; an API key has none.
            let mut requirement = Message::default();
            requirement.named(1, name, Message::default());
            document.message(12, &requirement);
            security.named(1, name, Message::of(2, &api_key(described)));
        }
        document.message(13, &security);
        document.0
    }
}

/// The fields of one message, encoded.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A message with one field.
    fn of(number: u32, inner: &Message) -> Message {
        let mut out = Message::default();
        out.message(number, inner);
        out
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, number: u32, wire_type: u32) {
        self.varint(u64::from(number << 3 | wire_type));
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u32, inner: &Message) {
        self.bytes(number, &inner.0);
    }

    fn string(&mut self, number: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, set: bool) {
        if set {
            self.tag(number, 0);
            self.varint(1);
        }
    }

    fn double(&mut self, number: u32, value: f64) {
        self.tag(number, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// One entry of a map, which is a list of names with values.
    fn named(&mut self, number: u32, name: &str, value: Message) {
        let mut entry = Message::default();
        entry.string(1, name);
        entry.message(2, &value);
        self.message(number, &entry);
    }

    fn text(&mut self, number: u32, from: &Value, key: &str) {
        self.string(number, from.get(key).and_then(Value::as_str).unwrap_or(""));
    }

    fn texts(&mut self, number: u32, from: &Value, key: &str) {
        for text in items(from, key).filter_map(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn boolean(&mut self, number: u32, from: &Value, key: &str) {
        self.flag(number, from.get(key).and_then(Value::as_bool).unwrap_or(false));
    }

    fn number(&mut self, number: u32, from: &Value, key: &str) {
        if let Some(value) = from.get(key).and_then(Value::as_f64) {
            self.double(number, value);
        }
    }

    fn count(&mut self, number: u32, from: &Value, key: &str) {
        if let Some(value) = from.get(key).and_then(Value::as_u64) {
            self.tag(number, 0);
            self.varint(value);
        }
    }

    /// Every `x-` key as its name and its value in YAML, of which JSON is a part.
    fn extensions(&mut self, number: u32, from: &Value) {
        for (key, value) in entries(from).filter(|(key, _)| key.starts_with("x-")) {
            self.named(number, key, any(value));
        }
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.string(2, &format!("{value}\n"));
    out
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (number, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        if let Some(described) = item.get(method) {
            out.message(number, &operation(described));
        }
    }
    for described in items(item, "parameters") {
        out.message(9, &parameters_item(described));
    }
    out.extensions(10, item);
    out
}

fn operation(from: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, from, "tags");
    out.text(3, from, "description");
    out.text(5, from, "operationId");
    out.texts(6, from, "produces");
    out.texts(7, from, "consumes");
    for described in items(from, "parameters") {
        out.message(8, &parameters_item(described));
    }
    let mut responses = Message::default();
    for (code, described) in from.get("responses").into_iter().flat_map(entries) {
        let mut response = Message::default();
        response.text(1, described, "description");
        if let Some(answer) = described.get("schema") {
            response.message(2, &Message::of(1, &schema(answer)));
        }
        responses.named(1, code, Message::of(1, &response));
    }
    out.message(9, &responses);
    out.texts(10, from, "schemes");
    out.extensions(13, from);
    out
}

fn parameters_item(from: &Value) -> Message {
    match from.get("$ref") {
        Some(_) => {
            let mut reference = Message::default();
            reference.text(1, from, "$ref");
            Message::of(2, &reference)
        }
        None => Message::of(1, &parameter(from)),
    }
}

fn parameter(from: &Value) -> Message {
    let place = from.get("in").and_then(Value::as_str).unwrap_or("");
    let mut out = Message::default();
    match place {
        "body" => {
            out.text(1, from, "description");
            out.text(2, from, "name");
            out.text(3, from, "in");
            out.boolean(4, from, "required");
            if let Some(body) = from.get("schema") {
                out.message(5, &schema(body));
            }
            Message::of(1, &out)
        }
        _ => {
            out.boolean(1, from, "required");
            out.text(2, from, "in");
            out.text(3, from, "description");
            out.text(4, from, "name");
            // The two messages differ from here on: a query parameter may be empty, which moves all that follows.
            let (choice, ty, unique) = if place == "path" { (4, 5, 19) } else { (3, 6, 20) };
            out.text(ty, from, "type");
            out.boolean(unique, from, "uniqueItems");
            Message::of(2, &Message::of(choice, &out))
        }
    }
}

fn api_key(from: &Value) -> Message {
    let mut out = Message::default();
    for (number, key) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
        out.text(number, from, key);
    }
    out
}

fn schema(from: &Value) -> Message {
    let mut out = Message::default();
    for (number, key) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(number, from, key);
    }
    if let Some(default) = from.get("default") {
        out.message(5, &any(default));
    }
    for (number, key) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        out.number(number, from, key);
    }
    for (number, key) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems"), (27, "readOnly")] {
        out.boolean(number, from, key);
    }
    for (number, key) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        out.count(number, from, key);
    }
    out.texts(19, from, "required");
    for value in items(from, "enum") {
        out.message(20, &any(value));
    }
    match from.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            // A choice is written even when it is false.
            let mut choice = Message::default();
            choice.tag(2, 0);
            choice.varint(u64::from(*allowed));
            out.message(21, &choice);
        }
        Some(values) => out.message(21, &Message::of(1, &schema(values))),
        None => {}
    }
    if let Some(ty) = from.get("type").and_then(Value::as_str) {
        let mut types = Message::default();
        types.string(1, ty);
        out.message(22, &types);
    }
    if let Some(item) = from.get("items") {
        out.message(23, &Message::of(1, &schema(item)));
    }
    let mut properties = Message::default();
    for (name, property) in from.get("properties").into_iter().flat_map(entries) {
        properties.named(1, name, schema(property));
    }
    if !properties.0.is_empty() {
        out.message(25, &properties);
    }
    if let Some(example) = from.get("example") {
        out.message(30, &any(example));
    }
    out.extensions(31, from);
    out
}

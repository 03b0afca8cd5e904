//! Which field number belongs to which field: a table of names and numbers, bound to the schemas.

use std::collections::HashMap;

use crate::schema::{Empty, Schemas, Struct, Type, TypeId, TypeRef};

const SCHEMA_PACKAGE: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The protobuf form of every type of one `Schemas`.
pub struct FieldNumbers<'a> {
    pub(super) schemas: &'a Schemas,
    /// By type id.
    forms: Vec<Form>,
    /// JSONSchemaProps, which the unions of a schema and something else hold.
    pub(super) schema_props: Option<TypeId>,
}

/// How a type is written.
pub(super) enum Form {
    /// A scalar, list or map: its schema says how.
    Plain,
    /// A struct without numbers in the table: it has no protobuf form.
    Unknown,
    Message(Message),
    /// Any JSON as text, in field 1.
    Raw,
    /// Unions of custom resources' schemas.
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrTexts,
}

/// The fields of a message by number; the first slot, for number 0, is always unused.
#[derive(Default)]
pub(super) struct Message {
    pub slots: Vec<Slot>,
    /// All fields, those of inlined structs too.
    names: Vec<Named>,
    /// Where in `names` a field stands, by the hash of its name; at least half of the places are `NOBODY`.
    places: Box<[u16]>,
}

const NOBODY: u16 = u16::MAX;

/// Where a field stands: the numbers of the inlined structs around it, and its own.
pub(super) struct Named {
    pub name: Box<str>,
    pub path: Box<[u32]>,
    pub ty: TypeId,
}

pub(super) enum Slot {
    Unused,
    Field(Field),
    /// A struct that JSON inlines: its fields stand beside those around it.
    Inline(Message),
}

pub(super) struct Field {
    pub name: Box<str>,
    pub ty: TypeId,
    pub empty: Empty,
}

/// One line of the table: fields with the path of numbers that leads to them.
type Line<'t> = Vec<(&'t str, Vec<u32>)>;

impl<'a> FieldNumbers<'a> {
    /// Binds a table to schemas. The table has a `[package]` line, then lines such as
    /// `Volume name=1 hostPath=2.1 emptyDir=2.2`, where 2.1 is field 1 of an inlined struct in field 2.
    pub fn new(schemas: &'a Schemas, table: &str) -> FieldNumbers<'a> {
        let table = parse(table);
        let names: HashMap<TypeId, &str> = schemas.names.iter().map(|(name, id)| (*id, name.as_ref())).collect();
        let forms = schemas.types.iter().enumerate().map(|(index, ty)| {
            let id = TypeId(u32::try_from(index).expect("fewer than 2^32 types"));
            match ty {
                Type::Struct(shape) => match line_of(&table, names.get(&id).copied(), shape) {
                    Some(line) => Form::Message(message(line, shape)),
                    None if shape.fields.is_empty() => Form::Message(Message::default()),
                    None => Form::Unknown,
                },
                Type::Any { .. } => any_form(names.get(&id).copied().unwrap_or("")),
                Type::Map { .. } | Type::List { .. } | Type::Scalar(_) => Form::Plain,
            }
        });
        let forms = forms.collect();
        let schema_props = schemas.by_name(&format!("{SCHEMA_PACKAGE}.JSONSchemaProps")).map(|found| found.id);
        FieldNumbers { schemas, forms, schema_props }
    }

    /// Whether objects of this type can be protobuf; custom resources cannot.
    pub fn cover(&self, shape: TypeRef) -> bool {
        self.message(shape).is_some()
    }

    pub(super) fn message(&self, shape: TypeRef) -> Option<&Message> {
        match std::ptr::eq(self.schemas, shape.schemas).then(|| self.form(shape.id))? {
            Form::Message(message) => Some(message),
            _ => None,
        }
    }

    pub(super) fn form(&self, id: TypeId) -> &Form {
        &self.forms[id.0 as usize]
    }

    /// Fields of the schemas that have no number, as `PodSpec.nodeName`: for tests of the table.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (ty, form) in self.schemas.types.iter().zip(&self.forms) {
            let Type::Struct(shape) = ty else { continue };
            let mut numbered = Vec::new();
            if let Form::Message(message) = form {
                message.names(&mut numbered);
            }
            // The kind of an object stands in the envelope.
            let in_envelope = |name: &str| matches!(name, "apiVersion" | "kind");
            let fields = shape.fields.iter().map(|field| field.name.as_ref());
            let without = fields.filter(|name| !numbered.contains(name) && !in_envelope(name));
            missing.extend(without.map(|name| format!("{}.{name}", shape.name)));
        }
        missing
    }
}

impl Message {
    /// The field of that name. Every field of every object that is sent is looked up here.
    pub fn named(&self, name: &[u8]) -> Option<&Named> {
        let last = self.places.len().checked_sub(1)?;
        let mut at = hash(name) & last;
        loop {
            // The place of nobody ends the search; there always is one.
            let named = self.names.get(usize::from(self.places[at]))?;
            if named.name.as_bytes() == name {
                return Some(named);
            }
            at = (at + 1) & last;
        }
    }

    fn index_names(&mut self) {
        let mut places = vec![NOBODY; (self.names.len() * 2 + 1).next_power_of_two()];
        let last = places.len() - 1;
        for (index, named) in self.names.iter().enumerate() {
            let mut at = hash(named.name.as_bytes()) & last;
            while places[at] != NOBODY {
                at = (at + 1) & last;
            }
            places[at] = u16::try_from(index).expect("a message has few fields");
        }
        self.places = places.into();
    }

    fn names<'m>(&'m self, names: &mut Vec<&'m str>) {
        for slot in &self.slots {
            match slot {
                Slot::Unused => {}
                Slot::Field(field) => names.push(&field.name),
                Slot::Inline(inner) => inner.names(names),
            }
        }
    }

    fn place(&mut self, path: &[u32], field: Field) {
        let Some((number, rest)) = path.split_first() else { return };
        let index = *number as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || Slot::Unused);
        }
        let slot = &mut self.slots[index];
        if rest.is_empty() {
            *slot = Slot::Field(field);
            return;
        }
        if !matches!(slot, Slot::Inline(_)) {
            *slot = Slot::Inline(Message::default());
        }
        if let Slot::Inline(inner) = slot {
            inner.place(rest, field);
        }
    }
}

fn message(line: &Line, shape: &Struct) -> Message {
    let mut message = Message::default();
    for (name, path) in line {
        // A number of a field that this version's schema does not have is simply not used.
        if let Some(field) = shape.field(name) {
            message.place(path, Field { name: (*name).into(), ty: field.ty, empty: field.empty });
            message.names.push(Named { name: (*name).into(), path: path.as_slice().into(), ty: field.ty });
        }
    }
    message.index_names();
    message
}

/// Names of fields differ in their length and in a few letters; a hash of all letters would cost more than it spares.
fn hash(name: &[u8]) -> usize {
    let letter = |at: usize| name.get(at).map_or(0, |letter| usize::from(*letter));
    let (length, middle) = (name.len(), name.len() / 2);
    let mixed = length
        .wrapping_mul(31)
        .wrapping_add(letter(0))
        .wrapping_mul(31)
        .wrapping_add(letter(middle))
        .wrapping_mul(31)
        .wrapping_add(letter(length.wrapping_sub(1)));
    mixed ^ (mixed >> 5)
}

/// The line of a type. Where a field overrides whether its type is atomic, the schema holds a nameless copy of the
/// type, which is found by its short name and its fields.
fn line_of<'l, 't>(
    table: &'l HashMap<&'t str, Vec<(&'t str, Line<'t>)>>,
    full: Option<&str>,
    shape: &Struct,
) -> Option<&'l Line<'t>> {
    let lines = table.get(shape.name.as_ref())?;
    let found = match full.and_then(|full| full.rsplit_once('.')) {
        Some((package, _)) => lines.iter().find(|(of, _)| *of == package),
        None => lines.iter().find(|(_, line)| {
            shape.fields.iter().all(|field| line.iter().any(|(name, _)| *name == field.name.as_ref()))
        }),
    };
    found.map(|(_, line)| line)
}

/// Lines by short name, each with its package.
fn parse(table: &str) -> HashMap<&str, Vec<(&str, Line<'_>)>> {
    let mut lines: HashMap<&str, Vec<(&str, Line)>> = HashMap::new();
    let mut package = "";
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            package = name;
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let fields = words.map(|word| {
            let (field, path) = word.split_once('=').expect("the table of field numbers has name=number");
            let number = |text: &str| text.parse().expect("field numbers are numbers");
            (field, path.split('.').map(number).collect())
        });
        lines.entry(name).or_default().push((package, fields.collect()));
    }
    lines
}

fn any_form(name: &str) -> Form {
    match name.strip_prefix(SCHEMA_PACKAGE) {
        Some(".JSONSchemaPropsOrBool") => Form::SchemaOrBool,
        Some(".JSONSchemaPropsOrArray") => Form::SchemaOrArray,
        Some(".JSONSchemaPropsOrStringArray") => Form::SchemaOrTexts,
        _ => Form::Raw,
    }
}

//! The entries of `metadata.managedFields`, with their sets read in.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::Manager;
use crate::patch::fields::{Set, from_json, from_text, to_value};
use crate::schema::TypeRef;

/// More managers that update than this are merged, the oldest first.
pub(super) const UPDATE_ENTRIES_MAX: usize = 10;

/// The manager that holds what merged entries owned.
const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    pub manager: &'a str,
    pub operation: Operation,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub time: Option<&'a str>,
    /// Shared by copies of the entry that have not changed it.
    pub set: Rc<Set<'a>>,
    /// Where the entry stands in the list it was read from, as long as it is still the same.
    source: Option<usize>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct EntryError(String);

impl<'a> Entry<'a> {
    pub(super) fn new(
        operation: Operation,
        manager: &Manager<'a>,
        time: Option<&'a str>,
        set: Rc<Set<'a>>,
    ) -> Entry<'a> {
        let &Manager { name, api_version, subresource, .. } = manager;
        Entry { manager: name, operation, api_version, subresource, time, set, source: None }
    }

    fn decode(index: usize, value: &'a Value) -> Result<Entry<'a>, EntryError> {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(EntryError("operation must be `Apply` or `Update`".into())),
        };
        if text("apiVersion").is_empty() {
            return Err(EntryError("apiVersion must not be empty".into()));
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(EntryError(format!("missing fieldsType in managed fields entry {index}"))),
            other => return Err(EntryError(format!("invalid fieldsType {other:?} in managed fields entry {index}"))),
        }
        let set = match value.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => {
                let set = match fields {
                    Value::String(text) => from_text(text),
                    fields => from_json(fields),
                };
                set.map_err(|error| {
                    EntryError(format!("error decoding set from managed fields entry {index}: {error}"))
                })?
            }
        };
        Ok(Entry {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: value.get("time").and_then(Value::as_str),
            set: Rc::new(set),
            source: Some(index),
        })
    }

    /// What tells entries apart: an applier is one manager whatever version it applies.
    fn identity(&self) -> (Operation, &'a str, &'a str, &'a str) {
        let version = if self.operation == Operation::Apply { "" } else { self.api_version };
        (self.operation, self.manager, self.subresource, version)
    }

    fn is(&self, operation: Operation, manager: &Manager) -> bool {
        self.operation == operation
            && self.manager == manager.name
            && self.subresource == manager.subresource
            && (operation == Operation::Apply || self.api_version == manager.api_version)
    }

    fn as_manager(&self) -> Manager<'a> {
        let &Entry { manager: name, api_version, subresource, time, .. } = self;
        Manager { name, api_version, subresource, time: time.unwrap_or_default() }
    }

    /// Whether this is the entry of what the manager applies.
    pub(crate) fn is_applier(&self, manager: &Manager) -> bool {
        self.is(Operation::Apply, manager)
    }

    pub fn lose(&mut self, fields: &Set) {
        if self.set.intersects(fields) {
            self.set = Rc::new(take(&mut self.set).difference(fields));
            self.source = None;
        }
    }

    pub fn set_time(&mut self, time: Option<&'a str>) {
        if self.time != time {
            self.time = time;
            self.source = None;
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut out = Map::new();
        out.insert("manager".into(), self.manager.into());
        out.insert("operation".into(), json!(if self.operation == Operation::Apply { "Apply" } else { "Update" }));
        out.insert("apiVersion".into(), self.api_version.into());
        if let Some(time) = self.time {
            out.insert("time".into(), time.into());
        }
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), to_value(&self.set));
        if !self.subresource.is_empty() {
            out.insert("subresource".into(), self.subresource.into());
        }
        Value::Object(out)
    }
}

/// What tells entries apart, of one that has not been read; nothing where reading it would fail.
pub(super) fn identity(entry: &Value) -> Option<(Operation, &str, &str, &str)> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let version = if operation == Operation::Apply { "" } else { api_version };
    Some((operation, text("manager"), text("subresource"), version))
}

/// The manager as conflicts show it.
impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries<'a>(Vec<Entry<'a>>);

impl<'a> Entries<'a> {
    pub fn decode(list: &'a [Value]) -> Result<Entries<'a>, EntryError> {
        let mut entries = Vec::with_capacity(list.len() + 1);
        let mut seen = HashSet::with_capacity(list.len());
        // Of two entries for one manager the later counts.
        for (index, value) in list.iter().enumerate().rev() {
            let entry = Entry::decode(index, value)?;
            if seen.insert(entry.identity()) {
                entries.push(entry);
            }
        }
        entries.reverse();
        Ok(Entries(entries))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry<'a>> {
        self.0.iter_mut()
    }

    pub fn get(&self, operation: Operation, manager: &Manager) -> Option<&Entry<'a>> {
        self.0.iter().find(|entry| entry.is(operation, manager))
    }

    pub fn get_mut(&mut self, operation: Operation, manager: &Manager) -> Option<&mut Entry<'a>> {
        self.0.iter_mut().find(|entry| entry.is(operation, manager))
    }

    /// Adds fields to a manager's entry and stamps it.
    pub fn give(&mut self, operation: Operation, manager: &Manager<'a>, fields: Set<'a>) {
        match self.get_mut(operation, manager) {
            Some(entry) => {
                entry.set = Rc::new(take(&mut entry.set).union(fields));
                entry.time = manager.stamp();
                entry.source = None;
            }
            None => self.0.push(Entry::new(operation, manager, manager.stamp(), Rc::new(fields))),
        }
    }

    /// Brings the sets up to a schema that has changed since they were written.
    pub fn reconcile(&mut self, ty: TypeRef) {
        for entry in &mut self.0 {
            if Rc::make_mut(&mut entry.set).collapse_atomic(Some(ty)) {
                entry.source = None;
            }
        }
    }

    /// Makes these the fields of a manager, and its time none where it is new.
    pub fn replace(&mut self, operation: Operation, manager: &Manager<'a>, fields: Set<'a>) {
        match self.get_mut(operation, manager) {
            Some(entry) => {
                if *entry.set != fields || entry.api_version != manager.api_version {
                    entry.source = None;
                }
                entry.set = Rc::new(fields);
                entry.api_version = manager.api_version;
            }
            None => self.0.push(Entry::new(operation, manager, None, Rc::new(fields))),
        }
    }

    /// Whether the same managers own the same fields, whatever the times say.
    pub(crate) fn owns_the_same(&self, other: &Entries) -> bool {
        let same = |entry: &Entry| {
            let manager = entry.as_manager();
            let found = other.get(entry.operation, &manager);
            found.is_some_and(|found| found.api_version == entry.api_version && found.set == entry.set)
        };
        self.0.len() == other.0.len() && self.iter().all(same)
    }

    pub fn drop_empty(&mut self) {
        self.0.retain(|entry| !entry.set.is_empty());
    }

    /// Merges the oldest updates of each version until there are few enough.
    pub(crate) fn cap_updates(&mut self) {
        let mut count = self.0.iter().filter(|entry| entry.operation == Operation::Update).count();
        if count <= UPDATE_ENTRIES_MAX {
            return;
        }
        self.sort();
        let mut kept: Vec<Entry> = Vec::with_capacity(self.0.len());
        let mut buckets: HashMap<&str, usize> = HashMap::new();
        for entry in std::mem::take(&mut self.0) {
            if entry.operation == Operation::Update && count > UPDATE_ENTRIES_MAX {
                if let Some(index) = buckets.get(entry.api_version) {
                    let bucket = &mut kept[*index];
                    bucket.manager = ANCIENT;
                    bucket.subresource = "";
                    bucket.set = Rc::new(take(&mut bucket.set).union(Rc::unwrap_or_clone(entry.set)));
                    bucket.time = entry.time;
                    bucket.source = None;
                    count -= 1;
                    continue;
                }
                buckets.insert(entry.api_version, kept.len());
            }
            kept.push(entry);
        }
        self.0 = kept;
    }

    fn sort(&mut self) {
        self.0.sort_by(|left, right| {
            let key =
                |entry: &Entry<'a>| (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource);
            key(left).cmp(&key(right))
        });
    }

    /// The entries in upstream's order: appliers first, then by age.
    pub fn encode(mut self) -> Plan {
        self.sort();
        let write = |entry: &Entry| match entry.source {
            Some(index) => Written::Kept(index),
            None => Written::New(entry.to_json()),
        };
        Plan(self.0.iter().map(write).collect())
    }
}

/// The set without a copy, where nobody else has it.
fn take<'a>(set: &mut Rc<Set<'a>>) -> Set<'a> {
    Rc::unwrap_or_clone(std::mem::take(set))
}

/// The new list, which takes unchanged entries from the list that was read without writing them anew.
pub struct Plan(Vec<Written>);

/// The list in upstream's order with one entry that is new, or in the place of another. All must have an identity.
pub(super) fn in_order(list: &[Value], replaced: Option<usize>, new: Value) -> Plan {
    fn key(entry: &Value) -> (bool, Option<&str>, &str, &str, &str) {
        let text = |field: &str| entry.get(field).and_then(Value::as_str);
        let plain = |field: &str| text(field).unwrap_or_default();
        (plain("operation") == "Update", text("time"), plain("manager"), plain("apiVersion"), plain("subresource"))
    }
    let kept = list.iter().enumerate().filter(|(index, _)| Some(*index) != replaced);
    let mut kept: Vec<(usize, &Value)> = kept.collect();
    kept.sort_by(|(_, left), (_, right)| key(left).cmp(&key(right)));
    let place = kept.partition_point(|(_, entry)| key(entry) < key(&new));
    let mut written: Vec<Written> = kept.into_iter().map(|(index, _)| Written::Kept(index)).collect();
    written.insert(place, Written::New(new));
    Plan(written)
}

enum Written {
    Kept(usize),
    New(Value),
}

impl Plan {
    pub fn resolve(self, mut list: Vec<Value>) -> Vec<Value> {
        let take = |written| match written {
            Written::Kept(index) => list[index].take(),
            Written::New(value) => value,
        };
        self.0.into_iter().map(take).collect()
    }
}

//! Latest state and recent events in memory, over any `Store`. Serves get, list and watch from encoded bytes.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{Revision, Store, StoreError};

/// What the cache must know of a stored value besides its bytes. Parsed once, when the value arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// Values of the kind's selectable fields, in the order of its list.
    pub fields: Vec<Box<str>>,
    /// Where in the value `"resourceVersion":"N",` is put when it is sent: just behind `"metadata":{`.
    pub splice: u32,
}

/// How values of one resource are read. An error means the value cannot be decoded; it is reported by key,
/// and the rest goes on.
pub type Describe = Arc<dyn Fn(&Bytes) -> Result<Description, String> + Send + Sync>;

/// One object as of one revision. Shared by the state, the history and every watcher.
#[derive(Debug)]
pub struct Item {
    pub key: Arc<str>,
    /// As stored: without resourceVersion.
    pub value: Bytes,
    pub revision: Revision,
    pub created: Revision,
    pub description: Description,
}

/// An object's change within one resource.
#[derive(Debug)]
pub struct Change {
    pub revision: Revision,
    /// The new state; for a deletion the last state, carrying the deletion's revision.
    pub item: Arc<Item>,
    pub previous: Option<Arc<Item>>,
    pub deleted: bool,
    /// Encodings made for watchers, each made once. The number names the encoding and is chosen by the caller.
    encodings: [OnceLock<Bytes>; ENCODINGS_MAX],
}

pub const ENCODINGS_MAX: usize = 4;

/// The state of one resource as of one revision; cheap to clone, does not change.
#[derive(Clone)]
pub struct Snapshot {
    pub revision: Revision,
    pub items: imbl::OrdMap<Arc<str>, Arc<Item>>,
}

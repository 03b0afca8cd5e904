//! What the cache holds: objects as of a revision, their changes, and whole snapshots. All are shared and none
//! changes once made; the bytes of a value exist once, whoever looks at them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{BufMut, Bytes};
use parking_lot::Mutex;

use super::budget::{Budget, Charge};
use crate::Revision;

/// What the cache must know of a stored value besides its bytes. Parsed once, when the value arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// Values of the kind's selectable fields, in the order of its list.
    pub fields: Vec<Box<str>>,
    /// Where in the value `"resourceVersion":"N",` is put when it is sent: just behind `"metadata":{`.
    pub splice: u32,
}

/// Why a stored value cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    #[error(transparent)]
    Value(Box<dyn std::error::Error + Send + Sync>),
    #[error("the decoder panicked")]
    Panicked,
    /// It is encrypted, and cannot be decrypted now; that may change while the value does not.
    #[error("{0}")]
    Undecrypted(String),
}

impl DescribeError {
    /// The value is not what its resource stores.
    pub fn value(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> DescribeError {
        DescribeError::Value(error.into())
    }
}

/// How values of one resource are read. An error means the value cannot be decoded; it is reported by key,
/// and the rest goes on.
pub type Describe = Arc<dyn Fn(&Bytes) -> Result<Description, DescribeError> + Send + Sync>;

/// One object as of one revision. Shared by the state, the history and every watcher.
#[derive(Debug)]
pub struct Item {
    pub key: Arc<str>,
    /// As stored: without resourceVersion.
    pub value: Bytes,
    pub revision: Revision,
    pub created: Revision,
    pub description: Description,
    /// How long the object is in another encoding, once somebody has made that; 0 until then.
    encoded_len: AtomicU32,
}

impl Item {
    pub fn new(key: Arc<str>, value: Bytes, revision: Revision, created: Revision, description: Description) -> Item {
        Item { key, value, revision, created, description, encoded_len: AtomicU32::new(0) }
    }

    /// The length that was remembered: whoever writes a list of many may say its length without making it twice.
    pub fn remembered_len(&self) -> Option<usize> {
        Some(self.encoded_len.load(Ordering::Relaxed) as usize).filter(|length| *length > 0)
    }

    pub fn remember_len(&self, length: usize) {
        self.encoded_len.store(u32::try_from(length).unwrap_or(0), Ordering::Relaxed);
    }

    /// The value as it is sent, with its resourceVersion.
    pub fn encoded(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.encoded_len_max());
        self.write_encoded(&mut out);
        out.into()
    }

    /// As `encoded`, behind what `out` already holds.
    pub fn write_encoded(&self, out: &mut impl BufMut) {
        let splice = (self.description.splice as usize).min(self.value.len());
        let (head, tail) = self.value.split_at(splice);
        out.put_slice(head);
        out.put_slice(b"\"resourceVersion\":\"");
        put_decimal(out, self.revision.0);
        // Empty metadata has no next field to be parted from.
        out.put_slice(if tail.first() == Some(&b'}') { b"\"" } else { b"\"," });
        out.put_slice(tail);
    }

    /// How much room `write_encoded` takes at most.
    pub fn encoded_len_max(&self) -> usize {
        self.value.len() + "\"resourceVersion\":\"\",".len() + DECIMAL_DIGITS_MAX
    }

    /// The same object as it is shown by the event of its deletion.
    pub(super) fn deleted_at(&self, revision: Revision) -> Item {
        Item::new(self.key.clone(), self.value.clone(), revision, self.created, self.description.clone())
    }
}

/// An object's change within one resource.
#[derive(Debug)]
pub struct Change {
    pub revision: Revision,
    /// The new state; for a deletion the last state, carrying the deletion's revision.
    pub item: Arc<Item>,
    pub previous: Option<Arc<Item>>,
    pub deleted: bool,
    encodings: Mutex<Encodings>,
    charge: Charge,
}

/// Encodings made for watchers, as long as many are likely to ask for them.
#[derive(Debug)]
enum Encodings {
    /// By a number that the caller chooses. There are few, and most changes have one or none.
    Shared(Vec<(u8, Bytes)>),
    /// The change is old: who still asks is late, and gets its own.
    Forgotten,
}

/// What a change costs besides its values: itself, its items and their descriptions.
const CHANGE_BYTES: usize = 512;

impl Change {
    pub(super) fn put(item: Arc<Item>, previous: Option<Arc<Item>>, budget: &Arc<Budget>) -> Change {
        Change::new(item, previous, false, budget)
    }

    pub(super) fn delete(previous: Arc<Item>, revision: Revision, budget: &Arc<Budget>) -> Change {
        let item = Arc::new(previous.deleted_at(revision));
        Change::new(item, Some(previous), true, budget)
    }

    fn new(item: Arc<Item>, previous: Option<Arc<Item>>, deleted: bool, budget: &Arc<Budget>) -> Change {
        let revision = item.revision;
        let charge = budget.charge(held(&item, previous.as_deref(), deleted));
        Change { revision, item, previous, deleted, encodings: Mutex::new(Encodings::Shared(Vec::new())), charge }
    }

    /// What it holds, without the encodings made of it.
    pub(super) fn bytes(&self) -> usize {
        held(&self.item, self.previous.as_deref(), self.deleted)
    }

    /// The change in that encoding: made by the first who asks, shared with all others.
    pub fn encoding(&self, slot: u8, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut encodings = self.encodings.lock();
        match &mut *encodings {
            Encodings::Shared(made) => {
                if let Some((_, bytes)) = made.iter().find(|(known, _)| *known == slot) {
                    return bytes.clone();
                }
                let bytes = make();
                self.charge.add(bytes.len());
                made.push((slot, bytes.clone()));
                bytes
            }
            Encodings::Forgotten => {
                drop(encodings);
                make()
            }
        }
    }

    /// Gives back the memory of encodings, for good.
    pub(super) fn forget_encodings(&self) {
        let forgotten = std::mem::replace(&mut *self.encodings.lock(), Encodings::Forgotten);
        if let Encodings::Shared(made) = forgotten {
            self.charge.give_back(made.iter().map(|(_, bytes)| bytes.len()).sum());
        }
    }
}

/// The previous value counts too: once the change before is let go, nobody else may hold it. That of a deletion is the
/// same bytes as the item's.
fn held(item: &Item, previous: Option<&Item>, deleted: bool) -> usize {
    let previous = previous.filter(|_| !deleted).map_or(0, |previous| previous.value.len());
    CHANGE_BYTES + item.value.len() + previous
}

/// The state of one resource as of one revision; cheap to clone, does not change.
#[derive(Clone)]
pub struct Snapshot {
    pub revision: Revision,
    pub items: imbl::OrdMap<Arc<str>, Arc<Item>>,
}

const DECIMAL_DIGITS_MAX: usize = 20;

fn put_decimal(out: &mut impl BufMut, mut number: u64) {
    let mut digits = [0u8; DECIMAL_DIGITS_MAX];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[start..]);
}

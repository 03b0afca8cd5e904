//! Protobuf as it is on the wire, without knowledge of any schema: what a codec of ours leaves out is still seen here.

use std::collections::BTreeMap;

/// Before the message of an object in the store and in requests.
const MAGIC: &[u8] = b"k8s\0";
/// Of the envelope: the object itself.
const RAW: u64 = 2;
/// Of most objects.
const METADATA: u64 = 1;
const LABELS: u64 = 11;

/// One field as it stands there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Number(u64),
    /// Text, bytes or a message.
    Bytes(Vec<u8>),
}

pub type Message = BTreeMap<u64, Vec<Field>>;

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// None where it is no message.
pub fn read(mut bytes: &[u8]) -> Option<Message> {
    let mut message = Message::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let fixed = |bytes: &mut &[u8], length: usize| {
            let (head, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(head.to_vec())
        };
        // Fields of fixed length become bytes, which is right for comparing; no envelope, object or metadata has one.
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Bytes(fixed(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Field::Bytes(fixed(&mut bytes, length)?)
            }
            5 => Field::Bytes(fixed(&mut bytes, 4)?),
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        message.entry(tag >> 3).or_default().push(field);
    }
    Some(message)
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn write(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, fields) in message {
        for field in fields {
            match field {
                Field::Number(value) => {
                    put_varint(number << 3, &mut out);
                    put_varint(*value, &mut out);
                }
                Field::Bytes(bytes) => {
                    put_varint(number << 3 | 2, &mut out);
                    put_varint(bytes.len() as u64, &mut out);
                    out.extend_from_slice(bytes);
                }
            }
        }
    }
    out
}

fn inner(message: &Message, number: u64) -> Option<Message> {
    inside(message.get(&number)?.first()?)
}

/// The object in an envelope.
pub fn object(bytes: &[u8]) -> Option<Message> {
    inner(&read(bytes.strip_prefix(MAGIC)?)?, RAW)
}

/// The same bytes with one more label.
pub fn labelled(bytes: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let mut envelope = read(bytes.strip_prefix(MAGIC)?)?;
    let mut object = inner(&envelope, RAW)?;
    let mut metadata = inner(&object, METADATA)?;
    let text = |text: &str| vec![Field::Bytes(text.as_bytes().to_vec())];
    let entry = Message::from([(1, text(key)), (2, text(value))]);
    metadata.entry(LABELS).or_default().push(Field::Bytes(write(&entry)));
    object.insert(METADATA, vec![Field::Bytes(write(&metadata))]);
    envelope.insert(RAW, vec![Field::Bytes(write(&object))]);
    Some([MAGIC, &write(&envelope)].concat())
}

/// Where two objects differ, as paths of field numbers. Zero and absent are the same, and so is any order of fields and entries.
/// `ignored` are such paths.
pub fn differences(left: &Message, right: &Message, ignored: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    compare("", left, right, ignored, &mut found);
    found
}

fn compare(path: &str, left: &Message, right: &Message, ignored: &[&str], found: &mut Vec<String>) {
    for number in left.keys().chain(right.keys().filter(|number| !left.contains_key(number))) {
        let path = if path.is_empty() { number.to_string() } else { format!("{path}.{number}") };
        if ignored.contains(&path.as_str()) {
            continue;
        }
        let (left, right) = (entries(left, *number), entries(right, *number));
        let sorted = |entries: &[Field]| {
            let mut entries = entries.to_vec();
            entries.sort();
            entries
        };
        // Entries of maps come in any order.
        if sorted(&left) == sorted(&right) {
            continue;
        }
        if left.len() != right.len() {
            found.push(format!("{path}: {left:?} became {right:?}"));
            continue;
        }
        for (left, right) in left.iter().zip(&right).filter(|(left, right)| left != right) {
            match (inside(left), inside(right)) {
                (Some(left), Some(right)) => compare(&path, &left, &right, ignored, found),
                _ => found.push(format!("{path}: {left:?} became {right:?}")),
            }
        }
    }
}

fn inside(field: &Field) -> Option<Message> {
    match field {
        Field::Bytes(bytes) => read(bytes),
        Field::Number(_) => None,
    }
}

/// What a field holds, messages with their fields in order and without zero values.
fn entries(message: &Message, number: u64) -> Vec<Field> {
    let entries = message.get(&number).into_iter().flatten().map(ordered);
    entries.filter(|field| *field != Field::Number(0) && *field != Field::Bytes(Vec::new())).collect()
}

fn ordered(field: &Field) -> Field {
    match inside(field) {
        Some(message) => {
            let numbers = message.keys().map(|number| (*number, entries(&message, *number)));
            Field::Bytes(write(&numbers.collect()))
        }
        None => field.clone(),
    }
}

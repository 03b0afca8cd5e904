//! The few messages of D-Bus that logind needs: how they look as bytes. Data in, data out.

/// Longer messages are refused: nothing that is asked for here comes near it.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// What is read of a message before its length is known.
pub(super) const HEAD_BYTES: usize = 16;

pub(super) const METHOD_CALL: u8 = 1;
pub(super) const METHOD_RETURN: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const SIGNAL: u8 = 4;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;
const UNIX_FDS: u8 = 9;

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("message is cut off")]
    CutOff,
    #[error("message of {0} bytes is too long")]
    TooLong(usize),
    #[error("message is not of version 1 in little-endian order")]
    Foreign,
    #[error("message has a field of type {0:?}, which is not expected here")]
    Type(String),
}

/// A value of a message's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Int(i32),
    Number(u32),
    Bool(bool),
    /// In a variant, as properties are answered.
    Property(u64),
    /// The place of a descriptor among those that come with the message.
    Handle(u32),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub kind: u8,
    pub serial: u32,
    pub reply_serial: u32,
    pub path: String,
    pub interface: String,
    pub member: String,
    pub destination: String,
    pub sender: String,
    pub fds: u32,
    pub body: Vec<Value>,
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        let mut signature = String::new();
        for value in &self.body {
            signature.push_str(body.value(value));
        }
        let mut fields = Writer::default();
        let texts = [(PATH, "o", &self.path), (INTERFACE, "s", &self.interface), (MEMBER, "s", &self.member)];
        for (field, kind, text) in texts.into_iter().chain([(DESTINATION, "s", &self.destination)]) {
            if !text.is_empty() {
                fields.field(field, kind).text(text);
            }
        }
        for (field, number) in [(REPLY_SERIAL, self.reply_serial), (UNIX_FDS, self.fds)] {
            if number != 0 {
                fields.field(field, "u").number(number);
            }
        }
        if !signature.is_empty() {
            fields.field(SIGNATURE, "g").signature(&signature);
        }
        let mut whole = Writer(vec![b'l', self.kind, 0, 1]);
        whole.number(body.0.len() as u32);
        whole.number(self.serial);
        whole.number(fields.0.len() as u32);
        whole.0.extend(fields.0);
        whole.align(8);
        whole.0.extend(body.0);
        whole.0
    }

    /// How long the whole message is, from its first bytes.
    pub(super) fn length(head: &[u8; HEAD_BYTES]) -> Result<usize, WireError> {
        if head[0] != b'l' || head[3] != 1 {
            return Err(WireError::Foreign);
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let fields = number(12).checked_next_multiple_of(8).unwrap_or(usize::MAX);
        let length = HEAD_BYTES.saturating_add(fields).saturating_add(number(4));
        if length > MESSAGE_BYTES_MAX { Err(WireError::TooLong(length)) } else { Ok(length) }
    }

    /// Reads a whole message. Values that nobody here asks for are left out of the body.
    pub(super) fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        let mut reader = Reader { bytes, at: 0 };
        let head = reader.take(4)?;
        let mut message = Message { kind: head[1], ..Message::default() };
        let body_length = reader.number()? as usize;
        message.serial = reader.number()?;
        let end = reader.number()? as usize + HEAD_BYTES;
        let mut signature = String::new();
        while reader.at < end {
            reader.align(8)?;
            let field = reader.take(1)?[0];
            let kind = reader.signature()?;
            match (field, kind.as_str()) {
                (PATH, "o") => message.path = reader.text()?,
                (INTERFACE, "s") => message.interface = reader.text()?,
                (MEMBER, "s") => message.member = reader.text()?,
                (DESTINATION, "s") => message.destination = reader.text()?,
                (SENDER, "s") => message.sender = reader.text()?,
                (SIGNATURE, "g") => signature = reader.signature()?,
                (REPLY_SERIAL, "u") => message.reply_serial = reader.number()?,
                (UNIX_FDS, "u") => message.fds = reader.number()?,
                // The name of an error, and whatever comes later.
                (_, "s" | "o") => drop(reader.text()?),
                (_, "u") => drop(reader.number()?),
                (_, other) => return Err(WireError::Type(other.to_owned())),
            }
        }
        reader.align(8)?;
        let body = reader.take(body_length)?;
        let mut reader = Reader { bytes: body, at: 0 };
        for kind in signature.chars() {
            match reader.value(kind)? {
                Some(value) => message.body.push(value),
                None => break,
            }
        }
        Ok(message)
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn field(&mut self, field: u8, kind: &str) -> &mut Writer {
        self.align(8);
        self.0.push(field);
        self.signature(kind);
        self
    }

    /// Answers the type.
    fn value(&mut self, value: &Value) -> &'static str {
        match value {
            Value::Text(text) => {
                self.text(text);
                "s"
            }
            Value::Int(number) => {
                self.number(*number as u32);
                "i"
            }
            Value::Number(number) => {
                self.number(*number);
                "u"
            }
            Value::Bool(value) => {
                self.number(u32::from(*value));
                "b"
            }
            Value::Property(number) => {
                self.signature("t");
                self.align(8);
                self.0.extend(number.to_le_bytes());
                "v"
            }
            Value::Handle(place) => {
                self.number(*place);
                "h"
            }
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(count).ok_or(WireError::CutOff)?;
        let taken = self.bytes.get(self.at..end).ok_or(WireError::CutOff)?;
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<(), WireError> {
        self.take(self.at.next_multiple_of(to) - self.at).map(drop)
    }

    fn number(&mut self) -> Result<u32, WireError> {
        self.align(4)?;
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn text(&mut self) -> Result<String, WireError> {
        let length = self.number()? as usize;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Ok(text)
    }

    fn signature(&mut self) -> Result<String, WireError> {
        let length = self.take(1)?[0] as usize;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Ok(text)
    }

    /// Nothing for what is not read here.
    fn value(&mut self, kind: char) -> Result<Option<Value>, WireError> {
        Ok(Some(match kind {
            's' => Value::Text(self.text()?),
            'i' => Value::Int(self.number()? as i32),
            'u' => Value::Number(self.number()?),
            'b' => Value::Bool(self.number()? != 0),
            'h' => Value::Handle(self.number()?),
            'v' if self.signature()? == "t" => {
                self.align(8)?;
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Value::Property(u64::from_le_bytes(bytes))
            }
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let message = Message {
            kind: METHOD_CALL,
            serial: 7,
            path: "/org/freedesktop/login1".into(),
            interface: "org.freedesktop.login1.Manager".into(),
            member: "Inhibit".into(),
            destination: "org.freedesktop.login1".into(),
            body: vec![
                Value::Text("shutdown".into()),
                Value::Int(-1),
                Value::Bool(true),
                Value::Property(5_000_000),
                Value::Handle(2),
            ],
            fds: 1,
            ..Message::default()
        };
        let bytes = message.encode();
        let head: [u8; HEAD_BYTES] = bytes[..HEAD_BYTES].try_into().unwrap();
        assert_eq!(Message::length(&head).unwrap(), bytes.len());
        assert_eq!(Message::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn a_cut_or_strange_message_is_an_error_and_no_panic() {
        let message = Message {
            kind: SIGNAL,
            serial: 1,
            member: "X".into(),
            body: vec![Value::Text("text".into())],
            ..Message::default()
        };
        let bytes = message.encode();
        for end in 0..bytes.len() {
            assert!(Message::decode(&bytes[..end]).is_err(), "{end} of {}", bytes.len());
        }
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[place] = value;
                // Whatever comes of it, it comes back.
                let _ = Message::decode(&changed);
            }
        }
        let mut long = [0; HEAD_BYTES];
        long[..4].copy_from_slice(&[b'l', 1, 0, 1]);
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Message::length(&long), Err(WireError::TooLong(_))));
        long[0] = b'B';
        assert!(matches!(Message::length(&long), Err(WireError::Foreign)));
    }
}

//! Configuration files of the server: read strictly, so that every mistake is told with its line and field.
//! What a kind of file holds and which values are good is its owner's business (`authn/oidc`, `authz/structured`).

#[cfg(test)]
mod examples;
mod follow;
mod shape;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use machinery::codec;
use machinery::field::Errors;
use serde_json::Value;

pub(crate) use follow::Changes;
pub use follow::{Applied, follow, hash};
pub use follow::{Follow, Reloads};
pub use shape::Shape;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
/// Larger files are refused before they are read; those of people are a few kilobytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}: {why}")]
    Read { path: PathBuf, why: String },
    #[error("cannot decode the file: {0}")]
    Decode(String),
    #[error("expected kind {wanted:?} of {group}/{newest}, found {kind:?} of {version:?}")]
    Kind { kind: String, version: String, wanted: &'static str, group: &'static str, newest: &'static str },
    #[error("{}", .0.join("; "))]
    Fields(Vec<String>),
}

/// Which kind of file somebody expects.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: &'static str,
    pub group: &'static str,
    /// The newest first.
    pub versions: &'static [&'static str],
}

/// The server's own files, such as `AuthenticationConfiguration`.
pub const fn own(kind: &'static str) -> Header {
    Header { kind, group: GROUP, versions: &VERSIONS }
}

impl Header {
    pub fn check(&self, value: &Value) -> Result<(), Error> {
        let text_of = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = text_of("apiVersion");
        let is_known = version
            .split_once('/')
            .is_some_and(|(group, version)| group == self.group && self.versions.contains(&version));
        if text_of("kind") == self.kind && is_known {
            return Ok(());
        }
        let newest = self.versions.first().copied().unwrap_or_default();
        Err(Error::Kind { kind: text_of("kind"), version, wanted: self.kind, group: self.group, newest })
    }
}

/// A file whose fields are all known and of the right types.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    lines: HashMap<String, usize>,
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::Read { path: path.to_owned(), why: error.to_string() };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        let why = format!("it has {length} bytes, more than {FILE_BYTES_MAX}");
        return Err(Error::Read { path: path.to_owned(), why });
    }
    std::fs::read_to_string(path).map_err(failed)
}

impl Document {
    pub fn parse(text: &str, kind: &'static str, shape: &Shape) -> Result<Document, Error> {
        let document = Document::decode(text)?;
        own(kind).check(&document.value)?;
        document.check(shape, &document.value, "")?;
        Ok(document)
    }

    /// Any YAML without a field that is there twice.
    pub fn decode(text: &str) -> Result<Document, Error> {
        let decoded = codec::decode_yaml(text.as_bytes()).map_err(|error| Error::Decode(error.to_string()))?;
        if let Some(duplicates) = decoded.duplicates.first() {
            return Err(Error::Decode(duplicates.clone()));
        }
        let value = codec::without_nulls(decoded.value);
        Ok(Document { lines: codec::yaml_lines(text), value })
    }

    /// Whether a part of the file, which stands at that path, has such fields.
    pub fn check(&self, shape: &Shape, part: &Value, path: &str) -> Result<(), Error> {
        let mut problems = Vec::new();
        shape.check(part, path, &mut problems);
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::Fields(problems.into_iter().map(|(field, why)| self.placed(&field, &why)).collect()))
    }

    /// Nothing where there are no errors.
    pub fn refuse(&self, errors: &Errors) -> Result<(), Error> {
        self.refuse_part(errors, "")
    }

    /// The same for errors of a part, which stands at that path.
    pub(crate) fn refuse_part(&self, errors: &Errors, path: &str) -> Result<(), Error> {
        if errors.is_empty() {
            return Ok(());
        }
        let told = |error: &machinery::field::FieldError| {
            let field = if path.is_empty() { error.field.clone() } else { format!("{path}.{}", error.field) };
            self.placed(&field, &format!("{field}: {}", error.message()))
        };
        Err(Error::Fields(errors.0.iter().map(told).collect()))
    }

    /// The line of the field, or of the nearest thing around it that is there.
    fn placed(&self, field: &str, why: &str) -> String {
        let mut path = field;
        loop {
            if let Some(line) = self.lines.get(path) {
                return format!("line {line}: {why}");
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return why.to_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::field::{FieldError, Problem};

    use super::*;

    const SHAPE: Shape = Shape::Object(&[
        ("apiVersion", Shape::Text),
        ("kind", Shape::Text),
        ("jwt", Shape::List(&Shape::Object(&[("issuer", Shape::Object(&[("url", Shape::Text)]))]))),
    ]);

    fn parse(rest: &str) -> Result<Document, Error> {
        let text = format!("apiVersion: {GROUP}/v1\nkind: AuthenticationConfiguration\n{rest}");
        Document::parse(&text, "AuthenticationConfiguration", &SHAPE)
    }

    #[test]
    fn mistakes_are_told_with_line_and_field() {
        let check = |rest: &str, expected: &str| {
            assert_eq!(parse(rest).unwrap_err().to_string(), expected, "{rest}");
        };
        check("jwt:\n- issuer:\n    uri: x\n", "line 5: unknown field \"jwt[0].issuer.uri\"");
        check("jwt:\n- issuer:\n    url: 7\n", "line 5: jwt[0].issuer.url: expected a string, got a number");
        check("jwt: {}\n", "line 3: jwt: expected a list, got an object");
        let error = Document::parse("kind: Pod\n", "AuthenticationConfiguration", &SHAPE).unwrap_err();
        assert!(matches!(error, Error::Kind { .. }), "{error}");
        assert!(parse("jwt: [\n").unwrap_err().to_string().contains("line"));
        assert!(parse("jwt: []\njwt: []\n").unwrap_err().to_string().contains("line 4"));
    }

    #[test]
    fn errors_of_values_have_the_line_of_what_is_there() {
        let document = parse("jwt:\n- issuer: {}\n").unwrap();
        let mut errors = Errors::default();
        errors.push(FieldError::new(Problem::Required, "jwt[0].issuer.url", "", ""));
        let told = document.refuse(&errors).unwrap_err().to_string();
        assert_eq!(told, "line 4: jwt[0].issuer.url: Required value");
    }
}

//! Documents are built when somebody asks and kept compressed, within a bound. Their hashes come from the table and not
//! from the documents, so that the index can be answered without building any.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use machinery::kind::Kind;
use machinery::status::Status;
use parking_lot::Mutex;
use ring::digest::{Context, SHA256};

use super::definitions::Definitions;
use super::paths::{self, Path};
use super::{VERSION, v2, v3};
use crate::resources::{Resource, Table};

/// How much is kept: all documents of the built-in kinds fit.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// To be raised when the same table and types are written in another way, because clients keep what they have read.
const FORM: &str = "2";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Json2,
    Protobuf2,
    /// By its name in the index, such as `apis/apps/v1`.
    Json3(String),
}

impl Document {
    /// The name under which `Hashes` knows it.
    pub fn name(&self) -> &str {
        match self {
            Document::Json2 | Document::Protobuf2 => WHOLE,
            Document::Json3(name) => name,
        }
    }
}

/// The name of the document that speaks of everything.
const WHOLE: &str = "";

/// The hash of every document, by name.
pub type Hashes = BTreeMap<String, String>;

#[derive(Default)]
pub struct Documents {
    /// For the table they were computed from. Holding it weakly keeps its address from being used again.
    hashes: Mutex<Option<(Weak<Table>, Arc<Hashes>)>>,
    /// The most recently asked for last.
    kept: Arc<Mutex<Vec<Kept>>>,
    /// One document is built at a time: building takes memory, and what two clients ask for is built once. The work
    /// itself holds this, and not the request, which may go away before the work is done.
    building: Arc<tokio::sync::Mutex<()>>,
}

struct Kept {
    document: Document,
    hash: String,
    compressed: Bytes,
}

impl Documents {
    pub async fn hashes(&self, table: &Arc<Table>) -> Result<Arc<Hashes>, Status> {
        let this = Arc::downgrade(table);
        if let Some((known, hashes)) = &*self.hashes.lock()
            && known.ptr_eq(&this)
        {
            return Ok(hashes.clone());
        }
        let one_at_a_time = self.building.clone().lock_owned().await;
        let for_task = table.clone();
        let hashes = blocking(move || {
            let _held = one_at_a_time;
            Arc::new(hashes(&for_task))
        });
        let hashes = hashes.await?;
        *self.hashes.lock() = Some((this, hashes.clone()));
        Ok(hashes)
    }

    /// The document, compressed with gzip.
    pub async fn compressed(&self, table: &Arc<Table>, document: &Document, hash: &str) -> Result<Bytes, Status> {
        if let Some(found) = find(&mut self.kept.lock(), document, hash) {
            return Ok(found);
        }
        let one_at_a_time = self.building.clone().lock_owned().await;
        if let Some(found) = find(&mut self.kept.lock(), document, hash) {
            return Ok(found);
        }
        let (table, document, hash, kept) = (table.clone(), document.clone(), hash.to_string(), self.kept.clone());
        let built = blocking(move || {
            let _held = one_at_a_time;
            let compressed = build(&table, &document)?;
            keep(&mut kept.lock(), Kept { document, hash, compressed: compressed.clone() });
            Ok(compressed)
        });
        built.await?.map_err(|error: io::Error| Status::internal(format!("cannot write an OpenAPI document: {error}")))
    }
}

fn find(kept: &mut Vec<Kept>, document: &Document, hash: &str) -> Option<Bytes> {
    let at = kept.iter().position(|entry| entry.document == *document && entry.hash == hash)?;
    let entry = kept.remove(at);
    let found = entry.compressed.clone();
    kept.push(entry);
    Some(found)
}

fn keep(kept: &mut Vec<Kept>, new: Kept) {
    kept.retain(|entry| entry.document != new.document);
    kept.push(new);
    let mut bytes: usize = kept.iter().map(|entry| entry.compressed.len()).sum();
    while bytes > KEPT_BYTES_MAX && !kept.is_empty() {
        bytes -= kept.remove(0).compressed.len();
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Status::internal("building an OpenAPI document failed"))
}

/// The text of a compressed document, for clients that take it only so.
pub(crate) async fn decompressed(compressed: Bytes) -> Result<Bytes, Status> {
    blocking(move || {
        let mut text = Vec::new();
        let read = io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&compressed[..]), &mut text);
        read.map(|_| Bytes::from(text))
            .map_err(|error| Status::internal(format!("cannot read an OpenAPI document: {error}")))
    })
    .await?
}

fn build(table: &Table, document: &Document) -> io::Result<Bytes> {
    let mut out = BufWriter::with_capacity(64 * 1024, GzEncoder::new(Vec::new(), Compression::default()));
    write(&mut out, table, document)?;
    let compressed = out.into_inner().map_err(|error| error.into_error())?.finish()?;
    Ok(Bytes::from(compressed.into_boxed_slice()))
}

/// Writes a document as it is served.
pub fn write(out: &mut impl Write, table: &Table, document: &Document) -> io::Result<()> {
    let only = match document {
        Document::Json2 | Document::Protobuf2 => None,
        Document::Json3(name) => Some(group_version(name).unwrap_or_default()),
    };
    let all = Definitions::new(table, only);
    match document {
        Document::Json2 => v2::write_json(out, &all_paths(table, &all), &all),
        Document::Protobuf2 => v2::write_protobuf(out, &all_paths(table, &all), &all),
        Document::Json3(name) => v3::write(out, &paths_of(table, name, &all), &all),
    }
}

fn all_paths(table: &Table, all: &Definitions) -> Vec<Path> {
    names_of(table).iter().flat_map(|name| paths_of(table, name, all)).collect()
}

fn paths_of(table: &Table, name: &str, all: &Definitions) -> Vec<Path> {
    match (name, group_version(name)) {
        (_, Some((group, version))) => {
            paths::of_version(table, group, version, &|group, version, kind| all.name_of(group, version, kind))
        }
        ("api", None) => vec![paths::of_core_versions()],
        ("apis", None) => vec![paths::of_groups()],
        ("version", None) => vec![paths::of_server_version()],
        (name, None) => name.strip_prefix("apis/").map(paths::of_group).into_iter().collect(),
    }
}

/// The group and version a document speaks of, from its name.
fn group_version(name: &str) -> Option<(&str, &str)> {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

/// What stands in the index of version 3.
fn names_of(table: &Table) -> Vec<String> {
    let mut names: Vec<String> = vec!["api".into(), "apis".into(), "version".into()];
    for resource in table.resources() {
        let Kind { group, version, .. } = *resource.kind;
        match group {
            "" => names.push(format!("api/{version}")),
            _ => names.extend([format!("apis/{group}"), format!("apis/{group}/{version}")]),
        }
    }
    names.sort();
    names.dedup();
    names
}

fn hashes(table: &Table) -> Hashes {
    let mut whole = seed(WHOLE);
    let mut contexts: BTreeMap<String, Context> =
        names_of(table).into_iter().map(|name| (name.clone(), seed(&name))).collect();
    for resource in table.resources() {
        let root = paths::root_of(resource.kind.group, resource.kind.version);
        let text = described(resource);
        whole.update(text.as_bytes());
        if let Some(context) = contexts.get_mut(&root[1..]) {
            context.update(text.as_bytes());
        }
    }
    contexts.insert(WHOLE.into(), whole);
    contexts.into_iter().map(|(name, context)| (name, hex(context.finish().as_ref()))).collect()
}

fn seed(name: &str) -> Context {
    let mut context = Context::new(&SHA256);
    for text in [FORM, VERSION, built_in_digest(), name, "\n"] {
        context.update(text.as_bytes());
    }
    context
}

/// All that decides a kind's paths and definition.
fn described(resource: &Resource) -> String {
    let kind = &*resource.kind;
    let subresources: Vec<_> =
        kind.subresources.iter().map(|sub| (sub.name, sub.kind, sub.group, sub.version, sub.verbs)).collect();
    let schema = resource.custom.as_ref().and_then(|rules| rules.openapi_schema());
    let schema = schema.map(|schema| schema.to_string());
    let names = (kind.group, kind.version, kind.kind, kind.plural, kind.scope, kind.verbs);
    format!("{names:?} {subresources:?} {schema:?}\n")
}

/// The types of the built-in kinds change with the program only; they are hashed once, when the index is first read.
fn built_in_digest() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| {
        struct Hashing(Context);
        impl Write for Hashing {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.update(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = BufWriter::new(Hashing(Context::new(&SHA256)));
        let written = serde_json::to_writer(&mut out, &api::schema::openapi_definitions());
        written.expect("definitions can be written as JSON");
        let hashing = out.into_inner().unwrap_or_else(|_| unreachable!("hashing never fails"));
        hex(hashing.0.finish().as_ref())
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_asked_for_longest_goes_first() {
        let mut kept = Vec::new();
        let name = |number: usize| Document::Json3(number.to_string());
        for number in 0..4 {
            let compressed = Bytes::from(vec![0; KEPT_BYTES_MAX / 4]);
            keep(&mut kept, Kept { document: name(number), hash: "h".into(), compressed });
        }
        assert!(find(&mut kept, &name(0), "h").is_some() && find(&mut kept, &name(0), "other").is_none());
        keep(&mut kept, Kept { document: name(4), hash: "h".into(), compressed: Bytes::from_static(b"more") });
        let left: Vec<_> = kept.iter().map(|entry| entry.document.name().to_string()).collect();
        assert_eq!(left, ["2", "3", "0", "4"]);
    }
}

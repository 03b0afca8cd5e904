//! The bodies of long lists: made while they are sent, so that a list of any size costs one piece of memory.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderValue;
use machinery::codec::protobuf;
use serde_json::Value;
use store::cache::Item;

use crate::body::Body;
use crate::call::Call;
use crate::respond::{self, Reply};
use crate::transcode::Transcoding;

/// About how much of a list is made at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// Smaller answers are not worth compressing, as upstream.
pub(crate) const GZIP_BYTES_MIN: usize = 128 * 1024;
/// Up to here a list in protobuf is made whole: its length stands before it, and counting costs as much as writing.
const WHOLE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The stored texts one after the other.
pub fn json(call: &Call, meta: &Value, items: Vec<Arc<Item>>) -> Reply {
    let resource = &call.resource;
    let (kind, api_version) = (resource.kind.kind, resource.kind.api_version());
    let head = format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":[");
    let total: usize = items.iter().map(|item| item.encoded_len_max()).sum();
    let with_kind = resource.custom.is_some();
    let mut pieces = JsonPieces { head: Some(head), items: items.into_iter(), first: true, with_kind, done: false };
    if total <= PIECE_BYTES {
        let mut whole = Vec::with_capacity(total + 256);
        while pieces.fill(&mut whole) {}
        return respond::bytes_reply(200, "application/json", whole);
    }
    streamed(call, "application/json", pieces)
}

/// The stored texts as protobuf. None where one of them cannot be written so.
pub fn protobuf(call: &Call, transcoding: Transcoding, meta: &Value, items: &[Arc<Item>]) -> Option<Reply> {
    let texts: usize = items.iter().map(|item| item.value.len()).sum();
    if texts <= WHOLE_BYTES_MAX {
        let mut made = Vec::with_capacity(texts / 2);
        items.iter().try_for_each(|item| transcoding.item(item, &mut made))?;
        let mut whole = transcoding.list_begin(meta, made.len())?;
        whole.reserve_exact(made.len() + protobuf::LIST_END.len());
        whole.extend(made);
        whole.extend_from_slice(protobuf::LIST_END);
        if !call.answer.gzip || whole.len() < GZIP_BYTES_MIN {
            return Some(respond::bytes_reply(200, protobuf::MEDIA_TYPE, whole));
        }
        return Some(streamed(call, protobuf::MEDIA_TYPE, std::iter::once(Bytes::from(whole))));
    }
    let mut scratch = Vec::new();
    let mut length = |item: &Arc<Item>| transcoding.item_len(item, &mut scratch);
    let items_bytes = items.iter().try_fold(0, |sum, item| Some(sum + length(item)?))?;
    let head = Some(transcoding.list_begin(meta, items_bytes)?);
    let items: Vec<Arc<Item>> = items.to_vec();
    let pieces = ProtobufPieces { head, items: items.into_iter(), transcoding, done: false };
    Some(streamed(call, protobuf::MEDIA_TYPE, pieces))
}

fn streamed(call: &Call, content_type: &'static str, pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Reply {
    if !call.answer.gzip {
        return respond::reply(200, content_type, Body::Stream(one_by_one(pieces)));
    }
    let pieces = GzipPieces { pieces, gzip: Some(GzEncoder::new(Vec::new(), Compression::fast())) };
    let mut reply = respond::reply(200, content_type, Body::Stream(one_by_one(pieces)));
    mark_gzip(&mut reply);
    reply
}

/// Others get their turn between two pieces, however fast the client takes them.
fn one_by_one(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> BoxStream<'static, Bytes> {
    let one = |piece| async move {
        tokio::task::yield_now().await;
        piece
    };
    Box::pin(futures::stream::iter(pieces).then(one))
}

pub(crate) fn mark_gzip(reply: &mut Reply) {
    reply.headers_mut().insert(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    reply.headers_mut().insert(http::header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

struct JsonPieces {
    head: Option<String>,
    items: std::vec::IntoIter<Arc<Item>>,
    first: bool,
    with_kind: bool,
    done: bool,
}

impl JsonPieces {
    /// Adds about one piece; false when the list is whole.
    fn fill(&mut self, out: &mut Vec<u8>) -> bool {
        if self.done {
            return false;
        }
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
        }
        while out.len() < PIECE_BYTES {
            let Some(item) = self.items.next() else {
                out.extend_from_slice(b"]}\n");
                self.done = true;
                return false;
            };
            if !std::mem::take(&mut self.first) {
                out.push(b',');
            }
            if self.with_kind { item.write_encoded(out) } else { write_without_kind(&item, out) }
        }
        true
    }
}

/// As `list_item`, for stored bytes.
fn write_without_kind(item: &Item, out: &mut Vec<u8>) {
    const HEAD: &[u8] = b"\"metadata\":{";
    let at = item.description.splice as usize;
    if at < HEAD.len() || !item.value[..at].ends_with(HEAD) {
        return item.write_encoded(out);
    }
    out.push(b'{');
    out.extend_from_slice(HEAD);
    let comma = if item.value.get(at) == Some(&b'}') { "" } else { "," };
    // Writing to a Vec cannot fail.
    let _ = write!(out, "\"resourceVersion\":\"{}\"{comma}", item.revision);
    out.extend_from_slice(&item.value[at..]);
}

impl Iterator for JsonPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
        self.fill(&mut out);
        (!out.is_empty()).then(|| out.into())
    }
}

struct ProtobufPieces {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Item>>,
    transcoding: Transcoding,
    done: bool,
}

impl Iterator for ProtobufPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = self.head.take().unwrap_or_default();
        out.reserve(PIECE_BYTES + PIECE_BYTES / 4);
        while out.len() < PIECE_BYTES {
            let Some(item) = self.items.next() else {
                out.extend_from_slice(protobuf::LIST_END);
                self.done = true;
                break;
            };
            // It was written once to know its length; if it could not be now, the client would see a list cut short.
            if self.transcoding.item(&item, &mut out).is_none() {
                self.done = true;
                return None;
            }
        }
        Some(out.into())
    }
}

struct GzipPieces<P> {
    pieces: P,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl<P: Iterator<Item = Bytes>> Iterator for GzipPieces<P> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let gzip = self.gzip.as_mut()?;
            match self.pieces.next() {
                // Writing to a Vec cannot fail.
                Some(piece) => gzip.write_all(&piece).ok()?,
                None => return self.gzip.take()?.finish().ok().map(Bytes::from),
            }
            if !gzip.get_ref().is_empty() {
                return Some(std::mem::take(gzip.get_mut()).into());
            }
        }
    }
}

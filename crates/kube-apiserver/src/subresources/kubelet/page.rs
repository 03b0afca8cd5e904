//! The body of a page that came through a proxy: read whole, unpacked, its links rewritten, packed again.

use std::io::{Read, Write};

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::read::{DeflateDecoder, GzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use futures::StreamExt;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use hyper::body::Incoming;
use machinery::status::Status;

use super::html;
use crate::body::Body;
use crate::outgoing::relay::{self, Running};
use crate::respond::Reply;

/// Pages up to this size, packed and unpacked, have their links rewritten; a larger one is passed on as it is.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Whether links can be found in this answer.
pub(crate) fn is_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok()).unwrap_or("");
    let kind = text(CONTENT_TYPE).split(';').next().unwrap_or("").trim();
    kind == "text/html" && Packing::of(text(CONTENT_ENCODING)).is_some()
}

/// The page with its links rewritten by `address`.
pub async fn rewritten(
    mut head: Parts,
    body: Incoming,
    address: impl Fn(&str) -> Option<String>,
    running: Running,
) -> Result<Reply, Status> {
    let mut pieces = Box::pin(relay::bytes_of(body, running));
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        whole.extend_from_slice(&piece);
        if whole.len() > PAGE_BYTES_MAX {
            tracing::warn!(bytes_max = PAGE_BYTES_MAX, "cannot rewrite links of proxied page: page too large");
            let begun = futures::stream::once(std::future::ready(whole.freeze()));
            return Ok(Reply::from_parts(head, Body::Stream(begun.chain(pieces).boxed())));
        }
    }
    let packing = head.headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    let packing = Packing::of(packing).unwrap_or(Packing::Plain);
    let page = match with_links(packing, &whole, address) {
        Ok(page) => page,
        Err(error) => {
            tracing::warn!(%error, "cannot rewrite links of proxied page");
            whole.freeze()
        }
    };
    head.headers.insert(CONTENT_LENGTH, page.len().into());
    Ok(Reply::from_parts(head, Body::full(page)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Deflate,
}

impl Packing {
    fn of(encoding: &str) -> Option<Packing> {
        match encoding {
            "" => Some(Packing::Plain),
            "gzip" => Some(Packing::Gzip),
            "deflate" => Some(Packing::Deflate),
            _ => None,
        }
    }
}

fn with_links(packing: Packing, packed: &[u8], address: impl Fn(&str) -> Option<String>) -> std::io::Result<Bytes> {
    let page = match packing {
        Packing::Plain => return Ok(html::rewrite(packed, address).into()),
        Packing::Gzip => unpacked(GzDecoder::new(packed))?,
        Packing::Deflate => unpacked(DeflateDecoder::new(packed))?,
    };
    let page = html::rewrite(&page, address);
    Ok(match packing {
        Packing::Deflate => {
            let mut out = DeflateEncoder::new(Vec::new(), Compression::default());
            out.write_all(&page)?;
            out.finish()?
        }
        _ => {
            let mut out = GzEncoder::new(Vec::new(), Compression::default());
            out.write_all(&page)?;
            out.finish()?
        }
    }
    .into())
}

fn unpacked(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(PAGE_BYTES_MAX as u64 + 1).read_to_end(&mut out)?;
    if out.len() > PAGE_BYTES_MAX {
        return Err(std::io::Error::other("uncompressed page is too large"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_pages_are_unpacked_and_packed_again() {
        let page = b"<a href=\"/x\">x</a>";
        let local = |address: &str| address.starts_with('/').then(|| format!("/p{address}"));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(page).unwrap();
        let found = with_links(Packing::Gzip, &gzip.finish().unwrap(), local).unwrap();
        let mut text = String::new();
        GzDecoder::new(&found[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "<a href=\"/p/x\">x</a>");
        assert!(with_links(Packing::Gzip, page, local).is_err());
    }

    #[test]
    fn only_pages_are_touched() {
        let check = |kind: &'static str, encoding: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
            headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static(encoding));
            assert_eq!(is_page(&headers), expected, "{kind} {encoding}");
        };
        check("text/html; charset=utf-8", "", true);
        check("text/html", "gzip", true);
        check("text/html", "br", false);
        check("application/json", "", false);
    }
}

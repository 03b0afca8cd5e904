//! The page's own files, packed into the program by `build.rs`.

use std::io::Read;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::{Body, full};

/// A file as it stands in the program.
pub(super) struct File {
    name: &'static str,
    /// Unpacked.
    length: usize,
    packed: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Where the page wants a nonce for its style elements.
const NONCE_PLACE: &str = "__CSP_NONCE__";
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// A file by its name below `/dashboard/`. Only names of the table are found, so that no path leads anywhere else.
pub(super) fn file(name: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let file = FILES.iter().find(|file| file.name == name)?;
    let tag = tag(file);
    let mut answer = Response::new(full(Bytes::new()));
    if headers.get(IF_NONE_MATCH).is_some_and(|known| *known == tag) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    } else if takes_gzip(headers) {
        *answer.body_mut() = full(Bytes::from_static(file.packed));
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    } else {
        *answer.body_mut() = full(unpacked(file));
    }
    // Names of built files hold a hash of what is in them.
    let lifetime = if name.starts_with("assets/") { FOREVER } else { ASK_AGAIN };
    let all = answer.headers_mut();
    all.insert(CACHE_CONTROL, lifetime);
    all.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    all.insert(VARY, HeaderValue::from_static("accept-encoding"));
    all.insert(ETAG, tag);
    Some(answer)
}

/// The page itself, with this answer's nonce in it.
pub(super) fn index(nonce: &str) -> Response<Body> {
    let packed = FILES.iter().find(|file| file.name == "index.html");
    let text = packed.map(unpacked).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).replace(NONCE_PLACE, nonce);
    let mut answer = Response::new(full(text));
    answer.headers_mut().insert(CACHE_CONTROL, ASK_AGAIN);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

/// Of what is packed: the same bytes have the same tag after every restart.
fn tag(file: &File) -> HeaderValue {
    let digest = ring::digest::digest(&ring::digest::SHA256, file.packed);
    let text: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("\"{text}\"")).expect("hexadecimal digits are a header value")
}

fn unpacked(file: &File) -> Bytes {
    let mut out = Vec::with_capacity(file.length);
    let read = flate2::read::GzDecoder::new(file.packed).read_to_end(&mut out);
    assert!(read.is_ok(), "what build.rs packed can be unpacked");
    out.into()
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && !matches!(weight.trim(), "q=0" | "q=0.0")
    })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "webmanifest" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_table_are_found() {
        for name in ["../Cargo.toml", "/etc/passwd", "assets/../index.html", "", "INDEX.HTML", "assets/"] {
            assert!(file(name, &HeaderMap::new()).is_none(), "{name}");
        }
        assert!(file("index.html", &HeaderMap::new()).is_some());
    }

    #[test]
    fn encodings_are_chosen_by_the_client() {
        let check = |accept: &str, expected: bool| {
            let headers = [(ACCEPT_ENCODING, accept.parse().unwrap())].into_iter().collect();
            assert_eq!(takes_gzip(&headers), expected, "{accept}");
        };
        check("gzip, deflate, br", true);
        check("br;q=1.0, gzip;q=0.8", true);
        check("gzip;q=0", false);
        check("identity", false);
    }

    #[test]
    fn a_known_file_is_not_sent_again() {
        let first = file("index.html", &HeaderMap::new()).unwrap();
        let known = [(IF_NONE_MATCH, first.headers()[ETAG].clone())].into_iter().collect();
        assert_eq!(file("index.html", &known).unwrap().status(), StatusCode::NOT_MODIFIED);
    }
}

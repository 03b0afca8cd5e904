//! `/openapi/v2` and `/openapi/v3`: what there is and how it looks, for `kubectl explain`, client-side validation,
//! merge keys and generated clients. Computed from the table, so that custom kinds are in it as soon as they are served.

mod paths;
mod parameters;
mod definitions;
mod custom;
mod v2;
mod v3;
mod protobuf;
mod documents;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, HeaderName, IF_NONE_MATCH, LOCATION, VARY,
};
use http::{HeaderMap, HeaderValue};
use machinery::status::Status;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::body::Body;
use crate::query::Query;
use crate::respond::{self, Reply};
use documents::Document;
pub use documents::Documents;

const VERSION: &str = concat!("v1.36.4+knarr", env!("CARGO_PKG_VERSION"));
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Answers what is below `/openapi`; None for any other path.
pub async fn answer(app: &Arc<App>, path: &str, query: &Query, headers: &HeaderMap) -> Result<Option<Reply>, Status> {
    let Some(rest) = path.strip_prefix("/openapi/") else { return Ok(None) };
    match rest.split_once('/').unwrap_or((rest, "")) {
        ("v2", "") => version_2(app, headers).await.map(Some),
        ("v3", "") => index(app, headers).await.map(Some),
        ("v3", name) => version_3(app, name, query, headers).await,
        _ => Ok(None),
    }
}

async fn version_2(app: &Arc<App>, headers: &HeaderMap) -> Result<Reply, Status> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let offered = [
        ("application/json", 0),
        // The name with an at sign is what clients ask for, though it is no valid media type and is not answered.
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", 1),
        (PROTOBUF, 1),
    ];
    let (document, content_type, mark) = match accepted(headers, &offered) {
        Some(0) => (Document::Json2, "application/json", ""),
        Some(_) => (Document::Protobuf2, PROTOBUF, "-PROTOBUF"),
        None => return Ok(not_acceptable()),
    };
    let table = app.table.load_full();
    let hashes = app.openapi.hashes(&table).await?;
    let hash = hashes.get(document.name()).map_or("", String::as_str);
    let etag = format!("\"{hash}{mark}\"");
    if matches(headers, &etag) {
        return Ok(not_modified(&etag));
    }
    let compressed = app.openapi.compressed(&table, &document, hash).await?;
    encoded(headers, content_type, &etag, compressed).await
}

async fn index(app: &Arc<App>, headers: &HeaderMap) -> Result<Reply, Status> {
    if accepted(headers, JSON).is_none() {
        return Ok(not_acceptable());
    }
    let hashes = app.openapi.hashes(&app.table.load_full()).await?;
    let mut paths = Map::new();
    for (name, hash) in hashes.iter().filter(|(name, _)| !name.is_empty()) {
        let url = format!("/openapi/v3/{name}?hash={hash}");
        paths.insert(name.clone(), json!({"serverRelativeURL": url}));
    }
    // The hash of the whole changes with every part.
    let mut whole = hashes.get("").cloned().unwrap_or_default();
    for route in app.aggregator.routes().iter().filter(|route| route.available) {
        let Some(hash) = &route.document else { continue };
        let name = format!("apis/{}/{}", route.group, route.version);
        whole.push_str(&format!("-{name}-{hash}"));
        paths.insert(name.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")}));
    }
    let etag = format!("\"{whole}-INDEX\"");
    if matches(headers, &etag) {
        return Ok(not_modified(&etag));
    }
    let mut reply = respond::bytes_reply(200, "application/json", json!({"paths": paths}).to_string());
    set(&mut reply, ETAG, &etag);
    set(&mut reply, VARY, "Accept");
    Ok(reply)
}

async fn version_3(app: &Arc<App>, name: &str, query: &Query, headers: &HeaderMap) -> Result<Option<Reply>, Status> {
    let table = app.table.load_full();
    let hashes = app.openapi.hashes(&table).await?;
    let Some(hash) = hashes.get(name) else { return Ok(None) };
    if accepted(headers, JSON).is_none() {
        return Ok(Some(not_acceptable()));
    }
    let asked = query.get("hash");
    if !asked.is_empty() && asked != hash {
        // What the client knows is out of date; what it should ask for now may be kept for long.
        let mut reply = respond::text(301, "");
        set(&mut reply, LOCATION, &format!("/openapi/v3/{name}?hash={hash}"));
        return Ok(Some(reply));
    }
    let etag = format!("\"{hash}\"");
    let mut reply = if matches(headers, &etag) {
        not_modified(&etag)
    } else {
        let document = Document::Json3(name.to_string());
        let compressed = app.openapi.compressed(&table, &document, hash).await?;
        encoded(headers, "application/json", &etag, compressed).await?
    };
    if !asked.is_empty() {
        set(&mut reply, CACHE_CONTROL, "public, immutable");
        if let Ok(later) = app.clock.now().checked_add(YEAR) {
            set(&mut reply, EXPIRES, &later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        }
    }
    Ok(Some(reply))
}

const JSON: &[(&str, u8)] = &[("application/json", 0)];

/// The offer the client likes best, or None where it takes none of them.
fn accepted(headers: &HeaderMap, offered: &[(&str, u8)]) -> Option<u8> {
    let all = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let mut clauses: Vec<(&str, f32)> = all.split(',').filter_map(clause).collect();
    if clauses.is_empty() {
        clauses.push(("*/*", 1.0));
    }
    // The sort is stable: among equals the first in the header wins.
    clauses.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let fits = |wanted: &str, offer: &str| match wanted.split_once('/') {
        Some(("*", "*")) => true,
        Some((ty, "*")) => offer.split_once('/').is_some_and(|(offer, _)| offer == ty),
        _ => wanted.eq_ignore_ascii_case(offer),
    };
    clauses
        .iter()
        .filter(|(_, quality)| *quality > 0.0)
        .find_map(|(wanted, _)| offered.iter().find(|(offer, _)| fits(wanted, offer)))
        .map(|(_, choice)| *choice)
}

fn clause(text: &str) -> Option<(&str, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|media| !media.is_empty())?;
    let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|text| text.parse().ok());
    Some((media, quality.unwrap_or(1.0)))
}

/// Whether the client has it already.
fn matches(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
}

async fn encoded(
    headers: &HeaderMap,
    content_type: &'static str,
    etag: &str,
    compressed: bytes::Bytes,
) -> Result<Reply, Status> {
    let takes_gzip = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(clause)
        .any(|(coding, quality)| matches!(coding, "gzip" | "*") && quality > 0.0);
    let mut reply = if takes_gzip {
        let mut reply = respond::bytes_reply(200, content_type, compressed);
        set(&mut reply, CONTENT_ENCODING, "gzip");
        reply
    } else {
        respond::bytes_reply(200, content_type, documents::decompressed(compressed).await?)
    };
    set(&mut reply, ETAG, etag);
    set(&mut reply, VARY, "Accept, Accept-Encoding");
    Ok(reply)
}

fn not_modified(etag: &str) -> Reply {
    let mut reply = respond::reply(304, "application/json", Body::Empty);
    reply.headers_mut().remove(http::header::CONTENT_TYPE);
    set(&mut reply, ETAG, etag);
    set(&mut reply, VARY, "Accept, Accept-Encoding");
    reply
}

fn not_acceptable() -> Reply {
    respond::text(406, "")
}

fn set(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}

fn bearer_token() -> Value {
    json!({"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"})
}

fn code_words(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}

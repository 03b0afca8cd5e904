//! Reading identities and tokens out of HTTP headers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use percent_encoding::percent_decode_str;

/// How a browser, which cannot set headers of a WebSocket, hands over a token.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// All values of a header; bytes that are not UTF-8 are replaced, so that no value is silently another.
pub fn texts(headers: &HeaderMap, name: &str) -> impl Iterator<Item = String> {
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// `<prefix><key>: value`, with keys in lower case and percent escapes resolved.
pub(crate) fn extras(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut extras: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(prefix) else { continue };
        let decoded = percent_decode_str(key).decode_utf8();
        let key = decoded.map_or_else(|_| key.to_string(), |decoded| decoded.to_lowercase());
        extras.entry(key).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
    }
    extras
}

/// The bearer token of a request, from `Authorization` or from a WebSocket's list of protocols.
pub fn bearer_token(headers: &HeaderMap) -> Option<String> {
    from_authorization(headers).or_else(|| from_protocols(headers))
}

fn from_authorization(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.split(' ');
    let scheme = words.next()?;
    let token = words.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.to_string())
}

fn from_protocols(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let protocols: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    // The token alone is no protocol to speak; as upstream, there must be another.
    if protocols.len() < 2 {
        return None;
    }
    let encoded = protocols.iter().find_map(|protocol| protocol.strip_prefix(WEBSOCKET_PREFIX))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::headers;

    #[test]
    fn tokens_are_found() {
        let check = |lines: &[(&str, &str)], expected: Option<&str>| {
            assert_eq!(bearer_token(&headers(lines)).as_deref(), expected, "{lines:?}");
        };
        check(&[], None);
        check(&[("authorization", "Bearer abc")], Some("abc"));
        check(&[("authorization", "bEARER abc trailing")], Some("abc"));
        check(&[("authorization", "Bearer")], None);
        check(&[("authorization", "Bearer ")], None);
        check(&[("authorization", "Basic abc")], None);
        let protocol = "base64url.bearer.authorization.k8s.io.YWJj";
        check(&[("sec-websocket-protocol", &format!("v5.channel.k8s.io, {protocol}"))], Some("abc"));
        check(&[("sec-websocket-protocol", "v5.channel.k8s.io"), ("sec-websocket-protocol", protocol)], Some("abc"));
        check(&[("sec-websocket-protocol", protocol)], None);
    }
}

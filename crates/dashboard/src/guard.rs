//! What no request passes without: headers against foreign pages, and that it was meant for this host. Pure.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, ORIGIN, REFERRER_POLICY, UPGRADE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue};
use machinery::status::Status;

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
pub(crate) const CSRF: HeaderName = HeaderName::from_static("x-knarr-csrf");

/// Every answer has these. With a nonce the page may have style elements, which its editor and terminal need.
pub(crate) fn protect(headers: &mut HeaderMap, nonce: Option<&str>) {
    let style = nonce.map(|nonce| format!(" 'nonce-{nonce}'")).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'{style}; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::from_str(&policy).expect("a nonce is letters and digits");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        (PERMISSIONS_POLICY, "camera=(), microphone=(), geolocation=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What is not said to be kept is not kept: answers hold what only this user may see.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The host a request was sent to, with its port.
pub(crate) fn host(parts: &Parts) -> Option<&str> {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    // HTTP/2 has it in the address, HTTP/1 in a header; two that differ are somebody's trick.
    let mut named = parts.headers.get_all(HOST).iter();
    let header = match (named.next(), named.next()) {
        (Some(one), None) => Some(one.to_str().ok()?),
        (None, _) => None,
        (Some(_), Some(_)) => return None,
    };
    match (authority, header) {
        (Some(one), Some(other)) => (one == other).then_some(one),
        (one, other) => one.or(other),
    }
}

/// A page of another site can let its name point here and would then be of this origin to a browser: only addresses,
/// `localhost` and the names of the serving certificate are answered.
pub(crate) fn is_known_host(host: &str, names: &[String]) -> bool {
    let name = without_port(host).to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    if name == "localhost" || name.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    names.iter().any(|known| match known.strip_prefix("*.") {
        Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
        None => known.eq_ignore_ascii_case(name),
    })
}

fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Whether the request comes from a page of this very host and scheme, as far as a browser says so. A page that came in clear
/// from the same host may have been written by whoever sits on the way.
pub(crate) fn same_origin(headers: &HeaderMap, scheme: &Scheme, host: &str) -> Result<(), Status> {
    let foreign = || Status::new(403, "Forbidden", "this request comes from another site's page");
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) if is_websocket(headers) => Err(foreign()),
        (None, _) => match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(foreign()),
        },
        (Some(origin), None) => {
            let origin = origin.to_str().unwrap_or_default();
            let named = origin.split_once("://").filter(|(named, _)| named.eq_ignore_ascii_case(scheme.as_str()));
            let same = named.is_some_and(|(_, named)| named.eq_ignore_ascii_case(host));
            if same { Ok(()) } else { Err(foreign()) }
        }
        (Some(_), Some(_)) => Err(foreign()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn hosts() {
        let names = ["knarr.example".to_string(), "*.wild.example".to_string()];
        let check = |host: &str, expected: bool| assert_eq!(is_known_host(host, &names), expected, "{host}");
        for known in [
            "127.0.0.1:6443",
            "[::1]:6443",
            "10.1.2.3",
            "localhost:1",
            "KNARR.example:6443",
            "a.wild.example",
            "knarr.example.",
        ] {
            check(known, true);
        }
        for foreign in [
            "evil.example",
            "knarr.example.evil.example",
            "",
            "a.b.wild.example",
            "wild.example",
            "127.0.0.1.evil.example",
        ] {
            check(foreign, false);
        }
    }

    #[test]
    fn origins() {
        let check = |pairs: &[(&'static str, &str)], expected: bool| {
            assert_eq!(same_origin(&headers(pairs), &Scheme::HTTPS, "h:6443").is_ok(), expected, "{pairs:?}");
        };
        check(&[], true);
        check(&[("origin", "https://h:6443")], true);
        check(&[("origin", "https://h")], false);
        check(&[("origin", "https://evil:6443")], false);
        check(&[("origin", "http://h:6443")], false);
        check(&[("upgrade", "websocket"), ("origin", "http://h:6443")], false);
        check(&[("origin", "null")], false);
        check(&[("origin", "file://h:6443")], false);
        check(&[("upgrade", "websocket")], false);
        check(&[("upgrade", "websocket"), ("origin", "https://h:6443")], true);
        check(&[("sec-fetch-site", "cross-site")], false);
        check(&[("sec-fetch-site", "same-origin")], true);
        let alone =
            |origin: &str| same_origin(&headers(&[("origin", origin)]), &Scheme::HTTP, "127.0.0.1:6480").is_ok();
        assert!(alone("http://127.0.0.1:6480"));
        assert!(!alone("https://127.0.0.1:6480"));
    }

    #[test]
    fn two_hosts_are_none() {
        let of = |uri: &str, hosts: &[&str]| {
            let mut request = http::Request::get(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            host(&request.body(()).unwrap().into_parts().0).map(str::to_owned)
        };
        assert_eq!(of("/x", &["a:1"]).as_deref(), Some("a:1"));
        assert_eq!(of("https://a:1/x", &[]).as_deref(), Some("a:1"));
        assert_eq!(of("https://a:1/x", &["b:1"]), None);
        assert_eq!(of("/x", &["a", "b"]), None);
        assert_eq!(of("/x", &[]), None);
    }
}

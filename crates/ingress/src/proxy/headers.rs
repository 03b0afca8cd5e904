//! Headers of requests and answers on their way through: what belongs to one connection only goes, what tells the backend
//! about the client comes, and what a client says about itself in our words is not believed.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{CONNECTION, COOKIE, EXPECT, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use ipnet::IpNet;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY: HeaderName = HeaderName::from_static("proxy");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-scheme");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SCHEME: HeaderName = HeaderName::from_static("x-scheme");

/// What the backend is told, and what some backends would also read with `_` in the place of `-`.
const OURS: [HeaderName; 8] =
    [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PORT, FORWARDED_PROTO, FORWARDED_SCHEME, REAL_IP, REQUEST_ID, SCHEME];

/// Takes away what belongs to one connection. Answers the protocol that an upgrade asks for, if it does.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let mut upgrades = false;
    // Without the header nothing is named by it, which is how most requests are.
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .collect();
        for name in named {
            match name {
                UPGRADE => upgrades = true,
                // Somebody might name what others rely on, to make it disappear on the way.
                _ if OURS.contains(&name) || name == HOST || name == FORWARDED || name == TE => {}
                _ => _ = headers.remove(name),
            }
        }
        headers.remove(CONNECTION);
    }
    let upgrade = headers.remove(UPGRADE).filter(|_| upgrades);
    for name in [KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, HTTP2_SETTINGS] {
        headers.remove(name);
    }
    upgrade
}

/// The client as the backend shall know it.
pub struct Client<'a> {
    pub address: IpAddr,
    pub address_text: &'a HeaderValue,
    pub tls: bool,
    /// The port that it came to.
    pub port_text: &'a HeaderValue,
    /// Those whose word about clients is taken.
    pub trusted: &'a [IpNet],
}

/// Tells the backend who asks and how. What the request says itself is replaced, unless it comes from a proxy we trust.
pub fn introduce(headers: &mut HeaderMap, client: &Client, host: HeaderValue) {
    let trusted = !client.trusted.is_empty() && contains(client.trusted, client.address);
    let scheme = HeaderValue::from_static(if client.tls { "https" } else { "http" });
    if trusted {
        let before: Vec<&[u8]> = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
        let chain = if before.is_empty() {
            client.address_text.clone()
        } else {
            let joined = [&before.join(&b", "[..]), client.address_text.as_bytes()].join(&b", "[..]);
            HeaderValue::from_bytes(&joined).unwrap_or_else(|_| client.address_text.clone())
        };
        headers.insert(FORWARDED_FOR, chain);
        let or =
            |headers: &mut HeaderMap, name: HeaderName, value: HeaderValue| _ = headers.entry(name).or_insert(value);
        or(headers, REAL_IP, client.address_text.clone());
        or(headers, FORWARDED_PROTO, scheme);
        or(headers, FORWARDED_PORT, client.port_text.clone());
        or(headers, FORWARDED_HOST, host);
    } else {
        headers.insert(FORWARDED_FOR, client.address_text.clone());
        headers.insert(REAL_IP, client.address_text.clone());
        headers.insert(FORWARDED_PROTO, scheme.clone());
        headers.insert(FORWARDED_PORT, client.port_text.clone());
        headers.insert(FORWARDED_HOST, host);
        headers.insert(FORWARDED_SCHEME, scheme.clone());
        headers.insert(SCHEME, scheme);
        headers.remove(FORWARDED);
    }
    // Programs behind CGI would take it for their own setting.
    headers.remove(PROXY);
    // The client has its answer to this already, from us.
    headers.remove(EXPECT);
    let twins: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            text.contains('_') && OURS.iter().any(|ours| ours.as_str() == text.replace('_', "-"))
        })
        .cloned()
        .collect();
    for name in twins {
        headers.remove(name);
    }
    if !headers.contains_key(REQUEST_ID) {
        let id = hex::encode(rand::random::<[u8; 16]>());
        headers.insert(REQUEST_ID, HeaderValue::from_str(&id).expect("digits are a header"));
    }
}

/// IPv4 addresses may come in the dress of IPv6.
pub fn contains(ranges: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    ranges.iter().any(|range| range.contains(&address))
}

/// HTTP/2 may send cookies in pieces, which HTTP/1 has no form for.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// The value of a cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The host that a request is for, as it was written. Nothing where it is none.
pub fn host<B>(request: &Request<B>) -> Option<&str> {
    let written = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST)?.to_str().ok()?,
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]*".contains(&byte);
    (!written.is_empty() && written.len() <= HOST_BYTES_MAX && written.bytes().all(allowed)).then_some(written)
}

const HOST_BYTES_MAX: usize = 260;

/// The host without its port, in lower case and without the dot that names may end with.
pub(crate) fn name_of_host(host: &str) -> Cow<'_, str> {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// Gives a request the form that its backend's protocol has.
pub fn address<B>(request: &mut Request<B>, http2: bool, tls: bool, host: &HeaderValue) {
    let path = request.uri().path_and_query().cloned();
    if http2 {
        *request.version_mut() = Version::HTTP_2;
        let scheme = if tls { Scheme::HTTPS } else { Scheme::HTTP };
        let mut uri = Uri::builder().scheme(scheme).authority(host.as_bytes());
        if let Some(path) = path {
            uri = uri.path_and_query(path);
        }
        if let Ok(uri) = uri.build() {
            *request.uri_mut() = uri;
        }
        request.headers_mut().remove(HOST);
        return;
    }
    *request.version_mut() = Version::HTTP_11;
    if request.uri().authority().is_some() || request.uri().scheme().is_some() {
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    }
    request.headers_mut().remove(TE);
    request.headers_mut().insert(HOST, host.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        HeaderMap::from_iter(pairs.iter().map(pair))
    }

    fn text(headers: &HeaderMap) -> String {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?"))).collect();
        lines.sort();
        lines.join("\n")
    }

    #[test]
    fn what_belongs_to_a_connection_goes() {
        let mut map = headers(&[
            ("connection", "close, X-Mine, x-forwarded-for"),
            ("x-mine", "1"),
            ("keep-alive", "5"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
            ("x-forwarded-for", "1.1.1.1"),
        ]);
        assert_eq!(strip_hop_by_hop(&mut map), None);
        assert_eq!(text(&map), "accept: */*\nx-forwarded-for: 1.1.1.1");
        let mut map = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(strip_hop_by_hop(&mut map), Some(HeaderValue::from_static("websocket")));
        assert!(map.is_empty());
    }

    #[test]
    fn clients_cannot_say_who_they_are_and_proxies_can() {
        let sent = [
            ("x-forwarded-for", "9.9.9.9"),
            ("x-real-ip", "9.9.9.9"),
            ("x-forwarded-proto", "https"),
            ("x_forwarded_for", "9.9.9.9"),
            ("forwarded", "for=9.9.9.9"),
            ("proxy", "evil"),
            ("x-request-id", "7"),
        ];
        let (address, port) = (HeaderValue::from_static("10.0.0.1"), HeaderValue::from_static("80"));
        let trusted = ["10.0.0.0/8".parse().expect("a range")];
        let introduced = |trusted: &[IpNet]| {
            let mut map = headers(&sent);
            let client = Client {
                address: IpAddr::from([10, 0, 0, 1]),
                address_text: &address,
                tls: false,
                port_text: &port,
                trusted,
            };
            introduce(&mut map, &client, HeaderValue::from_static("a.com"));
            text(&map)
        };
        assert_eq!(
            introduced(&[]),
            "x-forwarded-for: 10.0.0.1\nx-forwarded-host: a.com\nx-forwarded-port: 80\nx-forwarded-proto: http\n\
             x-forwarded-scheme: http\nx-real-ip: 10.0.0.1\nx-request-id: 7\nx-scheme: http"
        );
        assert_eq!(
            introduced(&trusted),
            "forwarded: for=9.9.9.9\nx-forwarded-for: 9.9.9.9, 10.0.0.1\nx-forwarded-host: a.com\n\
             x-forwarded-port: 80\nx-forwarded-proto: https\nx-real-ip: 9.9.9.9\nx-request-id: 7"
        );
    }

    #[test]
    fn hosts_are_compared_without_port_case_and_dot() {
        for (written, name) in [
            ("a.com", "a.com"),
            ("A.Com:8080", "a.com"),
            ("a.com.", "a.com"),
            ("[::1]:80", "::1"),
            ("10.0.0.1:80", "10.0.0.1"),
        ] {
            assert_eq!(name_of_host(written), name);
        }
        for wrong in ["", "a b", "a/b", "a@b", "a,b"] {
            let request = Request::builder().uri("/").header("host", wrong).body(()).expect("a request");
            assert_eq!(host(&request), None, "{wrong:?}");
        }
    }

    #[test]
    fn cookies_are_joined_and_found() {
        let mut map = headers(&[("cookie", "a=1; b=2"), ("cookie", "c=3")]);
        assert_eq!(cookie(&map, "c"), Some("3"));
        join_cookies(&mut map);
        assert_eq!(text(&map), "cookie: a=1; b=2; c=3");
        assert_eq!((cookie(&map, "b"), cookie(&map, "d")), (Some("2"), None));
    }
}

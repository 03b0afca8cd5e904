//! What happens to every request at the edge, whatever it asks for: pages of other sites (CORS), Strict-Transport-Security, and
//! connections that are ended by chance so that clients spread over several servers.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN, STRICT_TRANSPORT_SECURITY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use regex::Regex;

use crate::body::Body;
use crate::respond::{self, Reply};

/// Nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Regular expressions of origins whose pages may read answers.
    pub cors_allowed_origins: Vec<String>,
    pub strict_transport_security: Vec<String>,
    /// How likely a request over HTTP/2 ends its connection.
    pub goaway_chance: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--cors-allowed-origins: {pattern:?} is not a regular expression: {source}")]
    Pattern { pattern: String, source: regex::Error },
    #[error("--cors-allowed-origins: {0:?}: regular expression does not pin to start/end of host in the origin header")]
    NotPinned(String),
    #[error(
        "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information: {0:?}"
    )]
    Directive(String),
    #[error("--goaway-chance can not be less than 0 or greater than 0.02: {0}")]
    Chance(f64),
}

/// More would be a flood of new connections.
const CHANCE_MAX: f64 = 0.02;
const CORS: [(HeaderName, &str); 4] = [
    (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
    ),
    (ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

#[derive(Default)]
pub struct Edge {
    origins: Vec<Regex>,
    transport: Option<HeaderValue>,
    goaway_chance: f64,
}

impl Edge {
    pub fn new(settings: &Settings) -> Result<Edge, Error> {
        if !(0.0..=CHANCE_MAX).contains(&settings.goaway_chance) {
            return Err(Error::Chance(settings.goaway_chance));
        }
        let origins = settings.cors_allowed_origins.iter().map(|pattern| origin(pattern)).collect::<Result<_, _>>()?;
        if let Some(wrong) = settings.strict_transport_security.iter().find(|directive| !is_directive(directive)) {
            return Err(Error::Directive(wrong.clone()));
        }
        let joined = settings.strict_transport_security.join("; ");
        let transport = HeaderValue::from_str(&joined).ok().filter(|value| !value.is_empty());
        Ok(Edge { origins, transport, goaway_chance: settings.goaway_chance })
    }

    /// Whether the connection of this request is to end; `chance` is between 0 and 1.
    pub(crate) fn goes_away(&self, version: Version, chance: impl FnOnce() -> f64) -> bool {
        self.goaway_chance > 0.0 && version == Version::HTTP_2 && chance() < self.goaway_chance
    }

    /// The origin of a page that may read the answer.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|allowed| allowed.is_match(text)).then(|| origin.clone())
    }

    /// A browser's question before the request itself.
    pub(crate) fn preflight<T>(request: &Request<T>, origin: Option<&HeaderValue>) -> Option<Reply> {
        let asks = request.method() == Method::OPTIONS && origin.is_some();
        asks.then(|| respond::reply(204, "text/plain", Body::Empty))
    }

    pub(crate) fn add_headers(&self, reply: &mut Reply, origin: Option<HeaderValue>) {
        let headers = reply.headers_mut();
        if let Some(origin) = origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            for (name, value) in CORS {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        if let Some(transport) = &self.transport {
            headers.entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| transport.clone());
        }
    }
}

/// Upstream wants to see that the expression is about the whole host (CVE-2022-1996).
fn origin(pattern: &str) -> Result<Regex, Error> {
    let compiled = Regex::new(pattern).map_err(|source| Error::Pattern { pattern: pattern.to_owned(), source })?;
    let pins_start = pattern.contains('^') || pattern.contains("//");
    let pins_end = pattern.contains('$') || pattern.contains(':');
    if pins_start && pins_end { Ok(compiled) } else { Err(Error::NotPinned(pattern.to_owned())) }
}

fn is_directive(directive: &str) -> bool {
    let is_age = |text: &str| text.strip_prefix("max-age=").is_some_and(|age| age.parse::<u64>().is_ok());
    matches!(directive, "includeSubDomains" | "preload") || is_age(directive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(origins: &[&str]) -> Edge {
        let origins = origins.iter().map(|origin| origin.to_string()).collect();
        Edge::new(&Settings { cors_allowed_origins: origins, ..Settings::default() }).expect("good")
    }

    fn asked(edge: &Edge, method: Method, origin: &str) -> (u16, Option<String>) {
        let request = Request::builder().method(method).header(ORIGIN, origin).body(()).unwrap();
        let allowed = edge.allowed_origin(request.headers());
        let mut reply = Edge::preflight(&request, allowed.as_ref()).unwrap_or_else(|| respond::text(200, "ok"));
        edge.add_headers(&mut reply, allowed);
        let told = reply.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN).map(|value| value.to_str().unwrap().to_owned());
        (reply.status().as_u16(), told)
    }

    #[test]
    fn pages_of_named_sites_may_ask() {
        let edge = edge(&["//console\\.example(:|$)"]);
        let site = "https://console.example";
        assert_eq!(asked(&edge, Method::OPTIONS, site), (204, Some(site.into())));
        assert_eq!(
            asked(&edge, Method::GET, "https://console.example:8443").1.as_deref(),
            Some("https://console.example:8443")
        );
        assert_eq!(asked(&edge, Method::GET, "https://console.example.evil"), (200, None));
        assert_eq!(asked(&edge, Method::OPTIONS, "https://evil"), (200, None), "the verb refuses it");
        assert_eq!(asked(&Edge::default(), Method::GET, site), (200, None));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let wrong = |settings: Settings| Edge::new(&settings).err().expect("refused").to_string();
        let cors =
            |pattern: &str| wrong(Settings { cors_allowed_origins: vec![pattern.into()], ..Settings::default() });
        assert!(cors("example").contains("does not pin to start/end of host"));
        assert!(cors("^(").contains("is not a regular expression"));
        let hsts = |text: &str| wrong(Settings { strict_transport_security: vec![text.into()], ..Settings::default() });
        assert!(hsts("max-age=soon").contains("allowed values"));
        assert!(wrong(Settings { goaway_chance: 0.5, ..Settings::default() }).contains("greater than 0.02"));
    }

    #[test]
    fn transport_security_is_said_in_every_answer() {
        let directives = vec!["max-age=31536000".into(), "includeSubDomains".into()];
        let edge = Edge::new(&Settings { strict_transport_security: directives, ..Settings::default() }).expect("good");
        let mut reply = respond::text(200, "ok");
        edge.add_headers(&mut reply, None);
        assert_eq!(reply.headers()[STRICT_TRANSPORT_SECURITY], "max-age=31536000; includeSubDomains");
    }

    #[test]
    fn connections_end_by_chance_over_http2_only() {
        let edge = Edge::new(&Settings { goaway_chance: 0.01, ..Settings::default() }).expect("good");
        assert!(edge.goes_away(Version::HTTP_2, || 0.009));
        assert!(!edge.goes_away(Version::HTTP_2, || 0.01));
        assert!(!edge.goes_away(Version::HTTP_11, || 0.0));
        assert!(!Edge::default().goes_away(Version::HTTP_2, || 0.0));
    }
}

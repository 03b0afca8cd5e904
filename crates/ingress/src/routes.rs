//! The routing table. Pure: objects of the API go in (`build`), a table comes out, and a table answers for a host and
//! a path. The rules are those of the Ingress documentation: exact hosts before wildcards before none, exact paths before
//! the longest prefix, and of two that say the same the older Ingress.

mod build;
mod endpoints;
mod path;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use reconcile::Key;

pub use build::{Objects, build, is_ours};
pub use endpoints::endpoints;
pub use path::normalize;
pub use settings::{Affinity, Settings};

/// How a backend is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Http,
    /// HTTP/2 without TLS, which gRPC wants.
    H2c,
    Https,
    /// HTTP/2 with TLS.
    H2,
}

impl Protocol {
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Protocol::Https | Protocol::H2)
    }

    pub(crate) fn is_http2(self) -> bool {
        matches!(self, Protocol::H2c | Protocol::H2)
    }
}

/// The port of a Service, and how its endpoints are spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Backend {
    pub service: Key,
    /// The name that the port has in the Service and its EndpointSlices; empty for the only port of a Service.
    pub port: String,
    pub protocol: Protocol,
}

/// Where a request goes, and what is done to it on the way.
#[derive(Debug)]
pub struct Route {
    /// Counts the routes of a table.
    pub number: usize,
    pub ingress: Key,
    /// The Service's name as the Ingress has it, for logs and metrics.
    pub service: String,
    /// The place of the backend among the table's; none where the Ingress names one that is not there.
    pub backend: Option<usize>,
    pub settings: Arc<Settings>,
    /// Finds the parts of a path that a rewrite refers to.
    pub pattern: Option<regex::Regex>,
}

/// What a table has for one host.
#[derive(Debug, Default)]
pub struct Host {
    /// Whether requests without TLS are sent to where there is TLS.
    pub tls: bool,
    exact: HashMap<String, Arc<Route>>,
    /// The longest first.
    others: Vec<(Matcher, Arc<Route>)>,
    /// For paths that no rule has.
    default: Option<Arc<Route>>,
}

#[derive(Debug)]
enum Matcher {
    /// Whole elements of a path; without a slash at its end, so `/` is empty.
    Prefix(String),
    Pattern(regex::Regex),
}

/// Something about an Ingress that its author should know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Problem {
    pub ingress: Key,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, Default)]
pub struct Table {
    hosts: HashMap<String, Host>,
    /// By what follows `*.`
    wildcards: HashMap<String, Host>,
    /// For hosts that no rule has.
    any: Host,
    pub backends: Vec<Backend>,
    /// Ingress and Service of every route, by its number.
    pub routes: Vec<(Key, String)>,
    /// The Secret of each host with TLS, as the Ingress writes the host.
    pub certificates: BTreeMap<String, Key>,
    pub problems: Vec<Problem>,
    /// Every Ingress that is ours.
    pub ingresses: BTreeSet<Key>,
    /// Everything whose change may change this table.
    pub services: BTreeSet<Key>,
    pub secrets: BTreeSet<Key>,
}

/// What a table has for a request.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub route: &'a Arc<Route>,
    /// Whether the host has TLS.
    pub tls: bool,
}

impl Table {
    /// The route of a request. The host is in lower case and has no port; the path is normalized.
    pub fn find(&self, host: &str, path: &str) -> Option<Found<'_>> {
        let host = self.host(host);
        let route = host.find(path).or(self.any.default.as_ref())?;
        Some(Found { route, tls: host.tls })
    }

    fn host(&self, name: &str) -> &Host {
        if let Some(host) = self.hosts.get(name) {
            return host;
        }
        // A wildcard stands for one label.
        let rest = name.split_once('.').filter(|(label, _)| !label.is_empty()).map(|(_, rest)| rest);
        rest.and_then(|rest| self.wildcards.get(rest)).unwrap_or(&self.any)
    }
}

impl Host {
    fn find(&self, path: &str) -> Option<&Arc<Route>> {
        if let Some(route) = self.exact.get(path) {
            return Some(route);
        }
        let other = self.others.iter().find(|(matcher, _)| matcher.matches(path)).map(|(_, route)| route);
        other.or(self.default.as_ref())
    }
}

impl Matcher {
    fn matches(&self, path: &str) -> bool {
        match self {
            Matcher::Prefix(prefix) => {
                path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Matcher::Pattern(pattern) => pattern.is_match(path),
        }
    }
}

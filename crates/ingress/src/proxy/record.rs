//! What is kept of a request until its answer has been sent: enough to count it and to write its line.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderName, Method, Request, header};

use super::headers::REQUEST_ID;
use crate::access_log::AccessLog;
use crate::metrics::Counters;
use crate::routes::Route;

/// The longest part of a line that a client chooses.
const PART_BYTES_MAX: usize = 1024;

/// Counted and written when it is dropped, which is when the answer has been sent or nobody waits for it any more.
pub struct Record {
    counters: Arc<Counters>,
    method: Method,
    began: Instant,
    pub status: u16,
    pub bytes: u64,
    line: Option<Box<Line>>,
}

struct Line {
    log: AccessLog,
    client: IpAddr,
    request: String,
    host: String,
    referer: String,
    agent: String,
    id: String,
    route: String,
    endpoint: Option<SocketAddr>,
}

impl Record {
    pub fn new(counters: Arc<Counters>, method: Method) -> Record {
        // Until an answer has begun there is none: nginx's code for clients that went away.
        Record { counters, method, began: Instant::now(), status: 499, bytes: 0, line: None }
    }

    /// Whether only the head of the answer is asked for.
    pub(crate) fn is_of_head(&self) -> bool {
        self.method == Method::HEAD
    }

    pub(crate) fn write_to<B>(&mut self, log: &AccessLog, client: IpAddr, request: &Request<B>, route: Option<&Route>) {
        let part = |name: HeaderName| {
            let text = request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            quoted(&text.unwrap_or_else(|| "-".into()))
        };
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        self.line = Some(Box::new(Line {
            log: log.clone(),
            client,
            request: quoted(&format!("{} {target} {:?}", request.method(), request.version())),
            host: super::headers::host(request).unwrap_or("-").to_owned(),
            referer: part(header::REFERER),
            agent: part(header::USER_AGENT),
            id: part(REQUEST_ID),
            route: route.map_or("-".into(), |route| format!("{}-{}", route.ingress.namespace, route.service)),
            endpoint: None,
        }));
    }

    pub fn endpoint(&mut self, address: SocketAddr) {
        if let Some(line) = &mut self.line {
            line.endpoint = Some(address);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.counters.add(&self.method, self.status, took, self.bytes);
        let Some(line) = self.line.take() else { return };
        let now = line.log.time();
        let endpoint = line.endpoint.map_or("-".into(), |address| address.to_string());
        let Line { log, client, request, host, referer, agent, id, route, .. } = *line;
        log.line(format!(
            "{client} - - [{now}] \"{request}\" {} {} \"{referer}\" \"{agent}\" {:.3} [{route}] {endpoint} {host} {id}\n",
            self.status,
            self.bytes,
            took.as_secs_f64(),
        ));
    }
}

/// Nothing in a line may end it or its quotes.
fn quoted(text: &str) -> String {
    let short: String = text.chars().take(PART_BYTES_MAX).collect();
    if short.contains(|character: char| character.is_control() || character == '"' || character == '\\') {
        short.escape_debug().to_string()
    } else {
        short
    }
}

//! What `-v=6` and above tell of each request, in the lines of upstream's client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};

use crate::dial::{Clock, Steps};

use crate::terminal;

/// From which level on something is told.
const REFUSALS: i64 = 4;
const TIMING: i64 = 6;
const HEADERS: i64 = 7;
const BODIES: i64 = 8;
const CURL: i64 = 9;
const WHOLE_BODIES: i64 = 10;

/// One request and its answer.
pub(crate) struct Trace<'a> {
    level: i64,
    method: &'a Method,
    url: String,
    started: Instant,
    /// The clock of connections, with what it showed when the request began.
    clock: Option<(Clock, Steps)>,
}

/// A value of a line.
enum Shown<'a> {
    Text(&'a str),
    Number(u128),
}

impl<'a> Trace<'a> {
    /// Whether connections are timed at that level.
    pub(crate) fn times(level: i64) -> bool {
        level >= CURL
    }

    /// Tells of the request where that is wanted.
    pub(crate) fn request(
        level: i64,
        method: &'a Method,
        url: String,
        headers: &HeaderMap,
        body: Option<&[u8]>,
        clock: Option<Clock>,
    ) -> Trace<'a> {
        let clock = clock.map(|clock| (clock.clone(), clock.steps()));
        let trace = Trace { level, method, url, started: Instant::now(), clock };
        trace.body("Request Body", body.unwrap_or_default());
        let (verb, shown) = (method.as_str(), trace.url.as_str());
        if level >= CURL {
            let command = curl(method, shown, headers);
            line("round_trippers.go:527", "Request", &[("curlCommand", Shown::Text(&command))]);
        } else if level >= HEADERS {
            let headers = listed(headers);
            line(
                "round_trippers.go:527",
                "Request",
                &[("verb", Shown::Text(verb)), ("url", Shown::Text(shown)), ("headers", Shown::Text(&headers))],
            );
        }
        trace
    }

    pub(crate) fn response(&self, status: StatusCode, headers: &HeaderMap) {
        if self.level < TIMING {
            return;
        }
        let status = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
        let headers = listed(headers);
        let mut values = Vec::new();
        if self.level == TIMING || self.level >= CURL {
            values.extend([("verb", Shown::Text(self.method.as_str())), ("url", Shown::Text(&self.url))]);
        }
        values.push(("status", Shown::Text(status.trim_end())));
        if self.level >= BODIES {
            values.push(("headers", Shown::Text(&headers)));
        }
        let took = self.started.elapsed();
        values.push(("milliseconds", Shown::Number(took.as_millis())));
        if let Some((clock, before)) = &self.clock {
            values.extend(detailed(*before, clock.steps(), took));
        }
        line("round_trippers.go:632", "Response", &values);
    }

    pub(crate) fn answer(&self, body: &[u8]) {
        self.body("Response Body", body);
    }

    fn body(&self, title: &str, body: &[u8]) {
        if self.level < BODIES {
            return;
        }
        let text = String::from_utf8_lossy(body);
        let most = match self.level {
            WHOLE_BODIES.. => usize::MAX,
            CURL => 10240,
            _ => 1024,
        };
        line("helper.go:105", title, &[("body", Shown::Text(&cut(&text, most)))]);
    }
}

/// What a request took in detail. One that found a connection open only waited for it, which takes no time here.
fn detailed(before: Steps, after: Steps, took: Duration) -> Vec<(&'static str, Shown<'static>)> {
    let milliseconds = |time: Duration| Shown::Number(time.as_millis());
    let mut values = Vec::new();
    let mut connecting = Duration::ZERO;
    if after.connections > before.connections {
        connecting = after.lookup + after.dial + after.handshake;
        values.push(("dnsLookupMilliseconds", milliseconds(after.lookup)));
        values.push(("dialMilliseconds", milliseconds(after.dial)));
        values.push(("tlsHandshakeMilliseconds", milliseconds(after.handshake)));
    } else {
        values.push(("getConnectionMilliseconds", milliseconds(Duration::ZERO)));
    }
    values.push(("serverProcessingMilliseconds", milliseconds(took.saturating_sub(connecting))));
    values
}

/// The addresses of a name, as Go prints them.
pub(crate) fn looked_up(host: &str, found: &[SocketAddr]) {
    let addresses: Vec<String> =
        found.iter().map(|address| format!("{{\"IP\":\"{}\",\"Zone\":\"\"}}", address.ip())).collect();
    let text = structured("HTTP Trace: DNS Lookup resolved", &[("host", Shown::Text(host))]);
    terminal::log('I', "round_trippers.go:547", &format!("{text} address=[{}]", addresses.join(",")));
}

pub(crate) fn dialed(address: &SocketAddr, failed: Option<&std::io::Error>) {
    let address = address.to_string();
    let mut values = vec![("network", Shown::Text("tcp")), ("address", Shown::Text(&address))];
    match failed {
        None => line("round_trippers.go:562", "HTTP Trace: Dial succeed", &values),
        Some(error) => {
            let why = format!("dial tcp {address}: connect: {}", crate::failure::go_io_error(error));
            values.push(("err", Shown::Text(&why)));
            line("round_trippers.go:560", "HTTP Trace: Dial failed", &values);
        }
    }
}

/// That a kubeconfig was read is told, too.
pub(crate) fn config_loaded(level: i64, file: &std::path::Path) {
    if level >= TIMING {
        terminal::log('I', "loader.go:407", &format!("Config loaded from file:  {}", file.display()));
    }
}

/// What the server said when it refused.
pub(crate) fn refused(level: i64, failure: &crate::failure::Failure) {
    if let (true, crate::failure::Failure::Status { status, .. }) = (level >= REFUSALS, failure) {
        let text = crate::output::order::indented(status, b"  ");
        terminal::log('I', "helpers.go:246", &format!("server response object: %s[{text}]"));
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_string();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} [truncated {} chars]", &text[..end], text.len() - most)
}

/// `Name: value`, a line for each, sorted by names.
fn listed(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> = headers.iter().map(|(name, value)| header(name.as_str(), value)).collect();
    lines.sort();
    lines.concat()
}

fn header(name: &str, value: &http::HeaderValue) -> String {
    format!("{}: {}\n", canonical(name), masked(name, &String::from_utf8_lossy(value.as_bytes())))
}

/// `user-agent` as Go writes it: `User-Agent`.
fn canonical(name: &str) -> String {
    let mut first = true;
    name.chars()
        .map(|letter| {
            let shown = if first { letter.to_ascii_uppercase() } else { letter };
            first = letter == '-';
            shown
        })
        .collect()
}

/// Credentials are not shown.
fn masked(name: &str, value: &str) -> String {
    if !name.eq_ignore_ascii_case("authorization") || value.is_empty() {
        return value.to_string();
    }
    let (kind, rest) = value.split_once(' ').unwrap_or((value, ""));
    let known = ["bearer", "basic", "negotiate"].contains(&kind.to_lowercase().as_str());
    if !known {
        "<masked>".into()
    } else if rest.is_empty() {
        kind.to_string()
    } else {
        format!("{kind} <masked>")
    }
}

/// The request as a command line, without its body.
fn curl(method: &Method, url: &str, headers: &HeaderMap) -> String {
    let headers: String = listed(headers).lines().map(|header| format!(" -H {header:?}")).collect();
    format!("curl -v -X{method} {headers} '{url}'\n")
}

fn line(place: &str, title: &str, values: &[(&str, Shown)]) {
    terminal::log('I', place, &structured(title, values));
}

fn structured(title: &str, values: &[(&str, Shown)]) -> String {
    let mut text = format!("{title:?}");
    for (key, value) in values {
        text += &match value {
            Shown::Number(number) => format!(" {key}={number}"),
            Shown::Text(value) if value.contains('\n') => {
                let inner: String =
                    value.trim_end_matches('\n').split('\n').map(|line| format!("\t{line}\n")).collect();
                format!(" {key}=<\n{inner} >")
            }
            Shown::Text(value) => format!(" {key}={value:?}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_upstreams_log() {
        let values = [("verb", Shown::Text("GET")), ("n", Shown::Number(3)), ("headers", Shown::Text("A: b\nC: d\n"))];
        assert_eq!(structured("Request", &values), "\"Request\" verb=\"GET\" n=3 headers=<\n\tA: b\n\tC: d\n >");
    }

    #[test]
    fn a_new_connection_is_told_step_by_step() {
        let took = |after: Steps| structured("Response", &detailed(Steps::default(), after, Duration::from_millis(20)));
        let open = "\"Response\" getConnectionMilliseconds=0 serverProcessingMilliseconds=20";
        assert_eq!(took(Steps::default()), open);
        let milliseconds = Duration::from_millis;
        let new = Steps { lookup: milliseconds(1), dial: milliseconds(2), handshake: milliseconds(3), connections: 1 };
        let steps = "dnsLookupMilliseconds=1 dialMilliseconds=2 tlsHandshakeMilliseconds=3";
        assert_eq!(took(new), format!("\"Response\" {steps} serverProcessingMilliseconds=14"));
        assert!(Trace::times(9) && Trace::times(10) && !Trace::times(8));
    }

    #[test]
    fn requests_become_command_lines() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", http::HeaderValue::from_static("application/json"));
        headers.insert("authorization", http::HeaderValue::from_static("Bearer secret"));
        let expected =
            "curl -v -XGET  -H \"Accept: application/json\" -H \"Authorization: Bearer <masked>\" 'https://a/b'\n";
        assert_eq!(curl(&Method::GET, "https://a/b", &headers), expected);
        assert_eq!(canonical("x-remote-user"), "X-Remote-User");
    }

    #[test]
    fn credentials_are_masked() {
        assert_eq!(masked("authorization", "Bearer abc"), "Bearer <masked>");
        assert_eq!(masked("Authorization", "abc"), "<masked>");
        assert_eq!(masked("accept", "abc"), "abc");
    }

    #[test]
    fn long_bodies_are_cut() {
        assert_eq!(cut("abcdef", 4), "abcd [truncated 2 chars]");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}

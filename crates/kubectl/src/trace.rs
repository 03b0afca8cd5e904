//! What `-v=6` and above tell of each request, in the lines of upstream's client.

use std::time::Instant;

use http::{HeaderMap, Method, StatusCode};

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
}

/// A value of a line.
enum Shown<'a> {
    Text(&'a str),
    Number(u128),
}

impl<'a> Trace<'a> {
    /// Tells of the request where that is wanted.
    pub(crate) fn request(
        level: i64,
        method: &'a Method,
        url: String,
        headers: &HeaderMap,
        body: Option<&[u8]>,
    ) -> Trace<'a> {
        let trace = Trace { level, method, url, started: Instant::now() };
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
        values.push(("milliseconds", Shown::Number(self.started.elapsed().as_millis())));
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
    match ["bearer", "basic", "negotiate"].contains(&kind.to_lowercase().as_str()) {
        false => "<masked>".into(),
        true if rest.is_empty() => kind.to_string(),
        true => format!("{kind} <masked>"),
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

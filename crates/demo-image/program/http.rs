//! As much HTTP/1.1 as the server and `get` need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::error::Result;
use crate::options::Options;
use crate::{Outcome, dns};

const LINE_BYTES_MAX: u64 = 64 << 10;
const HEADERS_MAX: usize = 200;
const BODY_BYTES_MAX: u64 = 1 << 20;

pub struct Request {
    pub line: String,
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub keep_alive: bool,
}

impl Request {
    /// Nothing when the other side has closed, or sent what is no HTTP.
    pub fn read(from: &mut BufReader<TcpStream>) -> Option<Request> {
        let line = read_line(from)?;
        let mut words = line.split_whitespace();
        let (method, target, version) = (words.next()?.to_owned(), words.next()?.to_owned(), words.next()?.to_owned());
        let headers = read_headers(from)?;
        let length = header(&headers, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = Vec::new();
        from.by_ref().take(u64::min(length, BODY_BYTES_MAX)).read_to_end(&mut body).ok()?;
        let connection = header(&headers, "connection").unwrap_or_default().to_ascii_lowercase();
        let keep_alive = length <= BODY_BYTES_MAX && version == "HTTP/1.1" && connection != "close";
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.to_owned())
        });
        Some(Request { method, path: path.to_owned(), query: query.collect(), line, headers, body, keep_alive })
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

pub fn respond(to: &mut TcpStream, status: u16, body: &[u8], keep_alive: bool) -> std::io::Result<()> {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    to.write_all(&answer)
}

/// `get URL`: prints the body. The exit code says whether the answer was a success.
pub fn get(arguments: &[String]) -> Outcome {
    let mut options = Options::new(arguments);
    let timeout = Duration::from_secs_f64(options.value("--timeout")?.unwrap_or(10.0));
    let url = options.positional(1, 1)?.remove(0);
    let rest = url.strip_prefix("http://").unwrap_or(&url);
    if rest.starts_with("https://") {
        return Err("only http:// is understood".into());
    }
    let (authority, path) = rest.find(['/', '?']).map_or((rest, "/".to_owned()), |at| match &rest[at..] {
        path if path.starts_with('?') => (&rest[..at], format!("/{path}")),
        path => (&rest[..at], path.to_owned()),
    });
    let (host, port) = split_port(authority, 80)?;
    let stream = dns::connect(&host, port, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    write!(&stream, "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: knarr-demo\r\nConnection: close\r\n\r\n")
        .map_err(|error| format!("send: {error}"))?;
    let mut from = BufReader::new(stream);
    let line = read_line(&mut from).ok_or("the server closed without an answer")?;
    let status: u16 = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).ok_or("that is no HTTP")?;
    let headers = read_headers(&mut from).ok_or("the server closed within the headers")?;
    let body = read_body(&mut from, &headers).map_err(|error| format!("read: {error}"))?;
    std::io::stdout().write_all(&body)?;
    if status >= 400 {
        return Err(format!("the server answered {}", line.split_once(' ').map_or("", |pair| pair.1)).into());
    }
    Ok(0)
}

/// `host:port`, `[v6]:port` or a host alone.
pub fn split_port(authority: &str, default: u16) -> Result<(String, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && (!host.contains(':') || host.starts_with('[')) => {
            (host, port.parse().map_err(|_| format!("{port:?} is no port"))?)
        }
        _ => (authority, default),
    };
    Ok((host.trim_matches(['[', ']']).to_owned(), port))
}

fn read_body(from: &mut BufReader<TcpStream>, headers: &[(String, String)]) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if header(headers, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        while let Some(line) = read_line(from) {
            let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
            if size == 0 {
                break;
            }
            from.by_ref().take(size).read_to_end(&mut body)?;
            read_line(from);
        }
        return Ok(body);
    }
    match header(headers, "content-length").and_then(|text| text.parse().ok()) {
        Some(length) => from.by_ref().take(length).read_to_end(&mut body)?,
        None => from.read_to_end(&mut body)?,
    };
    Ok(body)
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn read_headers(from: &mut BufReader<TcpStream>) -> Option<Vec<(String, String)>> {
    let mut headers = Vec::new();
    while headers.len() < HEADERS_MAX {
        let line = read_line(from)?;
        if line.is_empty() {
            return Some(headers);
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    None
}

fn read_line(from: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
}

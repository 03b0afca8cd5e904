//! A resolver of its own: a static program of the C library cannot load the system's.
//!
//! Follows resolv.conf (nameserver, search, ndots) as pods expect it; `connect` and `get` look into /etc/hosts first.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::error::{Error, Result};
use crate::http::split_port;
use crate::options::Options;

const A: u16 = 1;
const CNAME: u16 = 5;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const ATTEMPTS: usize = 2;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const POINTERS_MAX: usize = 32;

/// `lookup NAME [SERVER]`: one line per record.
pub fn lookup(arguments: &[String]) -> Outcome {
    let mut options = Options::new(arguments);
    let wanted: Option<String> = options.value("--type")?;
    let words = options.positional(1, 2)?;
    let mut settings = Settings::read();
    if let Some(server) = words.get(1) {
        settings.servers = vec![server_address(server)?];
    }
    let (name, kinds) = match (words[0].parse::<IpAddr>(), wanted.as_deref()) {
        (Ok(address), None | Some("PTR")) => (reverse(address), vec![PTR]),
        (_, None) => (words[0].clone(), vec![A, AAAA]),
        (_, Some(kind)) => (words[0].clone(), vec![kind_number(kind)?]),
    };
    let mut found = Vec::new();
    let mut problem = None;
    for kind in kinds {
        match settings.find(&name, kind) {
            Ok(records) => found.extend(records),
            Err(error) => problem = Some(error),
        }
    }
    found.dedup();
    found.iter().for_each(|record| println!("{record}"));
    match problem {
        Some(problem) if found.is_empty() => Err(problem),
        _ => Ok(0),
    }
}

/// The addresses of a host, at least one.
pub fn resolve(host: &str) -> Result<Vec<IpAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let mut found: Vec<IpAddr> = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().split_whitespace())
        .filter_map(|mut words| Some((words.next()?, words)))
        .filter(|(_, names)| names.clone().any(|name| name.eq_ignore_ascii_case(host)))
        .filter_map(|(address, _)| address.parse().ok())
        .collect();
    if found.is_empty() {
        let settings = Settings::read();
        let mut problem = None;
        // As a resolver of the system does, the search ends with the first address: looking for one of the other kind
        // would go through all domains, and at last ask servers outside the cluster.
        for kind in [A, AAAA] {
            if !found.is_empty() {
                break;
            }
            match settings.find(host, kind) {
                Ok(records) => found.extend(records.iter().filter_map(|record| record.value.parse::<IpAddr>().ok())),
                Err(error) => problem = Some(error),
            }
        }
        if found.is_empty() {
            return Err(problem.unwrap_or_else(|| format!("{host}: no address").into()));
        }
    }
    Ok(found)
}

/// A connection to the first address that accepts one.
pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream> {
    let mut problem = String::new();
    for address in resolve(host)? {
        match TcpStream::connect_timeout(&SocketAddr::new(address, port), timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = format!("connect to {address} port {port}: {error}"),
        }
    }
    Err(problem.into())
}

#[derive(PartialEq)]
struct Record {
    name: String,
    kind: u16,
    value: String,
}

impl std::fmt::Display for Record {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        let kind = match self.kind {
            A => "A",
            AAAA => "AAAA",
            CNAME => "CNAME",
            PTR => "PTR",
            _ => "SRV",
        };
        write!(to, "{} {kind} {}", self.name, self.value)
    }
}

struct Settings {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    ndots: usize,
}

impl Settings {
    fn read() -> Settings {
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let mut settings = Settings { servers: Vec::new(), search: Vec::new(), ndots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    settings.servers.extend(
                        words.next().and_then(|word| word.parse().ok()).map(|ip: IpAddr| SocketAddr::new(ip, 53)),
                    );
                }
                Some("search" | "domain") => settings.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|word| {
                    if let Some(number) = word.strip_prefix("ndots:").and_then(|text| text.parse().ok()) {
                        settings.ndots = number;
                    }
                }),
                _ => {}
            }
        }
        if settings.servers.is_empty() {
            settings.servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
        }
        settings
    }

    /// The names to try, in order.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let mut names: Vec<String> =
            self.search.iter().map(|domain| format!("{name}.{}", domain.trim_end_matches('.'))).collect();
        let at = if name.matches('.').count() >= self.ndots { 0 } else { names.len() };
        names.insert(at, name.to_owned());
        names
    }

    fn find(&self, name: &str, kind: u16) -> Result<Vec<Record>> {
        let mut problem = Error::from(format!("{name}: no such name"));
        let mut exists = false;
        for candidate in self.candidates(name) {
            match self.ask(&candidate, kind) {
                Ok(Some(records)) if !records.is_empty() => return Ok(records),
                Ok(Some(_)) => exists = true,
                Ok(None) => {}
                Err(error) => problem = error,
            }
        }
        if exists { Ok(Vec::new()) } else { Err(problem) }
    }

    /// Nothing: there is no such name.
    fn ask(&self, name: &str, kind: u16) -> Result<Option<Vec<Record>>> {
        let mut problem = String::new();
        for _ in 0..ATTEMPTS {
            for server in &self.servers {
                let answer = exchange(*server, name, kind)
                    .and_then(|answer| decode(&answer).ok_or_else(|| "an answer that cannot be understood".into()));
                match answer {
                    Ok((0, records)) => return Ok(Some(records)),
                    Ok((3, _)) => return Ok(None),
                    Ok((code, _)) => problem = format!("{name}: {server} answered with code {code}"),
                    Err(error) => problem = format!("{name}: {server}: {error}"),
                }
            }
        }
        Err(problem.into())
    }
}

fn exchange(server: SocketAddr, name: &str, kind: u16) -> Result<Vec<u8>> {
    let number =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.subsec_nanos()) as u16;
    let query = encode(number, name, kind)?;
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(server)?;
    socket.send(&query)?;
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("no answer in time".into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        // A late answer to an earlier question is not ours.
        if length < 12 || buffer[..2] != number.to_be_bytes() {
            continue;
        }
        let truncated = buffer[2] & 2 != 0;
        return if truncated { Ok(exchange_tcp(server, &query)?) } else { Ok(buffer[..length].to_vec()) };
    }
}

fn exchange_tcp(server: SocketAddr, query: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, ATTEMPT_TIMEOUT)?;
    stream.set_read_timeout(Some(ATTEMPT_TIMEOUT))?;
    stream.write_all(&[&(query.len() as u16).to_be_bytes(), query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn encode(number: u16, name: &str, kind: u16) -> Result<Vec<u8>> {
    let mut query = number.to_be_bytes().to_vec();
    // Recursion desired, one question.
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err(format!("{name:?} is no name").into());
        }
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    Ok(query)
}

fn decode(answer: &[u8]) -> Option<(u8, Vec<Record>)> {
    let code = answer.get(3)? & 0xf;
    let mut at = 12;
    for _ in 0..number(answer, 4)? {
        at = name_at(answer, at)?.1 + 4;
    }
    let mut records = Vec::new();
    for _ in 0..number(answer, 6)? {
        let (name, next) = name_at(answer, at)?;
        let (kind, length) = (number(answer, next)?, usize::from(number(answer, next + 8)?));
        let data = next + 10;
        let bytes = answer.get(data..data + length)?;
        let value = match kind {
            A => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
            AAAA => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string(),
            CNAME | PTR => name_at(answer, data)?.0,
            SRV => format!(
                "{} {} {} {}",
                number(answer, data)?,
                number(answer, data + 2)?,
                number(answer, data + 4)?,
                name_at(answer, data + 6)?.0
            ),
            _ => String::new(),
        };
        if !value.is_empty() {
            records.push(Record { name, kind, value });
        }
        at = data + length;
    }
    Some((code, records))
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// A name, and where the bytes after it begin. Pointers may go back only so often, against loops.
fn name_at(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut after = None;
    for _ in 0..POINTERS_MAX * 8 {
        let length = usize::from(*bytes.get(at)?);
        if length == 0 {
            return Some((labels.join("."), after.unwrap_or(at + 1)));
        }
        if length & 0xc0 == 0xc0 {
            after = after.or(Some(at + 2));
            at = (length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
            continue;
        }
        labels.push(String::from_utf8_lossy(bytes.get(at + 1..at + 1 + length)?).into_owned());
        at += 1 + length;
    }
    None
}

fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(address) => {
            let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 0xf, byte >> 4]);
            digits.map(|digit| format!("{digit:x}.")).collect::<String>() + "ip6.arpa."
        }
    }
}

fn kind_number(text: &str) -> Result<u16> {
    let found = [("A", A), ("AAAA", AAAA), ("CNAME", CNAME), ("PTR", PTR), ("SRV", SRV)];
    let found = found.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, kind)| *kind).ok_or_else(|| format!("no record type {text:?}").into())
}

fn server_address(text: &str) -> Result<SocketAddr> {
    let (host, port) = split_port(text, 53)?;
    Ok(SocketAddr::new(resolve(&host)?[0], port))
}

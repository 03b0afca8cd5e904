//! Addresses, networks and URLs.

use std::net::IpAddr;

use super::EvalError;
use super::value::Val;

type Outcome<'a> = Result<Val<'a>, EvalError>;

pub fn global<'a>(name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Text(text)] = values else { return None };
    let failed = |why: String| Err(EvalError::Failed(why));
    Some(match name {
        "ip" => match address(text) {
            Some(address) => Ok(Val::Ip(address)),
            None => {
                failed(format!("IP Address {text:?} parse error during conversion from string: unable to parse IP"))
            }
        },
        "isIP" => Ok(Val::Bool(address(text).is_some())),
        "ip.isCanonical" => match address(text) {
            Some(address) => Ok(Val::Bool(address.to_string() == **text)),
            None => {
                failed(format!("IP Address {text:?} parse error during conversion from string: unable to parse IP"))
            }
        },
        "cidr" => match network(text) {
            Some((address, bits)) => Ok(Val::Cidr(address, bits)),
            None => failed(format!("network address parse error during conversion from string: {text:?}")),
        },
        "isCIDR" => Ok(Val::Bool(network(text).is_some())),
        "url" => {
            if is_url(text) {
                Ok(Val::Url(text.as_ref().into()))
            } else {
                failed(format!(
                    "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
                ))
            }
        }
        "isURL" => Ok(Val::Bool(is_url(text))),
        _ => return None,
    })
}

pub fn member<'a>(target: &Val<'a>, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(Ok(match target {
        Val::Ip(address) => of_address(*address, name, values)?,
        Val::Cidr(own, bits) => match (name, values) {
            ("containsIP", [other]) => Val::Bool(contains(*own, *bits, as_address(other)?)),
            ("containsCIDR", [other]) => {
                let (address, other_bits) = match other {
                    Val::Cidr(address, bits) => (*address, *bits),
                    Val::Text(text) => network(text)?,
                    _ => return None,
                };
                Val::Bool(other_bits >= *bits && contains(*own, *bits, address))
            }
            ("ip", []) => Val::Ip(*own),
            ("masked", []) => Val::Cidr(masked(*own, *bits), *bits),
            ("prefixLength", []) => Val::Int((*bits).into()),
            _ => return None,
        },
        Val::Url(text) => of_url(text, name, values)?,
        _ => return None,
    }))
}

/// Without zones, and without addresses of the one family written in the other, as Kubernetes takes them.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => None,
        address => Some(address),
    }
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (own, bits) = text.split_once('/')?;
    let own = address(own)?;
    let plain =
        !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let bits: u8 = bits.parse().ok().filter(|bits| plain && *bits <= width(own))?;
    Some((own, bits))
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn as_address(value: &Val) -> Option<IpAddr> {
    match value {
        Val::Ip(address) => Some(*address),
        Val::Text(text) => address(text),
        _ => None,
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(four) & mask).into())
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(six) & mask).into())
        }
    }
}

fn contains(own: IpAddr, bits: u8, other: IpAddr) -> bool {
    own.is_ipv4() == other.is_ipv4() && masked(own, bits) == masked(other, bits)
}

fn of_address<'a>(address: IpAddr, name: &str, values: &[Val<'a>]) -> Option<Val<'a>> {
    if !values.is_empty() {
        return None;
    }
    let link_local_multicast = match address {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
    };
    let link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.segments()[0] & 0xffc0 == 0xfe80,
    };
    Some(match name {
        "family" => Val::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Val::Bool(address.is_unspecified()),
        "isLoopback" => Val::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Val::Bool(link_local_multicast),
        "isLinkLocalUnicast" => Val::Bool(link_local),
        "isGlobalUnicast" => {
            let broadcast = matches!(address, IpAddr::V4(four) if four.is_broadcast());
            Val::Bool(
                !(address.is_unspecified()
                    || address.is_loopback()
                    || address.is_multicast()
                    || link_local
                    || broadcast),
            )
        }
        _ => return None,
    })
}

fn is_url(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, _)) = text.split_once("://") else { return false };
    let letters = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let port = parts(text).port;
    scheme.starts_with(|sign: char| sign.is_ascii_alphabetic())
        && letters
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

struct Parts<'u> {
    scheme: &'u str,
    /// With its port.
    host: &'u str,
    name: &'u str,
    port: &'u str,
    path: &'u str,
    query: &'u str,
}

fn parts(url: &str) -> Parts<'_> {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if !url.starts_with('/') => (scheme, rest),
        _ => ("", url),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match scheme {
        "" => ("", rest),
        _ => rest.split_at(rest.find('/').unwrap_or(rest.len())),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((name, behind)) => (name, behind.strip_prefix(':').unwrap_or("")),
        None => host.rsplit_once(':').unwrap_or((host, "")),
    };
    Parts { scheme, host, name, port, path, query }
}

fn of_url<'a>(url: &str, name: &str, values: &[Val<'a>]) -> Option<Val<'a>> {
    if !values.is_empty() {
        return None;
    }
    let parts = parts(url);
    let own = |text: &str| Some(Val::text(text.to_string()));
    match name {
        "getScheme" => own(parts.scheme),
        "getHost" => own(parts.host),
        "getHostname" => own(parts.name),
        "getPort" => own(parts.port),
        "getEscapedPath" => own(parts.path),
        "getQuery" => Some(Val::Map(query(parts.query).into())),
        _ => None,
    }
}

/// Each key with the list of its values, decoded.
fn query<'a>(text: &str) -> Vec<(Val<'a>, Val<'a>)> {
    let mut found: Vec<(String, Vec<Val<'a>>)> = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decoded(key), Val::text(decoded(value)));
        match found.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => found.push((key, vec![value])),
        }
    }
    found.into_iter().map(|(key, values)| (Val::text(key), Val::list(values))).collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = text.get(at + 1..at + 3).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match (bytes[at], pair) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

//! Addresses, networks and URLs.

use std::net::IpAddr;

use super::value::Val;
use super::{EvalError, url};

type Outcome<'a> = Result<Val<'a>, EvalError>;

pub fn global<'a>(name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Text(text)] = values else { return None };
    let failed = |why: String| Err(EvalError::Failed(why));
    Some(match name {
        "ip" => address(text).map(Val::Ip).map_err(EvalError::failed),
        "isIP" => Ok(Val::Bool(address(text).is_ok())),
        "ip.isCanonical" => address(text).map(|own| Val::Bool(own.to_string() == **text)).map_err(EvalError::failed),
        "cidr" => match network(text) {
            Ok((address, bits)) => Ok(Val::Cidr(address, bits)),
            Err(why) => failed(format!("network address parse error during conversion from string: {why}")),
        },
        "isCIDR" => Ok(Val::Bool(network(text).is_ok())),
        "url" => match url::parts(text) {
            Ok(_) => Ok(Val::Url(text.as_ref().into())),
            Err(why) => failed(format!("URL parse error during conversion from string: parse {text:?}: {why}")),
        },
        "isURL" => Ok(Val::Bool(url::parts(text).is_ok())),
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
                    Val::Text(text) => network(text).ok()?,
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

/// Why a text is no address, in the words of Go and of Kubernetes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

fn mapped(text: &str) -> Refused {
    Refused(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
}

/// Without zones, and without addresses of the one family written in the other, as Kubernetes takes them; or why it is none.
fn address(text: &str) -> Result<IpAddr, Refused> {
    let failed = |why: String| Refused(format!("IP Address {text:?} parse error during conversion from string: {why}"));
    let (plain, zone) = text.split_once('%').map_or((text, None), |(plain, zone)| (plain, Some(zone)));
    let address: IpAddr = plain.parse().map_err(|_| failed(not_an_address(text)))?;
    match (address, zone) {
        (IpAddr::V4(_), Some(_)) => Err(failed(not_an_address(text))),
        (_, Some("")) => Err(failed(format!("ParseAddr({text:?}): zone must be a non-empty string"))),
        (_, Some(_)) => Err(Refused(format!("IP address {text:?} with zone value is not allowed"))),
        (IpAddr::V6(six), _) if six.to_ipv4_mapped().is_some() => Err(mapped(text)),
        (address, None) => Ok(address),
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), Refused> {
    let context = "network address parse error during conversion from string";
    let failed = |why: String| Refused(format!("{context}: netip.ParsePrefix({text:?}): {why}"));
    let Some((own, bits)) = text.rsplit_once('/') else { return Err(failed("no '/'".into())) };
    if own.contains('%') {
        return Err(failed("IPv6 zones cannot be present in a prefix".into()));
    }
    let address: IpAddr = own.parse().map_err(|_| failed(not_an_address(own)))?;
    let plain = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || bits.len() > 1 && bits.starts_with('0') {
        return Err(failed(format!("bad bits after slash: {bits:?}")));
    }
    match (address, bits.parse::<u8>()) {
        (IpAddr::V6(six), Ok(bits)) if bits <= 128 && six.to_ipv4_mapped().is_some() => Err(mapped(text)),
        (address, Ok(bits)) if bits <= width(address) => Ok((address, bits)),
        _ => Err(failed("prefix length out of range".into())),
    }
}

/// Why Go takes a text for no address. Of the other family only that it is none is told.
fn not_an_address(text: &str) -> String {
    let first = text.find(['.', ':', '%']).map_or(' ', |at| char::from(text.as_bytes()[at]));
    let why = match first {
        '.' => not_four(text),
        '%' => "missing IPv6 address".into(),
        _ => "unable to parse IP".into(),
    };
    format!("ParseAddr({text:?}): {why}")
}

fn not_four(text: &str) -> String {
    let (mut fields, mut digits, mut value) = (0, 0, 0_u32);
    for (at, byte) in text.bytes().enumerate() {
        let rest = text.get(at..).unwrap_or_default();
        match byte {
            b'0'..=b'9' if digits == 1 && value == 0 => return "IPv4 field has octet with leading zero".into(),
            b'0'..=b'9' => {
                (digits, value) = (digits + 1, value * 10 + u32::from(byte - b'0'));
                if value > 255 {
                    return "IPv4 field has value >255".into();
                }
            }
            b'.' if digits == 0 || at + 1 == text.len() => {
                return format!("IPv4 field must have at least one digit (at {rest:?})");
            }
            b'.' if fields == 3 => return "IPv4 address too long".into(),
            b'.' => (fields, digits, value) = (fields + 1, 0, 0),
            _ => return format!("unexpected character (at {rest:?})"),
        }
    }
    "IPv4 address too short".into()
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn as_address(value: &Val) -> Option<IpAddr> {
    match value {
        Val::Ip(address) => Some(*address),
        Val::Text(text) => address(text).ok(),
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

fn of_url<'a>(url: &str, name: &str, values: &[Val<'a>]) -> Option<Val<'a>> {
    if !values.is_empty() {
        return None;
    }
    let parts = url::parts(url).ok()?;
    let own = |text: &str| Some(Val::text(text.to_string()));
    match name {
        "getScheme" => own(parts.scheme),
        "getHost" => own(parts.host),
        "getHostname" => own(parts.name),
        "getPort" => own(parts.port),
        "getEscapedPath" => own(&parts.path),
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

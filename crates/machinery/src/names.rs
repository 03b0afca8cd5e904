//! What a name may look like: the DNS rules of object names, labels and qualified names, and the smaller rules of ports,
//! keys, headers and addresses. Each rule answers with upstream's sentences; an empty answer means the text is good.

use std::net::{IpAddr, Ipv4Addr};

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const PORT_NAME_MAX: usize = 15;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The rule for most object names: RFC 1123 subdomain.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(name, SUBDOMAIN_MAX, &mut problems);
    if !is_dns_subdomain(name) {
        problems.push(format_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    problems
}

/// The rule for namespaces, containers and the like: RFC 1123 label.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(name, LABEL_MAX, &mut problems);
    if is_dns_label(name) {
        return problems;
    }
    if is_dns_subdomain(name) {
        problems.push("must not contain dots".into());
    } else {
        problems.push(format_error(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character",
            LABEL_FORMAT,
            &["my-name", "123-abc"],
        ));
    }
    problems
}

/// The rule for Services: RFC 1035 label, which may not start with a digit.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(name, LABEL_MAX, &mut problems);
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(format_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// `*.example.com`, as in the host of an Ingress.
pub fn wildcard_dns_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(name, SUBDOMAIN_MAX, &mut problems);
    if !name.strip_prefix("*.").is_some_and(is_dns_subdomain) {
        problems.push(format_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN_FORMAT}"),
            &["*.example.com"],
        ));
    }
    problems
}

/// The rule for RBAC objects and others whose name only has to fit into a URL.
pub fn path_segment_name(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let bad = ["/", "%"].into_iter().filter(|part| name.contains(part));
    bad.map(|part| format!("may not contain '{part}'")).collect()
}

/// Keys of labels, annotations, taints, and finalizers: `name` or `example.com/name`.
pub fn qualified_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let words = || format_error(QUALIFIED_WORDS, QUALIFIED_FORMAT, &["MyName", "my.name", "123-abc"]);
    let (prefix, part) = match name.split_once('/') {
        Some((_, rest)) if rest.contains('/') => {
            let optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {optional}", words())];
        }
        Some((prefix, part)) => (Some(prefix), part),
        None => (None, name),
    };
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            let told = dns_subdomain(prefix).into_iter();
            // Keys of labels count bytes where names of objects count characters; both mean bytes.
            let told =
                told.map(
                    |problem| if problem == too_long(SUBDOMAIN_MAX) { too_many_bytes(SUBDOMAIN_MAX) } else { problem },
                );
            problems.extend(told.map(|problem| format!("prefix part {problem}")));
        }
        None => {}
    }
    if part.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if part.len() > LABEL_MAX {
        problems.push(format!("name part {}", too_many_bytes(LABEL_MAX)));
    }
    if !is_qualified(part) {
        problems.push(format!("name part {}", words()));
    }
    problems
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_MAX {
        problems.push(too_many_bytes(LABEL_MAX));
    }
    if !value.is_empty() && !is_qualified(value) {
        problems.push(format_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// Keys of ConfigMaps and Secrets.
pub fn config_map_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(key, SUBDOMAIN_MAX, &mut problems);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        problems.push(format_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    dot_prefix(key, &mut problems);
    problems
}

/// The strict rule for environment variables, as of `envFrom` prefixes before they were relaxed.
pub fn env_var_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.bytes().all(good) {
        problems.push(format_error(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and \
             must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    dot_prefix(name, &mut problems);
    problems
}

/// The rule for environment variables of containers: anything printable but `=`.
pub fn relaxed_env_var_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    if name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        Vec::new()
    } else {
        vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".into()]
    }
}

/// Names of container and Service ports (IANA service names).
pub fn port_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    limit(name, PORT_NAME_MAX, &mut problems);
    let mut refuse = |bad: bool, words: &str| {
        if bad {
            problems.push(words.into());
        }
    };
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    refuse(
        name.is_empty() || !name.bytes().all(good),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    refuse(!name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    refuse(name.contains("--"), "must not contain consecutive hyphens");
    refuse(name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen");
    problems
}

pub fn port_number(port: i64) -> Vec<String> {
    inclusive(port, 1, 65535)
}

/// A number that must lie between two bounds.
pub fn inclusive(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

pub fn c_identifier(name: &str) -> Vec<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !name.is_empty() && name.bytes().all(good) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        Vec::new()
    } else {
        vec![format_error(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
             characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            &["my_name", "MY_NAME", "MyName"],
        )]
    }
}

pub fn http_header_name(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        Vec::new()
    } else {
        vec![format_error(
            "a valid HTTP header must consist of alphanumeric characters or '-'",
            "[-A-Za-z0-9]+",
            &["X-Header-Name"],
        )]
    }
}

pub fn percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or("");
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        Vec::new()
    } else {
        vec![format_error(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )]
    }
}

pub fn ip(value: &str) -> Vec<String> {
    let Some(address) = lenient_ip(value) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()];
    };
    match (value.parse::<IpAddr>(), address) {
        (Err(_), _) => vec!["must not have leading 0s".into()],
        (Ok(IpAddr::V6(address)), _) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".into()]
        }
        _ => Vec::new(),
    }
}

pub fn ipv4(value: &str) -> Vec<String> {
    match lenient_ip(value) {
        Some(IpAddr::V4(_)) => Vec::new(),
        _ => vec!["must be a valid IPv4 address".into()],
    }
}

pub fn ipv6(value: &str) -> Vec<String> {
    match lenient_ip(value) {
        Some(IpAddr::V6(_)) => Vec::new(),
        _ => vec!["must be a valid IPv6 address".into()],
    }
}

pub fn cidr(value: &str) -> Vec<String> {
    let Some((address, prefix)) = lenient_cidr(value) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".into()];
    };
    let (address_text, prefix_text) = value.split_once('/').unwrap_or((value, ""));
    let (bits, size) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let host_bits = 1_u128.checked_shl(size - prefix).map_or(u128::MAX, |bit| bit - 1);
    let is_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if address_text.parse::<IpAddr>().is_err() || (prefix_text.len() > 1 && prefix_text.starts_with('0')) {
        vec!["must not have leading 0s in IP or prefix length".into()]
    } else if is_mapped {
        vec!["must not have an IPv4-mapped IPv6 address".into()]
    } else if bits & host_bits != 0 {
        vec!["must not have bits set beyond the prefix length".into()]
    } else {
        Vec::new()
    }
}

/// An address, with leading zeros allowed in IPv4 as older objects may have them.
pub fn lenient_ip(value: &str) -> Option<IpAddr> {
    let strict = value.parse::<IpAddr>().ok();
    strict.or_else(|| {
        let mut bytes = [0; 4];
        let mut parts = value.split('.');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))?;
            *byte = part.parse::<u8>().ok()?;
        }
        parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(bytes)))
    })
}

/// An address and the length of its prefix.
pub fn lenient_cidr(value: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix) = value.split_once('/')?;
    let address = lenient_ip(address)?;
    let prefix = Some(prefix).filter(|prefix| prefix.bytes().all(|byte| byte.is_ascii_digit()))?;
    let prefix: u32 = prefix.parse().ok()?;
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
}

/// What a name prefix is checked as: its last dash will be followed by something.
pub fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if rest.len() > 1 => {
            let mut masked: String = rest.to_string();
            masked.pop();
            masked + "a"
        }
        Some(rest) if rest.len() == 1 => "a".into(),
        _ => prefix.into(),
    }
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn dot_prefix(text: &str, problems: &mut Vec<String>) {
    match text {
        "." | ".." => problems.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => problems.push("must not start with '..'".into()),
        _ => {}
    }
}

fn limit(text: &str, bytes_max: usize, problems: &mut Vec<String>) {
    if text.len() > bytes_max {
        problems.push(too_long(bytes_max));
    }
}

fn too_many_bytes(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} bytes")
}

fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

/// `words (e.g. 'a',  or 'b', regex used for validation is 'format')`, with upstream's two spaces.
fn format_error(words: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;

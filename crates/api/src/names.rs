//! The rules of names that kinds here need, beside those of `machinery::names`. An empty answer means the text is good.

pub(crate) use machinery::names::{dns_label, dns_subdomain};

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const PORT_NAME_MAX: usize = 15;

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Keys of labels and annotations, and the like: a name with an optional domain before it.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            match *prefix {
                "" => problems.push("prefix part must be non-empty".into()),
                _ => problems.extend(dns_subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}"))),
            }
            name
        }
        _ => {
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a qualified name {QUALIFIED} {prefix}")];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part must be no more than {LABEL_MAX} characters"));
    }
    if !is_name_part(name) {
        problems.push(format!("name part {QUALIFIED}"));
    }
    problems
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_MAX {
        problems.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !text.is_empty() && !is_name_part(text) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .into(),
        );
    }
    problems
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Names of Services: labels that begin with a letter.
pub(crate) fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_MAX {
        problems.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    let bytes = text.as_bytes();
    let is_good = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|byte| *byte != b'-')
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-');
    if !is_good {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .into(),
        );
    }
    problems
}

/// `*.example.com`.
pub(crate) fn wildcard_subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        problems.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !text.strip_prefix("*.").is_some_and(|rest| dns_subdomain(rest).is_empty()) {
        problems.push(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
             consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
             '*.example.com', regex used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .into(),
        );
    }
    problems
}

/// Names of ports, as IANA names services.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let checks = [
        (text.len() <= PORT_NAME_MAX, format!("must be no more than {PORT_NAME_MAX} characters")),
        (
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into(),
        ),
        (text.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)".into()),
        (!text.contains("--"), "must not contain consecutive hyphens".into()),
        (!text.starts_with('-') && !text.ends_with('-'), "must not begin or end with a hyphen".into()),
    ];
    checks.into_iter().filter(|(good, _)| !good).map(|(_, problem)| problem).collect()
}

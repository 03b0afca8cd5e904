//! Name rules beyond object names: ports, keys, labels, qualified names. Each answers with upstream's sentences.

use machinery::names;

const PORT_NAME_MAX: usize = 15;
const QUALIFIED_NAME_MAX: usize = 63;
const KEY_MAX: usize = 253;

/// An IANA service name, as named target ports are.
pub(crate) fn port_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > PORT_NAME_MAX {
        problems.push(too_long(PORT_NAME_MAX));
    }
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen".into());
    }
    problems
}

/// A key of a ConfigMap or Secret, which is also a file name.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > KEY_MAX {
        problems.push(too_long(KEY_MAX));
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .into(),
        );
    }
    match key {
        "." => problems.push("must not be '.'".into()),
        ".." => problems.push("must not be '..'".into()),
        _ if key.starts_with("..") => problems.push("must not start with '..'".into()),
        _ => {}
    }
    problems
}

/// A name with an optional DNS prefix: `example.com/MyName`, as label keys are.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    const SHAPE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut problems = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next().unwrap_or(""), parts.next(), parts.next()) {
        (name, None, _) => name,
        (prefix, Some(name), None) => {
            match prefix {
                "" => problems.push("prefix part must be non-empty".into()),
                _ => {
                    problems.extend(names::dns_subdomain(prefix).into_iter().map(|text| format!("prefix part {text}")))
                }
            }
            name
        }
        _ => {
            let shape = SHAPE.replace("must consist", "a qualified name must consist");
            return vec![format!("{shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > QUALIFIED_NAME_MAX {
        problems.push(format!("name part {}", too_long(QUALIFIED_NAME_MAX)));
    }
    if !is_label_text(name) {
        problems.push(format!("name part {SHAPE}"));
    }
    problems
}

pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > QUALIFIED_NAME_MAX {
        problems.push(too_long(QUALIFIED_NAME_MAX));
    }
    if !value.is_empty() && !is_label_text(value) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .into(),
        );
    }
    problems
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte))
}

fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

//! The rules of `machinery::names`, and those for qualified names and label values.

pub use machinery::names::*;

const PART_MAX: usize = 63;

/// `name` or `prefix.example.com/name`: the keys of labels and annotations, names of resources and conditions.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".into());
            } else {
                problems.extend(dns_subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            *name
        }
        _ => {
            return vec![
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                 validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and \
                 '/' (e.g. 'example.com/MyName')"
                    .into(),
            ];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > PART_MAX {
        problems.push(format!("name part must be no more than {PART_MAX} characters"));
    }
    if !is_word(name) {
        problems.push(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                .into(),
        );
    }
    problems
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > PART_MAX {
        problems.push(format!("must be no more than {PART_MAX} bytes"));
    }
    if !text.is_empty() && !is_word(text) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .into(),
        );
    }
    problems
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

//! What a name may look like: the DNS rules of object names, labels and qualified names.
//! Each rule answers with upstream's sentences; an empty answer means the text is good.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// The rule for most object names: RFC 1123 subdomain.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        problems.push(too_long(SUBDOMAIN_MAX));
    }
    if !name.split('.').all(is_dns_label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .into(),
        );
    }
    problems
}

/// The rule for namespaces, containers and the like: RFC 1123 label.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > LABEL_MAX {
        problems.push(too_long(LABEL_MAX));
    }
    if !is_dns_label(name) {
        problems.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .into(),
        );
    }
    problems
}

fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

//! The path that a backend sees where an Ingress asks for another one.

use http::Uri;
use http::uri::PathAndQuery;

use crate::routes::Route;

/// The new path: the target, with `$1` to `$9` replaced by what the pattern's groups found. As in ingress-nginx a target
/// takes the place of the whole path.
pub fn rewrite(route: &Route, sent: &str, normal: &str) -> Option<String> {
    let target = route.settings.rewrite_target.as_deref()?;
    let groups = route.pattern.as_ref().and_then(|pattern| {
        // The path as it was sent keeps its escapes; only one that hides what it is is taken in its plain form.
        pattern.captures(sent).or_else(|| pattern.captures(normal))
    });
    let mut path = String::with_capacity(target.len() + sent.len());
    let mut rest = target.chars().peekable();
    while let Some(character) = rest.next() {
        let group = match (character, rest.peek().and_then(|next| next.to_digit(10))) {
            ('$', Some(number)) => number as usize,
            _ => {
                path.push(character);
                continue;
            }
        };
        rest.next();
        let found = groups.as_ref().and_then(|groups| groups.get(group)).map_or("", |found| found.as_str());
        found.bytes().for_each(|byte| push(&mut path, byte));
    }
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    Some(path)
}

/// What a path cannot hold is escaped.
fn push(path: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte) {
        path.push(byte as char);
    } else {
        path.push_str(&format!("%{byte:02X}"));
    }
}

/// The same address with another path; the query stays, after the target's own if it has one.
pub fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let text = match uri.query() {
        Some(query) if path.contains('?') => format!("{path}&{query}"),
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).ok()?);
    Uri::from_parts(parts).ok()
}

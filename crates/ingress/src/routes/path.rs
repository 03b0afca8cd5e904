//! Paths as rules see them: two spellings of one path must not be two different paths, or a rule could be walked around.

use std::borrow::Cow;

/// The path without escapes that need none, doubled slashes and dots; nothing where it leads above the root or is no path.
/// Only rules see this form: backends get the path as it came.
pub fn normalize(path: &str) -> Option<Cow<'_, str>> {
    if !path.starts_with('/') {
        return None;
    }
    let plain = !path.contains('%') && !path.contains("//") && !path.contains("/.");
    if plain {
        return Some(Cow::Borrowed(path));
    }
    let decoded = decode(path)?;
    let mut elements: Vec<&str> = Vec::new();
    let mut folder = false;
    for element in decoded.split('/').skip(1) {
        folder = matches!(element, "" | "." | "..");
        match element {
            "" | "." => {}
            ".." => _ = elements.pop()?,
            _ => elements.push(element),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for element in &elements {
        normal.push('/');
        normal.push_str(element);
    }
    if folder || normal.is_empty() {
        normal.push('/');
    }
    Some(Cow::Owned(normal))
}

/// Escapes replaced by what they stand for. Bytes that are no text stay escaped, and a zero byte is refused, because what
/// follows it would be seen by some and not by others.
fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |byte: &u8| (*byte as char).to_digit(16);
        let value = match after {
            [high, low, ..] => digit(high)? * 16 + digit(low)?,
            _ => return None,
        };
        if value == 0 {
            return None;
        }
        bytes.push(value as u8);
        rest = &after[2..];
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(_) => Some(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn two_spellings_are_one_path() {
        let cases = [
            ("/", Some("/")),
            ("/a/b", Some("/a/b")),
            ("/a/b/", Some("/a/b/")),
            ("//a///b", Some("/a/b")),
            ("/a/./b", Some("/a/b")),
            ("/a/../b", Some("/b")),
            ("/public/%2e%2e/admin", Some("/admin")),
            ("/public/%2E%2E%2Fadmin", Some("/admin")),
            ("/a/..", Some("/")),
            ("/a/b/..", Some("/a/")),
            ("/.hidden", Some("/.hidden")),
            ("/a..b", Some("/a..b")),
            ("/%61dmin", Some("/admin")),
            ("/sp%20ace", Some("/sp ace")),
            ("/..", None),
            ("/a/../../b", None),
            ("/a%00b", None),
            ("/a%zz", None),
            ("/a%2", None),
            ("*", None),
            ("/%ff", Some("/%ff")),
        ];
        for (path, expected) in cases {
            assert_eq!(normalize(path).as_deref(), expected, "{path}");
        }
    }
}

//! URLs as Go's `url.ParseRequestURI` and `url.Parse` read them one after the other.

use std::fmt::Write;

pub(super) struct Parts<'u> {
    pub(super) scheme: &'u str,
    /// With its port.
    pub(super) host: &'u str,
    pub(super) name: &'u str,
    pub(super) port: &'u str,
    /// With what may not stand in a path escaped.
    pub(super) path: String,
    pub(super) query: &'u str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    #[error("empty url")]
    Empty,
    #[error("net/url: invalid control character in URL")]
    Control,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("invalid URI for request")]
    NotAbsolute,
    #[error("invalid character {0:?} in host name")]
    Host(String),
    #[error("missing ']' in host")]
    Bracket,
    #[error("invalid port {0:?} after host")]
    Port(String),
    #[error("invalid URL escape {0:?}")]
    Escape(String),
    #[error("net/url: invalid userinfo")]
    User,
}

pub(super) fn parts(text: &str) -> Result<Parts<'_>, UrlError> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(UrlError::Control);
    }
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    let (scheme, rest) = scheme(text)?;
    if !rest.starts_with('/') && scheme.is_empty() {
        return Err(UrlError::NotAbsolute);
    }
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        // What follows the scheme is opaque: there is neither a host nor a path.
        return Ok(Parts { scheme, host: "", name: "", port: "", path: String::new(), query });
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let is_user = |letter: char| letter.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(letter);
    if user.is_some_and(|user| !user.chars().all(is_user)) {
        return Err(UrlError::User);
    }
    let (name, port) = name_and_port(host)?;
    escapes(host)?;
    escapes(path)?;
    Ok(Parts { scheme, host, name, port, path: escaped(path), query })
}

/// What stands before the first colon, where it is a scheme.
fn scheme(text: &str) -> Result<(&str, &str), UrlError> {
    for (at, letter) in text.char_indices() {
        match letter {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err(UrlError::NoScheme),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn name_and_port(host: &str) -> Result<(&str, &str), UrlError> {
    let port = |text: &'_ str| match text.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(digits.len()),
        None if text.is_empty() => Ok(0),
        _ => Err(UrlError::Port(text.into())),
    };
    if let Some(inner) = host.strip_prefix('[') {
        let (name, behind) = inner.rsplit_once(']').ok_or(UrlError::Bracket)?;
        let digits = port(behind)?;
        return Ok((name, &behind[behind.len() - digits..]));
    }
    let (name, behind) = host.split_at(host.rfind(':').unwrap_or(host.len()));
    let digits = port(behind)?;
    let is_host = |letter: char| {
        !letter.is_ascii() || letter.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(letter)
    };
    if let Some(wrong) = host.chars().find(|letter| !is_host(*letter)) {
        return Err(UrlError::Host(wrong.into()));
    }
    Ok((name, &behind[behind.len() - digits..]))
}

/// Each percent sign has two digits behind it.
fn escapes(text: &str) -> Result<(), UrlError> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes()[at + 1..].iter().take(2).filter(|byte| byte.is_ascii_hexdigit()).count();
        if digits < 2 {
            return Err(UrlError::Escape(text[at..].chars().take(3).collect()));
        }
    }
    Ok(())
}

fn escaped(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
    path.bytes().fold(String::with_capacity(path.len()), |mut out, byte| {
        if is_plain(byte) {
            out.push(byte.into());
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_as_go_does() {
        for (text, expected) in [
            ("https://example.com:80/path?k=v#f", "https|example.com:80|example.com|80|/path|k=v"),
            ("https://[::1]:80/", "https|[::1]:80|::1|80|/|"),
            ("https://user:word@host", "https|host|host|||"),
            ("/path", "||||/path|"),
            ("//host/p", "|host|host||/p|"),
            ("mailto:a@b.c", "mailto|||||"),
            ("https://example.com/a b", "https|example.com|example.com||/a%20b|"),
            ("https://a/%20", "https|a|a||/%20|"),
            ("https://a:/x", "https|a:|a||/x|"),
            ("path", "invalid URI for request"),
            ("../a", "invalid URI for request"),
            ("", "empty url"),
            (":x", "missing protocol scheme"),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://example.com/%zz", "invalid URL escape \"%zz\""),
            ("https://example.com:port/", "invalid port \":port\" after host"),
            ("https://[::1/", "missing ']' in host"),
            ("https://a/\u{7f}", "net/url: invalid control character in URL"),
        ] {
            let shown = match parts(text) {
                Ok(found) => {
                    let Parts { scheme, host, name, port, path, query } = found;
                    [scheme, host, name, port, &path, query].join("|")
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{text}");
        }
    }
}

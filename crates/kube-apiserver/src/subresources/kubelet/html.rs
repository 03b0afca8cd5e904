//! Links in a page that came through a proxy: those to the page's own server lead through the proxy again. Pure; what
//! is no link stays byte for byte as it was.

use std::borrow::Cow;

/// Attributes that hold an address, by element.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text, whatever it looks like.
const TEXT_ELEMENTS: &[&str] =
    &["iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"];

/// The page with each address that `rewrite` answers put in place of the one that was there.
pub fn rewrite(page: &[u8], rewrite: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + 256);
    let mut at = 0;
    while let Some(open) = find(page, at, b"<") {
        out.extend_from_slice(&page[at..open]);
        let rest = &page[open..];
        if let Some(end) = skipped(rest) {
            out.extend_from_slice(&rest[..end]);
            at = open + end;
            continue;
        }
        let Some(tag) = Tag::read(rest) else {
            out.extend_from_slice(rest);
            return out;
        };
        tag.write(rest, &rewrite, &mut out);
        at = open + tag.end;
        if TEXT_ELEMENTS.contains(&tag.name.as_str()) {
            let end = text_end(page, at, &tag.name);
            out.extend_from_slice(&page[at..end]);
            at = end;
        }
    }
    out.extend_from_slice(&page[at..]);
    out
}

/// How much here is no start of an element: a comment, a declaration, the end of an element, or a lone `<`.
fn skipped(rest: &[u8]) -> Option<usize> {
    let until = |from: usize, end: &[u8]| find(rest, from, end).map_or(rest.len(), |place| place + end.len());
    match rest.get(1) {
        Some(b'!') if rest.starts_with(b"<!--") => Some(until(4, b"-->")),
        Some(b'!' | b'?' | b'/') => Some(until(2, b">")),
        Some(letter) if letter.is_ascii_alphabetic() => None,
        _ => Some(1),
    }
}

/// Where the text of an element ends that holds nothing but text.
fn text_end(page: &[u8], from: usize, name: &str) -> usize {
    let closing = format!("</{name}");
    let mut at = from;
    while let Some(found) = find(page, at, b"</") {
        let end = found + closing.len();
        let same = page.get(found..end).is_some_and(|text| text.eq_ignore_ascii_case(closing.as_bytes()));
        if same && page.get(end).is_none_or(|sign| matches!(sign, b'>' | b'/') || sign.is_ascii_whitespace()) {
            return found;
        }
        at = found + 2;
    }
    page.len()
}

fn find(text: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    text.get(from..)?.windows(wanted.len()).position(|window| window == wanted).map(|place| from + place)
}

/// The start of an element, and where the values of its attributes stand.
struct Tag {
    name: String,
    /// Name, and where the value stands, quotes included.
    attributes: Vec<(String, std::ops::Range<usize>)>,
    end: usize,
}

impl Tag {
    /// None where the page ends within it.
    fn read(text: &[u8]) -> Option<Tag> {
        let mut at = 1;
        let name = word(text, &mut at, |sign| sign.is_ascii_whitespace() || matches!(sign, b'/' | b'>'));
        let mut attributes = Vec::new();
        loop {
            while text.get(at).is_some_and(|sign| sign.is_ascii_whitespace() || *sign == b'/') {
                at += 1;
            }
            if *text.get(at)? == b'>' {
                return Some(Tag { name, attributes, end: at + 1 });
            }
            let first = at;
            let key = word(text, &mut at, |sign| sign.is_ascii_whitespace() || matches!(sign, b'/' | b'>' | b'='));
            while text.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
            }
            if *text.get(at)? != b'=' {
                continue;
            }
            at += 1;
            while text.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
            }
            let begin = at;
            match *text.get(at)? {
                quote @ (b'"' | b'\'') => at = find(text, at + 1, &[quote])? + 1,
                _ => drop(word(text, &mut at, |sign| sign.is_ascii_whitespace() || *sign == b'>')),
            }
            debug_assert!(at > first, "every attribute takes at least one sign");
            attributes.push((key, begin..at));
        }
    }

    fn write(&self, text: &[u8], rewrite: impl Fn(&str) -> Option<String>, out: &mut Vec<u8>) {
        let links = LINKS.iter().find(|(element, _)| *element == self.name).map_or(&[][..], |(_, links)| links);
        let mut at = 0;
        for (name, value) in &self.attributes {
            if !links.contains(&name.as_str()) {
                continue;
            }
            let Ok(written) = std::str::from_utf8(&text[value.clone()]) else { continue };
            let address = unescaped(written.trim_matches(['"', '\'']));
            let Some(new) = rewrite(&address) else { continue };
            out.extend_from_slice(&text[at..value.start]);
            out.extend_from_slice(format!("\"{}\"", escaped(&new)).as_bytes());
            at = value.end;
        }
        out.extend_from_slice(&text[at..self.end]);
    }
}

/// The lower-case word from here on, which has at least one sign.
fn word(text: &[u8], at: &mut usize, ends: impl Fn(&u8) -> bool) -> String {
    let rest = &text[*at..];
    let length = rest.iter().skip(1).position(ends).map_or(rest.len(), |place| place + 1);
    *at += length;
    String::from_utf8_lossy(&rest[..length]).to_ascii_lowercase()
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if text.contains('&') {
        Cow::Owned(text.replace("&#34;", "\"").replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&"))
    } else {
        Cow::Borrowed(text)
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&#39;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            sign => out.push(sign),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: &str) {
        let local = |address: &str| address.starts_with('/').then(|| format!("/p{address}"));
        let found = rewrite(page.as_bytes(), local);
        assert_eq!(String::from_utf8_lossy(&found), expected);
    }

    #[test]
    fn links_are_rewritten_and_the_rest_is_left() {
        check("<a href=\"/rewriteme\">test</a>", "<a href=\"/p/rewriteme\">test</a>");
        check("<A class=x HREF='/x?a=1&amp;b=2'>t</A>", "<A class=x HREF=\"/p/x?a=1&amp;b=2\">t</A>");
        check("<img src=/a.png alt=\"/no\" /><p title=/b>", "<img src=\"/p/a.png\" alt=\"/no\" /><p title=/b>");
        check("<a href=\"relative\"><a href=\"http://else/x\">", "<a href=\"relative\"><a href=\"http://else/x\">");
        check("<!-- <a href=\"/x\"> --><!doctype html>1 < 2", "<!-- <a href=\"/x\"> --><!doctype html>1 < 2");
    }

    #[test]
    fn scripts_are_text() {
        check(
            "<script src=\"/s.js\">if (a<b) '<a href=\"/x\">'</script><a href=\"/y\">",
            "<script src=\"/p/s.js\">if (a<b) '<a href=\"/x\">'</script><a href=\"/p/y\">",
        );
    }

    #[test]
    fn pages_that_break_off_are_passed_on() {
        for page in ["<", "<a", "<a href", "<a href=", "<a href=\"/x", "<script>", "</", "<!--", "x<a ="] {
            check(page, page);
        }
    }
}

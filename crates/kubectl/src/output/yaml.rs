//! YAML as upstream's kubectl prints it, letter by letter: sorted keys, literal blocks for texts of several lines, plain
//! texts where they mean themselves, quotes of one kind or the other where they do not, and long texts folded at words.

use serde_json::Value;

/// Where a line is broken at the next space.
const WIDTH: usize = 80;

pub(crate) fn text(value: &Value) -> String {
    let mut writer = Writer { out: String::new(), column: 0 };
    match value {
        Value::Object(map) if !map.is_empty() => writer.block(value, 0, true),
        Value::Array(items) if !items.is_empty() => writer.block(value, 0, true),
        other => {
            writer.scalar(other, 0);
            writer.newline();
        }
    }
    writer.out
}

struct Writer {
    out: String,
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn newline(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn pad(&mut self, indent: usize) {
        self.put(&" ".repeat(indent));
    }

    /// The entries of a map or list. The first of a list's item stands behind its dash.
    fn block(&mut self, value: &Value, indent: usize, first_padded: bool) {
        let entries: Vec<(Option<&String>, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(key, value)| (Some(key), value)).collect(),
            Value::Array(items) => items.iter().map(|item| (None, item)).collect(),
            _ => return,
        };
        for (at, (key, value)) in entries.into_iter().enumerate() {
            if at > 0 || first_padded {
                self.pad(indent);
            }
            match key {
                Some(key) => {
                    self.key(key);
                    match value {
                        Value::Object(map) if !map.is_empty() => {
                            self.newline();
                            self.block(value, indent + 2, true);
                        }
                        Value::Array(items) if !items.is_empty() => {
                            self.newline();
                            self.block(value, indent, true);
                        }
                        other => {
                            self.put(" ");
                            self.scalar(other, indent + 2);
                            self.newline();
                        }
                    }
                }
                None => {
                    self.put("- ");
                    match value {
                        Value::Object(map) if !map.is_empty() => self.block(value, indent + 2, false),
                        Value::Array(items) if !items.is_empty() => self.block(value, indent + 2, false),
                        other => {
                            self.scalar(other, indent + 2);
                            self.newline();
                        }
                    }
                }
            }
        }
    }

    fn key(&mut self, key: &str) {
        let about = Analysis::of(key);
        let shown = match style(key, &about) {
            Style::Plain if !about.multiline => key.to_string(),
            Style::Single => format!("'{}'", key.replace('\'', "''")),
            _ if about.single_allowed && !about.multiline && means_text(key) => {
                format!("'{}'", key.replace('\'', "''"))
            }
            _ => double(key),
        };
        // A key of more than 128 letters would need another notation, which nobody writes.
        self.put(&shown);
        self.put(":");
    }

    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => self.string(text, indent),
            Value::Object(_) => self.put("{}"),
            Value::Array(_) => self.put("[]"),
            other => self.put(&other.to_string()),
        }
    }

    fn string(&mut self, text: &str, indent: usize) {
        let about = Analysis::of(text);
        match style(text, &about) {
            Style::Plain => self.folded(text, indent, false),
            Style::Single => {
                self.put("'");
                self.folded(&text.replace('\'', "''"), indent, true);
                self.put("'");
            }
            Style::Double => self.double_folded(text, indent),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn folded(&mut self, text: &str, indent: usize, quoted: bool) {
        let letters: Vec<char> = text.chars().collect();
        let mut spaces = false;
        for (at, letter) in letters.iter().enumerate() {
            let inside = !quoted || (at > 0 && at + 1 < letters.len());
            if *letter == ' ' {
                let next_is_space = letters.get(at + 1) == Some(&' ');
                if !spaces && self.column > WIDTH && inside && !next_is_space {
                    self.newline();
                    self.pad(indent);
                } else {
                    self.put(" ");
                }
                spaces = true;
            } else {
                self.put(&letter.to_string());
                spaces = false;
            }
        }
    }

    fn double_folded(&mut self, text: &str, indent: usize) {
        self.put("\"");
        let letters: Vec<char> = text.chars().collect();
        let mut spaces = false;
        for (at, letter) in letters.iter().enumerate() {
            if *letter == ' ' {
                if !spaces && self.column > WIDTH && at > 0 && at + 1 < letters.len() {
                    self.newline();
                    self.pad(indent);
                    if letters[at + 1] == ' ' {
                        self.put("\\");
                    }
                } else {
                    self.put(" ");
                }
                spaces = true;
            } else {
                self.put(&escaped(*letter));
                spaces = false;
            }
        }
        self.put("\"");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        let hint = if text.starts_with([' ', '\n']) { "2" } else { "" };
        let chomp = match text.strip_suffix('\n') {
            None => "-",
            Some(rest) if rest.is_empty() || rest.ends_with('\n') => "+",
            Some(_) => "",
        };
        self.put(&format!("|{hint}{chomp}"));
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            self.newline();
            if !line.is_empty() {
                self.pad(indent);
                self.put(line);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

fn style(text: &str, about: &Analysis) -> Style {
    if text.contains('\n') {
        return if about.block_allowed { Style::Literal } else { Style::Double };
    }
    if !means_text(text) {
        return Style::Double;
    }
    match (about.plain_allowed, about.single_allowed) {
        (true, _) => Style::Plain,
        (false, true) => Style::Single,
        (false, false) => Style::Double,
    }
}

/// Would a reader of YAML 1.1 take it for a text, without quotes?
fn means_text(text: &str) -> bool {
    if text.is_empty() || text == "<<" || text == "~" || is_base_60(text) || is_time(text) {
        return false;
    }
    let safe = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_' | '~'));
    // The marks of documents are texts, which the reader of one value would not see.
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    // Only words of these letters can be numbers, truths or nothing.
    !safe || matches!(machinery::codec::decode_yaml(text.as_bytes()), Ok(decoded) if decoded.value.is_string())
}

/// `1:20:30`, which YAML 1.1 reads as a number.
fn is_base_60(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = body.split(':');
    let first = parts.next().unwrap_or_default();
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !first.chars().all(|c| c.is_ascii_digit() || c == '_') {
        return false;
    }
    let rest: Vec<&str> = parts.collect();
    !rest.is_empty()
        && rest.iter().enumerate().all(|(at, part)| {
            let (whole, more) = part.split_once('.').unwrap_or((part, ""));
            let last = at + 1 == rest.len();
            let digits = (1..=2).contains(&whole.len()) && whole.chars().all(|c| c.is_ascii_digit());
            digits
                && (whole.len() == 1 || whole.starts_with(|c| ('0'..='5').contains(&c)))
                && (last || !part.contains('.'))
                && more.chars().all(|c| c.is_ascii_digit() || c == '_')
        })
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
        return false;
    }
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let parts: Vec<&str> = date.split('-').collect();
    let small =
        |part: &str, most: u32| part.len() <= 2 && part.parse::<u32>().is_ok_and(|number| (1..=most).contains(&number));
    if parts.len() != 3 || !small(parts[1], 12) || !small(parts[2], 31) {
        return false;
    }
    time.is_none_or(|time| time.contains(':') && time.chars().all(|c| c.is_ascii_digit() || ":.Z+-".contains(c)))
}

/// What the letters of a text allow.
struct Analysis {
    multiline: bool,
    plain_allowed: bool,
    single_allowed: bool,
    block_allowed: bool,
}

impl Analysis {
    fn of(text: &str) -> Analysis {
        let letters: Vec<char> = text.chars().collect();
        let blank = |at: usize| letters.get(at).is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut breaks, mut special, mut break_space, mut space_break) = (false, false, false, false);
        let (mut before_blank, mut after_space, mut after_break) = (true, false, false);
        for (at, letter) in letters.iter().enumerate() {
            let followed = blank(at + 1);
            match letter {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                    if at == 0 =>
                {
                    indicators = true
                }
                '?' | ':' if at == 0 && followed => indicators = true,
                '-' if at == 0 && followed => indicators = true,
                ':' if at > 0 && followed => indicators = true,
                '#' if at > 0 && before_blank => indicators = true,
                _ => {}
            }
            special |= !printable(*letter);
            match letter {
                ' ' => {
                    break_space |= after_break;
                    (after_space, after_break) = (true, false);
                }
                '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                    breaks = true;
                    space_break |= after_space;
                    (after_space, after_break) = (false, true);
                }
                _ => (after_space, after_break) = (false, false),
            }
            before_blank = blank(at);
        }
        let edges = text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        let broken = space_break || special;
        Analysis {
            multiline: breaks,
            plain_allowed: !(edges || break_space || broken || breaks || indicators || text.is_empty()),
            single_allowed: !(break_space || broken),
            block_allowed: !(text.ends_with(' ') || broken),
        }
    }
}

fn printable(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

fn double(text: &str) -> String {
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

fn escaped(letter: char) -> String {
    match letter {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\0' => "\\0".into(),
        '\x07' => "\\a".into(),
        '\x08' => "\\b".into(),
        '\t' => "\\t".into(),
        '\n' => "\\n".into(),
        '\x0b' => "\\v".into(),
        '\x0c' => "\\f".into(),
        '\r' => "\\r".into(),
        '\x1b' => "\\e".into(),
        '\u{85}' => "\\N".into(),
        '\u{2028}' => "\\L".into(),
        '\u{2029}' => "\\P".into(),
        '\u{feff}' => "\\uFEFF".into(),
        other if printable(other) => other.to_string(),
        other if (other as u32) < 0x100 => format!("\\x{:02X}", other as u32),
        other if (other as u32) < 0x10000 => format!("\\u{:04X}", other as u32),
        other => format!("\\U{:08X}", other as u32),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_look_as_real_kubectl_writes_them() {
        let check = |value: &str, expected: &str| {
            assert_eq!(text(&json!({"a": value})), format!("a: {expected}\n"), "{value:?}")
        };
        for plain in [
            "web",
            "a b",
            "nginx:1",
            "http://x/y",
            "-x",
            "a#b",
            "1.2.3",
            "10.0.0.1",
            "a,b",
            "=",
            "100m",
            "$(X)",
            "it's",
        ] {
            check(plain, plain);
        }
        for double in [
            "",
            "true",
            "yes",
            "1",
            "1.5",
            "null",
            "~",
            "2026-11-15T16:00:29Z",
            "2026-11-15",
            "1:20",
            "0x1f",
            "1e3",
            "on",
        ] {
            check(double, &format!("\"{double}\""));
        }
        for single in ["a: b", "*", "# x", "- x", "[x]", "{x}", "@x", "%x", "a #b", " a", "a ", "x:", "'x", "---"] {
            check(single, &format!("'{}'", single.replace('\'', "''")));
        }
        check("a\tb", "\"a\\tb\"");
        check("a\nb", "|-\n  a\n  b");
        check("a\nb\n", "|\n  a\n  b");
        check("one\n", "|\n  one");
        check("a\n\n", "|+\n  a\n");
        check(" a\nb", "|2-\n   a\n  b");
        check("a \nb", "\"a \\nb\"");
        let long = "word ".repeat(30);
        let folded = text(&json!({"a": long.trim()}));
        assert!(
            folded.lines().count() == 2 && folded.lines().nth(1).is_some_and(|line| line.starts_with("  word")),
            "{folded}"
        );
    }

    #[test]
    fn maps_and_lists_nest() {
        let value = json!({"b": [{"x": 1, "y": [2]}, [3, 4]], "a": {}, "c": [], "d": {"e": null}});
        assert_eq!(text(&value), "a: {}\nb:\n- x: 1\n  \"y\":\n  - 2\n- - 3\n  - 4\nc: []\nd:\n  e: null\n");
    }
}

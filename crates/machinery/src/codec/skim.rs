//! Passes over JSON text and takes out of it only what is asked for: what lists and watches must know of a stored object is a few
//! words of many thousand. Whatever is unusual is not decided here but answered with nothing, and its reader decodes it instead;
//! what is passed over is JSON all the same.

use std::borrow::Cow;

use super::plain::plain_len;

/// Deeper values are left to decoders.
const DEPTH_MAX: usize = 64;

/// A place in a text, before a value.
pub struct Skim<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Skim<'a> {
    /// The whole text is one value, which is what `read` reads.
    pub fn whole<T>(text: &'a [u8], read: impl FnOnce(&mut Skim<'a>) -> Option<T>) -> Option<T> {
        str::from_utf8(text).ok()?;
        let mut skim = Skim { text, at: 0 };
        skim.skip_space();
        let found = read(&mut skim)?;
        skim.skip_space();
        (skim.at == text.len()).then_some(found)
    }

    /// Calls `member` with the name of each member of the object at hand, at its value, which it reads or skips. Nothing where the
    /// value is no object, or a name is not written as it is read.
    pub fn members(&mut self, mut member: impl FnMut(&mut Skim<'a>, &'a [u8]) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        self.skip_space();
        if self.next_is(b'}') {
            return Some(());
        }
        loop {
            self.expect(b'"')?;
            let start = self.at;
            self.at += plain_len(&self.text[start..]);
            let name = &self.text[start..self.at];
            self.expect(b'"')?;
            self.skip_space();
            self.expect(b':')?;
            self.skip_space();
            member(self, name)?;
            self.skip_space();
            if self.next_is(b'}') {
                return Some(());
            }
            self.expect(b',')?;
            self.skip_space();
        }
    }

    /// Calls `item` at each item of the list at hand, which it reads or skips. Nothing where the value is no list.
    pub fn items(&mut self, mut item: impl FnMut(&mut Skim<'a>) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        self.skip_space();
        if self.next_is(b']') {
            return Some(());
        }
        loop {
            item(self)?;
            self.skip_space();
            if self.next_is(b']') {
                return Some(());
            }
            self.expect(b',')?;
            self.skip_space();
        }
    }

    /// Where in the text it is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether the value at hand is an object or a list.
    pub fn is_nested(&self) -> bool {
        matches!(self.text.get(self.at), Some(b'{' | b'['))
    }

    /// Whether the value at hand is a string.
    pub fn is_text(&self) -> bool {
        self.text.get(self.at) == Some(&b'"')
    }

    /// Whether the value at hand was `null`, which is passed.
    pub fn null(&mut self) -> bool {
        self.skip_word(b"null").is_some()
    }

    pub fn boolean(&mut self) -> Option<bool> {
        let is = self.skip_word(b"true").is_some();
        (is || self.skip_word(b"false").is_some()).then_some(is)
    }

    /// An integer as it is usually written.
    pub fn integer(&mut self) -> Option<i64> {
        let start = self.at;
        self.skip_number()?;
        // Decoders take it for a number with a fraction.
        let digits = str::from_utf8(&self.text[start..self.at]).ok().filter(|digits| *digits != "-0")?;
        digits.parse().ok()
    }

    /// The string at hand, borrowed where the text has no escapes in it.
    pub fn text(&mut self) -> Option<Cow<'a, str>> {
        match self.text_bytes()? {
            Cow::Borrowed(plain) => str::from_utf8(plain).ok().map(Cow::Borrowed),
            Cow::Owned(decoded) => String::from_utf8(decoded).ok().map(Cow::Owned),
        }
    }

    /// As `text`, for who only copies it.
    pub fn text_bytes(&mut self) -> Option<Cow<'a, [u8]>> {
        let start = self.at;
        self.expect(b'"')?;
        let plain = &self.text[self.at..][..plain_len(&self.text[self.at..])];
        self.at += plain.len();
        if self.next_is(b'"') {
            return Some(Cow::Borrowed(plain));
        }
        self.skip_string()?;
        let decoded: String = serde_json::from_slice(&self.text[start..self.at]).ok()?;
        Some(Cow::Owned(decoded.into_bytes()))
    }

    /// The text of the value at hand, which is passed.
    pub fn take(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.skip()?;
        Some(&self.text[start..self.at])
    }

    /// Passes the value at hand.
    pub fn skip(&mut self) -> Option<()> {
        self.skip_within(DEPTH_MAX)
    }

    fn skip_within(&mut self, depth: usize) -> Option<()> {
        match self.text.get(self.at)? {
            b'"' => {
                self.at += 1;
                self.skip_string()
            }
            b'{' => self.skip_nested(depth, b'}'),
            b'[' => self.skip_nested(depth, b']'),
            b'-' | b'0'..=b'9' => self.skip_number(),
            b't' => self.skip_word(b"true"),
            b'f' => self.skip_word(b"false"),
            b'n' => self.skip_word(b"null"),
            _ => None,
        }
    }

    fn skip_nested(&mut self, depth: usize, end: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.at += 1;
        self.skip_space();
        if self.next_is(end) {
            return Some(());
        }
        loop {
            if end == b'}' {
                self.expect(b'"')?;
                self.skip_string()?;
                self.skip_space();
                self.expect(b':')?;
                self.skip_space();
            }
            self.skip_within(depth)?;
            self.skip_space();
            if self.next_is(end) {
                return Some(());
            }
            self.expect(b',')?;
            self.skip_space();
        }
    }

    /// From behind the opening quote.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            self.at += plain_len(&self.text[self.at..]);
            match self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => match self.text.get(self.at + 1)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                    b'u' => {
                        let digits = self.text.get(self.at + 2..self.at + 6)?;
                        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                        self.at += 6;
                    }
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    fn skip_number(&mut self) -> Option<()> {
        self.next_is(b'-');
        if !self.next_is(b'0') {
            self.skip_digits()?;
        }
        if self.next_is(b'.') {
            self.skip_digits()?;
        }
        if self.next_is(b'e') || self.next_is(b'E') {
            let _sign = self.next_is(b'+') || self.next_is(b'-');
            self.skip_digits()?;
        }
        Some(())
    }

    fn skip_digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn skip_word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        let is = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.next_is(byte).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_passed_over_is_json() {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"\\n\\u00e4\"",
            "\"\\x\"",
            "\"\n\"",
            "\"\\u12g4\"",
            "\"",
            "0",
            "01",
            "-",
            "1.5e-7",
            "1.",
            "1e",
            "true",
            "nul",
            "null",
            " ",
            "\t",
            "x",
        ];
        // Every text of up to four pieces, held against the decoder.
        let (mut checked, mut valid) = (0, 0);
        for length in 1..=4_u32 {
            for number in 0..pieces.len().pow(length) {
                let chosen = (0..length).map(|place| pieces[number / pieces.len().pow(place) % pieces.len()]);
                let text: String = chosen.collect();
                let skimmed = Skim::whole(text.as_bytes(), |skim| skim.take());
                // As decoders pass over what they do not decode: numbers may be of any size.
                let passed = serde_json::from_str::<IgnoredAny>(&text).is_ok();
                assert_eq!(skimmed.is_some(), passed, "{text:?}");
                if let (Some(taken), Ok(decoded)) = (skimmed, serde_json::from_str::<Value>(&text)) {
                    assert_eq!(serde_json::from_slice::<Value>(taken).unwrap(), decoded, "{text:?}");
                    valid += 1;
                }
                checked += 1;
            }
        }
        assert!(checked > 300_000 && valid > 1_000, "{checked} texts, {valid} of them JSON");
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1));
        assert!(Skim::whole(deep.as_bytes(), Skim::skip).is_none());
        assert!(Skim::whole(b"\"\xff\"", Skim::skip).is_none());
    }

    #[test]
    fn single_values_are_read_as_decoders_read_them() {
        let texts = [
            r#""""#,
            r#""a b""#,
            r#""ä\n\u00e4\"""#,
            r#""\ud83d\udea2""#,
            r#""\ud83d""#,
            "\"a\nb\"",
            "\"a",
            "1",
            "null",
        ];
        for text in texts {
            let read = Skim::whole(text.as_bytes(), Skim::text).map(Cow::into_owned);
            assert_eq!(read, serde_json::from_str::<String>(text).ok(), "{text}");
        }
        for text in [
            "0",
            "-7",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "1.0",
            "1e3",
            "01",
            "-",
            "\"1\"",
            "-0",
        ] {
            let decoded = serde_json::from_str::<Value>(text).ok().and_then(|value| value.as_i64());
            assert_eq!(Skim::whole(text.as_bytes(), Skim::integer), decoded, "{text}");
        }
        for text in ["true", "false", "tru", "null", "\"true\""] {
            assert_eq!(Skim::whole(text.as_bytes(), Skim::boolean), serde_json::from_str(text).ok(), "{text}");
        }
        assert!(Skim::whole(b"null", |skim| skim.null().then_some(())).is_some());
        assert!(Skim::whole(b"nul", |skim| skim.null().then_some(())).is_none());
    }

    #[test]
    fn items_are_shown_in_order() {
        let items = |text: &'static str| {
            let mut found = Vec::new();
            let read = Skim::whole(text.as_bytes(), |skim| {
                skim.items(|item| {
                    found.push(str::from_utf8(item.take()?).ok()?);
                    Some(())
                })
            });
            read.map(|()| found)
        };
        assert_eq!(items(r#" [ 1 ,{"a":[2]},"]" ] "#), Some(vec!["1", r#"{"a":[2]}"#, "\"]\""]));
        assert_eq!(items("[ ]"), Some(Vec::new()));
        for wrong in ["{}", "[1,]", "[1 2]", "[,1]", "[1", "1"] {
            assert_eq!(items(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn members_are_shown_by_name_in_the_order_of_the_text() {
        let text = br#" { "b" : [1, {"c": "}"}], "a":{"x":1} , "":null}"#;
        let mut found = Vec::new();
        let read = Skim::whole(text, |skim| {
            skim.members(|value, name| {
                let nested = value.is_nested();
                found.push((str::from_utf8(name).ok()?, str::from_utf8(value.take()?).ok()?, nested));
                Some(())
            })
        });
        assert_eq!(read, Some(()));
        assert_eq!(found, [("b", r#"[1, {"c": "}"}]"#, true), ("a", r#"{"x":1}"#, true), ("", "null", false)]);
        for unusual in [r#"{"\u0061":1}"#, "[]", "{} {}", r#"{"a":1,}"#] {
            assert!(
                Skim::whole(unusual.as_bytes(), |skim| skim.members(|value, _| value.skip())).is_none(),
                "{unusual}"
            );
        }
    }
}

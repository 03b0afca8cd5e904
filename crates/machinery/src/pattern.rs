//! Regular expressions as Go reads them. Our engine is of the same family, but some texts mean something else to it, or nothing:
//! those are written anew before it sees them.

use regex::{Regex, RegexBuilder};

/// A compiled pattern may take this much memory; Go's limit is about as large.
const BYTES_MAX: usize = 32 << 20;
/// Go's limit for how often something may be repeated.
const REPEAT_MAX: u32 = 1000;

/// Why a text is no pattern, in Go's words as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct PatternError(String);

pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    let text = translate(pattern)?;
    let made = RegexBuilder::new(&text).size_limit(BYTES_MAX).build();
    made.map_err(|error| PatternError(in_go_words(&error, pattern)))
}

/// Our engine's reason as Go's parser gives it.
fn in_go_words(error: &regex::Error, pattern: &str) -> String {
    let text = match error {
        regex::Error::Syntax(text) => text.rsplit("error: ").next().unwrap_or("").trim(),
        _ => return "expression too large".into(),
    };
    match text {
        "unclosed group" => format!("missing closing ): `{pattern}`"),
        "unopened group" => format!("unexpected ): `{pattern}`"),
        "repetition operator missing expression" => "missing argument to repetition operator".into(),
        _ if text.starts_with("unclosed character class") => format!("missing closing ]: `{pattern}`"),
        _ if text.starts_with("look-around") || text.starts_with("unrecognized flag") => {
            format!("invalid or unsupported Perl syntax: `{pattern}`")
        }
        _ if text.contains("escape sequence") => format!("invalid escape sequence: `{pattern}`"),
        _ if text.starts_with("invalid character class range") => format!("invalid character class range: `{pattern}`"),
        other => format!("{other}: `{pattern}`"),
    }
}

/// The same pattern for our engine.
fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    // Where the repetition begins that stands just before, if one does.
    let mut repeated: Option<usize> = None;
    while let Some(sign) = rest.chars().next() {
        if let Some(length) = repeats(rest)? {
            let (at, end) = (pattern.len() - rest.len(), pattern.len() - rest.len() + length);
            // Go allows no repetition of a repetition without brackets.
            if let Some(before) = repeated.replace(at) {
                let detail = format!("invalid nested repetition operator: `{}`", &pattern[before..end]);
                return Err(PatternError(detail));
            }
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        repeated = None;
        match sign {
            '\\' => rest = escape(rest, false, &mut out)?,
            '[' => rest = class(rest, &mut out)?,
            // What is no repetition is a brace.
            '{' => {
                out.push_str("\\{");
                rest = &rest[1..];
            }
            // The question mark of `(?i)` repeats nothing.
            '(' if rest.starts_with("(?") => {
                flags(rest)?;
                out.push_str("(?");
                rest = &rest[2..];
            }
            sign => {
                out.push(sign);
                rest = &rest[sign.len_utf8()..];
            }
        }
    }
    Ok(out)
}

/// Refuses flags that only our engine knows.
fn flags(text: &str) -> Result<(), PatternError> {
    let known = |letter: char| "imsU-:)P<".contains(letter);
    match text[2..].char_indices().find(|(_, letter)| !"imsU-".contains(*letter)) {
        Some((at, letter)) if !known(letter) => {
            let end = 2 + at + letter.len_utf8();
            Err(PatternError(format!("invalid or unsupported Perl syntax: `{}`", &text[..end])))
        }
        _ => Ok(()),
    }
}

/// How long the repetition is that the text begins with, together with the mark that makes it a lazy one.
fn repeats(text: &str) -> Result<Option<usize>, PatternError> {
    let length = match text.chars().next() {
        Some('*' | '+' | '?') => 1,
        Some('{') => match repetition(text) {
            Some((length, count)) if count > REPEAT_MAX => {
                return Err(PatternError(format!("invalid repeat count: `{}`", &text[..length])));
            }
            Some((length, _)) => length,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(length + usize::from(text[length..].starts_with('?'))))
}

/// `{2}`, `{2,}` or `{2,5}`: how long it is, and the largest number in it.
fn repetition(text: &str) -> Option<(usize, u32)> {
    let end = text.find('}')?;
    let (least, most) = text[1..end].split_once(',').unwrap_or((&text[1..end], ""));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(least) || !(most.is_empty() || is_number(most)) {
        return None;
    }
    let number = |text: &str| if text.is_empty() { 0 } else { text.parse().unwrap_or(u32::MAX) };
    Some((end + 1, number(least).max(number(most))))
}

/// One escape. Go's classes are of ASCII alone; ours would be of all of Unicode.
fn escape<'a>(text: &'a str, in_class: bool, out: &mut String) -> Result<&'a str, PatternError> {
    const LETTERS: &str = "ABDPQSWabdfnprstvwxz";
    let Some(sign) = text[1..].chars().next() else {
        out.push('\\');
        return Ok("");
    };
    if sign.is_ascii_alphabetic() && !LETTERS.contains(sign) {
        return Err(PatternError(format!("invalid escape sequence: `\\{sign}`")));
    }
    let rest = &text[1 + sign.len_utf8()..];
    let inner = match sign {
        'd' | 'D' => "0-9",
        'w' | 'W' => "0-9A-Za-z_",
        's' | 'S' => "\\t\\n\\x0C\\r ",
        'b' | 'B' if !in_class => {
            out.push_str(if sign == 'b' { "(?-u:\\b)" } else { "(?-u:\\B)" });
            return Ok(rest);
        }
        'Q' if !in_class => {
            let end = rest.find("\\E").unwrap_or(rest.len());
            out.push_str(&regex::escape(&rest[..end]));
            return Ok(rest[end..].strip_prefix("\\E").unwrap_or(""));
        }
        // `\p{Greek}` and `\x{10FFFF}`: these braces repeat nothing.
        'p' | 'P' | 'x' if rest.starts_with('{') && rest.contains('}') => {
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            out.push_str(&text[..2 + end]);
            return Ok(&rest[end..]);
        }
        '0'..='7' => {
            let length = rest.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let digits = &text[1..2 + length];
            match u32::from_str_radix(digits, 8) {
                // A single digit but 0 would refer back to a group, which neither engine does.
                Ok(code) if length > 0 || sign == '0' => out.push_str(&format!("\\x{{{code:X}}}")),
                _ => out.push_str(&text[..2]),
            }
            return Ok(&rest[length..]);
        }
        _ => {
            out.push_str(&text[..1 + sign.len_utf8()]);
            return Ok(rest);
        }
    };
    match (sign.is_ascii_uppercase(), in_class) {
        (true, _) => out.push_str(&format!("[^{inner}]")),
        (false, true) => out.push_str(inner),
        (false, false) => out.push_str(&format!("[{inner}]")),
    }
    Ok(rest)
}

/// The names that may stand between `[:` and `:]`.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// A class in brackets. Inside of it Go knows no classes but `[:alpha:]`, and no sums and differences of them.
fn class<'a>(text: &'a str, out: &mut String) -> Result<&'a str, PatternError> {
    out.push('[');
    let mut rest = &text[1..];
    if let Some(tail) = rest.strip_prefix('^') {
        out.push('^');
        rest = tail;
    }
    // A bracket right at the beginning is one of the signs.
    if let Some(tail) = rest.strip_prefix(']') {
        out.push_str("\\]");
        rest = tail;
    }
    // Whether a dash would make a range with what stands before it.
    let mut may_range = rest.len() < text.len() - 1 && out.ends_with("\\]");
    while let Some(sign) = rest.chars().next() {
        match sign {
            ']' => {
                out.push(']');
                return Ok(&rest[1..]);
            }
            '-' => {
                rest = &rest[1..];
                let is_range = may_range && !rest.is_empty() && !rest.starts_with(']');
                out.push_str(if is_range { "-" } else { "\\-" });
                may_range = !is_range;
                if is_range && let Some(tail) = rest.strip_prefix('-') {
                    out.push_str("\\-");
                    rest = tail;
                } else if is_range && let Some(end) = rest.chars().next().filter(|end| !"[&~\\".contains(*end)) {
                    out.push(end);
                    rest = &rest[end.len_utf8()..];
                }
                continue;
            }
            '\\' => {
                may_range = !rest[1..].starts_with(['d', 'D', 'w', 'W', 's', 'S', 'p', 'P']);
                rest = escape(rest, true, out)?;
                continue;
            }
            '[' if rest.starts_with("[:") && rest.contains(":]") => {
                let end = rest.find(":]").map_or(rest.len(), |end| end + 2);
                let name = &rest[2..end - 2];
                if !CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err(PatternError(format!("invalid character class range: `{}`", &rest[..end])));
                }
                out.push_str(&rest[..end]);
                rest = &rest[end..];
                may_range = false;
                continue;
            }
            '[' | '&' | '~' => {
                out.extend(['\\', sign]);
                rest = &rest[1..];
            }
            sign => {
                out.push(sign);
                rest = &rest[sign.len_utf8()..];
            }
        }
        may_range = true;
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let check = |pattern: &str, good: &[&str], bad: &[&str]| {
            let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            good.iter().for_each(|text| assert!(regex.is_match(text), "{pattern} {text}"));
            bad.iter().for_each(|text| assert!(!regex.is_match(text), "{pattern} {text}"));
        };
        check(r"^\d+$", &["12"], &["१२", "a"]);
        check(r"^\w+$", &["a_1"], &["é"]);
        check(r"^[\w.-]+$", &["a.b-c"], &["a/b", "é"]);
        check(r"^[^\s]+\S$", &["ab"], &["a b"]);
        check(r"^[\D]$", &["a"], &["1"]);
        check(r"^[[]x{$", &["[x{"], &["x"]);
        check(r"^a{,3}$", &["a{,3}"], &["aa"]);
        check(r"^[a&&b]+$", &["a&b"], &["c"]);
        check(r"^[!--/]$", &["-", "/", "!", "+"], &["a", "."]);
        check(r"^[a-c-e\d-]+$", &["abc-e1"], &["d"]);
        check(r"^[[:alpha:]\]]+$", &["ab]"], &["1"]);
        check(r"^\Qa.b\E+$", &["a.b", "a.bb"], &["axb"]);
        check(r"^\101\x{42}$", &["AB"], &["ab"]);
        check(r"^\/a\-b$", &["/a-b"], &["a"]);
        check(r"^(?i)abc$", &["ABC"], &[]);
        check(r"^.{1,1000}$", &["é"], &[""]);
        check(r"^\p{Greek}+$", &["αβγ"], &["abc"]);
        check(r"^[\p{L}\pN]{2}$", &["é1"], &["é-", "é"]);
        check(r"^\P{L}\x{e9}{2}$", &["1éé"], &["aéé", "1é"]);
        check(r"^(?P<n>a)(?<m>b)(?U:c+)(?i-s:D)$", &["abcd"], &["abc"]);
        check(r"^[[:^digit:][:upper:]]$", &["A", "x"], &["1"]);
        check(r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.){1,100}x$", &["a.b.x"], &["A.x"]);
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        let check = |pattern: &str, expected: &str| {
            let error = compile(pattern).expect_err(pattern);
            assert_eq!(error.to_string(), format!("error parsing regexp: {expected}"));
        };
        check("(", "missing closing ): `(`");
        check("a)", "unexpected ): `a)`");
        check("[a", "missing closing ]: `[a`");
        check("(?=a)", "invalid or unsupported Perl syntax: `(?=`");
        check("(?x)a b", "invalid or unsupported Perl syntax: `(?x`");
        check("a(?iu)", "invalid or unsupported Perl syntax: `(?iu`");
        check("[[:foo:]]", "invalid character class range: `[:foo:]`");
        check(r"\u0041", r"invalid escape sequence: `\u`");
        check(r"[\E]", r"invalid escape sequence: `\E`");
        check("a{1001}", "invalid repeat count: `{1001}`");
        check("x++", "invalid nested repetition operator: `++`");
        check("x*?{2}", "invalid nested repetition operator: `*?{2}`");
        check(r"\y", r"invalid escape sequence: `\y`");
    }
}

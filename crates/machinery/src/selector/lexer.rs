//! Words and symbols of a label selector, cut as upstream cuts them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    Closed,
    Open,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    GreaterThan,
    LessThan,
    NotEquals,
    In,
    NotIn,
    Identifier,
    End,
    Error,
}

/// Every token with its text, ended by `End`.
pub fn tokens(text: &str) -> Vec<(Token, String)> {
    let mut out = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let length = if is_symbol(first) {
            let (token, literal, length) = symbol(rest);
            out.push((token, literal));
            length
        } else {
            let length = rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len());
            let word = &rest[..length];
            let token = match word {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            out.push((token, word.to_string()));
            length
        };
        rest = rest[length..].trim_start_matches(is_space);
    }
    out.push((Token::End, String::new()));
    out
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// The longest symbol at the start of the text.
fn symbol(text: &str) -> (Token, String, usize) {
    const SYMBOLS: [(&str, Token); 9] = [
        ("!=", Token::NotEquals),
        ("==", Token::DoubleEquals),
        ("=", Token::Equals),
        ("!", Token::Not),
        (">", Token::GreaterThan),
        ("<", Token::LessThan),
        ("(", Token::Open),
        (")", Token::Closed),
        (",", Token::Comma),
    ];
    match SYMBOLS.iter().find(|(symbol, _)| text.starts_with(symbol)) {
        Some((symbol, token)) => (*token, symbol.to_string(), symbol.len()),
        None => (Token::Error, format!("error expected: keyword found '{text}'"), text.len()),
    }
}

//! Join tokens: `K10<hash of the authority>::server:<secret>`, as k3s writes it, `<id>.<secret>` with or
//! without the hash before it, as kubeadm does, or any text of one's own that is long enough.
//!
//! A bootstrap token (`<id>.<secret>`) is random and is sent as it is. Anything else is never sent: see `stretch`.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

const PREFIX: &str = "K10";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// Shorter texts are words, and words are guessed however slowly a guess is checked.
const TEXT_LENGTH_MIN: usize = 12;
/// `aaaaaaaaaaaa` is long, too.
const LETTERS_DIFFERENT_MIN: usize = 6;
/// 160 bits.
const GENERATED_LENGTH: usize = 32;
pub const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Whom a token lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Servers,
    Agents,
}

impl Role {
    /// The id of its bootstrap token. It says nothing of the token, since everybody may know it.
    pub fn id(self) -> &'static str {
        match self {
            Role::Servers => "server",
            Role::Agents => "agents",
        }
    }

    /// The name before the secret in the form of k3s.
    fn user(self) -> &'static str {
        match self {
            Role::Servers => "server",
            Role::Agents => "node",
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum Form {
    /// A bootstrap token of Kubernetes: random, and known to the API server.
    Bootstrap { id: String, secret: String },
    /// What people share. The API server never sees it.
    Text(String),
}

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The hash of the cluster's authority, which tells the right server from any other.
    pub authority: Option<String>,
    pub form: Form,
}

impl Token {
    /// A new bootstrap token that nobody can guess.
    pub fn generate(authority_pem: &str) -> anyhow::Result<Token> {
        let form = Form::Bootstrap { id: word(ID_LENGTH)?, secret: word(SECRET_LENGTH)? };
        Ok(Token { authority: Some(hash(authority_pem)), form })
    }

    /// A new one of servers.
    pub fn generate_text(authority_pem: &str) -> anyhow::Result<Token> {
        Ok(Token { authority: Some(hash(authority_pem)), form: Form::Text(word(GENERATED_LENGTH)?) })
    }

    pub fn with_authority(&self, authority_pem: &str) -> Token {
        Token { authority: Some(hash(authority_pem)), ..self.clone() }
    }

    /// What is shared, without the hash of the authority.
    pub fn secret(&self) -> String {
        match &self.form {
            Form::Bootstrap { id, secret } => format!("{id}.{secret}"),
            Form::Text(text) => text.clone(),
        }
    }

    /// The id of a bootstrap token, by which its Secret is found.
    pub fn bootstrap_id(&self) -> Option<&str> {
        match &self.form {
            Form::Bootstrap { id, .. } => Some(id),
            Form::Text(_) => None,
        }
    }

    /// As it is written to a file and typed.
    pub fn line(&self, role: Role) -> String {
        match (&self.authority, &self.form) {
            (Some(hash), Form::Text(text)) => format!("{PREFIX}{hash}::{}:{text}", role.user()),
            _ => self.to_string(),
        }
    }
}

/// The hash by which a token names an authority.
pub fn hash(authority_pem: &str) -> String {
    Sha256::digest(authority_pem.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Display for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match (&self.authority, &self.form) {
            (Some(hash), Form::Bootstrap { .. }) => write!(f, "{PREFIX}{hash}::{}", self.secret()),
            (Some(hash), Form::Text(text)) => write!(f, "{PREFIX}{hash}::{}:{text}", Role::Servers.user()),
            (None, _) => write!(f, "{}", self.secret()),
        }
    }
}

impl FromStr for Token {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Token> {
        let text = text.trim();
        let (authority, rest) = match text.strip_prefix(PREFIX).and_then(|rest| rest.split_once("::")) {
            Some((hash, rest)) => (Some(hash.to_owned()), rest),
            None => (None, text),
        };
        if authority.as_ref().is_some_and(|hash| hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            bail!("the part of the token before :: is not the hash of a CA; was it cut?");
        }
        let parts =
            rest.split_once('.').filter(|(id, secret)| is_word(id, ID_LENGTH) && is_word(secret, SECRET_LENGTH));
        if let Some((id, secret)) = parts {
            return Ok(Token { authority, form: Form::Bootstrap { id: id.to_owned(), secret: secret.to_owned() } });
        }
        let named = [Role::Servers, Role::Agents]
            .into_iter()
            .find_map(|role| rest.strip_prefix(role.user())?.strip_prefix(':'));
        match (named, &authority) {
            (Some(secret), Some(_)) => Ok(Token { authority, form: Form::Text(checked(secret)?) }),
            _ if authority.is_none() && !text.starts_with(PREFIX) && !rest.contains('.') && !rest.contains("::") => {
                Ok(Token { authority, form: Form::Text(checked(rest)?) })
            }
            _ => bail!(
                "the token does not have the form K10<hash>::<id>.<secret>; `knarr token create` on a server prints one"
            ),
        }
    }
}

/// A text that is worth stretching.
fn checked(text: &str) -> anyhow::Result<String> {
    let different: std::collections::BTreeSet<char> = text.chars().collect();
    ensure!(
        text.chars().count() >= TEXT_LENGTH_MIN && different.len() >= LETTERS_DIFFERENT_MIN,
        "the token is too easy to guess: give a text of at least {TEXT_LENGTH_MIN} letters, {LETTERS_DIFFERENT_MIN} of \
         them different, or none, and knarr makes one; `knarr token create` on a server prints one for a node"
    );
    Ok(text.to_owned())
}

fn is_word(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn word(length: usize) -> anyhow::Result<String> {
    let mut bytes = vec![0; length];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .ok()
        .context("get random numbers from the system")?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_it_was_written() {
        let made = Token::generate("an authority").unwrap();
        assert!(made.to_string().parse::<Token>().unwrap() == made);
        assert_eq!(made.authority.as_deref(), Some(hash("an authority").as_str()));
        let of_servers = Token::generate_text("an authority").unwrap();
        assert!(of_servers.line(Role::Servers).contains("::server:"));
        for role in [Role::Servers, Role::Agents] {
            assert!(of_servers.line(role).parse::<Token>().unwrap() == of_servers);
        }
        let own: Token = "correct horse battery staple".parse().unwrap();
        assert!(own.authority.is_none() && own.form == Form::Text("correct horse battery staple".into()));
        let pinned = own.with_authority("an authority");
        assert!(pinned.line(Role::Agents).parse::<Token>().unwrap() == pinned);
        let short: Token = "abcdef.0123456789abcdef".parse().unwrap();
        assert!(short.authority.is_none() && short.secret() == "abcdef.0123456789abcdef");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let pinned = format!("K10{}::server:short", hash("x"));
        for text in
            ["", "abcdef.short", "ABCDEF.0123456789abcdef", "K10abc::abcdef.0123456789abcdef", "K10::x.y", &pinned]
        {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }

    /// What upstream takes for a bootstrap token.
    #[test]
    fn bootstrap_tokens_are_those_of_upstream() {
        for (text, expected) in [
            ("", false),
            (".", false),
            ("1234567890123456789012", false),
            ("12345.1234567890123456", false),
            (".1234567890123456", false),
            ("123456.", false),
            ("123456:1234567890.123456", false),
            ("abcdef:1234567890123456", false),
            ("Abcdef.1234567890123456", false),
            ("123456.AABBCCDDEEFFGGHH", false),
            ("123456.AABBCCD-EEFFGGHH", false),
            ("abc*ef.1234567890123456", false),
            ("abcdef.1234567890123456", true),
            ("123456.aabbccddeeffgghh", true),
            ("ABCDEF.abcdef0123456789", false),
            ("abcdef.abcdef0123456789", true),
            ("123456.1234560123456789", true),
        ] {
            let found = text.parse::<Token>().is_ok_and(|token| matches!(token.form, Form::Bootstrap { .. }));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn texts_that_are_guessed_are_refused_with_a_sentence() {
        for text in ["abc", "sunshine1", "aaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababab"] {
            let refused = text.parse::<Token>().err().expect("it is refused").to_string();
            assert!(refused.contains("too easy to guess"), "{text}: {refused}");
        }
        assert!("shared by all".parse::<Token>().is_ok());
    }
}

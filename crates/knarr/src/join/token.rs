//! What one types on the next machine: `K10<hash of the authority>::<id>.<secret>`, as k3s writes it, or `<id>.<secret>`
//! alone, as kubeadm does, or any text of one's own.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

const PREFIX: &str = "K10";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// Shorter ones are guessed.
const PASSPHRASE_LENGTH_MIN: usize = 8;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The hash of the cluster's authority, which tells the right server from any other.
    pub authority: Option<String>,
    pub id: String,
    pub secret: String,
}

impl Token {
    /// A new one that nobody can guess.
    pub fn generate(authority_pem: &str) -> anyhow::Result<Token> {
        Ok(Token { authority: Some(hash(authority_pem)), id: word(ID_LENGTH)?, secret: word(SECRET_LENGTH)? })
    }

    /// Any text that people share, as k3s takes it. Who has the text has the token.
    fn of_passphrase(text: &str) -> Token {
        let word = |purpose: &str, length: usize| -> String {
            let digest = Sha256::digest(format!("knarr {purpose}: {text}"));
            digest.iter().take(length).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
        };
        Token { authority: None, id: word("id", ID_LENGTH), secret: word("secret", SECRET_LENGTH) }
    }

    pub fn with_authority(&self, authority_pem: &str) -> Token {
        Token { authority: Some(hash(authority_pem)), ..self.clone() }
    }

    /// As the API server takes it.
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// The hash by which a token names an authority.
pub fn hash(authority_pem: &str) -> String {
    Sha256::digest(authority_pem.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Display for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if let Some(hash) = &self.authority {
            write!(f, "{PREFIX}{hash}::")?;
        }
        write!(f, "{}.{}", self.id, self.secret)
    }
}

impl FromStr for Token {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Token> {
        let (authority, rest) = match text.trim().strip_prefix(PREFIX).and_then(|rest| rest.split_once("::")) {
            Some((hash, rest)) => (Some(hash.to_owned()), rest),
            None => (None, text.trim()),
        };
        let passphrase = !rest.contains('.') && !text.contains("::") && !text.starts_with(PREFIX);
        if passphrase && rest.len() >= PASSPHRASE_LENGTH_MIN {
            return Ok(Token::of_passphrase(rest));
        }
        let whole =
            || rest.split_once('.').filter(|(id, secret)| is_word(id, ID_LENGTH) && is_word(secret, SECRET_LENGTH));
        let Some((id, secret)) = whole() else {
            bail!("the token has not the form K10<hash>::<id>.<secret>; `knarr token create` on a server prints one");
        };
        if authority.as_ref().is_some_and(|hash| hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            bail!("the part of the token before :: is not the hash of an authority; was it cut?");
        }
        Ok(Token { authority, id: id.to_owned(), secret: secret.to_owned() })
    }
}

fn is_word(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn word(length: usize) -> anyhow::Result<String> {
    let mut bytes = vec![0; length];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .ok()
        .context("the system gives no random numbers")?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_it_was_written() {
        let made = Token::generate("an authority").unwrap();
        let read: Token = made.to_string().parse().unwrap();
        assert!(read == made);
        assert_eq!(read.authority.as_deref(), Some(hash("an authority").as_str()));
        let own: Token = "correct horse battery staple".parse().unwrap();
        assert!(own == "correct horse battery staple".parse().unwrap() && own.bearer().len() == 23);
        let short: Token = "abcdef.0123456789abcdef".parse().unwrap();
        assert!(short.authority.is_none() && short.bearer() == "abcdef.0123456789abcdef");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in
            ["", "abc", "abcdef.short", "ABCDEF.0123456789abcdef", "K10abc::abcdef.0123456789abcdef", "K10::x.y"]
        {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}

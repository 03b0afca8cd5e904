//! What an id token says of itself. It comes straight from the provider, over a connection that proves who that is, so its
//! signature is the API server's business.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;

/// A token with less time than this left is renewed: requests take a while, and clocks differ.
const SPARE_SECONDS: i64 = 60;

#[derive(Deserialize)]
pub struct Claims {
    pub exp: i64,
    #[serde(default)]
    pub iss: String,
    #[serde(default)]
    pub aud: Audience,
    pub nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Audience {
        Audience::Many(Vec::new())
    }
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Wrong {
    #[error("the id token is of issuer {0:?}")]
    Issuer(String),
    #[error("the id token is not for this client")]
    Audience,
    #[error("the id token answers another question (nonce)")]
    Nonce,
    #[error("the id token has expired")]
    Expired,
}

impl Claims {
    /// Nothing where the text is no token.
    pub fn parse(token: &str) -> Option<Claims> {
        let mut parts = token.split('.');
        let (Some(_), Some(body), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        let body = URL_SAFE_NO_PAD.decode(body.trim_end_matches('=')).ok()?;
        serde_json::from_slice(&body).ok()
    }

    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.exp > now.as_second().saturating_add(SPARE_SECONDS)
    }

    /// A refreshed token need not repeat the nonce.
    pub fn check(&self, issuer: &str, client: &str, nonce: Option<&str>, now: Timestamp) -> Result<(), Wrong> {
        if self.iss != issuer {
            return Err(Wrong::Issuer(self.iss.clone()));
        }
        let is_ours = match &self.aud {
            Audience::One(name) => name == client,
            Audience::Many(names) => names.iter().any(|name| name == client),
        };
        if !is_ours {
            return Err(Wrong::Audience);
        }
        if nonce.is_some() && self.nonce.as_deref() != nonce {
            return Err(Wrong::Nonce);
        }
        if self.exp > now.as_second() { Ok(()) } else { Err(Wrong::Expired) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub fn token(claims: Value) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(json!({"alg": "RS256"})), part(claims))
    }

    #[test]
    fn a_token_is_for_one_client_of_one_issuer_and_one_question() {
        let now = Timestamp::from_second(1_000).unwrap();
        let check = |claims: Value, expected: Result<(), Wrong>| {
            let parsed = Claims::parse(&token(claims.clone())).unwrap();
            assert_eq!(parsed.check("https://a", "kubectl", Some("n"), now), expected, "{claims}");
        };
        check(json!({"iss": "https://a", "aud": "kubectl", "nonce": "n", "exp": 1_001}), Ok(()));
        check(json!({"iss": "https://a", "aud": ["x", "kubectl"], "nonce": "n", "exp": 1_001}), Ok(()));
        let other = Wrong::Issuer("https://b".into());
        check(json!({"iss": "https://b", "aud": "kubectl", "nonce": "n", "exp": 1_001}), Err(other));
        check(json!({"iss": "https://a", "aud": "x", "nonce": "n", "exp": 1_001}), Err(Wrong::Audience));
        check(json!({"iss": "https://a", "aud": "kubectl", "exp": 1_001}), Err(Wrong::Nonce));
        check(json!({"iss": "https://a", "aud": "kubectl", "nonce": "n", "exp": 1_000}), Err(Wrong::Expired));
        for text in ["", "a.b", "a.b.c", "a.b.c.d"] {
            assert!(Claims::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_token_near_its_end_is_renewed() {
        let claims = Claims::parse(&token(json!({"exp": 1_000}))).unwrap();
        assert!(claims.is_fresh(Timestamp::from_second(939).unwrap()));
        assert!(!claims.is_fresh(Timestamp::from_second(940).unwrap()));
    }
}

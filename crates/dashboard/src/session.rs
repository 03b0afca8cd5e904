//! Sessions: who has signed in, sealed into a cookie that only the cluster's servers can read or make.
//!
//! Nothing is kept for a session but, until it would have ended anyway, that it was signed out: here, and for the other servers
//! by `Access`. A token is checked again with every request, so that it ends when the API says so, and never leaves the server
//! in clear.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use machinery::status::Status;
use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::access::{Credential, User};

/// Browsers give such a cookie back to this very host by TLS only, and no other host can set it.
pub(crate) const COOKIE_NAME: &str = "__Host-knarr-dashboard";
/// After so long everybody signs in again.
pub(crate) const LIFETIME: SignedDuration = SignedDuration::from_hours(12);
/// Browsers drop longer ones without a word.
const COOKIE_BYTES_MAX: usize = 4096;
/// So many signed-out sessions are remembered; each is forgotten when it would have ended.
const ENDED_MAX: usize = 10_000;
/// Binds a sealed text to what it is for.
const PURPOSE: &[u8] = b"knarr dashboard session 1";

/// What the cookie holds, sealed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub id: String,
    pub credential: Credential,
    /// Seconds since 1970.
    pub expires: i64,
}

impl Session {
    /// How long it would be good for.
    pub fn remains(&self, now: Timestamp) -> Duration {
        Duration::from_secs(u64::try_from(self.expires - now.as_second()).unwrap_or(0))
    }
}

pub(crate) struct Sessions {
    key: LessSafeKey,
    csrf: ring::hmac::Key,
    random: SystemRandom,
    ended: Mutex<BTreeMap<String, i64>>,
}

impl Sessions {
    /// Servers with the same secret know each other's sessions.
    pub fn new(secret: &[u8; 32]) -> Sessions {
        let derived =
            |purpose: &[u8]| ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret), purpose);
        let key = UnboundKey::new(&AES_256_GCM, derived(b"seal").as_ref()).expect("the digest is as long as the key");
        let csrf = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, derived(b"csrf").as_ref());
        Sessions { key: LessSafeKey::new(key), csrf, random: SystemRandom::new(), ended: Mutex::default() }
    }

    pub fn begin(&self, credential: Credential, expires: Option<Timestamp>, now: Timestamp) -> Result<Session, Status> {
        let latest = now + LIFETIME;
        let expires = expires.map_or(latest, |end| end.min(latest));
        Ok(Session { id: self.random_text()?, credential, expires: expires.as_second() })
    }

    /// The value of the `Set-Cookie` header.
    pub fn cookie(&self, session: &Session, now: Timestamp) -> Result<HeaderValue, Status> {
        let mut sealed = serde_json::to_vec(session).map_err(|error| Status::internal(error.to_string()))?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| Status::internal("no random numbers"))?;
        let sealing =
            self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PURPOSE), &mut sealed);
        sealing.map_err(|_| Status::internal("the session cannot be sealed"))?;
        let text = URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat());
        if text.len() + COOKIE_NAME.len() + 1 > COOKIE_BYTES_MAX {
            return Err(Status::bad_request("this token is too long for a browser's cookie: use a shorter one"));
        }
        let age = (session.expires - now.as_second()).max(0);
        let cookie = format!("{COOKIE_NAME}={text}; Max-Age={age}; HttpOnly; Secure; SameSite=Strict; Path=/");
        HeaderValue::from_str(&cookie).map_err(|error| Status::internal(error.to_string()))
    }

    /// The session of a request, if its cookie was made by us and has not ended.
    pub fn of(&self, headers: &HeaderMap, now: Timestamp) -> Option<Session> {
        let text = cookie_of(headers)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.key.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?;
        let session: Session = serde_json::from_slice(opened).ok()?;
        (session.expires > now.as_second() && !self.ended.lock().contains_key(&session.id)).then_some(session)
    }

    /// What requests that change something must show besides the cookie.
    pub fn csrf(&self, session: &Session) -> String {
        URL_SAFE_NO_PAD.encode(ring::hmac::sign(&self.csrf, session.id.as_bytes()))
    }

    pub(crate) fn is_csrf(&self, session: &Session, shown: &[u8]) -> bool {
        let shown = URL_SAFE_NO_PAD.decode(shown).unwrap_or_default();
        ring::hmac::verify(&self.csrf, session.id.as_bytes(), &shown).is_ok()
    }

    /// Whether one more can be signed out. Nobody fills memory and store by signing in and out.
    pub fn has_room(&self, now: Timestamp) -> Result<(), Status> {
        let mut ended = self.ended.lock();
        if ended.len() >= ENDED_MAX {
            ended.retain(|_, expires| *expires > now.as_second());
        }
        if ended.len() < ENDED_MAX {
            return Ok(());
        }
        Err(Status::too_many_requests(format!("{ENDED_MAX} sessions were signed out already: try again later"), 60))
    }

    /// A copy of the cookie that somebody kept is good for nothing from now on.
    pub fn end(&self, session: &Session, now: Timestamp) {
        let mut ended = self.ended.lock();
        ended.retain(|_, expires| *expires > now.as_second());
        ended.insert(session.id.clone(), session.expires);
    }

    pub fn is_ended(&self, session: &Session) -> bool {
        self.ended.lock().contains_key(&session.id)
    }

    /// 256 random bits as text.
    pub(crate) fn random_text(&self) -> Result<String, Status> {
        let mut bytes = [0; 32];
        self.random.fill(&mut bytes).map_err(|_| Status::internal("no random numbers"))?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// A cookie that takes the session's away.
pub(crate) fn no_cookie() -> HeaderValue {
    HeaderValue::from_static("__Host-knarr-dashboard=; Max-Age=0; HttpOnly; Secure; SameSite=Strict; Path=/")
}

fn cookie_of(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut found = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    found.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}

/// A session that was looked at: whose it is, and with what it asks.
#[derive(Clone)]
pub(crate) struct SignedIn {
    pub session: Session,
    pub user: User,
    pub client: kube::Client,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn headers(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap().to_string();
        [(COOKIE, format!("theme=dark; {pair}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_is_what_was_sealed_until_it_ends() {
        let sessions = Sessions::new(&[1; 32]);
        let session = sessions.begin(Credential::Token("secret-token".into()), Some(at(5000)), at(1000)).unwrap();
        let cookie = sessions.cookie(&session, at(1000)).unwrap();
        let text = cookie.to_str().unwrap();
        for attribute in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/", "Max-Age=4000"] {
            assert!(text.contains(attribute), "{text}");
        }
        assert!(!text.contains("secret-token") && !text.contains(&URL_SAFE_NO_PAD.encode("secret-token")));
        let headers = headers(&cookie);
        assert_eq!(sessions.of(&headers, at(4999)), Some(session.clone()));
        assert_eq!(sessions.of(&headers, at(5000)), None, "it has ended");
        assert_eq!(
            Sessions::new(&[1; 32]).of(&headers, at(1000)),
            Some(session.clone()),
            "another server, same secret"
        );
        assert_eq!(Sessions::new(&[2; 32]).of(&headers, at(1000)), None, "another cluster");
        assert_eq!(session.remains(at(1001)), Duration::from_secs(3999));
        sessions.end(&session, at(1001));
        assert_eq!(sessions.of(&headers, at(1002)), None, "signed out");
        assert_eq!(session.remains(at(9000)), Duration::ZERO);
    }

    #[test]
    fn as_many_are_signed_out_as_can_be_remembered() {
        let sessions = Sessions::new(&[1; 32]);
        for number in 0..ENDED_MAX {
            sessions.has_room(at(0)).unwrap();
            sessions.ended.lock().insert(number.to_string(), 100);
        }
        assert_eq!(sessions.has_room(at(99)).unwrap_err().code, 429);
        sessions.has_room(at(100)).unwrap();
    }

    #[test]
    fn a_changed_cookie_is_none() {
        let sessions = Sessions::new(&[1; 32]);
        let session = sessions.begin(Credential::Token("t".into()), None, at(0)).unwrap();
        let cookie = sessions.cookie(&session, at(0)).unwrap();
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        for position in COOKIE_NAME.len() + 1..pair.len() {
            let mut changed = pair.as_bytes().to_vec();
            changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
            let headers = [(COOKIE, HeaderValue::from_bytes(&changed).unwrap())].into_iter().collect();
            // The last sign may hold bits that mean nothing; then the decoder refuses it or the text is the same.
            assert_eq!(sessions.of(&headers, at(1)), None, "position {position}");
        }
    }

    #[test]
    fn sessions_have_different_marks_against_forgery() {
        let sessions = Sessions::new(&[1; 32]);
        let [one, other] = [0, 1].map(|_| sessions.begin(Credential::Token("t".into()), None, at(0)).unwrap());
        assert!(sessions.is_csrf(&one, sessions.csrf(&one).as_bytes()));
        assert!(!sessions.is_csrf(&one, sessions.csrf(&other).as_bytes()));
        assert!(!sessions.is_csrf(&one, b""));
    }

    #[test]
    fn a_token_that_fits_no_cookie_is_refused() {
        let sessions = Sessions::new(&[1; 32]);
        let session = sessions.begin(Credential::Token("t".repeat(4000)), None, at(0)).unwrap();
        assert_eq!(sessions.cookie(&session, at(0)).unwrap_err().code, 400);
    }
}

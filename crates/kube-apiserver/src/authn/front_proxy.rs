//! Users told by an authenticating proxy in headers, which only a certificate of the front proxy's CA makes believable.

use http::HeaderMap;
use jiff::Timestamp;

use super::client_certificate::is_valid;
use super::headers::{extras, texts};
use super::{Outcome, PeerCertificate, User};
use crate::pki::Signer;

/// Which proxies are believed, and in which headers they say who asks.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontProxy {
    /// Common names of their certificates; empty for every certificate of the front proxy's CA.
    pub allowed_names: Vec<String>,
    pub user_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl Default for FrontProxy {
    fn default() -> FrontProxy {
        FrontProxy {
            allowed_names: vec!["front-proxy-client".into()],
            user_headers: vec!["X-Remote-User".into()],
            uid_headers: vec!["X-Remote-Uid".into()],
            group_headers: vec!["X-Remote-Group".into()],
            extra_prefixes: vec!["X-Remote-Extra-".into()],
        }
    }
}

/// A certificate of the proxies' authority that may not speak for others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongProxy(String);

impl FrontProxy {
    /// Who asks through that proxy; nothing where it is none, or says nothing.
    pub fn user(
        &self,
        headers: &HeaderMap,
        peer: &PeerCertificate,
        now: Timestamp,
    ) -> Result<Option<User>, WrongProxy> {
        match authenticate(headers, peer, self, now) {
            Outcome::User(user) => Ok(Some(user)),
            Outcome::NotShown => Ok(None),
            Outcome::Wrong(why) => Err(WrongProxy(why)),
        }
    }
}

pub fn authenticate(headers: &HeaderMap, peer: &PeerCertificate, proxy: &FrontProxy, now: Timestamp) -> Outcome {
    let first = |names: &[String]| {
        let mut found = names.iter().filter_map(|name| texts(headers, name).find(|text| !text.is_empty()));
        found.next().unwrap_or_default()
    };
    let name = first(&proxy.user_headers);
    if peer.signer != Signer::FrontProxy || name.is_empty() {
        return Outcome::NotShown;
    }
    let allowed_names = &proxy.allowed_names;
    if !is_valid(peer, now) {
        return Outcome::Wrong("x509: certificate has expired or is not yet valid".into());
    }
    if !allowed_names.is_empty() && !allowed_names.contains(&peer.user.name) {
        return Outcome::Wrong(format!("x509: subject with cn={} is not in the allowed list", peer.user.name));
    }
    let prefixes = proxy.extra_prefixes.iter().map(|prefix| prefix.to_ascii_lowercase());
    Outcome::User(User {
        name,
        uid: first(&proxy.uid_headers),
        groups: proxy.group_headers.iter().flat_map(|name| texts(headers, name)).collect(),
        extra: prefixes.flat_map(|prefix| extras(headers, &prefix)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::{headers, user};

    #[test]
    fn headers_need_the_right_certificate() {
        let proxy = FrontProxy { allowed_names: vec!["proxy".into()], ..FrontProxy::default() };
        let check = |common_name: &str, signer: Signer, lines: &[(&str, &str)], expected: &str| {
            let peer = PeerCertificate { signer, user: user(common_name, &[]), not_before: 0, not_after: 200 };
            let now = Timestamp::from_second(100).unwrap();
            let outcome = match authenticate(&headers(lines), &peer, &proxy, now) {
                Outcome::User(user) => format!("{} {} {:?} {:?}", user.name, user.uid, user.groups, user.extra),
                Outcome::NotShown => "not shown".into(),
                Outcome::Wrong(reason) => reason,
            };
            assert_eq!(outcome, expected, "{lines:?}");
        };
        let bob = [
            ("x-remote-user", "bob"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fScope", "x"),
            ("x-remote-extra-example.com%2fscope", "y"),
        ];
        check("proxy", Signer::FrontProxy, &bob, r#"bob 7 ["a", "b"] {"example.com/scope": ["x", "y"]}"#);
        check("proxy", Signer::FrontProxy, &bob[1..], "not shown");
        check("proxy", Signer::FrontProxy, &[("x-remote-user", "")], "not shown");
        check("proxy", Signer::Cluster, &bob, "not shown");
        check("proxy", Signer::Unknown, &bob, "not shown");
        check("other", Signer::FrontProxy, &bob, "x509: subject with cn=other is not in the allowed list");
    }
}

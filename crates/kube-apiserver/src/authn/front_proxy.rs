//! Users told by an authenticating proxy in headers, which only a certificate of the front proxy's CA makes believable.

use http::HeaderMap;
use jiff::Timestamp;

use super::client_certificate::is_valid;
use super::headers::{extras, texts};
use super::{Outcome, PeerCertificate, User};
use crate::pki::Signer;

/// An empty list of names allows every certificate of the front proxy's CA.
pub fn authenticate(headers: &HeaderMap, peer: &PeerCertificate, allowed_names: &[String], now: Timestamp) -> Outcome {
    if peer.signer != Signer::FrontProxy || !headers.contains_key("x-remote-user") {
        return Outcome::NotShown;
    }
    if !is_valid(peer, now) {
        return Outcome::Wrong("x509: certificate has expired or is not yet valid".into());
    }
    if !allowed_names.is_empty() && !allowed_names.contains(&peer.user.name) {
        return Outcome::Wrong(format!("x509: subject with cn={} is not in the allowed list", peer.user.name));
    }
    let first = |name: &str| texts(headers, name).find(|text| !text.is_empty()).unwrap_or_default();
    let name = first("x-remote-user");
    if name.is_empty() {
        return Outcome::NotShown;
    }
    Outcome::User(User {
        name,
        uid: first("x-remote-uid"),
        groups: texts(headers, "x-remote-group").collect(),
        extra: extras(headers, "x-remote-extra-"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::{headers, user};

    #[test]
    fn headers_need_the_right_certificate() {
        let names = ["proxy".to_string()];
        let check = |common_name: &str, signer: Signer, lines: &[(&str, &str)], expected: &str| {
            let peer = PeerCertificate { signer, user: user(common_name, &[]), not_before: 0, not_after: 200 };
            let now = Timestamp::from_second(100).unwrap();
            let outcome = match authenticate(&headers(lines), &peer, &names, now) {
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

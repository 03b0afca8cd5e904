//! The identity in a client certificate of the cluster's CA: common name is the user, organizations are the groups.

use jiff::Timestamp;

use super::{Outcome, PeerCertificate};
use crate::pki::Signer;

pub fn authenticate(peer: &PeerCertificate, now: Timestamp) -> Outcome {
    if peer.signer != Signer::Cluster {
        return Outcome::Wrong("x509: certificate signed by unknown authority".into());
    }
    if !is_valid(peer, now) {
        return Outcome::Wrong("x509: certificate has expired or is not yet valid".into());
    }
    // A certificate without a name proves nothing about anyone.
    if peer.user.name.is_empty() { Outcome::NotShown } else { Outcome::User(peer.user.clone()) }
}

/// Checked with every request: a connection may be older than the end of its certificate.
pub(crate) fn is_valid(peer: &PeerCertificate, now: Timestamp) -> bool {
    (peer.not_before..=peer.not_after).contains(&now.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::user;

    #[test]
    fn certificates_are_judged() {
        let check = |name: &str, signer: Signer, second: i64, expected: &str| {
            let peer = PeerCertificate { signer, user: user(name, &["g"]), not_before: 100, not_after: 200 };
            let outcome = match authenticate(&peer, Timestamp::from_second(second).unwrap()) {
                Outcome::User(user) => format!("{} {:?}", user.name, user.groups),
                Outcome::NotShown => "not shown".into(),
                Outcome::Wrong(_) => "wrong".into(),
            };
            assert_eq!(outcome, expected, "{name} {signer:?} {second}");
        };
        check("alice", Signer::Cluster, 150, "alice [\"g\"]");
        check("alice", Signer::Cluster, 201, "wrong");
        check("alice", Signer::Cluster, 99, "wrong");
        check("alice", Signer::FrontProxy, 150, "wrong");
        check("alice", Signer::Unknown, 150, "wrong");
        check("", Signer::Cluster, 150, "not shown");
    }
}

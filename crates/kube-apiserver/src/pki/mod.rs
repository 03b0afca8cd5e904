//! Certificates and keys the cluster makes for itself, and the TLS configuration built from them.

use crate::authn::User;

/// A client certificate that was shown on the connection and chains to one of the CAs that are trusted.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    pub signer: Signer,
    /// The identity in the subject: common name and organizations.
    pub user: User,
    /// Seconds since 1970 between which the certificate is valid.
    pub not_before: i64,
    pub not_after: i64,
}

/// Who vouches for a client certificate. Only the front proxy's CA makes `X-Remote-User` believable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    Cluster,
    FrontProxy,
    Unknown,
}

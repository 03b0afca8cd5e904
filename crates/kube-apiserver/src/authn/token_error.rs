//! Why a token of a service account is not taken.

use crate::refusal::together;

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("invalid bearer token")]
    Unknown,
    #[error("invalid signature")]
    Signature,
    #[error("token audiences {meant_for} is invalid for the target audiences {wanted}")]
    Audiences { meant_for: String, wanted: String },
    #[error("service account token claims are incomplete")]
    Incomplete,
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    #[error("service account has been deleted")]
    AccountDeleted,
    #[error("service account UID ({actual}) does not match claim ({claimed})")]
    AccountUid { actual: String, claimed: String },
    #[error("{kind} UID ({actual}) does not match service account {kind} ref claim ({claimed})")]
    BoundUid { kind: &'static str, actual: String, claimed: String },
    #[error("{0} claim is missing")]
    NoClaim(&'static str),
    #[error("sub claim does not match the service account")]
    Subject,
    #[error("service account token does not match server's copy")]
    OtherCopy,
    #[error("service account token has been marked invalid")]
    MarkedInvalid,
    /// What those said who were asked, each a sentence.
    #[error("{}", together(.0))]
    Refused(Vec<String>),
}

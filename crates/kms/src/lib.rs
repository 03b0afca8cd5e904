//! Key management plugins (KMS v2) and external signers of tokens: the messages of their APIs (`proto/`, from which `generated/` is
//! made), and clients over a unix socket whose every call ends within a named time.

mod client;
mod signer;

/// The messages, client and server of the API, and the form of encrypted values in the store.
#[allow(clippy::all)]
pub mod v2 {
    include!("generated/v2.rs");
}

/// The messages, client and server of external signers of service accounts' tokens.
#[allow(clippy::all)]
pub mod externaljwt {
    include!("generated/v1.rs");
}

pub use client::{Plugin, channel};
pub use signer::Signer;

/// A time in seconds since 1970, as messages have it.
pub fn timestamp(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

/// Why a plugin did not do as told, in the words that gRPC has for it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("rpc error: code = {} desc = {message}", self.code_name())]
pub struct Error {
    pub code: tonic::Code,
    pub message: String,
}

impl Error {
    pub fn deadline(message: impl Into<String>) -> Error {
        Error { code: tonic::Code::DeadlineExceeded, message: message.into() }
    }

    pub fn is_deadline(&self) -> bool {
        self.code == tonic::Code::DeadlineExceeded
    }

    /// As Go spells it.
    pub fn code_name(&self) -> String {
        code_name(self.code)
    }
}

/// As Go spells it.
pub fn code_name(code: tonic::Code) -> String {
    match code {
        tonic::Code::Ok => "OK".to_owned(),
        tonic::Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_gos() {
        let error = Error { code: tonic::Code::Cancelled, message: "stopped".into() };
        assert_eq!(error.to_string(), "rpc error: code = Canceled desc = stopped");
        assert_eq!(code_name(tonic::Code::DeadlineExceeded), "DeadlineExceeded");
        assert_eq!(code_name(tonic::Code::Ok), "OK");
    }
}

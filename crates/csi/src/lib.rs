//! Storage drivers of a node: how they make themselves known, and how they are asked to show a volume.
//!
//! The messages are those of the Container Storage Interface v1 and of plugin registration v1 (`proto/`, from which `generated/` is made).
//! [`Registration`] and [`Driver`] are the clients that a kubelet uses; every call ends within a named time, whatever the other side does.

pub mod channel;
pub mod registration;
pub mod driver;

/// The messages, clients and servers of the Container Storage Interface.
#[allow(clippy::all)]
pub mod v1 {
    include!("generated/csi.v1.rs");
}

/// The messages, clients and servers of plugin registration.
#[allow(clippy::all)]
pub mod pluginregistration {
    include!("generated/pluginregistration.rs");
}

pub use driver::{Capabilities, Driver};
pub use registration::Registration;
pub use tonic::Code;

/// Why a driver did not do as told, in the words that gRPC has for it in upstream's events.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("rpc error: code = {} desc = {message}", name(*.code))]
pub struct Error {
    pub code: tonic::Code,
    pub message: String,
}

impl Error {
    /// Whether the driver has ended the call and does nothing more for it. Otherwise it may be at it still, or have done it.
    pub fn is_final(&self) -> bool {
        use tonic::Code;
        !matches!(
            self.code,
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::ResourceExhausted | Code::Aborted
        )
    }
}

impl Error {
    /// The name of its code, as Go spells it.
    pub fn code_name(&self) -> String {
        name(self.code)
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Error {
        Error { code: status.code(), message: status.message().to_owned() }
    }
}

/// As Go spells it.
fn name(code: tonic::Code) -> String {
    match code {
        tonic::Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_upstreams() {
        let error = Error::from(tonic::Status::internal("disk is gone"));
        assert_eq!(error.to_string(), "rpc error: code = Internal desc = disk is gone");
        assert!(error.is_final());
        let error = Error::from(tonic::Status::cancelled("enough"));
        assert_eq!(error.to_string(), "rpc error: code = Canceled desc = enough");
        assert!(!error.is_final());
        assert!(!Error::from(tonic::Status::deadline_exceeded("")).is_final());
    }
}

//! Errors of a call to etcd, and above all whether the call may have had an effect.

use std::io;

use tonic::{Code, Status};

use crate::StoreError;

#[derive(Debug)]
pub(super) enum Failure {
    /// The call certainly had no effect and may succeed elsewhere or later.
    NotDone(String),
    /// Nor had this one: the members are choosing who leads, and no other member would know more.
    NoLeader,
    /// The members chose who leads while the call was on its way. It is not known whether it had an effect.
    LeaderChanged(String),
    /// It is not known whether the call had an effect.
    Unknown(String),
    /// The revision asked for is no longer there.
    Compacted,
    /// The revision asked for does not exist yet.
    Future,
    /// The lease that a write named is gone; nothing was written.
    LeaseGone,
    /// Etcd is full and refuses writes.
    Full(String),
    /// Etcd said no.
    Refused(String),
}

impl Failure {
    /// What a call to this member came to.
    pub fn of(status: Status, endpoint: &str) -> Failure {
        let message = status.message();
        if let Some(failure) = known(message) {
            return failure;
        }
        let text = format!("{endpoint}: {}", explain(message, &status));
        match status.code() {
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented => {
                Failure::Refused(text)
            }
            _ if never_connected(&status) => Failure::NotDone(text),
            _ => Failure::Unknown(text),
        }
    }
}

/// The message and the cause at the bottom, which names the certificate or the port.
fn explain(message: &str, status: &(dyn std::error::Error + 'static)) -> String {
    let cause = causes(status).last().map(|cause| cause.to_string());
    match cause {
        Some(cause) if cause != message => format!("{message}: {cause}"),
        _ => message.to_owned(),
    }
}

fn causes<'a>(
    status: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(status.source(), |error| error.source())
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        match failure {
            Failure::NotDone(why) | Failure::Unknown(why) | Failure::LeaderChanged(why) => StoreError::Unavailable(why),
            Failure::NoLeader => StoreError::Unavailable("etcd has no leader".to_owned()),
            Failure::Compacted => StoreError::Other("required revision has been compacted".to_owned()),
            Failure::Future => StoreError::Other("required revision is a future revision".to_owned()),
            Failure::LeaseGone => StoreError::Unavailable("etcd lease of the key has expired".to_owned()),
            Failure::Full(why) => StoreError::ReadOnly(why),
            Failure::Refused(why) => StoreError::Other(why),
        }
    }
}

/// Etcd's own words. Those listed as not done are said before a proposal is made.
fn known(message: &str) -> Option<Failure> {
    Some(match message {
        "etcdserver: mvcc: required revision has been compacted" => Failure::Compacted,
        "etcdserver: mvcc: required revision is a future revision" => Failure::Future,
        "etcdserver: requested lease not found" => Failure::LeaseGone,
        "etcdserver: mvcc: database space exceeded" => Failure::Full(message.to_owned()),
        "etcdserver: no leader" => Failure::NoLeader,
        "etcdserver: leader changed"
        | "etcdserver: request timed out"
        | "etcdserver: request timed out, possibly due to previous leader failure" => {
            Failure::LeaderChanged(message.to_owned())
        }
        "etcdserver: too many requests" | "etcdserver: not capable" => Failure::NotDone(message.to_owned()),
        "etcdserver: request is too large" => Failure::Refused(message.to_owned()),
        _ => return None,
    })
}

/// A call that found nobody to connect to was not sent.
fn never_connected(status: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let kind = causes(status).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    matches!(kind, Some(ConnectionRefused | HostUnreachable | NetworkUnreachable))
}

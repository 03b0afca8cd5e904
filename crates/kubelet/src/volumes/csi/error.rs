//! Why a volume of a driver cannot be shown or taken back. Users read these texts in events, so the cause is a part of them, as it is
//! upstream.

use std::io;
use std::path::PathBuf;

use crate::objects::{ObjectError, in_words};
use crate::tokens::TokenError;

#[derive(Debug, thiserror::Error)]
pub(in crate::volumes) enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Driver(#[from] csi::Error),
    #[error("invalid volume name")]
    InvalidName,
    #[error("conflicting SELinux labels of volume {volume}: {old:?} and {new:?}")]
    Labels { volume: String, old: String, new: String },
    #[error("kubernetes.io/csi: {step}: driver name {driver} not found in the list of registered CSI drivers")]
    NoDriver { step: &'static str, driver: String },

    #[error("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {0}")]
    Lifecycle(#[from] LifecycleError),
    #[error(
        "fetching {what} {namespace}/{name} failed: kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} with error: {source}"
    )]
    Secret { what: &'static str, namespace: String, name: String, source: ObjectError },
    // The doubled letter is upstream's.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: {0}")]
    Token(#[from] TokenError),
    #[error("volume {handle} has GET error for volume attachment {id}: {source}")]
    Attachment { handle: String, id: String, source: ObjectError },
    #[error("volume attachment is being deleted")]
    AttachmentDeleted,
    /// What the driver's controller says of it.
    #[error("{0}")]
    AttachFailed(String),
    #[error("volume attachment {0} is not attached yet")]
    NotAttached(String),
    #[error("driver {driver} has published {what} at {}", .target.display())]
    Published { driver: String, what: Published, target: PathBuf },
    #[error("applyFSGroup failed for vol {handle}: {source}")]
    Group { handle: String, source: io::Error },
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to save volume info data: {0}")]
    Save(#[source] io::Error),
    #[error("driver {0} does not support NodeExpandVolume")]
    Expand(String),
    #[error("cannot write the status of claim {claim}: {}", in_words(.source))]
    ClaimStatus { claim: String, source: kube::Error },

    #[error("cannot read the records of CSI volumes: {0}")]
    Records(#[source] io::Error),
    #[error("cannot read {}: {source}", .path.display())]
    ReadRecord { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", .path.display())]
    WriteRecord { path: PathBuf, source: io::Error },
    #[error("cannot remove {}: {source}", .path.display())]
    RemoveRecord { path: PathBuf, source: io::Error },
    #[error("the record of CSI volume {0} names no volume")]
    NoVolume(String),
    #[error("CSI volume {name}: {source}")]
    Volume { name: String, source: Box<Error> },
    #[error("cannot list other users of the volume: {0}")]
    Users(#[source] io::Error),
    #[error("kubernetes.io/csi: Unmounter.TearDownAt failed: {0}")]
    Unpublish(#[source] csi::Error),
    #[error("kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [{}]: {source}", .target.display())]
    RemoveTarget { target: PathBuf, source: io::Error },
    #[error("kubernetes.io/csi: attacher.UnmountDevice failed: {0}")]
    Unstage(#[source] csi::Error),
    #[error("kubernetes.io/csi: failed to clean up global mount {}: {source}", .path.display())]
    RemoveStage { path: PathBuf, source: io::Error },
    #[error("driver {driver} says that it has {step} {}, but it is mounted", .target.display())]
    StillMounted { driver: String, step: &'static str, target: PathBuf },
}

/// What a driver has put where a volume should be.
#[derive(Debug, thiserror::Error)]
pub(in crate::volumes) enum Published {
    #[error("something that is not a directory")]
    NoDirectory,
    #[error("something that is not a block device")]
    NoBlockDevice,
    #[error("nothing ({0})")]
    Nothing(#[source] io::Error),
    #[error("a filesystem that does not answer")]
    Silent,
}

/// A driver may be for volumes of one kind only.
#[derive(Debug, thiserror::Error)]
pub(in crate::volumes) enum LifecycleError {
    #[error("volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)")]
    NoObject { mode: &'static str, driver: String },
    #[error("volume mode {mode:?} not supported by driver {driver} (only supports [{}])", quoted(.modes))]
    Other { mode: &'static str, driver: String, modes: Vec<String> },
}

fn quoted(modes: &[String]) -> String {
    modes.iter().map(|mode| format!("{mode:?}")).collect::<Vec<_>>().join(" ")
}

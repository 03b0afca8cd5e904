//! Why a volume is not there: the steps that fail, with the words that upstream has for them, and how they become the message of an
//! event.

use std::io;
use std::path::PathBuf;

use crate::objects::ObjectError;
use crate::pod::env::DownwardError;
use crate::pod_certificates::PodCertificateError;
use crate::tokens::TokenError;

/// Why a volume is not there yet; the text is the message of a FailedMount event.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("{0}")]
    Failed(String),
    /// A block device, about which events have a reason of their own.
    #[error("{0}")]
    FailedMap(String),
    /// The pod ends, and nothing needs to be told.
    #[error("pod is ending")]
    GivenUp,
}

impl VolumeError {
    /// The reason of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            VolumeError::Failed(_) | VolumeError::GivenUp => "FailedMount",
            VolumeError::FailedMap(_) => "FailedMapVolume",
        }
    }
}

impl From<Error> for VolumeError {
    fn from(error: Error) -> VolumeError {
        VolumeError::Failed(error.to_string())
    }
}

/// What went wrong with one volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// While it was set up.
    SetUp(String),
    /// It cannot even be said what should be mounted.
    Unprocessed(String),
    /// A whole message of its own.
    Message(String),
    /// The same about a block device.
    Map(String),
    /// The pod ends.
    GivenUp,
}

/// A step of the set-up failed.
impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::SetUp(error.to_string())
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::SetUp(error.to_string())
    }
}

impl Problem {
    /// What users are told about this volume.
    pub fn error(self, volume: &str) -> VolumeError {
        match self {
            Problem::Map(text) => VolumeError::FailedMap(text),
            Problem::GivenUp => VolumeError::GivenUp,
            other => VolumeError::Failed(other.message(volume)),
        }
    }

    pub fn message(self, volume: &str) -> String {
        match self {
            Problem::SetUp(text) => format!("MountVolume.SetUp failed for volume {volume:?} : {text}"),
            Problem::Unprocessed(text) => format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {text}"
            ),
            Problem::Message(text) | Problem::Map(text) => text,
            Problem::GivenUp => VolumeError::GivenUp.to_string(),
        }
    }
}

/// A step that failed. Users read these texts in events, so the cause is a part of them, as it is upstream.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{step}: {source}")]
    Step { step: String, source: io::Error },
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Downward(#[from] DownwardError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Filesystem(#[from] FilesystemError),
    #[error("{}", joined(.0))]
    Several(Vec<Error>),

    #[error("invalid volume name")]
    InvalidName,
    #[error("no volume plugin matched")]
    NoPlugin,
    #[error("image volume without a reference")]
    NoReference,
    #[error(
        "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by setting the feature-gate `GitRepoVolumeDriver` to true"
    )]
    GitRepo,
    #[error("configmap references non-existent config key: {0}")]
    NoConfigMapKey(String),
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoTrustBundle,
    #[error(transparent)]
    PodCertificate(#[from] PodCertificateError),
    #[error("unknown storage medium {0:?}")]
    Medium(String),
    #[error("cannot parse huge page size {0:?}")]
    HugePageSize(String),
    #[error("hugePages storage requested, but there is no resource request for huge pages")]
    NoHugePages,
    #[error("medium HugePages can only be used if a pod requests a single huge page size")]
    SeveralHugePages,
    #[error("invalid HostPath `{0}`: must not contain '..'")]
    HostPathUpwards(String),
    #[error("{0} is an invalid volume type")]
    HostPathType(String),
    #[error("hostPath type check failed: {} is not {what}", .path.display())]
    HostPathIsOther { path: PathBuf, what: &'static str },
    #[error("invalid path: {0} must not contain '..'")]
    LocalUpwards(String),
    #[error("path {0:?} does not exist")]
    NoLocalPath(String),
    #[error("only directory and block device are supported")]
    LocalType,
    #[error("local: failed to mount device {} at {} (fstype: {kind}), error {source}", .device.display(), .at.display())]
    LocalDevice { device: PathBuf, at: PathBuf, kind: String, source: FilesystemError },

    #[error("failed to fetch PVC from API server: {}", not_found("persistentvolumeclaims", .name, .source))]
    FetchClaim { name: String, source: ObjectError },
    #[error("failed to fetch PV {name} from API server: {}", not_found("persistentvolumes", .name, .source))]
    FetchVolume { name: String, source: ObjectError },
    #[error("PVC is being deleted")]
    ClaimDeleted,
    #[error("PVC is not bound")]
    ClaimUnbound,
    #[error("found PV object {0} with nil ClaimRef")]
    NoClaimRef(String),
    #[error("found PV object {volume} with an unexpected pv.Spec.ClaimRef.UID {found:?}; expected {expected:?}")]
    ClaimRef { volume: String, found: String, expected: String },
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner { claim: String, pod: String },
    #[error("no matching NodeSelectorTerms")]
    NodeAffinity,
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    InUse,
    #[error(transparent)]
    ClaimStatus(#[from] kube::Error),

    #[error("{}", joined(.0))]
    NoVariables(Vec<MissingVariable>),
    #[error("error SubPath `{0}` must not be an absolute path")]
    SubPathAbsolute(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathUpwards(String),
    #[error("invalid MountPropagation mode: {0:?}")]
    Propagation(String),
    #[error("volume {0:?} requested recursive read-only mode, but it is not read-only")]
    RecursiveWritable(String),
    #[error("volume {0:?} requested recursive read-only mode, but its mount propagation is not None")]
    RecursivePropagated(String),
    #[error("unknown recursive read-only mode {0:?}")]
    RecursiveMode(String),
    #[error("error DevicePath `{0}` must be an absolute path")]
    DevicePath(String),
    #[error("volume {0} has volumeMode Block, but is specified in volumeMounts")]
    BlockMounted(String),
    #[error("cannot find volume {volume:?} to {step} into container {container:?}")]
    NotMounted { volume: String, step: &'static str, container: String },
    #[error("{0}")]
    SubPath(String),
}

/// A variable of `subPathExpr` that the container does not have.
#[derive(Debug, thiserror::Error)]
#[error("missing value for {0:?}")]
pub(super) struct MissingVariable(pub String);

/// A path in a volume of files that must not be written, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    #[error("invalid path: must not be empty: ")]
    Empty,
    #[error("invalid path: must be relative path: {0}")]
    Absolute(String),
    #[error("invalid path: must be less than or equal to {max} characters")]
    Long { max: usize },
    #[error("invalid path: filenames must be less than or equal to {max} characters")]
    LongName { max: usize },
    #[error("invalid path: must not contain '..': {0}")]
    Upwards(String),
    #[error("invalid path: must not start with '..': {0}")]
    Hidden(String),
    #[error("invalid path: {0:?}")]
    Other(String),
}

impl From<PathError> for io::Error {
    fn from(error: PathError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// A program of the node that works on file systems.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesystemError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("mount failed: {0}")]
    RunMount(#[source] io::Error),
    #[error(
        "mount failed: {ended}\nMounting command: mount\nMounting arguments: {}\nOutput: {output}", .arguments.join(" ")
    )]
    Mount { ended: String, arguments: Vec<String>, output: String },
    #[error("cannot run {program}: {source}")]
    Run { program: String, source: io::Error },
    #[error("{program} failed: {ended}, output: {output}")]
    Failed { program: String, ended: String, output: String },
    #[error("cannot mount unformatted disk {} as we are in read-only mode", .0.display())]
    Unformatted(PathBuf),
    #[error("failed to mount the volume as {wanted:?}, it already contains {found}. Mount error: {source}")]
    OtherFormat { wanted: String, found: String, source: Box<FilesystemError> },
    #[error("resize of format {format} is not supported for device {}", .device.display())]
    Resize { format: String, device: PathBuf },
    #[error("'fsck' found errors on device {} but could not correct them: {output}", .device.display())]
    Uncorrected { device: PathBuf, output: String },
}

/// Several errors as upstream joins them.
fn joined(errors: &[impl std::fmt::Display]) -> String {
    match errors {
        [one] => one.to_string(),
        _ => format!("[{}]", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// What the API server says of objects that are not there has its own words for their kind.
fn not_found(resource: &str, name: &str, error: &ObjectError) -> String {
    if error.is_not_found() { format!("{resource} {name:?} not found") } else { error.to_string() }
}

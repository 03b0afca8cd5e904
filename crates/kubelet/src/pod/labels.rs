//! The labels and annotations with which upstream's kubelet marks what it makes in the runtime. They hold all that is needed to
//! know a pod's containers again after a restart.

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";

pub(crate) const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub(crate) const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(crate) const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub(crate) const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
pub(crate) const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
pub(crate) const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
pub(crate) const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// Where a pod comes from: `api` or `file`.
pub(crate) const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
pub(crate) const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

//! Volumes that this node cannot make, with the words that upstream has for a plugin that is not there.

use futures::FutureExt;
use futures::future::ready;

use super::{Error, Problem, Type};

/// Containers could run code on the node through it, which is why upstream ended it.
pub(super) static GIT_REPO: Type =
    Type { is: |volume| volume.git_repo.is_some(), mount: |_| ready(Err(Error::GitRepo.into())).boxed() };

/// Disks of storage networks: connecting to them is what CSI drivers do, which bring the tools along.
pub(super) static ISCSI: Type = Type {
    is: |volume| volume.iscsi.is_some(),
    mount: |request| ready(Err(disk(&request.volume.name, "iSCSI"))).boxed(),
};
pub(super) static FC: Type = Type {
    is: |volume| volume.fc.is_some(),
    mount: |request| ready(Err(disk(&request.volume.name, "Fibre Channel"))).boxed(),
};

pub(super) static TYPE: Type =
    Type { is: |_| true, mount: |request| ready(Err(no_plugin(&request.volume.name))).boxed() };

pub(super) fn disk(volume: &str, network: &str) -> Problem {
    Problem::Unprocessed(format!(
        "failed to get Plugin from volumeSpec for volume {volume:?} err=no volume plugin matched: this kubelet does not connect to {network} \
         targets itself; use a CSI driver"
    ))
}

pub(super) fn no_plugin(volume: &str) -> Problem {
    Problem::Unprocessed(format!(
        "failed to get Plugin from volumeSpec for volume {volume:?} err=no volume plugin matched"
    ))
}

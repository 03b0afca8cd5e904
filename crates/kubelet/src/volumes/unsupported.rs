//! Volumes that this node cannot make, with the words that upstream has for a plugin that is not there.

use futures::FutureExt;
use futures::future::ready;

use super::{Error, Problem, Type};

/// Containers could run code on the node through it, which is why upstream ended it.
pub(super) static GIT_REPO: Type =
    Type { is: |volume| volume.git_repo.is_some(), mount: |_| ready(Err(Error::GitRepo.into())).boxed() };

pub(super) static TYPE: Type =
    Type { is: |_| true, mount: |request| ready(Err(no_plugin(&request.volume.name))).boxed() };

pub(super) fn no_plugin(volume: &str) -> Problem {
    Problem::Unprocessed(format!(
        "failed to get Plugin from volumeSpec for volume {volume:?} err=no volume plugin matched"
    ))
}

//! The folders of plugins, and when something in them changes.

use std::path::Path;

use component_base::inotify::{Watcher, What};

/// A folder that cannot be watched, because watches are used up say, is told of and left out; so is one that is gone.
pub(super) fn watch(changes: &Watcher, folder: &Path) {
    let what = What::CREATE | What::DELETE | What::MOVED_FROM | What::MOVED_TO | What::ATTRIB;
    if let Err(error) = changes.add_if_there(folder, what) {
        tracing::warn!(%error, folder = %folder.display(), "cannot watch plugin folder");
    }
}

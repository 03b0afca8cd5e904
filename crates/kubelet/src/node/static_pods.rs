//! Static pods: manifests in a folder, read again whenever the kernel says that something there has changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component_base::inotify::{Watcher, What};
use component_base::tasks;
use k8s_openapi::api::core::v1::Pod;
use reconcile::{Clock, Shutdown};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::manifest;

/// Changes that come close together are read once.
const SETTLE: Duration = Duration::from_millis(50);
/// No manifest is larger; upstream refuses the same size.
const MANIFEST_BYTES_MAX: u64 = 10 << 20;

pub struct StaticPods {
    pods: watch::Sender<Vec<Arc<Pod>>>,
    _task: AbortOnDropHandle<()>,
}

impl StaticPods {
    /// Reads the folder and follows it until shutdown. With no folder there are no static pods.
    pub fn start(path: Option<PathBuf>, node: &str, clock: Clock, shutdown: Shutdown) -> StaticPods {
        let pods = watch::Sender::new(Vec::new());
        let (sender, node) = (pods.clone(), node.to_owned());
        let task = async move {
            let Some(path) = path else { return };
            tokio::select! {
                () = shutdown.cancelled() => {}
                result = follow(&path, &node, &clock, &sender) => if let Err(error) = result {
                    tracing::error!(%error, path = %path.display(), "cannot watch static pod manifests any more");
                },
            }
        };
        StaticPods { pods, _task: AbortOnDropHandle::new(tasks::spawn(task)) }
    }

    /// The pods that the files ask for now.
    pub fn pods(&self) -> watch::Receiver<Vec<Arc<Pod>>> {
        self.pods.subscribe()
    }
}

async fn follow(path: &Path, node: &str, clock: &Clock, pods: &watch::Sender<Vec<Arc<Pod>>>) -> std::io::Result<()> {
    let changes = Watcher::new()?;
    loop {
        // Watching comes before reading, so that no change falls between the two.
        add_watches(&changes, path)?;
        let (folder, name, clock, known) = (path.to_owned(), node.to_owned(), clock.clone(), pods.borrow().clone());
        let read = tokio::task::spawn_blocking(move || read(&folder, &name, &clock, &known)).await?;
        pods.send_if_modified(|old| {
            let changed = *old != read;
            *old = read;
            changed
        });
        changes.changed().await?;
        tokio::time::sleep(SETTLE).await;
    }
}

/// The path itself, and the folder above it: the path may be a file, or a folder that is yet to be made.
fn add_watches(changes: &Watcher, path: &Path) -> std::io::Result<()> {
    let content = What::CLOSE_WRITE
        | What::CREATE
        | What::DELETE
        | What::MOVED_FROM
        | What::MOVED_TO
        | What::ATTRIB
        | What::DELETE_SELF
        | What::MOVE_SELF;
    changes.add_if_there(path, content)?;
    let above = What::CREATE | What::MOVED_TO | What::DELETE_SELF;
    for folder in path.ancestors().skip(1) {
        let folder = if folder == Path::new("") { Path::new(".") } else { folder };
        if changes.add_if_there(folder, above)? {
            break;
        }
    }
    Ok(())
}

/// Every manifest that can be read. A pod that is known already stays the object it was, with the time it was first seen.
fn read(path: &Path, node: &str, clock: &Clock, known: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let mut pods: BTreeMap<(Option<String>, Option<String>), Arc<Pod>> = BTreeMap::new();
    for file in files(path) {
        let found = match text(&file) {
            Ok(body) => manifest::pods(&body, &file.to_string_lossy(), node, clock.now()),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(found) => {
                for pod in found {
                    let old = known.iter().find(|old| old.metadata.uid == pod.metadata.uid);
                    let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
                    if pods.contains_key(&name) {
                        tracing::warn!(file = %file.display(), name = name.1, "ignoring static pod: another manifest has the same name");
                        continue;
                    }
                    pods.insert(name, old.cloned().unwrap_or_else(|| Arc::new(pod)));
                }
            }
            Err(error) => tracing::error!(file = %file.display(), %error, "ignoring invalid static pod manifest"),
        }
    }
    pods.into_values().collect()
}

fn text(file: &Path) -> std::io::Result<Vec<u8>> {
    linux::file::read_followed(file, MANIFEST_BYTES_MAX)
}

/// Files, not folders, and none that is hidden: editors and copying tools keep unfinished ones under such names.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let hidden = |path: &Path| path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| !hidden(path) && path.is_file()).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, image: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
        )
    }

    /// Waits for the files to ask for these images.
    async fn expect(pods: &mut watch::Receiver<Vec<Arc<Pod>>>, images: &[&str]) -> Vec<Arc<Pod>> {
        let image = |pod: &Arc<Pod>| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        let reached = pods.wait_for(|pods| pods.iter().map(image).collect::<Vec<_>>() == images);
        let reached = tokio::time::timeout(Duration::from_secs(20), reached).await;
        reached.unwrap_or_else(|_| panic!("the files never asked for {images:?}")).unwrap().clone()
    }

    #[tokio::test]
    async fn files_that_come_change_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/manifests");
        let pods = StaticPods::start(Some(path.clone()), "n1", Clock::system(), Shutdown::new());
        let mut seen = pods.pods();
        expect(&mut seen, &[]).await;
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("b.yaml"), manifest("b", "b:1")).unwrap();
        let first = expect(&mut seen, &["b:1"]).await;
        std::fs::write(path.join(".hidden"), manifest("h", "h:1")).unwrap();
        std::fs::write(path.join("broken.yaml"), "kind: [").unwrap();
        std::fs::write(path.join(".tmp"), manifest("a", "a:1")).unwrap();
        std::fs::rename(path.join(".tmp"), path.join("a.json")).unwrap();
        let second = expect(&mut seen, &["a:1", "b:1"]).await;
        assert!(Arc::ptr_eq(&first[0], &second[1]), "an unchanged file's pod is the same, seen when it was first seen");
        std::fs::write(path.join("b.yaml"), manifest("b", "b:2")).unwrap();
        let third = expect(&mut seen, &["a:1", "b:2"]).await;
        assert_ne!(third[1].metadata.uid, second[1].metadata.uid);
        std::fs::remove_file(path.join("a.json")).unwrap();
        expect(&mut seen, &["b:2"]).await;
        std::fs::remove_dir_all(&path).unwrap();
        expect(&mut seen, &[]).await;
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("c.yaml"), manifest("c", "c:1")).unwrap();
        expect(&mut seen, &["c:1"]).await;
    }
}

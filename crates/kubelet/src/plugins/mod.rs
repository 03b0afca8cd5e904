//! Plugins of this node make themselves known by a socket below `<root>/plugins_registry`: who appears there is asked who it is,
//! registered with the part of the kubelet that knows its type, and told so. One whose socket goes is forgotten.

mod sockets;
mod folder;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component_base::inotify::Watcher;
use component_base::tasks;
use csi::Registration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::drivers::{Drivers, Registrant};
use crate::node::Seen;
use sockets::Identity;

/// The folder's name below the kubelet's root.
pub const FOLDER: &str = "plugins_registry";
/// Sockets that are made and removed close together are looked at once.
const SETTLE: Duration = Duration::from_millis(20);
/// A plugin that did not register is asked again, ever more rarely, as upstream.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(122);

/// A plugin's socket that is being looked after.
struct Known {
    identity: Identity,
    /// Cancelled when the socket is gone.
    gone: CancellationToken,
}

/// Registers plugins until it is dropped.
pub async fn run(root: &Path, drivers: Arc<Drivers>, node: watch::Receiver<Seen>) {
    let folder = root.join(FOLDER);
    if let Err(error) = linux::file::make_private_folder(&folder) {
        tracing::error!(%error, folder = %folder.display(), "cannot make the folder of plugins; no plugin can register");
        return;
    }
    if let Err(error) = follow(&folder, drivers, node).await {
        tracing::error!(%error, folder = %folder.display(), "cannot watch the folder of plugins; no plugin can register any more");
    }
}

async fn follow(folder: &Path, drivers: Arc<Drivers>, node: watch::Receiver<Seen>) -> std::io::Result<()> {
    let changes = Watcher::new()?;
    let mut known: BTreeMap<PathBuf, Known> = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut number = 0;
    loop {
        let path = folder.to_owned();
        // Watching comes before reading, so that no change falls between the two.
        let found = sockets::find(&path, |folder| folder::watch(&changes, folder));
        known.retain(|socket, entry| {
            let stays = found.get(socket) == Some(&entry.identity);
            if !stays {
                entry.gone.cancel();
            }
            stays
        });
        for (socket, identity) in found {
            if known.contains_key(&socket) {
                continue;
            }
            let gone = CancellationToken::new();
            number += 1;
            let by = Registrant { socket: socket.clone(), number };
            let plugin = Plugin { by, drivers: drivers.clone(), node: node.clone(), gone: gone.clone() };
            tasks.spawn(tasks::boxed(plugin.look_after()));
            known.insert(socket, Known { identity, gone });
        }
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "registration of a plugin failed");
            }
        }
        changes.changed().await?;
        tokio::time::sleep(SETTLE).await;
    }
}

struct Plugin {
    by: Registrant,
    drivers: Arc<Drivers>,
    node: watch::Receiver<Seen>,
    gone: CancellationToken,
}

impl Plugin {
    /// From the socket's appearance until it is gone.
    async fn look_after(self) {
        let Some(name) = self.registered().await else { return };
        tokio::select! {
            () = self.gone.cancelled() => {}
            () = self.drivers.keep_announced(&name, self.node.clone()) => {}
        }
        tracing::info!(plugin = name, socket = %self.by.socket.display(), "plugin's socket is gone; unregistering it");
        self.drivers.unregister(&name, &self.by).await;
    }

    /// The plugin's name once it is registered; nothing when it went before.
    async fn registered(&self) -> Option<String> {
        let mut wait = RETRY;
        loop {
            let tried = tokio::select! {
                () = self.gone.cancelled() => {
                    // It may have been noted before the rest was done.
                    self.drivers.unregister_all(&self.by).await;
                    return None;
                }
                tried = self.register() => tried,
            };
            match tried {
                Ok(name) => {
                    tracing::info!(plugin = name, socket = %self.by.socket.display(), "registered plugin");
                    return Some(name);
                }
                Err(error) => tracing::warn!(error, socket = %self.by.socket.display(), "cannot register plugin"),
            }
            tokio::select! {
                () = self.gone.cancelled() => return None,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY_MAX),
            }
        }
    }

    /// One try; the plugin hears how it went, in upstream's words.
    async fn register(&self) -> Result<String, String> {
        let socket = self.by.socket.display();
        let plugin = Registration::new(&self.by.socket);
        let info = plugin.info().await;
        let info = info.map_err(|error| {
            format!(
                "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {socket}, err: {error}"
            )
        })?;
        let outcome = match info.r#type.as_str() {
            "CSIPlugin" => self.drivers.register(&info, &self.by).await,
            other => Err(format!(
                "RegisterPlugin error -- no handler registered for plugin type: {other} at socket {socket}"
            )),
        };
        let told = plugin.notify(outcome.as_ref().map(drop).map_err(String::as_str)).await;
        if let Err(error) = told {
            self.drivers.unregister(&info.name, &self.by).await;
            return Err(format!(
                "RegisterPlugin error -- failed to send registration status at socket {socket}, err: {error}"
            ));
        }
        outcome.map(|()| info.name)
    }
}

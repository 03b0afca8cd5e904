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
use csi::pluginregistration::PluginInfo;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::claims::{self, Claims};
use crate::device_plugins::{self, DevicePlugins};
use crate::drivers::{self, Drivers, Registrant};
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

/// The parts of the kubelet that know a type of plugins each.
#[derive(Clone)]
pub struct Handlers {
    pub drivers: Arc<Drivers>,
    pub device_plugins: Arc<DevicePlugins>,
    pub claims: Arc<Claims>,
}

/// A plugin as the part that took it in knows it.
enum Taken {
    Storage { name: String },
    Devices { resource: String, number: u64 },
    Claims { name: String },
}

/// Why a plugin is not registered, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {socket}, err: {source}")]
    Info { socket: String, source: csi::Error },
    #[error("RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}")]
    NoHandler { kind: String, socket: String },
    #[error(transparent)]
    Storage(#[from] drivers::RegisterError),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Devices(#[from] device_plugins::RegisterError),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Claims(#[from] claims::RegisterError),
    #[error("RegisterPlugin error -- failed to send registration status at socket {socket}, err: {source}")]
    Notify { socket: String, source: csi::Error },
}

/// Registers plugins until it is dropped.
pub async fn run(root: &Path, handlers: Handlers, node: watch::Receiver<Seen>) {
    let folder = root.join(FOLDER);
    if let Err(error) = linux::file::make_private_folder(&folder) {
        tracing::error!(%error, folder = %folder.display(), "cannot create plugin folder; no plugin can register");
        return;
    }
    label_for_plugins(&folder);
    // Where CSI drivers keep theirs. It is made when the first volume is, unless a driver comes before.
    let of_drivers = root.join("plugins");
    if of_drivers.is_dir() {
        label_for_plugins(&of_drivers);
    }
    if let Err(error) = follow(&folder, handlers, node).await {
        tracing::error!(%error, folder = %folder.display(), "cannot watch plugin folder; no plugin can register any more");
    }
}

/// Of folders whose sockets plugins in containers connect to.
const LABEL: &str = "system_u:object_r:container_file_t:s0";

/// Lets containers that are not privileged use a folder of sockets, where the machine has SELinux.
pub(crate) fn label_for_plugins(folder: &Path) {
    if !linux::selinux::is_enabled() {
        return;
    }
    if let Err(error) = linux::selinux::set_label(folder, LABEL) {
        tracing::warn!(%error, folder = %folder.display(), "cannot set SELinux label; unprivileged plugins may not work");
    }
}

async fn follow(folder: &Path, handlers: Handlers, node: watch::Receiver<Seen>) -> std::io::Result<()> {
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
            let plugin = Plugin { by, handlers: handlers.clone(), node: node.clone(), gone: gone.clone() };
            tasks.spawn(tasks::boxed(plugin.look_after()));
            known.insert(socket, Known { identity, gone });
        }
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "plugin registration task failed");
            }
        }
        changes.changed().await?;
        tokio::time::sleep(SETTLE).await;
    }
}

struct Plugin {
    by: Registrant,
    handlers: Handlers,
    node: watch::Receiver<Seen>,
    gone: CancellationToken,
}

impl Plugin {
    /// From the socket's appearance until it is gone.
    async fn look_after(self) {
        let Some(taken) = self.registered().await else { return };
        match &taken {
            Taken::Storage { name } => tokio::select! {
                () = self.gone.cancelled() => {}
                () = self.handlers.drivers.keep_announced(name, self.node.clone()) => {}
            },
            Taken::Devices { .. } | Taken::Claims { .. } => self.gone.cancelled().await,
        }
        tracing::info!(plugin = taken.name(), socket = %self.by.socket.display(), "plugin socket is gone; unregistering plugin");
        self.give_up(&taken).await;
    }

    async fn give_up(&self, taken: &Taken) {
        match taken {
            Taken::Storage { name } => self.handlers.drivers.unregister(name, &self.by).await,
            Taken::Devices { resource, number } => self.handlers.device_plugins.disconnected(resource, *number),
            Taken::Claims { name } => self.handlers.claims.unregister(name, &self.by),
        }
    }

    /// The plugin once it is registered; nothing when it went before.
    async fn registered(&self) -> Option<Taken> {
        let mut wait = RETRY;
        loop {
            let tried = tokio::select! {
                () = self.gone.cancelled() => {
                    // It may have been noted before the rest was done.
                    self.handlers.drivers.unregister_all(&self.by).await;
                    self.handlers.claims.unregister_all(&self.by);
                    return None;
                }
                tried = self.register() => tried,
            };
            match tried {
                Ok(taken) => {
                    tracing::info!(plugin = taken.name(), socket = %self.by.socket.display(), "registered plugin");
                    return Some(taken);
                }
                Err(error) => tracing::warn!(%error, socket = %self.by.socket.display(), "cannot register plugin"),
            }
            tokio::select! {
                () = self.gone.cancelled() => return None,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY_MAX),
            }
        }
    }

    /// One try; the plugin hears how it went.
    async fn register(&self) -> Result<Taken, RegisterError> {
        let socket = || self.by.socket.display().to_string();
        let plugin = Registration::new(&self.by.socket);
        let info = plugin.info().await.map_err(|source| RegisterError::Info { socket: socket(), source })?;
        let outcome = self.take(&info).await;
        let words = outcome.as_ref().err().map(ToString::to_string);
        let told = plugin.notify(words.as_deref().map_or(Ok(()), Err)).await;
        if let Err(source) = told {
            if let Ok(taken) = &outcome {
                self.give_up(taken).await;
            }
            return Err(RegisterError::Notify { socket: socket(), source });
        }
        outcome
    }

    async fn take(&self, info: &PluginInfo) -> Result<Taken, RegisterError> {
        let handlers = &self.handlers;
        match info.r#type.as_str() {
            "CSIPlugin" => {
                let name = info.name.clone();
                handlers.drivers.register(info, &self.by).await?;
                Ok(Taken::Storage { name })
            }
            "DevicePlugin" => {
                let resource = info.name.clone();
                let socket = drivers::endpoint(info, &self.by.socket);
                let number = handlers.device_plugins.register(&resource, &info.supported_versions, &socket).await?;
                Ok(Taken::Devices { resource, number })
            }
            "DRAPlugin" => {
                let name = info.name.clone();
                let socket = drivers::endpoint(info, &self.by.socket);
                handlers.claims.register(&name, &info.supported_versions, &socket, &self.by)?;
                Ok(Taken::Claims { name })
            }
            other => {
                let socket = self.by.socket.display().to_string();
                Err(RegisterError::NoHandler { kind: other.to_owned(), socket })
            }
        }
    }
}

impl Taken {
    fn name(&self) -> &str {
        match self {
            Taken::Storage { name } | Taken::Claims { name } => name,
            Taken::Devices { resource, .. } => resource,
        }
    }
}

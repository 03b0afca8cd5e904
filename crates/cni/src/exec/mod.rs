//! Third-party CNI plugins: programs that are run with a configuration on their input, versions 0.3 to 1.1 of the protocol.
//!
//! The first configuration of a folder counts, as with every other runtime. What a plugin answered to ADD is kept, together
//! with the configuration it was asked with, because DEL must show both to it again, even after the folder has changed.

mod configuration;
mod plugin;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use cri::{Addresses, Network, SandboxNetwork};
use linux::sockets::Listeners;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{Error, Result, check_sandbox, write_atomically};
pub use configuration::ConfigurationError;
pub use plugin::PluginError;

use configuration::Configuration;
use plugin::{Attachment, Command};

/// The pod's device.
const INTERFACE: &str = "eth0";

#[derive(Clone, Debug)]
pub struct Config {
    pub conf_dir: PathBuf,
    /// Searched in this order.
    pub bin_dirs: Vec<PathBuf>,
    /// What was attached, and how.
    pub state_dir: PathBuf,
    /// The namespace in which plugins run when it is not that of this process.
    pub node_namespace: Option<PathBuf>,
}

pub struct Exec {
    config: Config,
    /// Ranges for plugins that ask for them.
    pod_cidr: Mutex<Option<String>>,
}

/// One attachment as it is kept.
#[derive(serde::Serialize, serde::Deserialize)]
struct Kept {
    configuration: Configuration,
    arguments: String,
    netns: PathBuf,
    runtime: Value,
    result: Option<Value>,
}

impl Exec {
    pub fn open(config: Config) -> Result<Exec> {
        let folder = &config.state_dir;
        linux::file::make_private_folder(folder).map_err(|source| Error::File { path: folder.clone(), source })?;
        Ok(Exec { config, pod_cidr: Mutex::new(None) })
    }

    /// Asks the plugins whether the pod's network still is as they made it.
    pub async fn check(&self, sandbox: &str) -> Result<()> {
        check_sandbox(sandbox)?;
        let Some(kept) = self.kept(sandbox)? else { return Ok(()) };
        if !kept.configuration.knows(Command::Check) {
            return Ok(());
        }
        for plugin in &kept.configuration.plugins {
            let attachment = kept.attachment(sandbox);
            plugin::run(&self.config, Command::Check, &kept.configuration, plugin, &attachment, kept.result.as_ref())
                .await?;
        }
        Ok(())
    }

    async fn add(&self, pod: &SandboxNetwork) -> Result<Addresses> {
        check_sandbox(&pod.sandbox)?;
        match self.kept(&pod.sandbox)? {
            Some(Kept { result: Some(result), .. }) => return Ok(Addresses { ips: addresses(&result) }),
            // An attempt that a crash interrupted: plugins must not be asked twice to add the same.
            Some(_) => self.delete(&pod.sandbox).await?,
            None => {}
        }
        let ports = crate::builtin::ports_of(&pod.port_mappings);
        if !ports.is_empty() {
            let listening = Listeners::new(self.config.node_namespace.as_deref()).look().map_err(Error::Sockets)?;
            crate::builtin::check_ports(pod, &ports, &listening)?;
        }
        crate::builtin::set_loopback_up(&pod.netns).await?;
        let mut kept = Kept {
            configuration: Configuration::load(&self.config.conf_dir)?,
            arguments: arguments(pod),
            netns: pod.netns.clone(),
            runtime: runtime_configuration(pod, self.pod_cidr.lock().await.as_deref()),
            result: None,
        };
        // Before the first plugin runs: what a crash interrupts must be taken back, too.
        self.keep_attachment(&pod.sandbox, &kept)?;
        let mut result: Option<Value> = None;
        for plugin in &kept.configuration.plugins {
            let attachment = kept.attachment(&pod.sandbox);
            match plugin::run(&self.config, Command::Add, &kept.configuration, plugin, &attachment, result.as_ref())
                .await
            {
                Ok(answer) => result = answer.or(result),
                Err(error) => {
                    if let Err(second) = self.delete(&pod.sandbox).await {
                        tracing::warn!(error = %second, sandbox = pod.sandbox, "cannot undo CNI ADD");
                    }
                    return Err(error);
                }
            }
        }
        let ips = result.as_ref().map(addresses).unwrap_or_default();
        kept.result = result;
        self.keep_attachment(&pod.sandbox, &kept)?;
        Ok(Addresses { ips })
    }

    async fn delete(&self, sandbox: &str) -> Result<()> {
        check_sandbox(sandbox)?;
        let Some(mut kept) = self.kept(sandbox)? else { return Ok(()) };
        if !nlink::netlink::namespace::is_namespace_path(&kept.netns) {
            // Plugins free what is outside of it when it is named no more.
            kept.netns = PathBuf::new();
        }
        for plugin in kept.configuration.plugins.iter().rev() {
            let attachment = kept.attachment(sandbox);
            plugin::run(&self.config, Command::Del, &kept.configuration, plugin, &attachment, kept.result.as_ref())
                .await?;
        }
        let path = self.path(sandbox);
        std::fs::remove_file(&path).map_err(|source| Error::File { path, source })
    }

    async fn keep(&self, sandboxes: &[String]) -> Result<()> {
        let folder = &self.config.state_dir;
        let fail = |source| Error::File { path: folder.clone(), source };
        for entry in std::fs::read_dir(folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let sandbox = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_none_or(|extension| extension != "json") {
                // Half-written by a crash.
                std::fs::remove_file(&path).map_err(|source| Error::File { path, source })?;
            } else if !sandboxes.contains(&sandbox) {
                self.delete(&sandbox).await?;
            }
        }
        let configuration = match Configuration::load(&self.config.conf_dir) {
            // Whoever brings the network may still be on the way, and has left nothing behind.
            Err(Error::NoConfiguration(_)) => return Ok(()),
            other => other?,
        };
        if !configuration.knows(Command::Gc) || configuration.gc_disabled {
            return Ok(());
        }
        let valid: Vec<Value> =
            sandboxes.iter().map(|sandbox| json!({ "containerID": sandbox, "ifname": INTERFACE })).collect();
        for plugin in &configuration.plugins {
            let attachment = Attachment { valid: Some(valid.clone()), ..Attachment::default() };
            plugin::run(&self.config, Command::Gc, &configuration, plugin, &attachment, None).await?;
        }
        Ok(())
    }

    async fn status(&self) -> Result<()> {
        let configuration = Configuration::load(&self.config.conf_dir)?;
        for plugin in &configuration.plugins {
            plugin::find(&self.config, plugin)?;
            if configuration.knows(Command::Status) {
                plugin::run(&self.config, Command::Status, &configuration, plugin, &Attachment::default(), None)
                    .await?;
            }
        }
        Ok(())
    }

    fn path(&self, sandbox: &str) -> PathBuf {
        self.config.state_dir.join(format!("{sandbox}.json"))
    }

    fn kept(&self, sandbox: &str) -> Result<Option<Kept>> {
        let path = self.path(sandbox);
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(kept) => Ok(Some(kept)),
                Err(error) => Err(Error::File { path, source: error.into() }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::File { path, source }),
        }
    }

    fn keep_attachment(&self, sandbox: &str, kept: &Kept) -> Result<()> {
        write_atomically(&self.path(sandbox), &serde_json::to_vec(kept).expect("an attachment can be written"))
    }
}

impl Kept {
    fn attachment(&self, sandbox: &str) -> Attachment {
        Attachment {
            container: sandbox.to_owned(),
            netns: self.netns.clone(),
            interface: INTERFACE.to_owned(),
            arguments: self.arguments.clone(),
            runtime: self.runtime.clone(),
            valid: None,
        }
    }
}

#[async_trait]
impl Network for Exec {
    async fn attach(&self, pod: &SandboxNetwork) -> cri::Result<Addresses> {
        Ok(self.add(pod).await?)
    }

    async fn detach(&self, pod: &SandboxNetwork) -> cri::Result<()> {
        Ok(self.delete(&pod.sandbox).await?)
    }

    async fn keep_only(&self, sandboxes: &[String]) -> cri::Result<()> {
        Ok(self.keep(sandboxes).await?)
    }

    async fn set_pod_cidr(&self, pod_cidr: &str) -> cri::Result<()> {
        *self.pod_cidr.lock().await = Some(pod_cidr.to_owned());
        Ok(())
    }

    async fn not_ready(&self) -> Option<String> {
        self.status().await.err().map(|error| error.to_string())
    }
}

/// What plugins with these capabilities are told beside their configuration.
fn runtime_configuration(pod: &SandboxNetwork, pod_cidr: Option<&str>) -> Value {
    let ports: Vec<Value> = pod
        .port_mappings
        .iter()
        .filter(|mapping| mapping.host_port > 0)
        .map(|mapping| {
            let protocol = match mapping.protocol {
                1 => "udp",
                2 => "sctp",
                _ => "tcp",
            };
            json!({
                "hostPort": mapping.host_port,
                "containerPort": mapping.container_port,
                "protocol": protocol,
                "hostIP": mapping.host_ip,
            })
        })
        .collect();
    let ranges: Vec<Value> =
        pod_cidr.iter().flat_map(|text| text.split(',')).map(|range| json!([{ "subnet": range.trim() }])).collect();
    let mut runtime = json!({ "io.kubernetes.cri.pod-annotations": pod.annotations });
    if !ports.is_empty() {
        runtime["portMappings"] = ports.into();
    }
    if !ranges.is_empty() {
        runtime["ipRanges"] = ranges.into();
    }
    if let Some(bandwidth) = bandwidth(&pod.annotations) {
        runtime["bandwidth"] = bandwidth;
    }
    runtime
}

/// The annotations by which a pod asks for limits of its traffic. A burst without end, as every runtime gives.
fn bandwidth(annotations: &HashMap<String, String>) -> Option<Value> {
    let mut limits = serde_json::Map::new();
    for (annotation, direction) in
        [("kubernetes.io/ingress-bandwidth", "ingress"), ("kubernetes.io/egress-bandwidth", "egress")]
    {
        let Some(text) = annotations.get(annotation) else { continue };
        match bits_per_second(text) {
            Some(rate) => {
                limits.insert(format!("{direction}Rate"), rate.into());
                limits.insert(format!("{direction}Burst"), i32::MAX.into());
            }
            None => tracing::warn!(annotation, text, "ignoring invalid bandwidth annotation"),
        }
    }
    (!limits.is_empty()).then(|| limits.into())
}

fn bits_per_second(text: &str) -> Option<u64> {
    let at = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let factor = match &text[at..] {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    // Upstream takes from one kilobit to one petabit.
    let rate = text[..at].parse::<f64>().ok()? * factor;
    (1e3..=1e15).contains(&rate).then_some(rate as u64)
}

fn arguments(pod: &SandboxNetwork) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.sandbox, pod.uid
    )
}

/// The pod's addresses in a result: those of its own interface, or all when the plugin names none.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let inside = |index: &Value| {
        let interface = index.as_u64().and_then(|index| result["interfaces"].get(index as usize));
        interface.is_none_or(|interface| interface["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty()))
    };
    let ips = result["ips"].as_array().into_iter().flatten().filter(|ip| inside(&ip["interface"]));
    ips.filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok()).collect()
}

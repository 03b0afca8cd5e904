//! Settings of a server that users of k3s know: its tokens, its kubeconfig, its ranges of ports, what it leaves out.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use machinery::duration::InvalidDuration;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Token with which nodes join, instead of the generated one in <data-dir>/server/node-token.
    #[arg(long, env = "KNARR_AGENT_TOKEN", hide_env_values = true)]
    agent_token: Option<String>,
    /// Read the token of nodes from this file.
    #[arg(long, env = "KNARR_AGENT_TOKEN_FILE", conflicts_with = "agent_token")]
    agent_token_file: Option<PathBuf>,
    /// Also write the admin kubeconfig to this file; it is always in <data-dir>/admin.kubeconfig.
    #[arg(long, short = 'o', env = "KNARR_WRITE_KUBECONFIG")]
    pub write_kubeconfig: Option<PathBuf>,
    /// File mode of --write-kubeconfig, or else of <data-dir>/admin.kubeconfig, such as 0640.
    #[arg(long, env = "KNARR_WRITE_KUBECONFIG_MODE", value_parser = mode, default_value = "0600")]
    pub write_kubeconfig_mode: u32,
    /// Port range of NodePort Services.
    #[arg(long, env = "KNARR_SERVICE_NODE_PORT_RANGE", value_parser = port_range, default_value = "30000-32767")]
    pub service_node_port_range: RangeInclusive<u16>,
    /// Prefix length of a node's pod CIDR (default: large enough for --max-pods).
    #[arg(long, alias = "node-cidr-mask-size-ipv4", env = "KNARR_NODE_CIDR_MASK_SIZE", value_parser = clap::value_parser!(u8).range(8..=30))]
    pub node_cidr_mask_size: Option<u8>,
    /// Directory of local-path volumes on every node (default: <data-dir>/storage).
    #[arg(long, env = "KNARR_DEFAULT_LOCAL_STORAGE_PATH")]
    default_local_storage_path: Option<PathBuf>,
    /// Port on 127.0.0.1 for health and metrics of the controllers, with HTTPS, for whom the cluster knows and allows; 0 disables it.
    #[arg(long, env = "KNARR_CONTROLLER_MANAGER_SECURE_PORT", default_value_t = 10257)]
    pub controller_manager_secure_port: u16,
    /// The same for the scheduler.
    #[arg(long, env = "KNARR_SCHEDULER_SECURE_PORT", default_value_t = 10259)]
    pub scheduler_secure_port: u16,
    /// Disable the scheduler; same as --disable=kube-scheduler.
    #[arg(long, env = "KNARR_DISABLE_SCHEDULER")]
    disable_scheduler: bool,
    /// Disable the controllers; same as --disable=kube-controller-manager.
    #[arg(long, env = "KNARR_DISABLE_CONTROLLER_MANAGER")]
    disable_controller_manager: bool,
    /// Disable the cloud controllers; same as --disable=cloud-controller-manager.
    #[arg(long, env = "KNARR_DISABLE_CLOUD_CONTROLLER")]
    disable_cloud_controller: bool,
    /// What `/flagz` of the controllers and of the scheduler shows.
    #[arg(skip)]
    pub controllers_shown: component_helpers::zpages::Flags,
    #[arg(skip)]
    pub scheduler_shown: component_helpers::zpages::Flags,
}

impl Flags {
    /// The token of nodes, where the operator chose it.
    pub fn agent_token(&self) -> anyhow::Result<Option<String>> {
        match &self.agent_token_file {
            Some(file) => Ok(Some(std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?)),
            None => Ok(self.agent_token.clone()),
        }
    }

    pub fn local_storage_folder(&self, data_dir: &Path) -> anyhow::Result<String> {
        let folder = self.default_local_storage_path.clone().unwrap_or_else(|| data_dir.join("storage"));
        let folder = std::path::absolute(folder).context("find directory of local storage")?;
        Ok(folder.to_string_lossy().into_owned())
    }

    /// The parts that these flags leave out, as `--disable` names them.
    pub fn disabled(&self) -> Vec<String> {
        let switches = [
            (self.disable_scheduler, "kube-scheduler"),
            (self.disable_controller_manager, "kube-controller-manager"),
            (self.disable_cloud_controller, "cloud-controller-manager"),
        ];
        switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name.to_owned()).collect()
    }
}

/// Seconds, or a time as Go writes it.
pub fn seconds_or_duration(text: &str) -> Result<Duration, InvalidDuration> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => crate::leader::duration(text),
    }
}

/// YAML takes 0640 without quotes for an octal number, which arrives here as 416; no such number lets its owner read and write.
fn mode(text: &str) -> anyhow::Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && mode & 0o600 == 0o600);
    mode.context("a mode that lets the owner read and write is needed, such as 0640; in a file put it in quotes")
}

/// `30000-32767`, `30000:32767`, or `30000+2767`, as upstream's flag; one port is a range, too.
pub fn port_range(text: &str) -> anyhow::Result<RangeInclusive<u16>> {
    let wrong = || anyhow::anyhow!("{text:?} is not a port range such as 30000-32767");
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number).ok_or_else(wrong)
    };
    let trimmed = text.trim();
    let (first, last) = if let Some((first, last)) = trimmed.split_once(['-', ':']) {
        (number(first)?, number(last)?)
    } else if let Some((first, more)) = trimmed.split_once('+') {
        let first = number(first)?;
        (first, first.checked_add(number(more)?).ok_or_else(wrong)?)
    } else {
        (number(trimmed)?, number(trimmed)?)
    };
    if first == 0 || first > last { Err(wrong()) } else { Ok(first..=last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_let_the_owner_write() {
        for (text, expected) in [("0644", Some(0o644)), ("600", Some(0o600)), ("640", Some(0o640))] {
            assert_eq!(mode(text).ok(), expected);
        }
        // What 0600, 0640, 0644, 0660 and 0777 without quotes become in YAML.
        for text in ["384", "416", "420", "432", "511", "0400", "1777", "rw", ""] {
            assert!(mode(text).is_err(), "{text}");
        }
    }

    /// What upstream's flag makes of these, but for ranges that begin with 0: no Service can have that port.
    #[test]
    fn ranges_of_ports() {
        for (text, expected) in [
            ("30000-32767", Some(30000..=32767)),
            ("80:80", Some(80..=80)),
            (" 100-200 ", Some(100..=200)),
            ("100", Some(100..=100)),
            ("1+0", Some(1..=1)),
            ("100+200", Some(100..=300)),
            ("1-65535", Some(1..=65535)),
            ("", None),
            ("100 - 200", None),
            ("-100", None),
            ("100-", None),
            ("200-100", None),
            ("60000-70000", None),
            ("70000-80000", None),
            ("70000+80000", None),
            ("1+-1", None),
            ("1-+1", None),
            ("1+65535", None),
            ("0-5", None),
            ("a-b", None),
        ] {
            assert_eq!(port_range(text).ok(), expected, "{text:?}");
        }
        let told = port_range("2-1").unwrap_err().to_string();
        assert_eq!(told, "\"2-1\" is not a port range such as 30000-32767");
    }

    #[test]
    fn times_may_be_seconds() {
        assert_eq!(seconds_or_duration("3600"), Ok(Duration::from_secs(3600)));
        assert_eq!(seconds_or_duration("1h0m0s"), Ok(Duration::from_secs(3600)));
        assert!(seconds_or_duration("soon").is_err());
    }
}

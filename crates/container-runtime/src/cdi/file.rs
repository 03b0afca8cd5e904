//! One file of a vendor: read, and refused as a whole if anything in it is not as it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

/// A file is a list of devices, not a database.
const BYTES_MAX: u64 = 8 << 20;
/// All versions of the interface. What a file says must be in its version.
static VERSIONS: [(u64, u64, u64); 10] =
    [(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0), (0, 5, 0), (0, 6, 0), (0, 7, 0), (0, 8, 0), (1, 0, 0), (1, 1, 0)];

/// Why a file does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    #[error("{0}")]
    Decode(#[from] machinery::codec::DecodeError),
    #[error("{}", .0.join(", "))]
    Duplicates(Vec<String>),
    #[error("{0}")]
    Shape(#[from] serde_json::Error),
    #[error("invalid CDI version {0:?}")]
    Version(String),
    #[error("the spec version must be at least v{needed}")]
    TooOld { needed: String },
    #[error("invalid kind {0:?}, it must be a vendor and a class")]
    Kind(String),
    #[error("invalid device name {0:?}")]
    Name(String),
    #[error("invalid spec, multiple device {0:?}")]
    Twice(String),
    #[error("invalid device {0:?}, empty device edits")]
    NoEdits(String),
    #[error("invalid spec, no devices")]
    NoDevices,
    #[error("invalid {what} {value:?}")]
    Value { what: &'static str, value: String },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct File {
    cdi_version: String,
    pub kind: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub devices: Vec<Device>,
    #[serde(default)]
    pub container_edits: Edits,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Device {
    pub name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub container_edits: Edits,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Edits {
    #[serde(default)]
    pub env: Vec<String>,
    #[serde(default)]
    pub device_nodes: Vec<Node>,
    #[serde(default)]
    pub net_devices: Vec<serde_json::Value>,
    #[serde(default)]
    pub hooks: Vec<Hook>,
    #[serde(default)]
    pub mounts: Vec<Mount>,
    pub intel_rdt: Option<serde_json::Value>,
    #[serde(default, rename = "additionalGids")]
    pub additional_gids: Vec<u32>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Node {
    pub path: String,
    pub host_path: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub major: Option<i64>,
    pub minor: Option<i64>,
    pub file_mode: Option<u32>,
    pub permissions: Option<String>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Mount {
    pub host_path: String,
    pub container_path: String,
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Hook {
    pub hook_name: String,
    pub path: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: Vec<String>,
    pub timeout: Option<i64>,
}

impl File {
    pub fn read(path: &Path) -> Result<File, FileError> {
        File::parse(&linux::file::read_followed(path, BYTES_MAX)?)
    }

    /// JSON is YAML too.
    pub fn parse(bytes: &[u8]) -> Result<File, FileError> {
        let decoded = machinery::codec::decode_yaml(bytes)?;
        if !decoded.duplicates.is_empty() {
            return Err(FileError::Duplicates(decoded.duplicates));
        }
        let file: File = machinery::codec::typed(&machinery::codec::without_nulls(decoded.value))?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), FileError> {
        let version = parse_version(&self.cdi_version).filter(|version| VERSIONS.contains(version));
        let version = version.ok_or_else(|| FileError::Version(self.cdi_version.clone()))?;
        let (vendor, class) = self.kind.split_once('/').ok_or_else(|| FileError::Kind(self.kind.clone()))?;
        if !is_word(vendor, "_-.", Starts::Letter) || !is_word(class, "_-.", Starts::Letter) {
            return Err(FileError::Kind(self.kind.clone()));
        }
        let mut names = BTreeSet::new();
        self.container_edits.check()?;
        for device in &self.devices {
            if !is_word(&device.name, "_-.:", Starts::LetterOrDigit) {
                return Err(FileError::Name(device.name.clone()));
            }
            if !names.insert(&device.name) {
                return Err(FileError::Twice(device.name.clone()));
            }
            if device.container_edits == Edits::default() {
                return Err(FileError::NoEdits(device.name.clone()));
            }
            device.container_edits.check()?;
        }
        if names.is_empty() {
            return Err(FileError::NoDevices);
        }
        match self.needs() {
            needed if needed > version => {
                Err(FileError::TooOld { needed: format!("{}.{}.{}", needed.0, needed.1, needed.2) })
            }
            _ => Ok(()),
        }
    }

    /// The first version that has all of what the file says.
    fn needs(&self) -> (u64, u64, u64) {
        let all = || self.devices.iter().map(|device| &device.container_edits).chain([&self.container_edits]);
        let annotated = !self.annotations.is_empty() || self.devices.iter().any(|one| !one.annotations.is_empty());
        let class_has_dot = self.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
        let digit = |device: &Device| device.name.starts_with(|letter: char| letter.is_ascii_digit());
        if all().any(|edits| !edits.net_devices.is_empty()) {
            (1, 1, 0)
        } else if all().any(|edits| edits.intel_rdt.is_some() || !edits.additional_gids.is_empty()) {
            (0, 7, 0)
        } else if annotated || class_has_dot {
            (0, 6, 0)
        } else if self.devices.iter().any(digit)
            || all().flat_map(|edits| &edits.device_nodes).any(|node| node.host_path.is_some())
        {
            (0, 5, 0)
        } else if all().flat_map(|edits| &edits.mounts).any(|mount| mount.kind.is_some()) {
            (0, 4, 0)
        } else {
            (0, 3, 0)
        }
    }
}

impl Edits {
    fn check(&self) -> Result<(), FileError> {
        let bad = |what: &'static str, value: &str| Err(FileError::Value { what, value: value.to_owned() });
        let hook_env = self.hooks.iter().flat_map(|hook| &hook.env);
        if let Some(variable) = self.env.iter().chain(hook_env).find(|one| !one.contains('=') || one.starts_with('=')) {
            return bad("environment variable", variable);
        }
        for node in &self.device_nodes {
            let kind = node.kind.as_deref().unwrap_or_default();
            if !matches!(kind, "" | "b" | "c" | "u" | "p") {
                return bad("type of a device", kind);
            }
            let permissions = node.permissions.as_deref().unwrap_or_default();
            if permissions.chars().any(|letter| !"rwm".contains(letter)) {
                return bad("permissions of a device", permissions);
            }
            if !node.path.starts_with('/') || node.path.contains("/../") {
                return bad("path of a device", &node.path);
            }
        }
        for mount in &self.mounts {
            if mount.host_path.is_empty() || !mount.container_path.starts_with('/') {
                return bad("mount", &format!("{}:{}", mount.host_path, mount.container_path));
            }
        }
        for hook in &self.hooks {
            if !HOOKS.contains(&hook.hook_name.as_str()) || hook.path.is_empty() {
                return bad("hook", &format!("{} {}", hook.hook_name, hook.path));
            }
        }
        Ok(())
    }
}

static HOOKS: [&str; 6] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let numbers: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
    match *numbers? {
        [major, minor, patch] => Some((major, minor, patch)),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    Letter,
    LetterOrDigit,
}

/// Letters, digits and these; the ends are letters or digits.
pub(super) fn is_word(text: &str, between: &str, starts: Starts) -> bool {
    let begins = text.chars().next().is_some_and(|letter| match starts {
        Starts::Letter => letter.is_ascii_alphabetic(),
        Starts::LetterOrDigit => letter.is_ascii_alphanumeric(),
    });
    let ends = text.chars().last().is_some_and(|letter| letter.is_ascii_alphanumeric());
    begins && ends && text.chars().all(|letter| letter.is_ascii_alphanumeric() || between.contains(letter))
}

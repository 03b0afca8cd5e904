//! Network configurations: a list of plugins, or a single one, from the first file of a folder.

use std::path::Path;

use serde_json::{Map, Value};

use super::plugin::Command;
use crate::{Error, Result};

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Configuration {
    pub name: String,
    pub version: String,
    pub plugins: Vec<Map<String, Value>>,
    pub check_disabled: bool,
    pub gc_disabled: bool,
}

impl Configuration {
    /// The first usable file by name.
    pub fn load(folder: &Path) -> Result<Configuration> {
        let fail = |source| Error::File { path: folder.to_owned(), source };
        let mut paths = Vec::new();
        match std::fs::read_dir(folder) {
            Ok(entries) => {
                for entry in entries {
                    paths.push(entry.map_err(fail)?.path());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        paths.sort();
        let is_configuration = |path: &&std::path::PathBuf| {
            path.extension().is_some_and(|end| end == "conflist" || end == "conf" || end == "json")
        };
        let path = paths.iter().find(is_configuration).ok_or_else(|| Error::NoConfiguration(folder.to_owned()))?;
        let bytes = std::fs::read(path).map_err(|source| Error::File { path: path.clone(), source })?;
        parse(&bytes).map_err(|source| Error::Configuration { path: path.clone(), source })
    }

    /// Whether the version of the configuration has this command.
    pub fn knows(&self, command: Command) -> bool {
        let at_least = |wanted| number(&self.version).is_some_and(|version| version >= wanted);
        match command {
            Command::Add | Command::Del => true,
            Command::Check => at_least([0, 4]) && !self.check_disabled,
            Command::Gc | Command::Status => at_least([1, 1]),
        }
    }
}

/// What of a network configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it has no name")]
    NoName,
    #[error("cniVersion {0:?} is not between 0.3.0 and 1.1.0")]
    Version(Option<String>),
    #[error("plugins is not a list")]
    Plugins,
    #[error("a plugin has no usable type")]
    PluginType,
    #[error("it lists no plugins")]
    NoPlugins,
}

fn parse(bytes: &[u8]) -> std::result::Result<Configuration, ConfigurationError> {
    let mut value: Map<String, Value> = serde_json::from_slice(bytes)?;
    let text = |value: &Map<String, Value>, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let flag = |value: &Map<String, Value>, key: &str| match value.get(key) {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(flag)) => flag.eq_ignore_ascii_case("true"),
        _ => false,
    };
    let name = text(&value, "name").filter(|name| !name.is_empty()).ok_or(ConfigurationError::NoName)?;
    let (check_disabled, gc_disabled) = (flag(&value, "disableCheck"), flag(&value, "disableGC"));
    // Of several versions the newest that we speak is taken.
    let listed = value.get("cniVersions").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let versions = listed.map(str::to_owned).chain(text(&value, "cniVersion"));
    let version = versions.filter(|version| spoken(version)).max_by_key(|version| number(version));
    let version = version.ok_or_else(|| ConfigurationError::Version(text(&value, "cniVersion")))?;
    let plugins = match value.remove("plugins") {
        Some(Value::Array(plugins)) => plugins,
        Some(_) => return Err(ConfigurationError::Plugins),
        None => vec![Value::Object(value)],
    };
    let mut parsed = Vec::new();
    for plugin in plugins {
        match plugin {
            Value::Object(plugin) if text(&plugin, "type").is_some_and(|kind| !kind.contains('/')) => {
                parsed.push(plugin)
            }
            _ => return Err(ConfigurationError::PluginType),
        }
    }
    if parsed.is_empty() {
        return Err(ConfigurationError::NoPlugins);
    }
    Ok(Configuration { name, version, plugins: parsed, check_disabled, gc_disabled })
}

fn spoken(version: &str) -> bool {
    number(version).is_some_and(|version| ([0, 3]..=[1, 1]).contains(&version))
}

fn number(version: &str) -> Option<[u32; 2]> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_single_plugins_are_read() {
        let list = parse(br#"{"cniVersion":"1.0.0","cniVersions":["0.4.0","1.1.0","2.0.0"],"name":"n","disableCheck":"true","plugins":[{"type":"bridge"},{"type":"portmap"}]}"#).unwrap();
        assert_eq!((list.version.as_str(), list.plugins.len()), ("1.1.0", 2));
        assert!(list.knows(Command::Gc) && !list.knows(Command::Check));
        let single = parse(br#"{"cniVersion":"0.4.0","name":"n","type":"bridge","bridge":"b"}"#).unwrap();
        assert_eq!(single.plugins[0]["bridge"], "b");
        assert!(single.knows(Command::Check) && !single.knows(Command::Status));
        for bad in [
            r#"{"cniVersion":"9.0.0","name":"n","type":"x"}"#,
            r#"{"cniVersion":"1.0.0","type":"x"}"#,
            r#"{"cniVersion":"1.0.0","name":"n","plugins":[]}"#,
            r#"{"cniVersion":"1.0.0","name":"n","type":"../x"}"#,
            "[]",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Configuration::load(folder.path()), Err(Error::NoConfiguration(_))));
        for (file, name) in [("20-b.conf", "b"), ("10-a.conflist", "a"), ("00-readme.txt", "c")] {
            let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"bridge"}}"#);
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        assert_eq!(Configuration::load(folder.path()).unwrap().name, "a");
    }
}

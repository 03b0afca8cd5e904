//! One call of one plugin.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::{Map, Value};

use super::Config;
use super::configuration::Configuration;
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
}

impl Command {
    fn word(self) -> &'static str {
        match self {
            Command::Add => "add",
            Command::Del => "delete",
            Command::Check => "check",
            Command::Gc => "gc",
            Command::Status => "status",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
        }
    }
}

/// Whom a call is about; nobody for GC and STATUS.
#[derive(Clone, Debug, Default)]
pub struct Attachment {
    pub container: String,
    pub netns: PathBuf,
    pub interface: String,
    pub arguments: String,
    /// By capability.
    pub runtime: Value,
    /// For GC: what shall stay.
    pub valid: Option<Vec<Value>>,
}

/// What it printed, for ADD.
pub async fn run(
    config: &Config,
    command: Command,
    configuration: &Configuration,
    plugin: &Map<String, Value>,
    attachment: &Attachment,
    previous: Option<&Value>,
) -> Result<Option<Value>> {
    let kind = plugin["type"].as_str().unwrap_or_default().to_owned();
    let fail = |source: PluginError| Error::Plugin { plugin: kind.clone(), command: command.word(), source };
    let path = find(config, plugin)?;
    let input = input(configuration, plugin, attachment, previous);
    let mut process = std::process::Command::new(path);
    let folders = std::env::join_paths(&config.bin_dirs).map_err(|error| fail(error.into()))?;
    process.env("CNI_COMMAND", command.variable()).env("CNI_PATH", folders);
    if !attachment.container.is_empty() {
        process
            .env("CNI_CONTAINERID", &attachment.container)
            .env("CNI_NETNS", &attachment.netns)
            .env("CNI_IFNAME", &attachment.interface)
            .env("CNI_ARGS", &attachment.arguments);
    }
    let namespace = config.node_namespace.clone();
    let start = move || match namespace {
        Some(namespace) => linux::netns::run_in(&namespace, || execute(process, &input)).and_then(|done| done),
        None => execute(process, &input),
    };
    let output = tokio::task::spawn_blocking(start).await.map_err(|error| fail(error.into()))?;
    answer(command, output.map_err(|error| fail(error.into()))?).map_err(fail)
}

/// The plugin's program, in the first folder that has it.
pub fn find(config: &Config, plugin: &Map<String, Value>) -> Result<PathBuf> {
    let kind = plugin["type"].as_str().unwrap_or_default();
    let found = config.bin_dirs.iter().map(|folder| folder.join(kind)).find(|path| path.is_file());
    found.ok_or_else(|| Error::NoPlugin { plugin: kind.to_owned(), searched: config.bin_dirs.clone() })
}

fn execute(mut process: std::process::Command, input: &[u8]) -> std::io::Result<Output> {
    let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // A plugin that ends without reading says why in its answer.
    let _ = child.stdin.take().expect("its input is a pipe").write_all(input);
    child.wait_with_output()
}

fn input(
    configuration: &Configuration,
    plugin: &Map<String, Value>,
    attachment: &Attachment,
    previous: Option<&Value>,
) -> Vec<u8> {
    let mut input = plugin.clone();
    input.insert("name".to_owned(), configuration.name.clone().into());
    input.insert("cniVersion".to_owned(), configuration.version.clone().into());
    let capabilities = input.remove("capabilities");
    let declared = capabilities.as_ref().and_then(Value::as_object).into_iter().flatten();
    let runtime: Map<String, Value> = declared
        .filter(|(_, wanted)| wanted.as_bool() == Some(true))
        .filter_map(|(name, _)| Some((name.clone(), attachment.runtime.get(name)?.clone())))
        .collect();
    if !runtime.is_empty() {
        input.insert("runtimeConfig".to_owned(), runtime.into());
    }
    if let Some(previous) = previous {
        input.insert("prevResult".to_owned(), previous.clone());
    }
    if let Some(valid) = &attachment.valid {
        input.insert("cni.dev/valid-attachments".to_owned(), valid.clone().into());
    }
    serde_json::to_vec(&input).expect("a configuration can be written")
}

/// What came of a plugin's program.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error(transparent)]
    Folders(#[from] std::env::JoinPathsError),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// In the plugin's own words.
    #[error("{0}")]
    Said(String),
    #[error("{status}: {said:?}")]
    Ended { status: std::process::ExitStatus, said: String },
    #[error("its answer: {0}")]
    Answer(#[source] serde_json::Error),
}

fn answer(command: Command, output: Output) -> std::result::Result<Option<Value>, PluginError> {
    let value = serde_json::from_slice::<Value>(&output.stdout);
    if !output.status.success() {
        let value = value.unwrap_or_default();
        let (text, details) =
            (value["msg"].as_str().unwrap_or_default(), value["details"].as_str().unwrap_or_default());
        return Err(match (text, details) {
            ("", _) => {
                let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
                PluginError::Ended { status: output.status, said }
            }
            (text, "") => PluginError::Said(text.to_owned()),
            (text, details) => PluginError::Said(format!("{text}; {details}")),
        });
    }
    match command {
        Command::Add if !output.stdout.is_empty() => value.map(Some).map_err(PluginError::Answer),
        _ => Ok(None),
    }
}

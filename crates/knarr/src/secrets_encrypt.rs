//! `knarr secrets-encrypt`: encryption of Secrets in the store without files of one's own. The running server makes the keys and does the
//! work; this asks it, and shows how far it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

/// In `<data-dir>/tls`, where the other keys of a cluster are.
pub const FILE: &str = "encryption-config.yaml";
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The EncryptionConfiguration that a server makes by itself.
pub fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("tls").join(FILE)
}

#[derive(clap::Args)]
#[group(skip)]
pub struct Folder {
    /// Data directory of the server on this machine.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
}

#[derive(clap::Args)]
#[group(skip)]
pub struct Change {
    #[command(flatten)]
    folder: Folder,
    /// Return at once; the server goes on encrypting.
    #[arg(long)]
    no_wait: bool,
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show whether Secrets are encrypted, with which keys, and how much is left to do.
    Status {
        #[command(flatten)]
        folder: Folder,
    },
    /// Encrypt all Secrets in the store, and every Secret written from now on.
    Enable {
        #[command(flatten)]
        change: Change,
    },
    /// Make a new key, encrypt all Secrets with it, and delete the old key.
    Rotate {
        #[command(flatten)]
        change: Change,
    },
}

/// As the server says it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    secrets_are_encrypted: bool,
    file: Option<String>,
    keys: Vec<String>,
    running: bool,
    done: bool,
    seen: usize,
    rewritten: usize,
    total: usize,
    error: Option<String>,
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Status { folder } => {
            print!("{}", ask(&folder.data_dir, "status")?.text());
            Ok(())
        }
        Command::Enable { change } => begin(&change, "enable"),
        Command::Rotate { change } => begin(&change, "rotate"),
    }
}

fn begin(change: &Change, what: &str) -> anyhow::Result<()> {
    let data_dir = &change.folder.data_dir;
    let mut status = ask(data_dir, what)?;
    if change.no_wait {
        print!("{}", status.text());
        return Ok(());
    }
    let mut shown = String::new();
    while status.running {
        let line = status.progress();
        if line != shown {
            eprintln!("{line}");
            shown = line;
        }
        std::thread::sleep(LOOK_EVERY);
        status = ask(data_dir, "status")?;
    }
    print!("{}", status.text());
    match status.error {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

fn ask(data_dir: &Path, what: &str) -> anyhow::Result<Status> {
    let answer = crate::control::ask(data_dir, &format!("encryption {what}"))?;
    serde_json::from_str(&answer).context("read response of the server")
}

impl Status {
    fn progress(&self) -> String {
        format!("encrypting Secrets: {} of {} checked, {} rewritten", self.seen, self.total, self.rewritten)
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        lines.push(format!("Secrets are encrypted: {}", if self.secrets_are_encrypted { "yes" } else { "no" }));
        if let Some(file) = &self.file {
            lines.push(format!("Configured by: {file}"));
        }
        if let Some((current, old)) = self.keys.split_first() {
            lines.push(format!("Key: {current}"));
            lines.extend(old.iter().map(|key| format!("Old key, until nothing needs it: {key}")));
        }
        if self.running {
            lines.push(self.progress());
        }
        if self.done {
            lines.push(
                "All Secrets in the store are encrypted with this key; no older value is left on disk.".to_owned(),
            );
        }
        if let Some(error) = &self.error {
            lines.push(format!("Last error: {error}"));
        }
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Status {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_status_reads_as_sentences() {
        let off = status(
            r#"{"secretsAreEncrypted":false,"file":null,"keys":[],"running":false,"done":false,"seen":0,"rewritten":0,"total":0,"error":null}"#,
        );
        assert_eq!(off.text(), "Secrets are encrypted: no\n");
        let rotating = status(
            r#"{"secretsAreEncrypted":true,"file":null,"keys":["key-2","key-1"],"running":true,"done":false,"seen":5,"rewritten":3,"total":9,"error":"disk"}"#,
        );
        assert_eq!(
            rotating.text(),
            "Secrets are encrypted: yes\nKey: key-2\nOld key, until nothing needs it: key-1\n\
             encrypting Secrets: 5 of 9 checked, 3 rewritten\nLast error: disk\n"
        );
        let done = status(
            r#"{"secretsAreEncrypted":true,"file":null,"keys":["key-2"],"running":false,"done":true,"seen":9,"rewritten":9,"total":9,"error":null}"#,
        );
        assert!(done.text().ends_with("no older value is left on disk.\n"));
    }
}

//! `knarr snapshot`: save the store of a running server, restore it into an empty folder.

use std::path::PathBuf;

use anyhow::Context;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Write what the store holds to a file. The server may be running.
    Save {
        file: PathBuf,
        #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
        data_dir: PathBuf,
    },
    /// Fill the empty store of a server that is not running from a file.
    Restore {
        file: PathBuf,
        #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
        data_dir: PathBuf,
    },
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Save { file, data_dir } => {
            let file = std::path::absolute(&file)?;
            let revision = crate::control::save_snapshot(&data_dir, &file)?;
            println!("saved revision {revision} to {}", file.display());
        }
        Command::Restore { file, data_dir } => {
            let revision = store::embedded::snapshot::restore(&file, &data_dir.join("store")).context("restore")?;
            println!("restored revision {revision} into {}", data_dir.display());
        }
    }
    Ok(())
}

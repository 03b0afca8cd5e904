//! `knarr snapshot`: save the store of a running server, restore it into an empty folder.

use std::path::PathBuf;

use anyhow::Context;

use crate::progress::Busy;

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
            let busy = Busy::begin(format!("saving what {} holds", data_dir.display()));
            let revision = crate::control::save_snapshot(&data_dir, &file)?;
            drop(busy);
            println!("saved revision {revision} to {}", file.display());
        }
        Command::Restore { file, data_dir } => {
            let busy = Busy::begin(format!("reading {}", file.display()));
            let revision = store::embedded::snapshot::restore(&file, &data_dir.join("store")).context("restore")?;
            drop(busy);
            println!("restored revision {revision} into {}", data_dir.display());
        }
    }
    Ok(())
}

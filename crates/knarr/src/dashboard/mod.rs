//! The dashboard: on the API server's own listener, or alone against any Kubernetes API that a kubeconfig leads to.

mod local;
mod alone;
mod open;
mod insight;

pub use local::{Config as LocalConfig, permissions, start};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    alone: alone::Flags,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print a one-time sign-in address for a server's dashboard, and open it in a browser.
    Open(open::Flags),
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    match flags.command {
        Some(Command::Open(flags)) => open::run(flags),
        None => alone::run(flags.alone),
    }
}

/// Becomes the manager of what is written within the server's process.
const AGENT: &str = "knarr-dashboard";

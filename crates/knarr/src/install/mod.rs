//! `knarr install`: this program as a service of this machine. `knarr uninstall`: everything back as it was.
//!
//! [`line`] turns the flags that were given into the service's command and its environment, [`unit`] into texts; this file
//! puts them in place. [`remove`] takes away what a node has left on the machine.

mod line;
mod unit;
mod place;
mod systemd;
mod uninstall;
mod remove;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::ArgMatches;

use self::line::Line;
use self::place::Place;

pub use remove::Node;
pub use uninstall::{Flags as UninstallFlags, run as uninstall};

#[derive(clap::Args)]
#[command(subcommand_value_name = "ROLE", subcommand_help_heading = "Roles")]
pub struct Flags {
    /// Install the service without starting it.
    #[arg(long, global = true)]
    no_start: bool,
    /// Do not install the link kubectl.
    #[arg(long, global = true)]
    no_kubectl: bool,
    /// Install into this root file system, such as that of a machine image. Nothing is started.
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(clap::Subcommand)]
enum Role {
    /// Install a server, which is a node as well (default).
    Server(Box<crate::server::Flags>),
    /// Install a node of an existing cluster.
    Agent(Box<crate::agent::Flags>),
}

/// `matches` are those of `knarr install` itself: they know which flags were given, and where.
pub fn run(flags: Flags, matches: &ArgMatches) -> anyhow::Result<()> {
    require_root("install")?;
    let role = match &flags.role {
        Some(Role::Agent(_)) => "agent",
        _ => "server",
    };
    let place = Place::new(&flags.root);
    let command = line::command_of(role);
    let line = Line::read(role, &command, matches.subcommand_matches(role), |name| std::env::var(name).ok())?;
    if role == "agent" && !line.is_told("KNARR_URL", "--server") && !place.has_joined(&line) {
        bail!("an agent needs --server and --token: `knarr token create` on a server prints the whole command");
    }
    let other = place.unit(other_role(role));
    ensure!(
        !other.exists(),
        "this machine is already a {} ({}): run `knarr uninstall --keep-data` first",
        other_role(role),
        other.display()
    );
    put_program(&place)?;
    let linked = !flags.no_kubectl && link_kubectl(&place)?;
    place.write(&place.unit(role), unit::text(role, &place.program_inside(), &line).as_bytes(), 0o600)?;
    let environment = place.environment(role);
    let kept = std::fs::read_to_string(&environment).unwrap_or_default();
    place.write(&environment, unit::environment(&kept, &line.environment).as_bytes(), 0o600)?;
    put_texts(&place)?;
    println!("installed {} and {}", place.program().display(), place.unit(role).display());
    if linked {
        println!("installed kubectl (knarr itself): {}", place.kubectl().display());
    }
    start(&flags, &place, role, &line)
}

fn start(flags: &Flags, place: &Place, role: &str, line: &Line) -> anyhow::Result<()> {
    let name = unit::name(role);
    if !place.is_here() {
        println!("systemctl --root {} enable {name}     # starts it with the machine", flags.root.display());
        return Ok(());
    }
    if !systemd::is_running() {
        println!("systemd not found; run this at every start of the machine:");
        println!("  {} {}", place.program_inside().display(), line.words().join(" "));
        return Ok(());
    }
    systemd::call(&["daemon-reload"])?;
    systemd::call(&["enable", &name])?;
    if flags.no_start {
        println!("systemctl start {name}     # starts it");
        return Ok(());
    }
    // A service that runs is not started by `start`, and must run the new program.
    let started = systemd::call(&["restart", &name]);
    started.with_context(|| format!("{name} did not start; see `journalctl -u {name} -e`"))?;
    println!("{name} is running; see its log with `journalctl -u {name} -f`");
    match role {
        "agent" => println!("on a server, `kubectl get nodes` shows this machine in a moment"),
        _ => {
            let kubeconfig = line.data_dir().join("admin.kubeconfig");
            println!("export KUBECONFIG={}", kubeconfig.display());
            println!("kubectl get nodes          # this machine, ready in a moment");
            println!("knarr token create         # prints the line for the next machine");
        }
    }
    Ok(())
}

fn other_role(role: &str) -> &'static str {
    if role == "agent" { "server" } else { "agent" }
}

/// Whoever is not root learns it at once, in one sentence.
pub(crate) fn require_root(what: &str) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root can {what} a service: sudo knarr {what}");
    Ok(())
}

/// This program, at its place. One that runs there is replaced, not written into.
fn put_program(place: &Place) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("find own executable")?;
    let target = place.program();
    let same = |path: &Path| std::fs::canonicalize(path).ok();
    if same(&own).is_some() && same(&own) == same(&target) {
        return Ok(());
    }
    let program = std::fs::read(&own).with_context(|| format!("read {}", own.display()))?;
    place.write(&target, &program, 0o755)
}

/// A link by the name kubectl, where nobody else has that name. Whether there is one now.
fn link_kubectl(place: &Place) -> anyhow::Result<bool> {
    let link = place.kubectl();
    if place.is_own_link(&link) {
        return Ok(true);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let elsewhere = std::env::split_paths(&path).any(|folder| place.is_here() && folder.join("kubectl").exists());
    if elsewhere || link.symlink_metadata().is_ok() {
        return Ok(false);
    }
    std::os::unix::fs::symlink("knarr", &link).with_context(|| format!("link {}", link.display()))?;
    Ok(true)
}

/// Completion for shells and pages for man.
fn put_texts(place: &Place) -> anyhow::Result<()> {
    for (file, text) in crate::texts::all()? {
        place.write(&place.share().join(file), &text, 0o644)?;
    }
    Ok(())
}

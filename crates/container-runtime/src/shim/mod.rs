//! The shim: one small single-threaded process per pod. It is the pod's pause process, holds its namespaces, starts its
//! containers, reaps them, writes their logs, and goes on when knarr ends.

pub mod cgroups;
pub mod protocol;

mod confine;
mod container;
mod dev_volume;
mod errors;
mod event_loop;
mod exec;
mod namespaces;
mod oci;
mod start;
mod volumes;
mod working_dir;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use linux::process::Fork;
use protocol::{Pod, Ready, Refused, SETUP, SOCKET};

/// Becomes the shim of the pod whose folder is the only argument. Called before any thread is started. Says on its
/// standard output whether the pod is there, in JSON, and goes on in the background.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("a shim is started by the container runtime, with the folder of a sandbox");
        std::process::exit(2)
    };
    match run(&folder) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            say(&Err(error.into()));
            std::process::exit(1)
        }
    }
}

fn run(folder: &Path) -> io::Result<()> {
    linux::process::promise_single_thread()?;
    // Whoever started this waits for its end; the shim proper is the child of nobody.
    if let Fork::Parent(_) = linux::process::fork()? {
        linux::process::exit_now(0)
    }
    let pod: Pod = read_json(&folder.join(SETUP))?;
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let _ = rustix::thread::set_name(c"knarr-shim");
    let listener = linux::fd_passing::listen(&folder.join(SOCKET))?;
    let signals = event_loop::signals()?;
    let held = namespaces::make(&pod)?;
    let ready = Ready { pid: std::process::id() as i32, namespaces: held.paths() };
    let shim = event_loop::Shim::new(pod, ready.clone(), held, listener, signals);
    say(&Ok(ready));
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    shim.run()
}

fn say(result: &Result<Ready, Refused>) {
    let text = serde_json::to_string(result).unwrap_or_default();
    // Whoever asked may be gone.
    let _ = writeln!(io::stdout(), "{text}");
    let _ = io::stdout().flush();
}

/// More than any record of ours has.
const RECORD_BYTES_MAX: u64 = 256 << 20;

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<T> {
    let named = |error: String| io::Error::other(format!("{}: {error}", path.display()));
    let text = linux::file::read_regular(path, RECORD_BYTES_MAX).map_err(|error| named(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| named(error.to_string()))
}

/// Whole or not at all, whenever this process is killed. Not forced to disk: after a power loss nothing runs any more.
pub(crate) fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> io::Result<()> {
    component_base::files::write_whole(path, serde_json::to_vec(value)?, 0o600)
}

pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as i64
}

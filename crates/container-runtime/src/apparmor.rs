//! The AppArmor profile that containers get unless their pod asks for another: ours, compiled by the machine's own
//! `apparmor_parser` and loaded when the runtime starts. `/proc/1/attr/current` of a container then says
//! `knarr-default (enforce)`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::spec::Host;

/// The name of our profile.
pub const DEFAULT: &str = "knarr-default";
const PROFILE: &str = include_str!("apparmor/profile.txt");
const PARSERS: [&str; 4] =
    ["/sbin/apparmor_parser", "/usr/sbin/apparmor_parser", "/bin/apparmor_parser", "/usr/bin/apparmor_parser"];
/// Writing a profile's name there takes it out of the kernel.
const REMOVE: &str = "/sys/kernel/security/apparmor/.remove";
/// A parser that takes longer is given up.
const PARSER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("apparmor_parser is not installed")]
    NoParser,
    #[error("run {}", .0.display())]
    Run(PathBuf, #[source] io::Error),
    #[error("{} timed out", .0.display())]
    Timeout(PathBuf),
    #[error("{} rejected the profile: {}", .0.display(), .1)]
    Refused(PathBuf, String),
}

/// Loads our profile where the machine has AppArmor, and says once why containers run unconfined where that fails. One that is
/// there already is replaced: it may be an older knarr's.
pub(crate) async fn load(host: &mut Host) {
    if !host.apparmor {
        return;
    }
    let parser = PARSERS.iter().map(Path::new).find(|path| path.exists());
    let loaded = match parser {
        Some(parser) => parse(parser).await,
        None => Err(Error::NoParser),
    };
    match loaded {
        Ok(()) => host.read_apparmor_profiles(),
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, source, profile = DEFAULT, "cannot load AppArmor profile; containers run unconfined");
        }
    }
}

async fn parse(parser: &Path) -> Result<(), Error> {
    let failed = |error| Error::Run(parser.to_path_buf(), error);
    let output = tokio::time::timeout(PARSER_TIMEOUT, replace(parser)).await;
    let output = output.map_err(|_| Error::Timeout(parser.to_path_buf()))?.map_err(failed)?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Refused(parser.to_path_buf(), said))
    }
}

/// Without the parser's cache, which would have to be cleaned up after us.
async fn replace(parser: &Path) -> io::Result<Output> {
    let mut command = Command::new(parser);
    command.args(["--replace", "--skip-cache"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(PROFILE.as_bytes()).await?;
    }
    child.wait_with_output().await
}

/// Takes our profile out of the kernel again. Whatever still runs under it would be unconfined.
pub fn unload() -> io::Result<()> {
    match std::fs::write(REMOVE, DEFAULT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_denies_what_runtimes_deny_by_default() {
        assert!(PROFILE.contains(&format!("profile {DEFAULT} flags=(attach_disconnected, mediate_deleted) {{")));
        for rule in [
            "deny mount,",
            "deny /proc/* w,",
            "deny /proc/sys/[^k]** w,",
            "deny /proc/sysrq-trigger rwklx,",
            "deny /proc/kcore rwklx,",
            "deny /sys/firmware/** rwklx,",
            "deny /sys/kernel/security/** rwklx,",
            "ptrace (trace, tracedby, read, readby) peer=knarr-default,",
        ] {
            assert!(PROFILE.lines().any(|line| line.trim() == rule), "{rule}");
        }
        assert!(!PROFILE.contains("include"), "it stands alone");
    }

    /// As far as a machine without AppArmor can tell: the parser takes it.
    #[tokio::test]
    async fn the_parser_understands_the_profile() {
        let Some(parser) = PARSERS.iter().map(Path::new).find(|path| path.exists()) else { return };
        let mut command = Command::new(parser);
        command.args(["--skip-kernel-load", "--skip-cache"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(PROFILE.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

//! File systems on devices: found, made where there is none, checked, mounted and grown, by the node's own programs.

use std::path::Path;
use std::process::Output;

use tokio::process::Command;

use super::error::FilesystemError;

/// What a device is given that has no file system and whose volume names none.
pub(super) const DEFAULT: &str = "ext4";

/// Runs the node's `mount` command; its helpers know names, versions and options.
pub(super) async fn mount(arguments: Vec<String>) -> Result<(), FilesystemError> {
    let done = run("mount", &arguments).await.map_err(FilesystemError::RunMount)?;
    if done.status.success() {
        return Ok(());
    }
    Err(FilesystemError::Mount { ended: ended(&done), arguments, output: text(&done) })
}

/// Mounts a device. One that holds nothing is given a file system before, unless it may only be read.
pub(super) async fn format_and_mount(
    device: &Path,
    target: &Path,
    kind: &str,
    options: &[String],
) -> Result<(), FilesystemError> {
    let read_only = options.iter().any(|option| option == "ro");
    let found = format_of(device).await?;
    match (&found, read_only) {
        (None, true) => {
            return Err(FilesystemError::Unformatted(device.to_path_buf()));
        }
        (None, false) => make(device, kind).await?,
        (Some(_), true) => {}
        (Some(_), false) => check(device).await?,
    }
    let done = mount(mount_arguments(device, target, kind, options)).await;
    done.map_err(|error| match found.filter(|found| found != kind) {
        Some(found) => FilesystemError::OtherFormat { wanted: kind.to_owned(), found, source: Box::new(error) },
        None => error,
    })
}

/// Lets a mounted file system fill its device. One that fills it already stays as it is.
pub(super) async fn grow(device: &Path, target: &Path) -> Result<(), FilesystemError> {
    let (program, place) = match format_of(device).await?.as_deref() {
        None => return Ok(()),
        Some("ext3" | "ext4") => ("resize2fs", device),
        Some("xfs") => ("xfs_growfs", target),
        Some("btrfs") => {
            return complete("btrfs", &["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), target]).await;
        }
        Some(other) => {
            return Err(FilesystemError::Resize { format: other.to_owned(), device: device.to_path_buf() });
        }
    };
    complete(program, &[place]).await
}

async fn complete(program: &str, arguments: &[&Path]) -> Result<(), FilesystemError> {
    let done = run(program, arguments).await.map_err(|source| cannot_run(program, source))?;
    if done.status.success() { Ok(()) } else { Err(failed(program, &done)) }
}

/// The type of the file system on a device, or of what else it is divided into; nothing if it holds nothing known.
async fn format_of(device: &Path) -> Result<Option<String>, FilesystemError> {
    // Exit code 2 is its word for nothing found.
    const NOTHING: i32 = 2;
    let probe = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"].map(Path::new);
    let arguments: Vec<&Path> = probe.into_iter().chain([device]).collect();
    let done = run("blkid", &arguments).await.map_err(|source| cannot_run("blkid", source))?;
    match done.status.code() {
        Some(0) => Ok(known(&String::from_utf8_lossy(&done.stdout))),
        Some(NOTHING) => Ok(None),
        _ => Err(failed("blkid", &done)),
    }
}

/// Reads `KEY=value` lines. A table of partitions is data too, which must not be overwritten.
fn known(output: &str) -> Option<String> {
    let of = |key: &str| output.lines().find_map(|line| line.strip_prefix(key)).filter(|value| !value.is_empty());
    match (of("TYPE="), of("PTTYPE=")) {
        (_, Some(_)) => Some("unknown data, probably partitions".to_owned()),
        (found, None) => found.map(str::to_owned),
    }
}

async fn make(device: &Path, kind: &str) -> Result<(), FilesystemError> {
    let options: &[&str] = match kind {
        // No blocks are kept back for root, who has no use for them here.
        "ext3" | "ext4" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    };
    let arguments: Vec<&Path> = options.iter().map(Path::new).chain([device]).collect();
    tracing::info!(device = %device.display(), kind, "formatting disk");
    complete(&format!("mkfs.{kind}"), &arguments).await
}

/// Mends what can be mended. Whatever else keeps the check from being done is left to the mount.
async fn check(device: &Path) -> Result<(), FilesystemError> {
    const UNCORRECTED: i32 = 4;
    match run("fsck", &[Path::new("-a"), device]).await {
        Ok(done) if done.status.code() == Some(UNCORRECTED) => {
            Err(FilesystemError::Uncorrected { device: device.to_path_buf(), output: text(&done) })
        }
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::debug!(device = %device.display(), %error, "cannot run fsck");
            Ok(())
        }
    }
}

fn mount_arguments(device: &Path, target: &Path, kind: &str, options: &[String]) -> Vec<String> {
    let options: Vec<&str> = options.iter().map(String::as_str).chain(["defaults"]).collect();
    let place = |path: &Path| path.to_string_lossy().into_owned();
    let words = ["-t", kind, "-o", &options.join(","), "--"].map(str::to_owned);
    words.into_iter().chain([place(device), place(target)]).collect()
}

async fn run(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> std::io::Result<Output> {
    Command::new(program).args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true).output().await
}

fn cannot_run(program: &str, source: std::io::Error) -> FilesystemError {
    FilesystemError::Run { program: program.to_owned(), source }
}

fn failed(program: &str, done: &Output) -> FilesystemError {
    FilesystemError::Failed { program: program.to_owned(), ended: ended(done), output: text(done) }
}

fn ended(done: &Output) -> String {
    done.status.code().map_or("killed".to_owned(), |code| format!("exit status {code}"))
}

fn text(done: &Output) -> String {
    String::from_utf8_lossy(&[&done.stdout[..], &done.stderr].concat()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_holds() {
        let check = |output: &str, expected: Option<&str>| assert_eq!(known(output).as_deref(), expected, "{output}");
        check("", None);
        check("DEVNAME=/dev/loop0\nTYPE=ext4\n", Some("ext4"));
        check("DEVNAME=/dev/vda\nPTTYPE=dos\n", Some("unknown data, probably partitions"));
        check("TYPE=\n", None);
    }

    #[test]
    fn what_mount_is_told() {
        let told = mount_arguments(Path::new("/dev/x"), Path::new("/target"), "xfs", &["noatime".into(), "ro".into()]);
        assert_eq!(told, ["-t", "xfs", "-o", "noatime,ro,defaults", "--", "/dev/x", "/target"]);
    }
}

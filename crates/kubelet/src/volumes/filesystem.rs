//! File systems on devices: found, made where there is none, checked, mounted and grown, by the node's own programs.

use std::path::Path;
use std::process::Output;

use tokio::process::Command;

/// What a device is given that has no file system and whose volume names none.
pub(super) const DEFAULT: &str = "ext4";

/// Runs the node's `mount` command; its helpers know names, versions and options.
pub(super) async fn mount(arguments: Vec<String>) -> Result<(), String> {
    let done = run("mount", &arguments).await.map_err(|error| format!("mount failed: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "mount failed: {}\nMounting command: mount\nMounting arguments: {}\nOutput: {}",
        ended(&done),
        arguments.join(" "),
        text(&done)
    ))
}

/// Mounts a device. One that holds nothing is given a file system before, unless it may only be read.
pub(super) async fn format_and_mount(
    device: &Path,
    target: &Path,
    kind: &str,
    options: &[String],
) -> Result<(), String> {
    let read_only = options.iter().any(|option| option == "ro");
    let found = format_of(device).await?;
    match (&found, read_only) {
        (None, true) => {
            return Err(format!("cannot mount unformatted disk {} as we are in read-only mode", device.display()));
        }
        (None, false) => make(device, kind).await?,
        (Some(_), true) => {}
        (Some(_), false) => check(device).await?,
    }
    let done = mount(mount_arguments(device, target, kind, options)).await;
    done.map_err(|error| match found.filter(|found| found != kind) {
        Some(found) => {
            format!("failed to mount the volume as {kind:?}, it already contains {found}. Mount error: {error}")
        }
        None => error,
    })
}

/// Lets a mounted file system fill its device. One that fills it already stays as it is.
pub(super) async fn grow(device: &Path, target: &Path) -> Result<(), String> {
    let (program, place) = match format_of(device).await?.as_deref() {
        None => return Ok(()),
        Some("ext3" | "ext4") => ("resize2fs", device),
        Some("xfs") => ("xfs_growfs", target),
        Some("btrfs") => {
            return complete("btrfs", &["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), target]).await;
        }
        Some(other) => {
            return Err(format!("resize of format {other} is not supported for device {}", device.display()));
        }
    };
    complete(program, &[place]).await
}

async fn complete(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let done = run(program, arguments).await.map_err(|error| format!("cannot run {program}: {error}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("{program} failed: {}, output: {}", ended(&done), text(&done)))
    }
}

/// The type of the file system on a device, or of what else it is divided into; nothing if it holds nothing known.
async fn format_of(device: &Path) -> Result<Option<String>, String> {
    // Exit code 2 is its word for nothing found.
    const NOTHING: i32 = 2;
    let probe = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"].map(Path::new);
    let arguments: Vec<&Path> = probe.into_iter().chain([device]).collect();
    let done = run("blkid", &arguments).await.map_err(|error| format!("cannot run blkid: {error}"))?;
    match done.status.code() {
        Some(0) => Ok(known(&String::from_utf8_lossy(&done.stdout))),
        Some(NOTHING) => Ok(None),
        _ => Err(format!("blkid failed: {}, output: {}", ended(&done), text(&done))),
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

async fn make(device: &Path, kind: &str) -> Result<(), String> {
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
async fn check(device: &Path) -> Result<(), String> {
    const UNCORRECTED: i32 = 4;
    match run("fsck", &[Path::new("-a"), device]).await {
        Ok(done) if done.status.code() == Some(UNCORRECTED) => Err(format!(
            "'fsck' found errors on device {} but could not correct them: {}",
            device.display(),
            text(&done)
        )),
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

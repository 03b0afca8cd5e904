//! The last steps before a process of a container becomes its program: the same for its first process and for commands
//! that are run beside it, so that neither can do more than the other.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::protocol::Process;

/// What the process is to its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Its first process, which also finishes its mounts.
    Container,
    Command,
}

/// Standard streams belong to the process's user, who may then open `/dev/stdout` again.
pub(crate) fn own_streams(process: &Process) {
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let is_null = rustix::fs::fstat(stream).is_ok_and(|status| status.st_rdev == rustix::fs::makedev(1, 3));
        if !is_null && !Uid::from_raw(process.uid).is_root() {
            // A stream that cannot change hands can still be written to.
            let _ = rustix::fs::fchown(stream, Some(rustix::fs::Uid::from_raw(process.uid)), None);
        }
    }
}

/// Drops what the process may not have, and becomes its program. Returns only with the reason why it could not, in the
/// words that Kubernetes users know.
pub(crate) fn become_program(process: &Process, begin: Begin, environment: &[CString]) -> String {
    let name = process.args.first().map(String::as_str).unwrap_or_default();
    let program = match find_program(name, search_path(environment)) {
        Ok(program) => program,
        Err(reason) => return format!("exec: {name:?}: {reason}"),
    };
    let arguments: Result<Vec<CString>, _> = process.args.iter().map(|a| CString::new(a.as_bytes())).collect();
    let (Ok(arguments), Ok(path)) = (arguments, CString::new(program.as_os_str().as_bytes())) else {
        return format!("exec: {name:?}: invalid argument");
    };
    // Before the filter, which may not let it be written.
    if let Some(Err(error)) = process.selinux.as_deref().map(linux::selinux::set_exec_label) {
        return format!("error during container init: set SELinux label: {}", words(&error));
    }
    let confined = linux::process::close_from_on_exec(3)
        .and_then(|()| match begin {
            Begin::Container => process.confinement.prepare(),
            Begin::Command if process.confinement.no_new_privileges => {
                rustix::thread::set_no_new_privs(true)?;
                process.confinement.enter()
            }
            Begin::Command => process.confinement.enter(),
        })
        .and_then(|()| process.confinement.seal());
    if let Err(error) = confined {
        return format!("error during container init: confine process: {}", words(&error));
    }
    let Err(error) = nix::unistd::execve(&path, &arguments, environment);
    format!("exec {}: {}", program.display(), words(&io::Error::from(error)))
}

/// Where the program is, seen from inside the container.
pub(crate) fn find_program(name: &str, path: Option<&OsStr>) -> Result<PathBuf, Refused> {
    if name.contains('/') {
        return executable(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let mut refused = None;
    for folder in path.map(std::env::split_paths).into_iter().flatten() {
        let candidate = folder.join(name);
        match executable(&candidate) {
            Ok(()) if !name.is_empty() => return Ok(candidate),
            Err(Refused::Permission) => refused = Some(Refused::Permission),
            _ => {}
        }
    }
    Err(refused.unwrap_or(Refused::NotInPath))
}

/// Why a program cannot be run, in the words that Kubernetes users know.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("stat {}: {}", .path.display(), words(.source))]
    Missing { path: PathBuf, source: io::Error },
    #[error("is a directory")]
    Folder,
    #[error("permission denied")]
    Permission,
    #[error("executable file not found in $PATH")]
    NotInPath,
}

fn executable(path: &Path) -> Result<(), Refused> {
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|source| Refused::Missing { path: path.to_path_buf(), source })?;
    if metadata.is_dir() {
        return Err(Refused::Folder);
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(Refused::Permission);
    }
    Ok(())
}

/// As C programs and Go put it: lower case, without the number.
pub fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    }
}

fn search_path(environment: &[CString]) -> Option<&OsStr> {
    environment.iter().find_map(|entry| entry.to_bytes().strip_prefix(b"PATH=")).map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_refused_in_known_words() {
        let path = Some(OsStr::new("/nowhere:/bin"));
        assert_eq!(find_program("sh", path).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find_program("/bin/sh", None).unwrap(), Path::new("/bin/sh"));
        for (name, words) in [
            ("nope", "executable file not found in $PATH"),
            ("", "executable file not found in $PATH"),
            ("/nope", "stat /nope: no such file or directory"),
            ("/bin", "is a directory"),
            ("/etc/passwd", "permission denied"),
        ] {
            assert_eq!(find_program(name, path).unwrap_err().to_string(), words, "{name}");
        }
    }
}

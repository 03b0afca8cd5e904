//! The last steps before a process of a container becomes its program: the same for its first process and for commands
//! that are run beside it, so that neither can do more than the other.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::protocol::{Capabilities, Process};

/// Standard streams belong to the process's user, who may then open `/dev/stdout` again.
pub fn own_streams(process: &Process) {
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
pub fn become_program(process: &Process, environment: &[CString]) -> String {
    let name = process.args.first().map(String::as_str).unwrap_or_default();
    let program = match find_program(name, search_path(environment)) {
        Ok(program) => program,
        Err(reason) => return format!("exec: {name:?}: {reason}"),
    };
    let arguments: Result<Vec<CString>, _> = process.args.iter().map(|a| CString::new(a.as_bytes())).collect();
    let (Ok(arguments), Ok(path)) = (arguments, CString::new(program.as_os_str().as_bytes())) else {
        return format!("exec: {name:?}: invalid argument");
    };
    if let Err(error) = confine(process) {
        return format!("error during container init: {error}");
    }
    let Err(error) = nix::unistd::execve(&path, &arguments, environment);
    format!("exec {}: {}", program.display(), words(&io::Error::from(error)))
}

/// Where the program is, seen from inside the container.
pub fn find_program(name: &str, path: Option<&OsStr>) -> Result<PathBuf, String> {
    if name.contains('/') {
        return executable(Path::new(name)).map(|()| PathBuf::from(name)).map_err(|error| match error {
            Refused::Missing(error) => format!("stat {name}: {}", words(&error)),
            Refused::Folder => "is a directory".to_string(),
            Refused::Permission => "permission denied".to_string(),
        });
    }
    let mut refused = None;
    for folder in path.map(std::env::split_paths).into_iter().flatten() {
        let candidate = folder.join(name);
        match executable(&candidate) {
            Ok(()) if !name.is_empty() => return Ok(candidate),
            Err(Refused::Permission) => refused = Some("permission denied".to_string()),
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(|| "executable file not found in $PATH".to_string()))
}

enum Refused {
    Missing(io::Error),
    Folder,
    Permission,
}

fn executable(path: &Path) -> Result<(), Refused> {
    let metadata = std::fs::metadata(path).map_err(Refused::Missing)?;
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

fn confine(process: &Process) -> Result<(), String> {
    linux::process::close_from_on_exec(3).map_err(|error| format!("close descriptors: {error}"))?;
    // Without "no new privileges", a filter can only be set with CAP_SYS_ADMIN, so before that is dropped. With it, the
    // filter comes last, so that it also holds for what dropping needs.
    if !process.no_new_privileges {
        filter(process)?;
    }
    if let Some(capabilities) = &process.capabilities {
        drop_capabilities(capabilities).map_err(|error| format!("apply caps: {error}"))?;
    }
    if process.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(|error| format!("set no new privileges: {error}"))?;
        filter(process)?;
    }
    Ok(())
}

fn filter(process: &Process) -> Result<(), String> {
    let Some(seccomp) = &process.seccomp else { return Ok(()) };
    libcontainer::seccomp::initialize_seccomp(seccomp).map_err(|error| format!("set seccomp filter: {error}"))?;
    Ok(())
}

fn drop_capabilities(wanted: &Capabilities) -> io::Result<()> {
    let set = CapabilitySet::from_bits_retain;
    let have = rustix::thread::capabilities(None)?;
    for number in 0..64 {
        let capability = set(1 << number);
        if wanted.bounding & (1 << number) != 0 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Beyond the last that this kernel knows.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // What this process itself does not have it cannot give; privileged containers ask for all there are.
    let permitted = set(wanted.permitted) & have.permitted;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: set(wanted.effective) & permitted,
            permitted,
            inheritable: set(wanted.inheritable) & have.permitted,
        },
    )?;
    rustix::thread::clear_ambient_capability_set()?;
    for number in 0..64 {
        if wanted.ambient & (1 << number) != 0 {
            rustix::thread::configure_capability_in_ambient_set(set(1 << number), true)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_refused_in_known_words() {
        let path = Some(OsStr::new("/nowhere:/bin"));
        assert_eq!(find_program("sh", path), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(find_program("/bin/sh", None), Ok(PathBuf::from("/bin/sh")));
        for (name, words) in [
            ("nope", "executable file not found in $PATH"),
            ("", "executable file not found in $PATH"),
            ("/nope", "stat /nope: no such file or directory"),
            ("/bin", "is a directory"),
            ("/etc/passwd", "permission denied"),
        ] {
            assert_eq!(find_program(name, path), Err(words.to_string()), "{name}");
        }
    }
}

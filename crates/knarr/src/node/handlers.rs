//! OCI runtimes of the host that a RuntimeClass can name as its handler: those that are installed where programs usually are, and those
//! that a flag names.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// Runtimes with runc's command line, which are found by their names. Others, such as runsc, must be named: whether a pod's containers
/// can share its network in them depends on how they are set up.
const KNOWN: &[&str] = &["crun", "runc", "youki"];
const FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct Flags {
    /// OCI runtimes that a RuntimeClass can name, as handler=/path/to/program; crun, runc and youki are found where they are installed.
    #[arg(long, env = "KNARR_RUNTIME_HANDLER", value_delimiter = ',')]
    pub runtime_handler: Vec<String>,
}

impl Flags {
    /// Programs by handler.
    pub fn programs(&self) -> anyhow::Result<BTreeMap<String, PathBuf>> {
        let folders: Vec<&Path> = FOLDERS.iter().map(Path::new).collect();
        let mut programs = found(&folders);
        for (handler, path) in super::pairs(&self.runtime_handler).context("--runtime-handler")? {
            let program = PathBuf::from(&path);
            let is_label = !handler.is_empty()
                && handler.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            ensure!(
                is_label,
                "--runtime-handler {handler}={path}: a handler has lower-case letters, digits and - only"
            );
            ensure!(program.is_absolute(), "--runtime-handler {handler}={path}: the path must be absolute");
            ensure!(is_program(&program), "--runtime-handler {handler}={path}: there is no such program");
            programs.insert(handler, program);
        }
        Ok(programs)
    }
}

fn found(folders: &[&Path]) -> BTreeMap<String, PathBuf> {
    let program = |name: &&str| {
        let mut places = folders.iter().map(|folder| folder.join(name));
        places.find(|path| is_program(path)).map(|path| (name.to_string(), path))
    };
    KNOWN.iter().filter_map(program).collect()
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn known_runtimes_are_found_in_the_first_folder_that_has_them() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = program(first.path(), "crun", 0o755);
        program(second.path(), "crun", 0o755);
        let runc = program(second.path(), "runc", 0o755);
        program(second.path(), "runsc", 0o755);
        program(second.path(), "youki", 0o644);
        let expected = [("crun".to_owned(), own), ("runc".to_owned(), runc)].into();
        assert_eq!(found(&[first.path(), second.path()]), expected);
    }

    #[test]
    fn a_handler_that_cannot_run_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let good = program(folder.path(), "runsc", 0o755);
        let programs = |text: String| Flags { runtime_handler: vec![text] }.programs();
        assert_eq!(programs(format!("gvisor={}", good.display())).unwrap()["gvisor"], good);
        for (text, wanted) in [
            (format!("Gvisor={}", good.display()), "lower-case"),
            ("gvisor=runsc".to_owned(), "absolute"),
            ("gvisor=/nonexistent/runsc".to_owned(), "no such program"),
            ("gvisor".to_owned(), "--runtime-handler"),
        ] {
            let error = format!("{:#}", programs(text.clone()).unwrap_err());
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}

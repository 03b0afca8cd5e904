//! The files of a container's log beyond what the runtime writes: a link under the name that log collectors look for, and
//! taking everything away with the container.

use std::io;
use std::path::{Path, PathBuf};

/// Of a file's name, with room for the suffix.
const NAME_MAX: usize = 255;
const SUFFIX: &str = ".log";

/// Whose log it is.
#[derive(Clone, Debug)]
pub struct Owner {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub id: String,
}

/// `<pod>_<namespace>_<container>-<id>.log` beside the folder of the pods' logs, as upstream has it in /var/log/containers.
pub(crate) fn link_path(log_dir: &Path, owner: &Owner) -> PathBuf {
    let mut name = format!("{}_{}_{}-{}", owner.pod, owner.namespace, owner.container, owner.id);
    name.truncate(NAME_MAX - SUFFIX.len());
    log_dir.with_file_name("containers").join(name + SUFFIX)
}

/// Only collectors need it: that it cannot be made is said, and nothing else.
pub fn link(log_dir: &Path, owner: &Owner, log: &Path) {
    let path = link_path(log_dir, owner);
    if let Err(error) = make(&path, log) {
        tracing::warn!(link = %path.display(), %error, "cannot link container log in /var/log/containers");
    }
}

fn make(link: &Path, log: &Path) -> io::Result<()> {
    if let Some(folder) = link.parent() {
        std::fs::create_dir_all(folder)?;
    }
    absent_is_fine(std::fs::remove_file(link))?;
    std::os::unix::fs::symlink(log, link)
}

/// The log, its rotated files and the link.
pub fn remove(log_dir: &Path, owner: &Owner, log: &Path) -> io::Result<()> {
    absent_is_fine(std::fs::remove_file(link_path(log_dir, owner)))?;
    let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let other = entry.file_name();
        let rest = other.to_str().and_then(|other| other.strip_prefix(name));
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            absent_is_fine(std::fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

/// Links whose log is gone: of pods that ended while nobody looked.
pub(crate) fn remove_dead_links(log_dir: &Path) {
    let folder = log_dir.with_file_name("containers");
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = std::fs::read_link(&path).is_ok_and(|log| log.starts_with(log_dir) && !log.exists());
        if ours && let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(link = %path.display(), %error, "cannot remove dangling link to container log");
        }
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_and_go_with_their_logs() {
        let folder = tempfile::tempdir().unwrap();
        let log_dir = folder.path().join("pods");
        let logs = log_dir.join("default_web_uid/main");
        std::fs::create_dir_all(&logs).unwrap();
        for name in ["0.log", "0.log.20260101-000000", "0.log.20260101-000000.gz", "10.log"] {
            std::fs::write(logs.join(name), name).unwrap();
        }
        let owner = |id: &str| Owner {
            namespace: "default".into(),
            pod: "web".into(),
            container: "main".into(),
            id: id.into(),
        };
        let log = logs.join("0.log");
        let path = folder.path().join("containers/web_default_main-abc.log");
        assert_eq!(link_path(&log_dir, &owner("abc")), path);
        link(&log_dir, &owner("abc"), &log);
        link(&log_dir, &owner("abc"), &log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0.log");
        let long = link_path(&log_dir, &owner(&"x".repeat(300)));
        assert_eq!(long.file_name().unwrap().len(), NAME_MAX);

        link(&log_dir, &owner("dead"), &logs.join("gone.log"));
        link(&log_dir, &owner("ten"), &logs.join("10.log"));
        remove_dead_links(&log_dir);
        let count = || std::fs::read_dir(folder.path().join("containers")).unwrap().count();
        assert_eq!(count(), 2);
        remove(&log_dir, &owner("abc"), &log).unwrap();
        remove(&log_dir, &owner("abc"), &log).unwrap();
        assert_eq!(count(), 1);
        let left: Vec<_> = std::fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["10.log"]);
    }
}

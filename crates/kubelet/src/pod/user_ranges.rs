//! Ranges of user ids for pods with `hostUsers: false`: no two pods share one, and a pod keeps its own over restarts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::security::UserRange;

pub(crate) const LENGTH: u32 = 65536;
/// The first range belongs to the host itself.
const FIRST: u32 = 1;
const RANGES_MAX: u32 = 1024 * 8;

pub struct UserRanges {
    pods: PathBuf,
    /// By the pod's uid.
    used: Mutex<HashMap<String, u32>>,
}

impl UserRanges {
    /// Reads what was handed out before, from the pods' folders.
    pub fn load(root: &Path) -> UserRanges {
        let pods = root.join("pods");
        let mut used = HashMap::new();
        for folder in std::fs::read_dir(&pods).into_iter().flatten().flatten() {
            let uid = folder.file_name().to_string_lossy().into_owned();
            used.extend(read(&folder.path().join("userns")).map(|place| (uid, place)));
        }
        UserRanges { pods, used: Mutex::new(used) }
    }

    /// The pod's range: the one it has, or a free one, written down before it is used.
    pub fn of(&self, uid: &str) -> std::io::Result<UserRange> {
        let file = self.pods.join(uid).join("userns");
        let mut used = self.used.lock();
        let place = match used.get(uid) {
            Some(place) => *place,
            None => {
                let free = (FIRST..RANGES_MAX).find(|place| !used.values().any(|other| other == place));
                let place = free.ok_or_else(|| std::io::Error::other("no free user namespace range"))?;
                if let Some(folder) = file.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                linux::file::write(&file, place.to_string(), 0o600)?;
                place
            }
        };
        used.insert(uid.to_owned(), place);
        Ok(UserRange { first: place * LENGTH, length: LENGTH })
    }

    /// The pod is gone and runs nothing any more.
    pub fn release(&self, uid: &str) {
        let file = self.pods.join(uid).join("userns");
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // Kept as used: better one range lost than one given twice.
                tracing::warn!(%error, pod_uid = uid, "cannot release user namespace range");
            }
            _ => drop(self.used.lock().remove(uid)),
        }
    }
}

fn read(file: &Path) -> Option<u32> {
    const NUMBER_BYTES_MAX: u64 = 32;
    String::from_utf8(linux::file::read_regular(file, NUMBER_BYTES_MAX).ok()?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_kept_and_given_back() {
        let folder = std::env::temp_dir().join(format!("knarr-userns-{}", std::process::id()));
        let ranges = UserRanges::load(&folder);
        let first = ranges.of("a").expect("a range");
        assert_eq!(first, UserRange { first: 65536, length: 65536 });
        assert_ne!(ranges.of("b").expect("a range"), first);
        let again = UserRanges::load(&folder);
        assert_eq!(again.of("a").expect("a range"), first, "kept over a restart");
        again.release("a");
        assert_eq!(again.of("c").expect("a range"), first, "free again");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}

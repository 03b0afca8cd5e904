//! What is known of a volume on disk: `vol_data.json`, with the keys that upstream's kubelet and others read, and two of our own that
//! say how far the last step came.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const FILE: &str = "vol_data.json";
/// What a crash within [`component_base::files::write_durably`] leaves, and what earlier versions left.
const UNFINISHED: [&str; 2] = ["vol_data.json.new", ".vol_data.json.new"];
/// A handle may be long, but not without end.
const BYTES_MAX: u64 = 1 << 20;

const NAME: &str = "specVolID";
const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE: &str = "volumeLifecycleMode";
const LABEL: &str = "seLinuxMountContext";
/// Ours: how far the step came, and since which start of the machine. Upstream keeps keys that it does not know.
const STEP: &str = "knarrStep";
const BOOT: &str = "knarrBoot";
const ATTACHED: &str = "knarrAttached";
const MOUNTED: &str = "knarrMounted";

/// How far a driver came with showing a volume at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A pod is to use it; the driver was not asked yet, or has refused.
    Noted,
    /// It was or will be asked; whether it did anything is not known.
    Begun,
    Done,
    /// It was asked to take it back.
    Undone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record(BTreeMap<String, String>);

impl Record {
    pub(crate) fn of_stage(driver: &str, handle: &str) -> Record {
        let pairs = [(HANDLE, handle), (DRIVER, driver)];
        Record(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    pub fn of_pod(wanted: &super::Wanted, node: &str, attachment: String, is_attached: bool) -> Record {
        let mut record = Record::of_stage(&wanted.driver, &wanted.handle);
        record.set(NAME, wanted.name.clone());
        record.set(NODE, node.to_owned());
        record.set(ATTACHMENT, attachment);
        record.set(LIFECYCLE, wanted.lifecycle.name().to_owned());
        record.set(ATTACHED, is_attached.to_string());
        record
    }

    /// The SELinux label that it is mounted with.
    pub fn labelled(mut self, label: Option<&str>) -> Record {
        if let Some(label) = label {
            self.set(LABEL, label.to_owned());
        }
        self
    }

    pub fn label(&self) -> Option<&str> {
        Some(self.get(LABEL)).filter(|label| !label.is_empty())
    }

    fn set(&mut self, key: &str, value: String) {
        self.0.insert(key.to_owned(), value);
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub fn driver(&self) -> &str {
        self.get(DRIVER)
    }

    pub fn handle(&self) -> &str {
        self.get(HANDLE)
    }

    pub(crate) fn is_persistent(&self) -> bool {
        self.get(LIFECYCLE) != "Ephemeral"
    }

    /// Whether the volume was attached to this node. Who wrote the file without saying so is believed to have attached it.
    pub fn is_attached(&self) -> bool {
        self.is_persistent() && self.get(ATTACHED) != "false"
    }

    /// What a file of upstream's says is no more than that somebody began.
    pub fn step(&self) -> Step {
        match self.get(STEP) {
            "noted" => Step::Noted,
            "done" => Step::Done,
            "undone" => Step::Undone,
            _ => Step::Begun,
        }
    }

    /// Done since the machine started, and still there: mounts do not outlive the machine, nor a node that is a namespace of it.
    pub fn is_done(&self, boot_id: &str, place: &Path) -> bool {
        let was_mounted = self.get(MOUNTED) == "true";
        self.step() == Step::Done && self.get(BOOT) == boot_id && (!was_mounted || is_mounted(place))
    }

    /// Done at this place. Some drivers only write files there.
    pub fn done(mut self, boot_id: &str, place: &Path) -> Record {
        self.set(MOUNTED, is_mounted(place).to_string());
        self.at(Step::Done, boot_id)
    }

    pub fn at(mut self, step: Step, boot_id: &str) -> Record {
        let step = match step {
            Step::Noted => "noted",
            Step::Begun => "begun",
            Step::Done => "done",
            Step::Undone => "undone",
        };
        self.set(STEP, step.to_owned());
        self.set(BOOT, boot_id.to_owned());
        self
    }

    pub fn load(folder: &Path) -> io::Result<Option<Record>> {
        let text = match linux::file::read_regular(&folder.join(FILE), BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let parsed: Result<BTreeMap<String, String>, _> = serde_json::from_slice(&text);
        match parsed {
            Ok(values) => Ok(Some(Record(values))),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// On disk before anything is asked of a driver; a crash leaves the file as it was, or as it is to be.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&self.0).map_err(io::Error::other)?;
        component_base::files::write_durably(&folder.join(FILE), text, 0o640)
    }

    pub fn remove(folder: &Path) -> io::Result<()> {
        for name in UNFINISHED.into_iter().chain([FILE]) {
            match std::fs::remove_file(folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What cannot be told counts as mounted: nothing is removed then. A link is none, wherever it leads.
pub(super) fn is_mounted(path: &Path) -> bool {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return false;
    }
    linux::volume_mount::is_mount_point(path).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::load(folder.path()).unwrap(), None);
        let record = Record::of_stage("d", "h").done("boot-1", folder.path());
        record.save(folder.path()).unwrap();
        let read = Record::load(folder.path()).unwrap().unwrap();
        assert_eq!(read, record);
        assert!(read.is_done("boot-1", folder.path()) && !read.is_done("boot-2", folder.path()));
        let mounted = read.clone().done("boot-1", Path::new("/proc"));
        assert!(mounted.is_done("boot-1", Path::new("/proc")));
        assert!(!mounted.is_done("boot-1", folder.path()), "the mount is gone");
        assert!(!read.at(Step::Undone, "boot-1").is_done("boot-1", folder.path()));
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Record::load(folder.path()).is_err());
        // As upstream's kubelet writes it.
        std::fs::write(folder.path().join(FILE), r#"{"driverName":"d","volumeHandle":"h"}"#).unwrap();
        let read = Record::load(folder.path()).unwrap().unwrap();
        assert_eq!((read.driver(), read.handle(), read.step()), ("d", "h", Step::Begun));
        Record::remove(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

//! The index of images: which there are, what they are called, which layers they have. Pure but for reading and writing.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use component_base::files::write_durably;
use serde::{Deserialize, Serialize};

use super::error::{ImageError, disk};
use super::reference::{Reference, Version, is_digest};
use super::{Image, Usage};

const FILE: &str = "index.json";
/// More than the index of a full disk of images has.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Shorter beginnings of an id are no id.
const SHORT_ID_LENGTH_MIN: usize = 4;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Index {
    pub images: BTreeMap<String, Record>,
    /// Bytes and inodes of each unpacked layer.
    pub layers: BTreeMap<String, Usage>,
    #[serde(skip)]
    names: HashMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub image: Arc<Image>,
    /// Folders under `layers`, the lowest first.
    pub layers: Vec<String>,
    pub pulled_at: jiff::Timestamp,
}

/// Tells one written index from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64, i64, i64, u64);

/// What the removal of a name left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Unknown,
    Untagged,
    Removed,
}

impl Index {
    pub fn stamp(root: &Path) -> Option<Stamp> {
        let metadata = std::fs::metadata(root.join(FILE)).ok()?;
        Some(Stamp(metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.size()))
    }

    pub fn read(root: &Path) -> Result<Index, ImageError> {
        let path = root.join(FILE);
        let bytes = match linux::file::read_regular(&path, INDEX_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Index::default()),
            Err(error) => return Err(disk("read", &path)(error)),
        };
        let mut index: Index =
            serde_json::from_slice(&bytes).map_err(|error| disk("read", &path)(std::io::Error::from(error)))?;
        index.rebuild_names();
        Ok(index)
    }

    /// The old index or the new one, whenever the machine stops.
    pub fn write(&self, root: &Path) -> Result<(), ImageError> {
        let path = root.join(FILE);
        let text = serde_json::to_vec(self).map_err(std::io::Error::from);
        text.and_then(|text| write_durably(&path, text, 0o600)).map_err(disk("write", &path))
    }

    /// By id, by the beginning of an id, by a name with tag or digest, or by a short name.
    pub fn find(&self, image: &str) -> Option<&Record> {
        if let Some(record) = self.images.get(image) {
            return Some(record);
        }
        if let Some(record) = self.names.get(image).and_then(|id| self.images.get(id)) {
            return Some(record);
        }
        if let Ok(reference) = Reference::parse(image)
            && let Some(record) = self.names.get(&reference.to_string()).and_then(|id| self.images.get(id))
        {
            return Some(record);
        }
        let digits = image.strip_prefix("sha256:").unwrap_or(image);
        if digits.len() < SHORT_ID_LENGTH_MIN || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let start = format!("sha256:{digits}");
        let mut found = self.images.range(start.clone()..).take_while(|(id, _)| id.starts_with(&start));
        match (found.next(), found.next()) {
            (Some((_, record)), None) => Some(record),
            // Two images begin so: neither is meant.
            _ => None,
        }
    }

    /// Puts an image in or adds names to the one that is there. A tag leaves the image that had it before.
    pub fn add(&mut self, mut record: Record) {
        for tag in &record.image.repo_tags {
            self.take_tag(tag);
        }
        if let Some(before) = self.images.get(&record.image.id) {
            let image = Arc::make_mut(&mut record.image);
            merge(&mut image.repo_tags, &before.image.repo_tags);
            merge(&mut image.repo_digests, &before.image.repo_digests);
            image.pinned |= before.image.pinned;
        }
        self.images.insert(record.image.id.clone(), record);
        self.rebuild_names();
    }

    /// A name is taken from its image; the last name, or the id, takes the image.
    pub fn remove(&mut self, image: &str) -> Removal {
        let Some(id) = self.find(image).map(|record| record.image.id.clone()) else { return Removal::Unknown };
        let name = match Reference::parse(image) {
            Ok(reference) if !is_digest(image) && self.names.contains_key(&reference.to_string()) => reference,
            _ => {
                self.images.remove(&id);
                self.rebuild_names();
                return Removal::Removed;
            }
        };
        match &name.version {
            Version::Tag(_) => self.take_tag(&name.to_string()),
            Version::Digest(_) => {
                if let Some(record) = self.images.get_mut(&id) {
                    Arc::make_mut(&mut record.image).repo_digests.retain(|digest| *digest != name.to_string());
                }
            }
        }
        let Some(record) = self.images.get_mut(&id) else { return Removal::Removed };
        let image = Arc::make_mut(&mut record.image);
        let repository = name.name();
        if !image.repo_tags.iter().any(|tag| repository_of(tag) == repository) {
            // A digest came with its tag and goes with it.
            image.repo_digests.retain(|digest| repository_of(digest) != repository);
        }
        let removal = if image.repo_tags.is_empty() && image.repo_digests.is_empty() {
            self.images.remove(&id);
            Removal::Removed
        } else {
            Removal::Untagged
        };
        self.rebuild_names();
        removal
    }

    fn take_tag(&mut self, tag: &str) {
        for record in self.images.values_mut() {
            if record.image.repo_tags.iter().any(|have| have == tag) {
                Arc::make_mut(&mut record.image).repo_tags.retain(|have| have != tag);
            }
        }
    }

    pub(crate) fn rebuild_names(&mut self) {
        self.names = self
            .images
            .values()
            .flat_map(|record| {
                record.image.repo_tags.iter().chain(&record.image.repo_digests).map(|name| (name, &record.image.id))
            })
            .map(|(name, id)| (name.clone(), id.clone()))
            .collect();
    }
}

fn merge(into: &mut Vec<String>, from: &[String]) {
    for name in from {
        if !into.contains(name) {
            into.push(name.clone());
        }
    }
    into.sort();
}

fn repository_of(name: &str) -> String {
    Reference::parse(name).map(|reference| reference.name()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(digit: char, tags: &[&str], digests: &[&str]) -> Record {
        let image = Image {
            id: format!("sha256:{}", digit.to_string().repeat(64)),
            repo_tags: tags.iter().map(|tag| tag.to_string()).collect(),
            repo_digests: digests.iter().map(|digest| format!("{digest}@sha256:{}", "e".repeat(64))).collect(),
            size: 1,
            pinned: false,
            config: Default::default(),
        };
        Record { image: Arc::new(image), layers: Vec::new(), pulled_at: jiff::Timestamp::UNIX_EPOCH }
    }

    fn index() -> Index {
        let mut index = Index::default();
        index.add(record(
            'a',
            &["docker.io/library/nginx:latest", "docker.io/library/nginx:1"],
            &["docker.io/library/nginx"],
        ));
        index.add(record('b', &["quay.io/x/y:v1"], &[]));
        index
    }

    #[test]
    fn found_under_all_its_names() {
        let index = index();
        let digest = format!("nginx:whatever@sha256:{}", "e".repeat(64));
        let whole = "a".repeat(64);
        for name in ["nginx", "nginx:1", "docker.io/library/nginx:latest", "aaaaaaaa", "sha256:aaaa", &digest, &whole] {
            assert!(index.find(name).is_some_and(|record| record.image.id.contains("aaaa")), "{name}");
        }
        for name in ["nginx:2", "aaa", "cccc", "x/y:v1", "", "sha256:"] {
            assert!(index.find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_tag_moves_and_its_old_image_stays() {
        let mut index = index();
        index.add(record('c', &["docker.io/library/nginx:latest"], &[]));
        assert_eq!(index.find("nginx").unwrap().image.id, format!("sha256:{}", "c".repeat(64)));
        assert_eq!(index.find("aaaa").unwrap().image.repo_tags, ["docker.io/library/nginx:1"]);
    }

    #[test]
    fn the_last_name_takes_the_image() {
        let mut index = index();
        assert_eq!(index.remove("nginx"), Removal::Untagged);
        assert!(index.find("nginx").is_none());
        assert_eq!(index.remove("nginx"), Removal::Unknown);
        assert_eq!(index.remove("nginx:1"), Removal::Removed);
        assert!(index.find("aaaa").is_none());
        assert_eq!(index.remove(&"b".repeat(64)), Removal::Removed);
        assert!(index.images.is_empty());
    }
}

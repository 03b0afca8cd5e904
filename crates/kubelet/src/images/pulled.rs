//! Which images were pulled with whose credentials: a pod gets an image that is here already only if it could have pulled it
//! itself. Images that nobody pulled (they came with the machine, or by an import) are everybody's, as upstream's default.
//!
//! Kept in files as upstream's kubelet keeps them, so that a restart forgets nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Secrets that are remembered for one repository of an image.
const SECRETS_MAX: usize = 100;

/// A secret, and what its credentials come down to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecretUse {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub credential_hash: String,
}

/// A service account that a credential provider gave credentials to; upstream's file has no hash of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AccountUse {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    #[serde(skip)]
    pub credential_hash: String,
}

/// Whose credentials opened an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Secret(SecretUse),
    Account(AccountUse),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Access {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<SecretUse>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<AccountUse>,
    /// It was pulled with no pod's credentials: every pod of the node may have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    kind: String,
    api_version: String,
    last_updated_time: String,
    image_ref: String,
    /// By repository, without tag and digest.
    #[serde(default)]
    credential_mapping: BTreeMap<String, Access>,
}

/// That an image is being pulled: found after a crash, it says that the image is no preloaded one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Intent<'a> {
    kind: &'a str,
    api_version: &'a str,
    image: &'a str,
}

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

pub(crate) struct Pulled {
    folder: PathBuf,
}

impl Pulled {
    pub fn new(root_dir: &Path) -> Pulled {
        Pulled { folder: root_dir.join("image_manager") }
    }

    /// Before a pull.
    pub(super) fn begin(&self, image: &str) -> io::Result<()> {
        let intent = Intent { kind: "ImagePullIntent", api_version: API_VERSION, image };
        write(&self.intent(image), &serde_json::to_vec(&intent)?)
    }

    /// After a pull, good or bad. With nothing in `with`, any pod may have it from now on.
    pub(super) fn end(&self, image: &str, pulled: Option<(&str, Option<Use>)>, now: &str) -> io::Result<()> {
        if let Some((id, with)) = pulled {
            self.record(image, id, with, now)?;
        }
        match std::fs::remove_file(self.intent(image)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn record(&self, image: &str, id: &str, with: Option<Use>, now: &str) -> io::Result<()> {
        let path = self.path(id);
        let mut record = read(&path).unwrap_or_else(|| Record {
            kind: "ImagePulledRecord".into(),
            api_version: API_VERSION.into(),
            last_updated_time: String::new(),
            image_ref: id.into(),
            credential_mapping: BTreeMap::new(),
        });
        let access = record.credential_mapping.entry(repository(image)).or_default();
        let before = access.clone();
        match with {
            None => *access = Access { node_pods_accessible: true, ..Access::default() },
            Some(_) if access.node_pods_accessible => {}
            Some(Use::Account(used)) => {
                access.kubernetes_service_accounts.retain(|known| !same_account(known, &used));
                access.kubernetes_service_accounts.push(used);
                let more = access.kubernetes_service_accounts.len().saturating_sub(SECRETS_MAX);
                access.kubernetes_service_accounts.drain(..more);
            }
            Some(Use::Secret(used)) => {
                access.kubernetes_secrets.retain(|known| !same_secret(known, &used));
                access.kubernetes_secrets.push(used);
                let more = access.kubernetes_secrets.len().saturating_sub(SECRETS_MAX);
                access.kubernetes_secrets.drain(..more);
            }
        }
        if *access == before && path.exists() {
            return Ok(());
        }
        record.last_updated_time = now.into();
        write(&path, &serde_json::to_vec(&record)?)
    }

    /// Whether a pod with these credentials has to show that it may have an image that is here.
    pub(super) fn must_pull(&self, image: &str, id: &str, own: &[Use]) -> bool {
        let Some(record) = read(&self.path(id)) else {
            // Nobody here pulled it, unless the pull was cut off.
            return self.intent(image).exists();
        };
        let Some(access) = record.credential_mapping.get(&repository(image)) else { return true };
        let fits_secret = |own: &SecretUse| {
            access.kubernetes_secrets.iter().any(|known| {
                let same_hash = !known.credential_hash.is_empty() && known.credential_hash == own.credential_hash;
                same_hash || same_secret(known, own)
            })
        };
        let fits = |own: &Use| match own {
            Use::Secret(own) => fits_secret(own),
            Use::Account(own) => access.kubernetes_service_accounts.iter().any(|known| same_account(known, own)),
        };
        !access.node_pods_accessible && !own.iter().any(fits)
    }

    /// Whether anything has to be known of a pod's credentials.
    pub(super) fn is_anybodys(&self, image: &str, id: &str) -> bool {
        !self.must_pull(image, id, &[])
    }

    /// Forgets images that are not in a list. What was written after the list was asked for may be of a newer image.
    pub fn prune(&self, ids: &BTreeSet<&str>, asked_at: SystemTime) {
        for entry in std::fs::read_dir(self.folder.join("pulled")).into_iter().flatten().flatten() {
            let old = entry.metadata().and_then(|it| it.modified()).is_ok_and(|written| written < asked_at);
            let gone = read(&entry.path()).is_none_or(|record| !ids.contains(record.image_ref.as_str()));
            if old
                && gone
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                tracing::warn!(%error, file = %entry.path().display(), "cannot remove pull record of removed image");
            }
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join("pulled").join(file_name(id))
    }

    fn intent(&self, image: &str) -> PathBuf {
        self.folder.join("pulling").join(file_name(image))
    }
}

fn same_secret(one: &SecretUse, other: &SecretUse) -> bool {
    (&one.uid, &one.namespace, &one.name) == (&other.uid, &other.namespace, &other.name)
}

fn same_account(one: &AccountUse, other: &AccountUse) -> bool {
    (&one.uid, &one.namespace, &one.name) == (&other.uid, &other.namespace, &other.name)
}

fn file_name(of: &str) -> String {
    format!("sha256-{}", hash(of.as_bytes()))
}

pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The image without its tag and digest, and with the registry that a short name means.
pub(super) fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    let name = name[start..].find(':').map_or(name, |colon| &name[..start + colon]);
    match name.split_once('/') {
        None => format!("docker.io/library/{name}"),
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
    }
}

/// More than any record has.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Nothing for what is not there and for what cannot be read: then the image has to be asked for again.
fn read(path: &Path) -> Option<Record> {
    serde_json::from_slice(&linux::file::read_regular(path, RECORD_BYTES_MAX).ok()?).ok()
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        linux::file::make_private_folder(folder)?;
    }
    component_base::files::write_whole(path, content, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn secret(name: &str, hash: &str) -> Use {
        Use::Secret(SecretUse {
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            name: name.into(),
            credential_hash: hash.into(),
        })
    }

    #[test]
    fn what_an_account_pulled_is_for_the_account() {
        let folder = tempfile::tempdir().unwrap();
        let pulled = Pulled::new(folder.path());
        let account = |uid: &str| {
            let (namespace, name) = ("default".to_owned(), "builder".to_owned());
            Use::Account(AccountUse { uid: uid.to_owned(), namespace, name, ..Default::default() })
        };
        pulled.end("r.example/a:1", Some(("id", Some(account("one")))), NOW).unwrap();
        assert!(!pulled.must_pull("r.example/a:1", "id", &[account("one")]));
        assert!(pulled.must_pull("r.example/a:1", "id", &[account("another of its name")]));
        assert!(pulled.must_pull("r.example/a:1", "id", &[]));
    }

    #[test]
    fn images_are_for_those_who_could_have_pulled_them() {
        let folder = tempfile::tempdir().unwrap();
        let pulled = Pulled::new(folder.path());
        assert!(!pulled.must_pull("r.example/app:1", "sha256:a", &[]), "one that came with the machine");
        pulled.begin("r.example/app:1").unwrap();
        assert!(pulled.must_pull("r.example/app:1", "sha256:a", &[]), "one that is being pulled");
        pulled.end("r.example/app:1", Some(("sha256:a", Some(secret("one", "x")))), NOW).unwrap();
        assert!(pulled.must_pull("r.example/app:1", "sha256:a", &[]));
        assert!(pulled.must_pull("r.example/app:1", "sha256:a", &[secret("two", "y")]));
        assert!(!pulled.must_pull("r.example/app:2", "sha256:a", &[secret("two", "x")]), "the same credentials");
        assert!(!pulled.must_pull("r.example/app:1", "sha256:a", &[secret("one", "new")]), "the same secret");
        assert!(pulled.must_pull("other.example/app:1", "sha256:a", &[secret("one", "x")]), "another registry");
        // Over a restart, and with one more.
        let pulled = Pulled::new(folder.path());
        pulled.end("r.example/app:1", Some(("sha256:a", Some(secret("two", "y")))), NOW).unwrap();
        for own in [secret("one", "x"), secret("two", "y")] {
            assert!(!pulled.must_pull("r.example/app:1", "sha256:a", &[own]));
        }
        pulled.end("r.example/app:1", Some(("sha256:a", None)), NOW).unwrap();
        assert!(pulled.is_anybodys("r.example/app:1", "sha256:a"));
        pulled.begin("r.example/bad:1").unwrap();
        pulled.end("r.example/bad:1", None, NOW).unwrap();
        assert!(pulled.is_anybodys("r.example/bad:1", "sha256:b"));
        let later = SystemTime::now() + std::time::Duration::from_secs(1);
        pulled.prune(&BTreeSet::new(), SystemTime::UNIX_EPOCH);
        pulled.prune(&BTreeSet::from(["sha256:a"]), later);
        assert_eq!(std::fs::read_dir(folder.path().join("image_manager/pulled")).unwrap().count(), 1);
        pulled.prune(&BTreeSet::new(), later);
        assert_eq!(std::fs::read_dir(folder.path().join("image_manager/pulled")).unwrap().count(), 0);
    }

    #[test]
    fn repositories() {
        let check = |image: &str, expected: &str| assert_eq!(repository(image), expected);
        check("busybox", "docker.io/library/busybox");
        check("team/app:1", "docker.io/team/app");
        check("r.example:5000/team/app:1@sha256:00", "r.example:5000/team/app");
        check("localhost/app", "localhost/app");
    }
}

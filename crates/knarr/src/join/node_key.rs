//! A key of the machine's own, made when it joins first. The cluster keeps its hash beside the node's name, and gives nobody
//! else a certificate for that name (`kube-controller-manager`, certificates/node_key.rs). The key itself never leaves the machine:
//! it signs each request, so that who reads requests learns nothing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_controller_manager::node_key;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

/// The file in the folder of a member.
const FILE: &str = "node-key";

pub struct NodeKey(Ed25519KeyPair);

impl NodeKey {
    /// The key of this machine, made where there is none.
    pub fn of(dir: &Path) -> anyhow::Result<NodeKey> {
        let file = dir.join(FILE);
        let der = match std::fs::read_to_string(&file) {
            Ok(text) => STANDARD.decode(text.trim()).with_context(|| format!("read {}", file.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
                let der = made.ok().context("get random numbers from the system")?.as_ref().to_vec();
                linux::file::make_private_folder(dir).with_context(|| format!("create {}", dir.display()))?;
                kube_apiserver::pki::write_private_file(&file, &STANDARD.encode(&der))?;
                der
            }
            Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
        };
        let pair = Ed25519KeyPair::from_pkcs8(&der).ok().with_context(|| format!("{} is not a key", file.display()))?;
        Ok(NodeKey(pair))
    }

    /// What a request for a certificate says of it.
    pub fn annotations(&self, request: &[u8]) -> BTreeMap<String, String> {
        let signature = self.0.sign(&node_key::signed(request));
        [(node_key::KEY, STANDARD.encode(self.0.public_key())), (node_key::SIGNATURE, STANDARD.encode(signature))]
            .map(|(name, text)| (name.to_owned(), text))
            .into()
    }

    /// What the cluster keeps.
    pub fn hash(&self) -> String {
        node_key::hash(self.0.public_key().as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_signs_requests() {
        let folder = tempfile::tempdir().unwrap();
        let key = NodeKey::of(folder.path()).unwrap();
        assert_eq!(NodeKey::of(folder.path()).unwrap().hash(), key.hash());
        let mode = std::os::unix::fs::PermissionsExt::mode(&folder.path().join(FILE).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let annotations = key.annotations(b"a request");
        assert_eq!(node_key::shown(&annotations, b"a request"), Some(key.hash()));
        assert_eq!(node_key::shown(&annotations, b"another request"), None);
        assert_eq!(node_key::shown(&BTreeMap::new(), b"a request"), None);
    }
}

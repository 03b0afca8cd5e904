//! Who signs certificate requests: one authority for all signers, or one for each that is to sign.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use kube_controller_manager::{PrivateKey, SigningAuthorities, SigningAuthority};

#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct Flags {
    /// CA to sign certificate signing requests.
    #[arg(long)]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Private key of the CA that signs certificate signing requests.
    #[arg(long)]
    cluster_signing_key_file: Option<PathBuf>,
    /// CA to sign kubelet serving certificates.
    #[arg(long)]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    #[arg(long)]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// CA to sign kubelet client certificates.
    #[arg(long)]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    #[arg(long)]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// CA to sign client certificates for the API server.
    #[arg(long)]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    #[arg(long)]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// CA of the signer kubernetes.io/legacy-unknown.
    #[arg(long)]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    #[arg(long)]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
    /// Maximum lifetime of signed certificates.
    #[arg(long, value_parser = crate::leader::duration, default_value = "8760h")]
    pub cluster_signing_duration: Duration,
}

impl Flags {
    pub fn authorities(&self) -> anyhow::Result<SigningAuthorities> {
        let read = |signer: &str, certificate: &Option<PathBuf>, key: &Option<PathBuf>| match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => read(certificate, key).map(Some),
            (Some(_), None) => bail!("--cluster-signing-{signer}cert-file: cannot specify cert without key"),
            (None, Some(_)) => bail!("--cluster-signing-{signer}key-file: cannot specify key without cert"),
        };
        let authorities = SigningAuthorities {
            common: read("", &self.cluster_signing_cert_file, &self.cluster_signing_key_file)?,
            kubelet_serving: read(
                "kubelet-serving-",
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
            )?,
            kubelet_client: read(
                "kubelet-client-",
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
            )?,
            kube_apiserver_client: read(
                "kube-apiserver-client-",
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            )?,
            legacy_unknown: read(
                "legacy-unknown-",
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
            )?,
        };
        let SigningAuthorities { common, kubelet_serving, kubelet_client, kube_apiserver_client, legacy_unknown } =
            &authorities;
        let own = [kubelet_serving, kubelet_client, kube_apiserver_client, legacy_unknown];
        if common.is_some() && own.into_iter().any(Option::is_some) {
            bail!(
                "cannot specify --cluster-signing-{{cert,key}}-file and other --cluster-signing-*-file flags at the same time"
            );
        }
        Ok(authorities)
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<SigningAuthority> {
    let text = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let certificate_pem = text(certificate)?;
    let key = crate::keys::pkcs8(&text(key)?).with_context(|| format!("use {}", key.display()))?;
    Ok(SigningAuthority { certificate_pem, key: PrivateKey(key) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signers_have_one_authority_or_each_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("crt"), folder.path().join("key"));
        std::fs::write(&certificate, "certificate").unwrap();
        std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let one = || (Some(certificate.clone()), Some(key.clone()));
        let mut flags = Flags::default();
        assert!(flags.authorities().unwrap().common.is_none());
        (flags.cluster_signing_kubelet_client_cert_file, flags.cluster_signing_kubelet_client_key_file) = one();
        let found = flags.authorities().unwrap();
        assert!(found.kubelet_client.is_some() && found.common.is_none() && found.legacy_unknown.is_none());
        (flags.cluster_signing_cert_file, flags.cluster_signing_key_file) = one();
        assert!(flags.authorities().unwrap_err().to_string().contains("at the same time"));
        flags.cluster_signing_key_file = None;
        assert!(flags.authorities().unwrap_err().to_string().ends_with("cannot specify cert without key"));
    }
}

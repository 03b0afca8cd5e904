//! The files with the certificates and keys of the API server, as kubeadm makes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use kube_apiserver::pki::{Credentials, NamedPair, Pair};

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Serving certificate (default: self-signed, in --cert-dir).
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate.
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Certificate and key for clients that ask for certain names: certificate,key or certificate,key:name,*.name; the names
    /// are those of the certificate where none is given.
    #[arg(long)]
    tls_sni_cert_key: Vec<String>,
    /// Directory of self-signed certificates.
    #[arg(long, default_value = "/var/run/kubernetes")]
    cert_dir: PathBuf,
    /// CA of client certificates.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// CA of authenticating proxies, whose user headers are trusted.
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Client certificate for requests to kubelets.
    #[arg(long, requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Private key of the certificate.
    #[arg(long, requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// CA of kubelet serving certificates (default: not verified).
    #[arg(long)]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Client certificate for requests to aggregated API servers.
    #[arg(long, requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Private key of the certificate.
    #[arg(long, requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// Keys to verify service account tokens, public or private.
    #[arg(long)]
    service_account_key_file: Vec<PathBuf>,
    /// Private key to sign service account tokens.
    #[arg(long, required_unless_present = "service_account_signing_endpoint")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Socket of an external signer of service account tokens (ExternalJWTSigner), instead of keys; @name is an abstract one.
    #[arg(long)]
    service_account_signing_endpoint: Option<String>,
}

impl Flags {
    /// As `/flagz` shows them.
    pub fn flags(&self) -> kube_apiserver::options::Flags {
        let one = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let keys: Vec<String> = self.service_account_key_file.iter().map(|path| path.display().to_string()).collect();
        let flags = [
            ("tls-cert-file", one(&self.tls_cert_file)),
            ("tls-private-key-file", one(&self.tls_private_key_file)),
            ("tls-sni-cert-key", self.tls_sni_cert_key.join(";")),
            ("cert-dir", self.cert_dir.display().to_string()),
            ("client-ca-file", one(&self.client_ca_file)),
            ("requestheader-client-ca-file", one(&self.requestheader_client_ca_file)),
            ("kubelet-client-certificate", one(&self.kubelet_client_certificate)),
            ("kubelet-client-key", one(&self.kubelet_client_key)),
            ("kubelet-certificate-authority", one(&self.kubelet_certificate_authority)),
            ("proxy-client-cert-file", one(&self.proxy_client_cert_file)),
            ("proxy-client-key-file", one(&self.proxy_client_key_file)),
            ("service-account-key-file", keys.join(",")),
            ("service-account-signing-key-file", one(&self.service_account_signing_key_file)),
        ];
        flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The files whose changes are taken over while the server runs.
    pub fn followed_files(&self) -> Vec<PathBuf> {
        let files = [
            &self.tls_cert_file,
            &self.tls_private_key_file,
            &self.client_ca_file,
            &self.requestheader_client_ca_file,
            &self.kubelet_client_certificate,
            &self.kubelet_client_key,
            &self.kubelet_certificate_authority,
            &self.proxy_client_cert_file,
            &self.proxy_client_key_file,
        ];
        let named = self.tls_sni_cert_key.iter().flat_map(|text| crate::tls::files(text));
        files.into_iter().flatten().cloned().chain(named).collect()
    }

    /// Where tokens are signed, where not here.
    pub fn signing_endpoint(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(endpoint) = self.service_account_signing_endpoint.as_deref().filter(|text| !text.is_empty()) else {
            ensure!(
                self.service_account_signing_key_file.is_some(),
                "set --service-account-signing-key-file or --service-account-signing-endpoint"
            );
            return Ok(None);
        };
        ensure!(
            self.service_account_signing_key_file.is_none() && self.service_account_key_file.is_empty(),
            "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with \
             `--service-account-signing-endpoint` (They are mutually exclusive)"
        );
        let is_name = |part: &str| {
            !part.is_empty() && part.chars().all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-'))
        };
        ensure!(
            endpoint.strip_prefix('@').is_none_or(|name| name.split('.').all(is_name)),
            "invalid value {endpoint:?} passed for `--service-account-signing-endpoint`, when prefixed with @ must be a \
             valid abstract socket name"
        );
        Ok(Some(endpoint.into()))
    }

    /// Reads them all, as they are now.
    pub fn read(&self) -> anyhow::Result<Credentials> {
        let key = match &self.service_account_signing_key_file {
            Some(file) => crate::keys::pkcs8(&read(file)?).with_context(|| format!("use {}", file.display()))?,
            // Another program has it.
            None => String::new(),
        };
        let mut public_keys = Vec::new();
        for file in &self.service_account_key_file {
            public_keys.extend(crate::keys::public(&read(file)?).with_context(|| format!("use {}", file.display()))?);
        }
        Ok(Credentials {
            serving: match (&self.tls_cert_file, &self.tls_private_key_file) {
                (Some(certificate), Some(key)) => crate::secure::read_pair(certificate, key)?,
                _ => self.own_serving()?,
            },
            named: self.named()?,
            client_ca: self.client_ca_file.as_deref().map(read).transpose()?,
            front_proxy_ca: self.requestheader_client_ca_file.as_deref().map(read).transpose()?,
            kubelet_client: pair(&self.kubelet_client_certificate, &self.kubelet_client_key)?,
            kubelet_ca: self.kubelet_certificate_authority.as_deref().map(read).transpose()?,
            front_proxy_client: pair(&self.proxy_client_cert_file, &self.proxy_client_key_file)?,
            service_account_key: key,
            service_account_public_keys: public_keys,
        })
    }

    fn named(&self) -> anyhow::Result<Vec<NamedPair>> {
        let named = |text: &String| crate::tls::named_pair(text).with_context(|| format!("--tls-sni-cert-key={text}"));
        self.tls_sni_cert_key.iter().map(named).collect()
    }

    /// What an earlier start made, or a new one.
    fn own_serving(&self) -> anyhow::Result<Pair> {
        if let Some(pair) =
            Pair::read(&self.cert_dir, "apiserver").filter(|pair| pair.renew_at() > jiff::Timestamp::now())
        {
            return Ok(pair);
        }
        let pair = crate::secure::self_signed(&[])?;
        std::fs::create_dir_all(&self.cert_dir).with_context(|| format!("make {}", self.cert_dir.display()))?;
        pair.write(&self.cert_dir, "apiserver")?;
        Ok(pair)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn pair(certificate: &Option<PathBuf>, key: &Option<PathBuf>) -> anyhow::Result<Option<Pair>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => crate::secure::read_pair(certificate, key).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn tokens_are_signed_here_or_elsewhere() {
        let endpoint = |line: &str| {
            let given = Given::try_parse_from(std::iter::once("x").chain(line.split(' ')));
            let given = given.map_err(|error| error.to_string())?;
            given.flags.signing_endpoint().map_err(|error| error.to_string())
        };
        assert_eq!(endpoint("--service-account-signing-key-file=/key"), Ok(None));
        assert_eq!(endpoint("--service-account-signing-endpoint=/run/s.sock"), Ok(Some("/run/s.sock".into())));
        assert_eq!(endpoint("--service-account-signing-endpoint=@a.b-c"), Ok(Some("@a.b-c".into())));
        let refused = |line: &str, why: &str| {
            let error = endpoint(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        };
        refused("--service-account-signing-endpoint=@a..b", "must be a valid abstract socket name");
        refused("--service-account-signing-endpoint=@", "must be a valid abstract socket name");
        let both = "(They are mutually exclusive)";
        refused("--service-account-signing-endpoint=/s --service-account-signing-key-file=/key", both);
        refused("--service-account-signing-endpoint=/s --service-account-key-file=/key", both);
        refused("--service-account-key-file=/key", "--service-account-signing-key-file");
    }
}

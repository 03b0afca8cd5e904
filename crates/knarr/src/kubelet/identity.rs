//! The kubelet's client certificate: that of its kubeconfig, or one that it asks for with a bootstrap
//! kubeconfig the first time. It asks again before the certificate ends, and is itself without a pause.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component_base::tasks;
use jiff::Timestamp;
use kube_apiserver::pki::{Pair, write_private_file};
use reconcile::Shutdown;
use serde_json::{Value, json};

use super::AGENT;
use crate::join::certificates::{self, Kind};

pub struct Files {
    pub kubeconfig: PathBuf,
    pub bootstrap_kubeconfig: Option<PathBuf>,
    pub cert_dir: PathBuf,
}

impl Files {
    /// Certificate and key in one file, as upstream's kubelet keeps them.
    fn current(&self) -> PathBuf {
        self.cert_dir.join("kubelet-client-current.pem")
    }
}

/// The API server may not be there yet, or nobody has approved.
const AGAIN: Duration = Duration::from_secs(5);

/// A client that asks as the node, from now on.
pub async fn client(files: &Files, name: &str, rotate: bool, shutdown: Shutdown) -> anyhow::Result<kube::Client> {
    let usable = |pair: &Pair| pair.not_after > Timestamp::now();
    let kept = Pair::from_pem_file(&files.current()).filter(|_| rotate);
    let kept = kept.filter(|pair| usable(pair) && pair.common_name() == certificates::subject(name));
    let pair = match (files.kubeconfig.is_file(), kept) {
        (false, _) => Some(bootstrap(files, name).await?),
        (true, Some(kept)) => Some(kept),
        (true, None) => {
            let given = of_kubeconfig(&files.kubeconfig);
            match given.with_context(|| format!("use {}", files.kubeconfig.display()))? {
                Some(ended) if !usable(&ended) => Some(bootstrap(files, name).await?),
                given => given,
            }
        }
    };
    let config = crate::alone::from_file(&files.kubeconfig).await?;
    let connect = move |pair: Option<&Pair>| -> anyhow::Result<kube::Client> {
        let mut config = config.clone();
        if let Some(pair) = pair {
            config.auth_info = serde_json::from_value(json!({
                "client-certificate-data": STANDARD.encode(&pair.certificate_pem),
                "client-key-data": STANDARD.encode(&pair.key_pem),
            }))?;
        }
        crate::alone::client(config, AGENT)
    };
    let current = Arc::new(ArcSwap::from_pointee(connect(pair.as_ref())?));
    let client = following(current.clone());
    if let Some(pair) = pair.filter(|_| rotate) {
        let (asking, name, file) = (client.clone(), name.to_owned(), files.current());
        let obtain = move || {
            let (client, name) = (asking.clone(), name.clone());
            async move { ask(&client, &name).await }
        };
        let renewed = move |pair: &Pair| {
            keep(&file, pair)?;
            // Open connections still speak for the old certificate; each new request is sent by the new client.
            current.store(Arc::new(connect(Some(pair))?));
            Ok(())
        };
        tasks::spawn(certificates::keep(pair.renew_at(), certificates::no_addresses(), obtain, renewed, shutdown));
    }
    Ok(client)
}

/// A client whose requests go by whatever client was put there last.
fn following(current: Arc<ArcSwap<kube::Client>>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = current.load_full();
        async move { client.send(request).await }
    });
    kube::Client::new(service, "default")
}

async fn ask(client: &kube::Client, name: &str) -> anyhow::Result<Pair> {
    let request = certificates::Request { kind: Kind::Client, node_name: name, addresses: &[], key: None };
    certificates::obtain(client, &request).await
}

/// Gets the node's certificate, and writes the kubeconfig that names it.
async fn bootstrap(files: &Files, name: &str) -> anyhow::Result<Pair> {
    let path = files.bootstrap_kubeconfig.as_deref().map(std::path::absolute).transpose()?;
    let Some(path) = &path else {
        bail!(
            "{} is missing or has expired: set --bootstrap-kubeconfig to request a new certificate",
            files.kubeconfig.display()
        );
    };
    let client = crate::alone::client(crate::alone::from_file(path).await?, AGENT)?;
    let pair = loop {
        match ask(&client, name).await {
            Ok(pair) => break pair,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "cannot get client certificate of the node yet; retrying")
            }
        }
        tokio::time::sleep(AGAIN).await;
    };
    let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    keep(&files.current(), &pair)?;
    let kubeconfig = kubeconfig(&text, path, &files.current()).with_context(|| format!("use {}", path.display()))?;
    if let Some(folder) = files.kubeconfig.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    write_private_file(&files.kubeconfig, &machinery::codec::to_yaml(&kubeconfig))?;
    tracing::info!(node = name, until = %pair.not_after, "got client certificate of the node");
    Ok(pair)
}

fn keep(file: &Path, pair: &Pair) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    Ok(write_private_file(file, &format!("{}{}", pair.certificate_pem, pair.key_pem))?)
}

/// The same cluster as in the bootstrap kubeconfig, with the node as the user.
fn kubeconfig(bootstrap: &[u8], path: &Path, certificate: &Path) -> anyhow::Result<Value> {
    let decoded = machinery::codec::decode_yaml(bootstrap).map_err(|error| anyhow::anyhow!("{error}"))?.value;
    let context = named(&decoded, "contexts", &decoded["current-context"], "context")?;
    let mut cluster = named(&decoded, "clusters", &context["cluster"], "cluster")?.clone();
    if let Some(file) = cluster["certificate-authority"].as_str() {
        cluster["certificate-authority"] = json!(beside(path, file));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "contexts": [{"name": "default-context", "context": {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}}],
        "current-context": "default-context",
        "users": [{"name": "default-auth", "user": {"client-certificate": certificate, "client-key": certificate}}],
    }))
}

/// The client certificate of a kubeconfig; none where it has another proof.
fn of_kubeconfig(path: &Path) -> anyhow::Result<Option<Pair>> {
    let text = std::fs::read(path)?;
    let decoded = machinery::codec::decode_yaml(&text).map_err(|error| anyhow::anyhow!("{error}"))?.value;
    let context = named(&decoded, "contexts", &decoded["current-context"], "context")?;
    let user = named(&decoded, "users", &context["user"], "user")?;
    let pem = |name: &str| -> anyhow::Result<Option<String>> {
        if let Some(data) = user[format!("{name}-data").as_str()].as_str() {
            return Ok(Some(String::from_utf8(STANDARD.decode(data)?)?));
        }
        let Some(file) = user[name].as_str() else { return Ok(None) };
        let file = beside(path, file);
        Ok(Some(std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?))
    };
    let (Some(certificate), Some(key)) = (pem("client-certificate")?, pem("client-key")?) else { return Ok(None) };
    Ok(Some(Pair::from_pem(certificate, crate::keys::pkcs8(&key)?)?))
}

/// Paths in a kubeconfig begin at its folder.
fn beside(kubeconfig: &Path, file: &str) -> PathBuf {
    kubeconfig.parent().unwrap_or(Path::new("/")).join(file)
}

fn named<'a>(config: &'a Value, list: &str, name: &Value, what: &str) -> anyhow::Result<&'a Value> {
    let mut entries = config[list].as_array().into_iter().flatten();
    let found = entries.find(|entry| entry["name"] == *name).map(|entry| &entry[what]);
    found.with_context(|| format!("kubeconfig has no {what} {name}"))
}

/// Certificate and key of one file.
trait FromFile: Sized {
    fn from_pem_file(path: &Path) -> Option<Self>;
}

impl FromFile for Pair {
    fn from_pem_file(path: &Path) -> Option<Pair> {
        let text = std::fs::read_to_string(path).ok()?;
        let key = crate::keys::pkcs8(&text).ok()?;
        let begin = text.find("-----BEGIN CERTIFICATE-----")?;
        let end = text.rfind("-----END CERTIFICATE-----")?;
        let certificate = text.get(begin..end)?;
        Pair::from_pem(format!("{certificate}-----END CERTIFICATE-----\n"), key).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTSTRAP: &str = "apiVersion: v1\nkind: Config\ncurrent-context: b\ncontexts: [{name: b, context: {cluster: c, user: t}}]\nclusters: [{name: c, cluster: {server: https://a:6443, certificate-authority: ca.crt}}]\nusers: [{name: t, user: {token: a.b}}]\n";

    #[test]
    fn the_nodes_kubeconfig_leads_to_the_same_cluster() {
        let made = kubeconfig(BOOTSTRAP.as_bytes(), Path::new("/etc/kubernetes/bootstrap"), Path::new("/pki/c.pem"));
        let made = made.unwrap();
        let cluster = &made["clusters"][0]["cluster"];
        assert_eq!(
            (&cluster["server"], &cluster["certificate-authority"]),
            (&json!("https://a:6443"), &json!("/etc/kubernetes/ca.crt"))
        );
        assert_eq!(made["users"][0]["user"], json!({"client-certificate": "/pki/c.pem", "client-key": "/pki/c.pem"}));
        assert!(kubeconfig(b"current-context: x", Path::new("/b"), Path::new("/c")).is_err());
    }

    #[test]
    fn certificate_and_key_are_kept_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pki/kubelet-client-current.pem");
        assert!(Pair::from_pem_file(&file).is_none());
        let pair = crate::secure::self_signed(&[]).unwrap();
        keep(&file, &pair).unwrap();
        assert_eq!(Pair::from_pem_file(&file), Some(pair));
    }
}

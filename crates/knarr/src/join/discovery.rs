//! Verifies the server to join. It is trusted only if the token proves it: by the hash of the CA, by the signature of
//! a random token, or, for a text, by a proof that the server shows to those alone who know the text.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client};
use ring::hmac;

use super::stretch::Stretched;
use super::token::{self, Form, Role, Token};
use super::{bundle, tokens};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that proved to be of the token's cluster, and a client that it lets in.
pub struct Known {
    pub authority: String,
    pub client: Client,
    /// What the text is worth there, where the token is one.
    pub key: Option<Stretched>,
}

/// Finds out who the server is and gets in, as one of the roles that the token may be of.
pub async fn enter(server: &str, token: &Token, roles: &[Role]) -> anyhow::Result<Known> {
    let shown = Shown::ask(server).await?;
    if token.authority.as_ref().is_some_and(|expected| *expected != token::hash(&shown.authority)) {
        bail!(
            "{server} is not the cluster of this token: its CA is different. Check the address, or create a new token with `knarr token create`"
        );
    }
    // Only nodes join with a token that is sent as it is.
    if let Form::Bootstrap { id, secret } = &token.form
        && roles.contains(&Role::Agents)
    {
        if token.authority.is_none() {
            shown.check_signature(server, id, secret)?;
        }
        let client = client_with_bearer(server, &shown.authority, &format!("{id}.{secret}"))?;
        if token.authority.is_none() || is_let_in(&client).await? {
            return Ok(Known { authority: shown.authority, client, key: None });
        }
    }
    let Some(salt) = shown.salt else {
        bail!("{server} does not support tokens of this form: it runs an older version; upgrade it first");
    };
    let key = Stretched::beside(token.secret(), salt).await?;
    for role in roles {
        let bearer = format!("{}.{}", role.id(), key.bearer_secret(*role, &shown.authority)?);
        let client = client_with_bearer(server, &shown.authority, &bearer)?;
        if !is_let_in(&client).await? {
            continue;
        }
        if token.authority.is_none() {
            check_proof(server, &client, *role, &key.proof(*role, &shown.authority)?).await?;
        }
        return Ok(Known { authority: shown.authority, client, key: Some(key) });
    }
    let hint = match roles {
        [Role::Servers] => "the token must be that of servers, in <data-dir>/server/token there",
        _ => "it is another cluster's, or it has ended; `knarr token create` on a server prints a new one",
    };
    bail!("{server} rejected the token (Unauthorized): {hint}")
}

/// Whether the server knows who asks.
async fn is_let_in(client: &Client) -> anyhow::Result<bool> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await {
        Err(kube::Error::Api(status)) if status.code == 401 => Ok(false),
        Err(error) => Err(error).context("authenticate with the token"),
        Ok(_) => Ok(true),
    }
}

/// The server is believed only now: whoever is not the true one was sent nothing that the true one takes.
async fn check_proof(server: &str, client: &Client, role: Role, expected: &[u8]) -> anyhow::Result<()> {
    let name = match role {
        Role::Servers => bundle::SECRET,
        Role::Agents => tokens::OF_AGENTS,
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let secret = secrets.get(name).await.with_context(|| format!("get proof of the token from {server}"))?;
    if tokens::is_proof(&secret.data.unwrap_or_default(), expected) {
        Ok(())
    } else {
        bail!("{server} did not prove that it knows the token: it is another cluster")
    }
}

/// What a server says to everybody, not believed yet.
struct Shown {
    authority: String,
    kubeconfig: String,
    signatures: std::collections::BTreeMap<String, String>,
    salt: Option<Vec<u8>>,
}

impl Shown {
    async fn ask(server: &str) -> anyhow::Result<Shown> {
        let mut config =
            kube::Config::new(server.parse().with_context(|| format!("{server:?} is not a server address"))?);
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // Nothing secret is sent on this connection, and what comes back is checked afterwards.
        config.accept_invalid_certs = true;
        // Without it the CAs of the machine are loaded, and a machine without ca-certificates has none and cannot join.
        config.root_cert = Some(Vec::new());
        let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config).context("create client")?, "kube-public");
        let info = maps.get("cluster-info").await.with_context(|| format!("get cluster-info of {server}"))?;
        let mut signatures = info.data.unwrap_or_default();
        let kubeconfig = signatures.remove("kubeconfig").context("cluster-info of the server has no kubeconfig")?;
        let salt = match maps.get(tokens::SALT).await {
            Ok(map) => Some(tokens::salt_in(&map)?),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => None,
            Err(error) => return Err(error).with_context(|| format!("get token salt from {server}")),
        };
        Ok(Shown { authority: read(&kubeconfig)?.authority, kubeconfig, signatures, salt })
    }

    fn check_signature(&self, server: &str, id: &str, secret: &str) -> anyhow::Result<()> {
        let signature = self.signatures.get(&format!("jws-kubeconfig-{id}"));
        let signature = signature.with_context(|| format!("token {id} is unknown to {server}; it may have expired"))?;
        if is_signed(&self.kubeconfig, signature, secret) {
            Ok(())
        } else {
            bail!("{server} did not prove that it knows token {id}: it is another cluster, or the token is wrong")
        }
    }
}

/// Asks as whoever holds the token.
fn client_with_bearer(server: &str, authority: &str, bearer: &str) -> anyhow::Result<Client> {
    let mut config = kube::Config::new(server.parse().with_context(|| format!("{server:?} is not a server address"))?);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.root_cert = Some(vec![der(authority)?]);
    // The server's certificate names the service, whatever address it is reached by.
    config.tls_server_name = Some(super::servers::SERVER_NAME.into());
    config.auth_info.token = Some(bearer.to_owned().into());
    Client::try_from(config).context("create client")
}

fn der(pem: &str) -> anyhow::Result<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok().context("the CA is not a certificate")?;
    Ok(certificate.to_vec())
}

/// What a cluster says of itself.
pub struct ClusterInfo {
    pub server: String,
    pub authority: String,
}

pub fn read(kubeconfig: &str) -> anyhow::Result<ClusterInfo> {
    let config = kube::config::Kubeconfig::from_yaml(kubeconfig).context("decode cluster-info of the server")?;
    let cluster = config.clusters.into_iter().find_map(|cluster| cluster.cluster);
    let cluster = cluster.context("cluster-info of the server names no cluster")?;
    let data = cluster.certificate_authority_data.context("cluster-info of the server names no CA")?;
    let authority = STANDARD.decode(data).context("decode CA of the server")?;
    Ok(ClusterInfo {
        server: cluster.server.unwrap_or_default(),
        authority: String::from_utf8(authority).context("decode CA of the server")?,
    })
}

/// A web signature whose content is left out.
fn is_signed(content: &str, signature: &str, secret: &str) -> bool {
    let Some((header, mac)) = signature.split_once("..") else { return false };
    let Ok(mac) = URL_SAFE_NO_PAD.decode(mac) else { return false };
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes(), &mac).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_can_sign() {
        let token = "0123456789abcdef";
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"abcdef"}"#);
        let sign = |secret: &[u8]| {
            let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode("text"));
            let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
            format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac))
        };
        assert!(is_signed("text", &sign(b"0123456789abcdef"), token));
        assert!(!is_signed("other", &sign(b"0123456789abcdef"), token));
        assert!(!is_signed("text", &sign(b"another"), token));
        assert!(!is_signed("text", "nonsense", token));
    }

    /// Signatures that upstream's own library made.
    #[test]
    fn signatures_of_upstream_are_valid() {
        let (content, secret) =
            ("Hello from the other side. I must have called a thousand times.", "my voice is my passcode");
        let header = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9";
        for (content, secret, mac) in [
            (content, secret, "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"),
            ("", secret, "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk"),
            (content, "", "UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8"),
        ] {
            assert!(is_signed(content, &format!("{header}..{mac}"), secret), "{mac}");
            assert!(!is_signed(content, &format!("{header}..{mac}foo"), secret), "{mac}");
            assert!(!is_signed(content, &format!("{header}.{mac}"), secret), "{mac}");
            assert!(!is_signed(&format!("{content} "), &format!("{header}..{mac}"), secret), "{mac}");
        }
    }

    #[test]
    fn a_kubeconfig_without_an_authority_is_no_cluster_info() {
        let config =
            |cluster: &str| format!("apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster: {cluster}\n");
        let read_of = |cluster: &str| read(&config(cluster)).map(|info| (info.server, info.authority));
        let good = read_of("{server: 'https://a:6443', certificate-authority-data: aGVsbG8=}").expect("cluster-info");
        assert_eq!(good, ("https://a:6443".to_owned(), "hello".to_owned()));
        for bad in [
            "{server: 'https://a:6443'}",
            "{server: 'https://a:6443', certificate-authority-data: '!'}",
            "{server: 'https://a:6443', certificate-authority-data: /w==}",
            "nothing",
        ] {
            assert!(read_of(bad).is_err(), "{bad}");
        }
        assert!(read("").is_err() && read("apiVersion: v1\nkind: Config\nclusters: []\n").is_err());
    }
}

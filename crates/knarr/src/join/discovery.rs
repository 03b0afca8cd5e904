//! Who is that server? Its answer is believed only where the token proves it.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use ring::hmac;

use super::token::{self, Token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The authority of the cluster behind `server`, in PEM.
pub async fn authority(server: &str, token: &Token) -> anyhow::Result<String> {
    let mut config =
        kube::Config::new(server.parse().with_context(|| format!("{server:?} is no address of a server"))?);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Nothing secret is sent on this connection, and what comes back is checked below.
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).context("make a client")?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let info = maps.get("cluster-info").await.with_context(|| format!("ask {server} which cluster it is"))?;
    let data = info.data.unwrap_or_default();
    let kubeconfig = data.get("kubeconfig").context("the server's cluster-info holds no kubeconfig")?;
    let authority = read(kubeconfig)?.authority;
    match &token.authority {
        Some(expected) if *expected == token::hash(&authority) => Ok(authority),
        Some(_) => bail!(
            "{server} is not the cluster that the token is for: its authority is another. Check the address, or make a new token with `knarr token create`"
        ),
        None => {
            let signature = data.get(&format!("jws-kubeconfig-{}", token.id));
            let signature = signature
                .with_context(|| format!("{server} does not know the token {}; it may have expired", token.id))?;
            match is_signed(kubeconfig, signature, token) {
                true => Ok(authority),
                false => bail!(
                    "{server} could not show that it knows the token {}: it is another cluster, or the token is wrong",
                    token.id
                ),
            }
        }
    }
}

/// Asks as whoever holds the token.
pub fn client_with_token(server: &str, authority: &str, token: &Token) -> anyhow::Result<kube::Client> {
    let mut config =
        kube::Config::new(server.parse().with_context(|| format!("{server:?} is no address of a server"))?);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.root_cert = Some(vec![der(authority)?]);
    // The server's certificate names the service, whatever address it is reached by.
    config.tls_server_name = Some(super::servers::SERVER_NAME.into());
    config.auth_info.token = Some(token.bearer().into());
    kube::Client::try_from(config).context("make a client")
}

fn der(pem: &str) -> anyhow::Result<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok().context("the authority is no certificate")?;
    Ok(certificate.to_vec())
}

/// What a cluster says of itself.
pub struct ClusterInfo {
    pub server: String,
    pub authority: String,
}

pub fn read(kubeconfig: &str) -> anyhow::Result<ClusterInfo> {
    let config = kube::config::Kubeconfig::from_yaml(kubeconfig).context("read the server's cluster-info")?;
    let cluster = config.clusters.into_iter().find_map(|cluster| cluster.cluster);
    let cluster = cluster.context("the server's cluster-info names no cluster")?;
    let data = cluster.certificate_authority_data.context("the server's cluster-info names no authority")?;
    let authority = STANDARD.decode(data).context("read the server's authority")?;
    Ok(ClusterInfo {
        server: cluster.server.unwrap_or_default(),
        authority: String::from_utf8(authority).context("read the server's authority")?,
    })
}

/// A web signature whose content is left out.
fn is_signed(content: &str, signature: &str, token: &Token) -> bool {
    let Some((header, mac)) = signature.split_once("..") else { return false };
    let Ok(mac) = URL_SAFE_NO_PAD.decode(mac) else { return false };
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes()), signed.as_bytes(), &mac).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_can_sign() {
        let token: Token = "abcdef.0123456789abcdef".parse().unwrap();
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"abcdef"}"#);
        let sign = |secret: &[u8]| {
            let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode("text"));
            let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
            format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac))
        };
        assert!(is_signed("text", &sign(b"0123456789abcdef"), &token));
        assert!(!is_signed("other", &sign(b"0123456789abcdef"), &token));
        assert!(!is_signed("text", &sign(b"another"), &token));
        assert!(!is_signed("text", "nonsense", &token));
    }
}

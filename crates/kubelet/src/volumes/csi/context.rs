//! Secrets and volume context for a CSI driver: secrets, who the pod is, and tokens in its name.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::json;

use super::wanted::{Lifecycle, SecretName, Wanted};
use super::{Error, Request};

/// What the API gives when a driver does not say how long its tokens should live.
const TOKEN_SECONDS: i64 = 3600;
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// The content of a Secret. `what` names the reference in errors.
pub(super) async fn secret(
    request: &Request<'_>,
    what: &'static str,
    name: Option<&SecretName>,
) -> Result<HashMap<String, String>, Error> {
    let Some((namespace, name)) = name else { return Ok(HashMap::new()) };
    let found = request.objects.secret(namespace, name).await;
    let found = found.map_err(|source| {
        let (namespace, name) = (namespace.clone(), name.clone());
        Error::Secret { what, namespace, name, source }
    })?;
    let data = found.data.iter().flatten();
    Ok(data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned())).collect())
}

/// The volume's attributes and secrets for publishing, with what the driver wants to know of the pod.
pub(super) async fn for_publishing(
    request: &Request<'_>,
    wanted: &Wanted,
    driver: Option<&CSIDriver>,
) -> Result<(HashMap<String, String>, HashMap<String, String>), Error> {
    let mut secrets = secret(request, "NodePublishSecretRef", wanted.publish_secret.as_ref()).await?;
    let mut attributes: HashMap<String, String> = wanted.attributes.clone().into_iter().collect();
    if driver.is_some_and(|driver| driver.spec.pod_info_on_mount == Some(true)) {
        attributes.extend(pod_info(request.pod, wanted.lifecycle));
    }
    if let Some(tokens) = tokens(request, driver).await? {
        let in_secrets = driver.is_some_and(|driver| driver.spec.service_account_token_in_secrets == Some(true));
        let place = if in_secrets { &mut secrets } else { &mut attributes };
        place.insert(TOKENS.to_owned(), tokens);
    }
    Ok((attributes, secrets))
}

fn pod_info(pod: &Pod, lifecycle: Lifecycle) -> [(String, String); 5] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    let ephemeral = (lifecycle == Lifecycle::Ephemeral).to_string();
    [
        ("csi.storage.k8s.io/pod.name", text(&pod.metadata.name)),
        ("csi.storage.k8s.io/pod.namespace", text(&pod.metadata.namespace)),
        ("csi.storage.k8s.io/pod.uid", text(&pod.metadata.uid)),
        ("csi.storage.k8s.io/serviceAccount.name", account),
        ("csi.storage.k8s.io/ephemeral", ephemeral),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

async fn tokens(request: &Request<'_>, driver: Option<&CSIDriver>) -> Result<Option<String>, Error> {
    let Some(driver) = driver else { return Ok(None) };
    let wished = driver.spec.token_requests.as_deref().unwrap_or_default();
    if wished.is_empty() {
        return Ok(None);
    }
    let mut found = BTreeMap::new();
    for one in wished {
        let seconds = one.expiration_seconds.unwrap_or(TOKEN_SECONDS);
        // Who is asked once gets a token of its own; who is asked again and again gets the renewed one.
        let issued = match driver.spec.requires_republish {
            Some(true) => request.tokens.issued(request.pod, &one.audience, seconds).await,
            _ => request.tokens.fresh(request.pod, &one.audience, seconds).await,
        };
        let (token, expires) = issued?;
        let expires = expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        found.insert(one.audience.clone(), json!({"token": token, "expirationTimestamp": expires}));
    }
    Ok(Some(json!(found).to_string()))
}

//! What a pod and a volume refer to: secrets, config maps, claims. Pure reading for the node authorizer.

use machinery::node::Node;
use serde_json::Value;

pub fn secret(pod: &Node, name: &str) -> bool {
    let spec = pod.at("spec");
    spec.each("imagePullSecrets").any(|secret| secret.text("name") == name)
        || from_environment(&spec, "secretKeyRef", "secretRef", name)
        || spec.each("volumes").any(|volume| {
            volume.entries().any(|(_, source)| {
                source.text("secretName") == name
                    || source.at("secretRef").text("name") == name
                    || source.at("nodePublishSecretRef").text("name") == name
            }) || projected(&volume, "secret", name)
        })
}

pub fn config_map(pod: &Node, name: &str) -> bool {
    let spec = pod.at("spec");
    from_environment(&spec, "configMapKeyRef", "configMapRef", name)
        || spec
            .each("volumes")
            .any(|volume| volume.at("configMap").text("name") == name || projected(&volume, "configMap", name))
}

/// The names of the claims of a pod; a generic ephemeral volume has one named after pod and volume.
pub(crate) fn volume_claims<'a>(pod: &Node<'a>) -> impl Iterator<Item = String> + use<'a> {
    let owner = pod.at("metadata").text("name");
    pod.at("spec").each("volumes").filter_map(move |volume| {
        if volume.has("ephemeral") {
            return Some(format!("{owner}-{}", volume.text("name")));
        }
        let claim = volume.at("persistentVolumeClaim").text("claimName");
        (!claim.is_empty()).then(|| claim.to_string())
    })
}

pub(crate) fn volume_claim(pod: &Node, name: &str) -> bool {
    volume_claims(pod).any(|claim| claim == name)
}

pub fn resource_claim(pod: &Node, name: &str) -> bool {
    let status = pod.at("status");
    pod.at("spec").each("resourceClaims").any(|claim| claim.text("resourceClaimName") == name)
        || status.each("resourceClaimStatuses").any(|claim| claim.text("resourceClaimName") == name)
        || status.at("extendedResourceClaimStatus").text("resourceClaimName") == name
}

/// The claim a volume is bound to: namespace and name.
pub fn claim_of(volume: &Value) -> Option<(&str, &str)> {
    let claim = volume.pointer("/spec/claimRef")?;
    Some((claim.get("namespace")?.as_str()?, claim.get("name")?.as_str()?))
}

/// Whether a persistent volume's driver reads that secret on the node.
pub(crate) fn volume_secret(volume: &Value, namespace: &str, name: &str) -> bool {
    const ON_THE_NODE: [&str; 4] = ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let claim_namespace = claim_of(volume).map_or("", |(namespace, _)| namespace);
    let or_claim = |text: &str| if text.is_empty() { claim_namespace == namespace } else { text == namespace };
    let spec = Node::root(volume);
    spec.at("spec").entries().any(|(_, source)| {
        ON_THE_NODE.into_iter().any(|field| {
            let secret = source.at(field);
            secret.text("name") == name && or_claim(secret.text("namespace"))
        }) || source.text("secretName") == name && or_claim(source.text("secretNamespace"))
    })
}

fn projected(volume: &Node, kind: &'static str, name: &str) -> bool {
    volume.at("projected").each("sources").any(|source| source.at(kind).text("name") == name)
}

fn from_environment(spec: &Node, key_ref: &'static str, whole_ref: &'static str, name: &str) -> bool {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().any(|list| {
        spec.each(list).any(|container| {
            container.each("env").any(|variable| variable.at("valueFrom").at(key_ref).text("name") == name)
                || container.each("envFrom").any(|source| source.at(whole_ref).text("name") == name)
        })
    })
}

//! What the cluster says of itself to machines that join, and what it lets them do.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::DeleteParams;
use kube_apiserver::app::App;
use kube_apiserver::loopback::Loopback;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::token::Token;

/// What all nodes of a cluster must know alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    #[serde(with = "as_text")]
    pub cluster_cidr: ipnet::IpNet,
    #[serde(with = "as_text")]
    pub service_cidr: ipnet::IpNet,
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The etcd that all servers share, if they do.
    #[serde(default)]
    pub etcd_servers: Vec<String>,
    /// Whether each server runs a member of that etcd.
    #[serde(default)]
    pub runs_etcd: bool,
    /// Parts that no node runs.
    #[serde(default)]
    pub disabled: Vec<String>,
}

/// Ranges are written as one writes them.
pub mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(range: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(range)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

const AGENT: &str = concat!("knarr/v", env!("CARGO_PKG_VERSION"));

/// The ConfigMap in kube-system that holds them.
const SETTINGS: &str = "knarr";
const FIELD: &str = "settings.json";
/// What is read where the API server is away.
const KEPT: &str = "settings.json";

/// The settings, as the cluster says now; as it said last where no server answers.
pub async fn settings(client: &kube::Client, dir: &Path) -> anyhow::Result<Settings> {
    let file = dir.join(KEPT);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let text = match maps.get(SETTINGS).await {
        Ok(map) => {
            let text = map.data.unwrap_or_default().remove(FIELD).context("the cluster has no settings")?;
            if let Err(error) = std::fs::write(&file, &text) {
                tracing::warn!(file = %file.display(), %error, "the cluster's settings are not kept");
            }
            text
        }
        Err(error) => {
            let Ok(kept) = std::fs::read_to_string(&file) else {
                return Err(error).context("read the cluster's settings");
            };
            tracing::warn!(%error, "no server answers; the node goes on with what it knows");
            kept
        }
    };
    serde_json::from_str(&text).context("read the cluster's settings")
}

/// What was said last.
pub fn kept_settings(dir: &Path) -> Option<Settings> {
    serde_json::from_str(&std::fs::read_to_string(dir.join(KEPT)).ok()?).ok()
}

/// What a server tells machines that join.
pub struct Publication<'a> {
    pub authority: &'a str,
    /// How other machines reach this server.
    pub url: &'a str,
    pub settings: &'a Settings,
    /// The token of servers, if the operator chose it.
    pub token: Option<&'a str>,
    /// The token of nodes, if the operator chose it.
    pub agent_token: Option<&'a str>,
    pub data_dir: &'a Path,
}

/// Makes the objects that joining needs, and this cluster's lasting tokens.
pub async fn publish(app: &Arc<App>, publication: Publication<'_>) -> anyhow::Result<()> {
    let Publication { authority, url, settings, token, agent_token, data_dir } = publication;
    let of_servers = match token {
        Some(text) => take_token(app, SERVER_TOKEN, text.parse::<Token>()?.with_authority(authority), data_dir).await?,
        None => lasting_token(SERVER_TOKEN, authority, data_dir)?,
    };
    let token = match agent_token {
        Some(text) => take_token(app, NODE_TOKEN, text.parse::<Token>()?.with_authority(authority), data_dir).await?,
        None => lasting_token(NODE_TOKEN, authority, data_dir)?,
    };
    let mut objects = permissions();
    objects.extend(for_servers(&of_servers, data_dir)?);
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS, "namespace": "kube-system"},
        "data": {FIELD: serde_json::to_string(settings)?},
    }));
    objects.push(cluster_info(authority, url));
    objects.push(secret(&token, "The token of this cluster's nodes.", None));
    for object in objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let made = kube_apiserver::bootstrap::ensure(app, object).await;
        made.map_err(|status| anyhow::anyhow!("make {name}: {}", status.message))?;
    }
    Ok(())
}

/// The token that the operator chose. One that it replaces is good no more, and what was sealed with it is sealed anew.
async fn take_token(app: &Arc<App>, name: &str, token: Token, data_dir: &Path) -> anyhow::Result<Token> {
    if let Some(old) = kept_token(name, data_dir)?.filter(|old| old.bearer() != token.bearer()) {
        let client = kube::Client::new(Loopback::administrator(app.clone(), AGENT), "default");
        let secrets: Api<Secret> = Api::namespaced(client, "kube-system");
        let sealed = (name == SERVER_TOKEN).then(|| super::bundle::SECRET.to_owned());
        for secret in [Some(format!("bootstrap-token-{}", old.id)), sealed].into_iter().flatten() {
            match secrets.delete(&secret, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code != 404 => bail!("end the old token: {}", status.message),
                _ => {}
            }
        }
        tracing::info!(file = name, "the token is another one from now on");
    }
    keep_token(name, &token, data_dir)?;
    Ok(token)
}

/// The files below `<data>/server` that hold the tokens with which nodes and further servers join.
pub const NODE_TOKEN: &str = "node-token";
pub const SERVER_TOKEN: &str = "token";
const SERVERS: &str = "system:bootstrappers:knarr:servers";

/// The token of that file, made at the first start.
fn lasting_token(name: &str, authority: &str, data_dir: &Path) -> anyhow::Result<Token> {
    if let Some(token) = kept_token(name, data_dir)? {
        return Ok(token);
    }
    let token = Token::generate(authority)?;
    keep_token(name, &token, data_dir)?;
    Ok(token)
}

pub fn kept_token(name: &str, data_dir: &Path) -> anyhow::Result<Option<Token>> {
    let file = data_dir.join("server").join(name);
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("read {}", file.display()))
}

pub fn keep_token(name: &str, token: &Token, data_dir: &Path) -> anyhow::Result<()> {
    let dir = data_dir.join("server");
    std::fs::create_dir_all(&dir).context("create the folder of the token")?;
    Ok(kube_apiserver::pki::write_private_file(&dir.join(name), &format!("{token}\n"))?)
}

/// The token of servers, the sealed keys, and the right to read these with that.
fn for_servers(token: &Token, data_dir: &Path) -> anyhow::Result<Vec<Value>> {
    let mut secret = secret(token, "The token of this cluster's servers.", None);
    secret["data"]["auth-extra-groups"] = STANDARD.encode(SERVERS).into();
    let sealed = super::bundle::Bundle::read(&data_dir.join("tls"))?.seal(token)?;
    let api = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": "knarr:servers", "namespace": "kube-system"});
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [super::bundle::SECRET], "verbs": ["get"]}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "knarr:servers"});
    Ok(vec![
        secret,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "knarr.dev/servers",
            "metadata": {"name": super::bundle::SECRET, "namespace": "kube-system"},
            "data": {super::bundle::FIELD: STANDARD.encode(sealed)},
        }),
        json!({"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [group(SERVERS)]}),
    ])
}

/// A bootstrap token as the API server knows it.
pub fn secret(token: &Token, description: &str, expiration: Option<jiff::Timestamp>) -> Value {
    let mut data = json!({
        "token-id": STANDARD.encode(&token.id),
        "token-secret": STANDARD.encode(&token.secret),
        "description": STANDARD.encode(description),
        "usage-bootstrap-authentication": STANDARD.encode("true"),
        "usage-bootstrap-signing": STANDARD.encode("true"),
    });
    if let Some(end) = expiration {
        data["expiration"] = STANDARD.encode(end.to_string()).into();
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{}", token.id), "namespace": "kube-system"},
        "data": data,
    })
}

/// As kubeadm writes it, so that what reads kubeadm's reads ours.
fn cluster_info(authority: &str, url: &str) -> Value {
    let kubeconfig = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
        STANDARD.encode(authority),
        Value::from(url),
    );
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig},
    })
}

const BOOTSTRAPPERS: &str = "system:bootstrappers";
const NODES: &str = "system:nodes";

fn permissions() -> Vec<Value> {
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    let mut objects = vec![
        bind_all("knarr:node-bootstrap", "system:node-bootstrapper", BOOTSTRAPPERS),
        bind_all("knarr:node-autoapprove-bootstrap", &format!("{requests}:nodeclient"), BOOTSTRAPPERS),
        bind_all("knarr:node-autoapprove-certificate-rotation", &format!("{requests}:selfnodeclient"), NODES),
        cluster_role(
            "knarr:selfnodeserver",
            json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/selfnodeserver"], "verbs": ["create"]}]),
        ),
        bind_all("knarr:node-autoapprove-serving", "knarr:selfnodeserver", NODES),
        // Upstream's role of that controller is for client certificates only.
        cluster_role(
            "knarr:approve-serving",
            json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["kubernetes.io/kubelet-serving"], "verbs": ["approve"]}]),
        ),
        bind(
            "knarr:approve-serving",
            "knarr:approve-serving",
            json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": "certificate-controller"}),
        ),
        // What the parts of a node other than the kubelet look at: the proxy, DNS, the pod network and its policies.
        cluster_role(
            "knarr:node",
            json!([
                {"apiGroups": [""], "resources": ["nodes", "services", "pods", "namespaces"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies", "servicecidrs"], "verbs": ["get", "list", "watch"]},
            ]),
        ),
        bind_all("knarr:node", "knarr:node", NODES),
    ];
    let anyone = json!([
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:anonymous"},
        {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"},
    ]);
    let joining = json!([group(BOOTSTRAPPERS), group(NODES)]);
    objects.extend(may_read("kube-public", "knarr:cluster-info", "cluster-info", anyone));
    objects.extend(may_read("kube-system", "knarr:settings", SETTINGS, joining));
    objects
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

fn bind_all(name: &str, role: &str, to: &str) -> Value {
    bind(name, role, group(to))
}

fn bind(name: &str, role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

fn cluster_role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn may_read(namespace: &str, name: &str, map: &str, subjects: Value) -> [Value; 2] {
    let api = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [map], "verbs": ["get"]}]);
    let metadata = json!({"name": name, "namespace": namespace});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    [
        json!({"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lasting_token_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = lasting_token(NODE_TOKEN, "authority", folder.path()).unwrap();
        assert!(lasting_token(NODE_TOKEN, "authority", folder.path()).unwrap() == first);
        assert!(lasting_token(SERVER_TOKEN, "authority", folder.path()).unwrap() != first);
        let file = folder.path().join("server/node-token");
        std::fs::write(file, "short").unwrap();
        assert!(lasting_token(NODE_TOKEN, "authority", folder.path()).is_err());
    }
}

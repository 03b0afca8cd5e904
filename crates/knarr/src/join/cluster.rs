//! Settings that the cluster publishes to joining machines, and their RBAC rules.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube_apiserver::app::App;
use kube_apiserver::loopback::Loopback;
use kube_controller_manager::node_key;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::node_key::NodeKey;
use super::{bundle, tokens};

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
            let text = map.data.unwrap_or_default().remove(FIELD).context("ConfigMap of cluster settings is empty")?;
            if let Err(error) = linux::file::write(&file, &text, 0o600) {
                tracing::warn!(file = %file.display(), %error, "cannot save cluster settings");
            }
            text
        }
        Err(error) => {
            let Ok(kept) = std::fs::read_to_string(&file) else {
                return Err(error).context("read cluster settings");
            };
            tracing::warn!(%error, "cannot reach any API server; running pods from cached state");
            kept
        }
    };
    serde_json::from_str(&text).context("read cluster settings")
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
    let mut objects = permissions();
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS, "namespace": "kube-system"},
        "data": {FIELD: serde_json::to_string(publication.settings)?},
    }));
    objects.push(cluster_info(publication.authority, publication.url));
    for object in objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let made = kube_apiserver::bootstrap::ensure(app, object).await;
        made.map_err(|status| anyhow::anyhow!("create {name}: {}", status.message))?;
    }
    let client = kube::Client::new(Loopback::administrator(app.clone(), AGENT), "default");
    forget_old_role(&client).await?;
    tokens::publish(&client, &publication).await
}

/// Older versions let nodes read every pod, by a role and a binding of this name.
const OLD_ROLE: &str = "knarr:node";

async fn forget_old_role(client: &kube::Client) -> anyhow::Result<()> {
    let parameters = kube::api::DeleteParams::default();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let binding = bindings.delete(OLD_ROLE, &parameters).await.map(drop);
    let role = roles.delete(OLD_ROLE, &parameters).await.map(drop);
    for deleted in [binding, role] {
        match deleted {
            Err(error) if !reconcile::is_not_found(&error) => {
                return Err(error).with_context(|| format!("delete role {OLD_ROLE}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The name of a server's own node belongs to that server, whoever asked for it before.
pub async fn bind_own_node(app: &Arc<App>, name: &str, key: &NodeKey) -> anyhow::Result<()> {
    let client = kube::Client::new(Loopback::administrator(app.clone(), AGENT), "default");
    tokens::put(&Api::namespaced(client, "kube-system"), node_key::secret(name, &key.hash())).await
}

/// A bootstrap token as the API server knows it.
///
/// Only random ones sign `cluster-info` (`signs`): on a signature that everybody may read, guesses can be tried.
pub fn bootstrap_secret(token: &BootstrapToken<'_>) -> Value {
    let mut data = json!({
        "token-id": STANDARD.encode(token.id),
        "token-secret": STANDARD.encode(token.secret),
        "description": STANDARD.encode(token.description),
        "usage-bootstrap-authentication": STANDARD.encode("true"),
    });
    if token.signs {
        data["usage-bootstrap-signing"] = STANDARD.encode("true").into();
    }
    if let Some(group) = token.group {
        data["auth-extra-groups"] = STANDARD.encode(group).into();
    }
    if let Some(end) = token.expiration {
        data["expiration"] = STANDARD.encode(end.to_string()).into();
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{}", token.id), "namespace": "kube-system"},
        "data": data,
    })
}

pub struct BootstrapToken<'a> {
    pub id: &'a str,
    pub secret: &'a str,
    pub description: &'a str,
    pub group: Option<&'a str>,
    pub signs: bool,
    pub expiration: Option<jiff::Timestamp>,
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
        // The server itself, when it asks kubelets.
        bind(
            "knarr:kubelet-client",
            "system:kubelet-api-admin",
            json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": kube_apiserver::pki::KUBELET_CLIENT}),
        ),
        // Which machine a node's name belongs to.
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "knarr:node-keys", "namespace": "kube-system"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update", "delete"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "knarr:node-keys", "namespace": "kube-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "knarr:node-keys"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "certificate-controller"}],
        }),
        // What the parts of a node other than the kubelet look at: the proxy, DNS, the pod network and its policies. Pods and
        // nodes other than its own a node sees in their reduced form only.
        cluster_role(
            "knarr:node-network",
            json!([
                {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [kube_apiserver::REDUCED_GROUP], "resources": ["podaddresses", "nodeaddresses"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies", "servicecidrs"], "verbs": ["get", "list", "watch"]},
            ]),
        ),
        bind_all("knarr:node-network", "knarr:node-network", NODES),
    ];
    let anyone = json!([
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:anonymous"},
        {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"},
    ]);
    let joining = json!([group(BOOTSTRAPPERS), group(NODES)]);
    objects.extend(may_read("kube-public", "knarr:cluster-info", ("configmaps", "cluster-info"), anyone.clone()));
    objects.extend(may_read("kube-public", "knarr:join", ("configmaps", tokens::SALT), anyone));
    objects.extend(may_read("kube-system", "knarr:settings", ("configmaps", SETTINGS), joining));
    for (name, secret, to) in
        [("knarr:servers", bundle::SECRET, tokens::SERVERS), ("knarr:agents", tokens::OF_AGENTS, tokens::AGENTS)]
    {
        objects.extend(may_read("kube-system", name, ("secrets", secret), json!([group(to)])));
    }
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

fn may_read(namespace: &str, name: &str, (resource, object): (&str, &str), subjects: Value) -> [Value; 2] {
    let api = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": [resource], "resourceNames": [object], "verbs": ["get"]}]);
    let metadata = json!({"name": name, "namespace": namespace});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    [
        json!({"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects}),
    ]
}

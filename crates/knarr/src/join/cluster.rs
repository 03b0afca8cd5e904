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
use kube_apiserver::local::App;
use kube_apiserver::local::Loopback;
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
        let made = kube_apiserver::local::ensure(app, object).await;
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
                {"apiGroups": [kube_apiserver::local::REDUCED_GROUP], "resources": ["podaddresses", "nodeaddresses"], "verbs": ["list", "watch"]},
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_info_is_read_by_who_joins() {
        let info = cluster_info("an authority", "https://[fd00::1]:6443");
        let text = info["data"]["kubeconfig"].as_str().expect("a kubeconfig");
        let read = super::super::discovery::read(text).expect("it can be read");
        assert_eq!((read.authority.as_str(), read.server.as_str()), ("an authority", "https://[fd00::1]:6443"));
    }

    #[test]
    fn bootstrap_tokens_have_upstreams_fields() {
        let made = |signs: bool, group: Option<&str>, end: Option<&str>| {
            let expiration = end.map(|text| text.parse().expect("a time"));
            let token = BootstrapToken { id: "abcdef", secret: "s", description: "d", group, signs, expiration };
            let secret = bootstrap_secret(&token);
            assert_eq!(secret["metadata"]["name"], "bootstrap-token-abcdef");
            assert_eq!(secret["type"], "bootstrap.kubernetes.io/token");
            let data = secret["data"].as_object().expect("data").clone();
            let decoded = data.into_iter().map(|(name, value)| {
                let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).expect("base64");
                format!("{name}={}", String::from_utf8_lossy(&bytes))
            });
            decoded.collect::<Vec<_>>()
        };
        let plain = ["description=d", "token-id=abcdef", "token-secret=s", "usage-bootstrap-authentication=true"];
        assert_eq!(made(false, None, None), plain);
        let more = made(true, Some("system:bootstrappers:x"), Some("2026-01-02T03:04:05Z"));
        for field in [
            "auth-extra-groups=system:bootstrappers:x",
            "expiration=2026-01-02T03:04:05Z",
            "usage-bootstrap-signing=true",
        ] {
            assert!(more.contains(&field.to_owned()), "{more:?}");
        }
    }

    #[test]
    fn strangers_read_two_public_objects_and_nothing_else() {
        let objects = permissions();
        let strangers = |binding: &&Value| {
            let subjects = binding["subjects"].as_array().cloned().unwrap_or_default();
            subjects.iter().any(|one| one["name"] == "system:anonymous" || one["name"] == "system:authenticated")
        };
        let open: Vec<&Value> = objects.iter().filter(strangers).collect();
        assert_eq!(open.len(), 2);
        for binding in open {
            assert_eq!(
                (&binding["kind"], &binding["metadata"]["namespace"]),
                (&json!("RoleBinding"), &json!("kube-public"))
            );
            let role = objects.iter().find(|one| one["kind"] == "Role" && one["metadata"] == binding["metadata"]);
            let rules = &role.expect("its role")["rules"];
            assert_eq!((&rules[0]["verbs"], &rules[1]), (&json!(["get"]), &Value::Null));
            assert!(rules[0]["resourceNames"].as_array().is_some_and(|names| names.len() == 1), "{rules}");
        }
    }

    #[test]
    fn every_binding_has_its_role() {
        let objects = permissions();
        for binding in objects.iter().filter(|one| one["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding"))) {
            let role = &binding["roleRef"];
            let ours = objects.iter().any(|one| one["kind"] == role["kind"] && one["metadata"]["name"] == role["name"]);
            let upstreams = role["name"].as_str().is_some_and(|name| name.starts_with("system:"));
            assert!(ours || upstreams, "{binding}");
        }
        // Nobody who only joins may write anything but what they join with.
        let writes = |object: &&Value| {
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            rules.iter().any(|rule| rule["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "*")))
        };
        assert_eq!(objects.iter().filter(writes).count(), 0);
    }

    #[test]
    fn settings_of_older_servers_are_read() {
        let old = r#"{"clusterCidr":"10.42.0.0/16","serviceCidr":"10.43.0.0/16","clusterDns":["10.43.0.10"],"clusterDomain":"cluster.local"}"#;
        let read: Settings = serde_json::from_str(old).expect("it can be read");
        assert!(read.etcd_servers.is_empty() && !read.runs_etcd && read.disabled.is_empty());
        let again: Settings = serde_json::from_str(&serde_json::to_string(&read).expect("text")).expect("the same");
        assert_eq!(again, read);
        assert!(serde_json::from_str::<Settings>(&old.replace("/16", "/99")).is_err());
    }
}

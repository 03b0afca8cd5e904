//! Kubelet and proxy: sections 4.2 and 4.3. The kubelet says at `/configz` what it runs with, and is asked as a stranger would.

use super::api_server::ciphers;
use super::control::{local, node_setting};
use super::state::{Node, State};
use super::{Check, Verdict, manual, scored};

const READ_ONLY_PORT: u16 = 10255;
const PROXY_METRICS_PORT: u16 = 10249;

pub(super) const CHECKS: &[Check] = &[
    scored("4.2.1", "the kubelet refuses anonymous requests", "authentication.anonymous.enabled: false", |state| {
        of_node(state, |node| match node.anonymous_code {
            Some(401) => Verdict::Good("who shows no proof is answered with 401".into()),
            Some(code) => Verdict::Bad(format!("who shows no proof is answered with {code}")),
            None => Verdict::Unknown("the kubelet could not be asked".into()),
        })
    }),
    scored("4.2.2", "the kubelet asks the API server what is allowed", "authorization.mode: Webhook", |state| {
        setting(state, "/authorization/mode", |value| value == "Webhook")
    }),
    scored("4.2.3", "the kubelet verifies its clients' certificates", "authentication.x509.clientCAFile", |state| {
        setting(state, "/authentication/x509/clientCAFile", |value| value.as_str().is_some_and(|file| !file.is_empty()))
    }),
    manual("4.2.4", "there is no read-only port", "readOnlyPort: 0", |state| {
        of_node(state, |_| {
            if state.listening.iter().any(|address| address.port() == READ_ONLY_PORT) {
                Verdict::Bad(format!("port {READ_ONLY_PORT} is open"))
            } else {
                setting(state, "/readOnlyPort", |value| value == 0)
            }
        })
    }),
    manual("4.2.5", "idle streams end", "end exec and port-forward sessions that nobody uses", |state| {
        setting(state, "/streamingConnectionIdleTimeout", |value| value.is_string() && value != "0s")
    }),
    scored("4.2.6", "the node's packet filter is in place", "do not disable kube-proxy", |state| {
        of_node(state, |_| match state.tables.iter().find(|table| table.starts_with("knarr-")) {
            Some(_) => Verdict::Good(format!("tables {}", state.tables.join(", "))),
            None => Verdict::Bad("no table of knarr is in the kernel".into()),
        })
    }),
    manual(
        "4.2.7",
        "the node has its machine's name",
        "do not give --node-name, unless certificates and logs are to know the node by it",
        |state| {
            of_node(state, |node| {
                if node.name == crate::server::host_name() {
                    Verdict::Good(format!("node {}", node.name))
                } else {
                    Verdict::Bad(format!("node {} of machine {}", node.name, crate::server::host_name()))
                }
            })
        },
    ),
    manual("4.2.8", "no Event is lost to a limit that is too low", "eventRecordQPS: 50", |state| {
        // Ours limits each object's Events as upstream's client does, and not the kubelet's all together.
        setting(state, "/eventRecordQPS", |value| value.is_null() || value.as_i64().is_some_and(|rate| rate >= 0))
    }),
    manual(
        "4.2.9",
        "the kubelet is served with a certificate of the cluster",
        "serverTLSBootstrap: true, or tlsCertFile",
        |state| {
            of_node(state, |node| match node.configuration["tlsCertFile"].as_str() {
                Some(file) => Verdict::Good(format!("tlsCertFile={file}")),
                None => node_setting(state, "serverTLSBootstrap"),
            })
        },
    ),
    scored("4.2.10", "the kubelet's own certificate is renewed", "rotateCertificates: true", |state| {
        node_setting(state, "rotateCertificates")
    }),
    manual("4.2.11", "the kubelet's serving certificate is renewed", "serverTLSBootstrap: true", |state| {
        node_setting(state, "serverTLSBootstrap")
    }),
    manual(
        "4.2.12",
        "the kubelet speaks strong ciphers only",
        "use a build of knarr with the TLS library as it is",
        |state| of_node(state, |node| ciphers(node.weak_ciphers)),
    ),
    manual("4.2.13", "pods may not have any number of processes", "--pod-max-pids=4096", |state| {
        setting(state, "/podPidsLimit", |value| value.as_i64().is_some_and(|limit| limit > 0))
    }),
    manual(
        "4.2.14",
        "pods get a seccomp profile unless they say otherwise",
        "set seccompProfile: RuntimeDefault in pods, or enforce the standard restricted",
        |state| setting(state, "/seccompDefault", |value| value == true),
    ),
    scored(
        "4.3.1",
        "the proxy's metrics are for this machine only",
        "--metrics-bind-address=127.0.0.1:10249",
        |state| local(state, PROXY_METRICS_PORT),
    ),
];

pub(super) fn of_node(state: &State, judge: impl Fn(&Node) -> Verdict) -> Verdict {
    if let Some(error) = &state.node_error {
        return Verdict::Unknown(error.clone());
    }
    match (&state.node, &state.cluster) {
        (Some(node), _) => judge(node),
        (None, Some(_)) => Verdict::NotApplicable("no node runs here".into()),
        (None, None) => Verdict::Unknown("only the API tells the kubelet's settings: give --kubeconfig".into()),
    }
}

fn setting(state: &State, pointer: &str, is_good: impl Fn(&serde_json::Value) -> bool) -> Verdict {
    of_node(state, |node| {
        let value = node.configuration.pointer(pointer).unwrap_or(&serde_json::Value::Null);
        let told = format!("{}={value}", pointer.trim_start_matches('/').replace('/', "."));
        if is_good(value) { Verdict::Good(told) } else { Verdict::Bad(told) }
    })
}

//! What pods are allowed and do, and how namespaces are kept apart: sections 5.2 to 5.6.

use serde_json::Value;

use super::api_server::no_server;
use super::state::State;
use super::{Check, Verdict, manual, some};

const STANDARD: &str = "kubectl label namespace NAME pod-security.kubernetes.io/enforce=restricted (or baseline)";
/// Namespaces of the cluster itself.
const OWN: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Where the pod network puts the rules of NetworkPolicies.
const POLICY_TABLE: &str = "knarr-policy";

pub(super) const STANDARDS: &[Check] = &[
    manual("5.2.1", "namespaces with pods enforce a standard", STANDARD, enforced),
    manual("5.2.2", "no privileged containers", STANDARD, |state| {
        containers(state, |one| one["securityContext"]["privileged"] == true)
    }),
    manual("5.2.3", "no processes of the host", STANDARD, |state| specs(state, |spec| spec["hostPID"] == true)),
    manual("5.2.4", "no memory of the host", STANDARD, |state| specs(state, |spec| spec["hostIPC"] == true)),
    manual("5.2.5", "no network of the host", STANDARD, |state| specs(state, |spec| spec["hostNetwork"] == true)),
    manual("5.2.6", "no way to more privileges", STANDARD, |state| {
        containers(state, |one| one["securityContext"]["allowPrivilegeEscalation"] != false)
    }),
    manual("5.2.7", "no root in containers", STANDARD, |state| {
        specs(state, |spec| !all_containers(spec).all(|one| is_user(spec, one)))
    }),
    manual("5.2.8", "no NET_RAW", STANDARD, |state| containers(state, |one| !drops(one, "NET_RAW"))),
    manual("5.2.9", "no capabilities", STANDARD, |state| containers(state, |one| !drops(one, "ALL"))),
    manual("5.2.10", "no containers of a Windows host", STANDARD, |state| {
        containers(state, |one| one["securityContext"]["windowsOptions"]["hostProcess"] == true)
    }),
    manual("5.2.11", "no paths of the host", STANDARD, |state| {
        specs(state, |spec| list(spec, "volumes").iter().any(|volume| volume["hostPath"].is_object()))
    }),
    manual("5.2.12", "no ports of the host", STANDARD, |state| {
        containers(state, |one| {
            list(one, "ports").iter().any(|port| port["hostPort"].as_u64().is_some_and(|port| port > 0))
        })
    }),
];

pub(super) const NETWORK: &[Check] = &[
    manual("5.3.1", "the pod network knows NetworkPolicies", "do not disable network-policy", |state| {
        match (&state.node, state.tables.iter().any(|table| table == POLICY_TABLE)) {
            (None, _) => Verdict::NotApplicable("no node runs here".into()),
            (_, true) => Verdict::Good(format!("the kernel has table {POLICY_TABLE}")),
            (_, false) => Verdict::Bad(format!("the kernel has no table {POLICY_TABLE}")),
        }
    }),
    manual(
        "5.3.2",
        "every namespace has a NetworkPolicy",
        "begin with one that denies everything, then allow",
        |state| {
            let has = |name: &str| {
                state.objects("networkpolicies").iter().any(|policy| policy["metadata"]["namespace"] == name)
            };
            let open = namespaces(state).filter(|name| !has(name)).map(str::to_owned).collect();
            listed(state, open, "each has one", "without:")
        },
    ),
];

pub(super) const GENERAL: &[Check] = &[
    manual("5.4.1", "Secrets are files, not variables", "mount Secrets as volumes", |state| {
        containers(state, |one| {
            let variable = |one: &Value| one["valueFrom"]["secretKeyRef"].is_object();
            list(one, "env").iter().any(variable)
                || list(one, "envFrom").iter().any(|from| from["secretRef"].is_object())
        })
    }),
    manual(
        "5.4.2",
        "Secrets are kept outside",
        "consider a CSI driver or an operator that fetches them from a vault",
        |state| person(state, "whether a vault is worth it depends on who reads the disk and its backups"),
    ),
    manual(
        "5.5.1",
        "images are checked where they come from",
        "bring a webhook that verifies signatures of images",
        |state| {
            let judges = |list: &str| state.objects(list).len();
            let count = judges("validatingwebhookconfigurations") + judges("validatingadmissionpolicies");
            person(state, &format!("{count} webhooks and policies judge what is created"))
        },
    ),
    manual("5.6.1", "namespaces divide what has different owners", "make one for each team or application", |state| {
        person(state, &format!("{} namespaces of users", namespaces(state).count()))
    }),
    manual(
        "5.6.2",
        "pods have a seccomp profile",
        "securityContext: {seccompProfile: {type: RuntimeDefault}}",
        |state| {
            specs(state, |spec| {
                let has = |value: &Value| {
                    matches!(
                        value["securityContext"]["seccompProfile"]["type"].as_str(),
                        Some("RuntimeDefault" | "Localhost")
                    )
                };
                !has(spec) && !all_containers(spec).all(has)
            })
        },
    ),
    manual("5.6.3", "pods have a security context", "begin with what the standard restricted asks for", |state| {
        specs(state, |spec| {
            let has = |value: &Value| value["securityContext"].as_object().is_some_and(|context| !context.is_empty());
            !has(spec) && !all_containers(spec).all(has)
        })
    }),
    manual("5.6.4", "the namespace default is not used", "make a namespace for it", |state| {
        let plurals = ["pods", "services", "deployments", "statefulsets", "daemonsets", "jobs"];
        let all = plurals.iter().flat_map(|plural| state.objects(plural));
        let used =
            all.filter(|one| one["metadata"]["namespace"] == "default" && one["metadata"]["name"] != "kubernetes");
        listed(state, used.map(full_name).collect(), "there is nothing but the Service kubernetes", "there are")
    }),
];

pub(super) fn full_name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn listed(state: &State, found: Vec<String>, good: &str, bad: &str) -> Verdict {
    match (&state.cluster, found.is_empty()) {
        (None, _) => no_server(),
        (_, true) => Verdict::Good(good.into()),
        (_, false) => Verdict::Bad(format!("{bad} {}", some(&found))),
    }
}

fn person(state: &State, detail: &str) -> Verdict {
    match &state.cluster {
        None => no_server(),
        Some(_) => Verdict::Unknown(detail.into()),
    }
}

fn all_containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| list(spec, field))
}

/// The pods of which that is true, however many there are.
fn specs(state: &State, is_so: impl Fn(&Value) -> bool) -> Verdict {
    let pods = state.objects("pods");
    let found: Vec<String> = pods.iter().filter(|pod| is_so(&pod["spec"])).map(full_name).collect();
    listed(state, found, &format!("none of {} pods", pods.len()), "pods")
}

fn containers(state: &State, is_so: impl Fn(&Value) -> bool) -> Verdict {
    specs(state, |spec| all_containers(spec).any(&is_so))
}

/// Whether the container is sure not to run as root.
fn is_user(spec: &Value, container: &Value) -> bool {
    let of = |field: &str| match &container["securityContext"][field] {
        Value::Null => spec["securityContext"][field].clone(),
        own => own.clone(),
    };
    of("runAsNonRoot") == true || of("runAsUser").as_u64().is_some_and(|user| user > 0)
}

fn drops(container: &Value, capability: &str) -> bool {
    let capabilities = &container["securityContext"]["capabilities"];
    let names = |field: &str, name: &str| list(capabilities, field).iter().any(|one| one == name);
    (names("drop", "ALL") || names("drop", capability)) && !names("add", capability) && !names("add", "ALL")
}

fn namespaces(state: &State) -> impl Iterator<Item = &str> {
    let all = state.objects("namespaces").iter().filter_map(|one| one["metadata"]["name"].as_str());
    all.filter(|name| !OWN.contains(name))
}

fn enforced(state: &State) -> Verdict {
    let label = |name: &str| {
        let found = state.objects("namespaces").iter().find(|one| one["metadata"]["name"] == name);
        found.and_then(|one| one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str())
    };
    let is_used = |name: &&str| state.objects("pods").iter().any(|pod| pod["metadata"]["namespace"] == *name);
    let is_open = |name: &&str| !matches!(label(name), Some("baseline" | "restricted"));
    let open = namespaces(state).filter(is_used).filter(is_open).map(str::to_owned).collect();
    listed(state, open, "no namespace with pods is without one", "without:")
}

//! Who may do what: section 5.1. Rights count by whom they reach, not by what roles there are.

use serde_json::Value;

use super::api_server::no_server;
use super::state::State;
use super::{Check, Verdict, manual, some};

const FEWER: &str =
    "bind roles with fewer rights, in one namespace; kubectl auth can-i --list --as=USER shows the result";

pub(super) const CHECKS: &[Check] = &[
    manual("5.1.1", "cluster-admin is bound to nobody else", "bind admin or edit in a namespace instead", |state| {
        told(state, bound_to(state, "cluster-admin"), "bound to")
    }),
    manual("5.1.2", "few may read Secrets", FEWER, |state| may(state, &["get", "list", "watch"], "", "secrets")),
    manual("5.1.3", "roles have no wildcards", "name verbs and resources", |state| {
        told(state, with_wildcards(state), "roles")
    }),
    manual("5.1.4", "few may create pods", FEWER, |state| may(state, &["create"], "", "pods")),
    manual(
        "5.1.5",
        "default service accounts are not used",
        "set automountServiceAccountToken: false on the accounts named default, and give programs their own",
        default_accounts,
    ),
    manual(
        "5.1.6",
        "pods get tokens only where they need them",
        "set automountServiceAccountToken: false where a pod does not ask the API",
        |state| told(state, pods_with_tokens(state), "pods with a token"),
    ),
    manual(
        "5.1.7",
        "system:masters is not used",
        "keep admin.kubeconfig for emergencies and give people roles",
        |state| {
            let bound = subjects(state)
                .filter(|found| found.subject["name"] == "system:masters" && found.role != "cluster-admin");
            match (&state.cluster, bound.count()) {
                (None, _) => no_server(),
                (_, 0) => Verdict::Unknown("the administrator's kubeconfig is of that group, as upstream's".into()),
                (_, count) => Verdict::Bad(format!("{count} more roles are bound to it")),
            }
        },
    ),
    manual("5.1.8", "few may bind, impersonate or escalate", FEWER, |state| {
        may(state, &["bind", "impersonate", "escalate"], "*", "*")
    }),
    manual("5.1.9", "few may create PersistentVolumes", FEWER, |state| {
        may(state, &["create"], "", "persistentvolumes")
    }),
    manual("5.1.10", "few may pass through nodes", FEWER, |state| may(state, &["get", "create"], "", "nodes/proxy")),
    manual("5.1.11", "few may approve certificates", FEWER, |state| {
        may(state, &["update", "patch"], "certificates.k8s.io", "certificatesigningrequests/approval")
    }),
    manual("5.1.12", "few may change webhooks", FEWER, |state| {
        let group = "admissionregistration.k8s.io";
        match may(state, WRITES, group, "validatingwebhookconfigurations") {
            Verdict::Good(_) => may(state, WRITES, group, "mutatingwebhookconfigurations"),
            other => other,
        }
    }),
    manual("5.1.13", "few may make tokens of service accounts", FEWER, |state| {
        may(state, &["create"], "", "serviceaccounts/token")
    }),
];

const WRITES: &[&str] = &["create", "update", "patch", "delete"];

/// One subject of one binding, with the rules that it gets.
struct Bound<'a> {
    subject: &'a Value,
    role: &'a str,
    rules: &'a [Value],
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn subjects(state: &State) -> impl Iterator<Item = Bound<'_>> {
    let everywhere = state.objects("clusterrolebindings").iter();
    let bindings = everywhere.chain(state.objects("rolebindings"));
    bindings.flat_map(move |binding| {
        let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
        let rules = rules_of(state, binding);
        list(binding, "subjects").iter().map(move |subject| Bound { subject, role, rules })
    })
}

fn rules_of<'a>(state: &'a State, binding: &Value) -> &'a [Value] {
    let reference = &binding["roleRef"];
    let is_it = |role: &&Value| {
        let same_place =
            reference["kind"] == "ClusterRole" || role["metadata"]["namespace"] == binding["metadata"]["namespace"];
        role["metadata"]["name"] == reference["name"] && same_place
    };
    let plural = if reference["kind"] == "ClusterRole" { "clusterroles" } else { "roles" };
    state.objects(plural).iter().find(is_it).map_or(&[], |role| list(role, "rules"))
}

/// The cluster's own parts, which need what they have. Groups that everybody is in are not among them.
fn is_part(subject: &Value) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("ServiceAccount") => subject["namespace"] == "kube-system",
        Some("User") => name.starts_with("system:") || name == kube_apiserver::pki::KUBELET_CLIENT,
        Some("Group") => {
            let everybody = name.starts_with("system:serviceaccounts") || name.ends_with("authenticated");
            name.starts_with("system:") && !everybody
        }
        _ => false,
    }
}

fn subject_name(subject: &Value) -> String {
    let text = |field: &str| subject[field].as_str().unwrap_or_default().to_owned();
    match subject["namespace"].as_str() {
        Some(namespace) => format!("{} {namespace}/{}", text("kind"), text("name")),
        None => format!("{} {}", text("kind"), text("name")),
    }
}

fn told(state: &State, mut found: Vec<String>, what: &str) -> Verdict {
    found.sort();
    found.dedup();
    match (&state.cluster, found.is_empty()) {
        (None, _) => no_server(),
        (_, true) => Verdict::Good("nobody but the cluster's own parts".into()),
        (_, false) => Verdict::Bad(format!("{what} {}", some(&found))),
    }
}

fn bound_to(state: &State, role: &str) -> Vec<String> {
    let found = subjects(state).filter(|one| one.role == role && one.subject["name"] != "system:masters");
    found.map(|one| subject_name(one.subject)).collect()
}

/// Who else may do any of that.
fn may(state: &State, verbs: &[&str], group: &str, resource: &str) -> Verdict {
    let allows = |rule: &Value| {
        let has = |field: &str, wanted: &str| {
            list(rule, field).iter().any(|one| one == wanted || one == "*" || (wanted == "*" && !one.is_null()))
        };
        // A subresource of everything is one of that, too.
        let everywhere = resource.split_once('/').map(|(_, inner)| format!("*/{inner}"));
        let names_it = has("resources", resource) || everywhere.is_some_and(|name| has("resources", &name));
        verbs.iter().any(|verb| has("verbs", verb)) && has("apiGroups", group) && names_it
    };
    let found = subjects(state).filter(|one| !is_part(one.subject) && one.rules.iter().any(allows));
    told(state, found.map(|one| format!("{} (by {})", subject_name(one.subject), one.role)).collect(), "allowed to")
}

/// Roles that users made. Those of the system need some, as upstream's.
fn with_wildcards(state: &State) -> Vec<String> {
    let roles = state.objects("clusterroles").iter().chain(state.objects("roles"));
    let has_one = |role: &&Value| {
        let any = |field: &str| list(role, "rules").iter().any(|rule| list(rule, field).iter().any(|one| one == "*"));
        any("verbs") || any("resources") || any("apiGroups")
    };
    let name = |role: &Value| role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let is_upstreams = |name: &String| name == "cluster-admin" || name.starts_with("system:");
    roles.filter(has_one).map(name).filter(|name| !is_upstreams(name)).collect()
}

fn default_accounts(state: &State) -> Verdict {
    let accounts = state.objects("serviceaccounts").iter();
    let open =
        accounts.filter(|one| one["metadata"]["name"] == "default" && one["automountServiceAccountToken"] != false);
    let namespaces: Vec<String> =
        open.map(|one| one["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()).collect();
    match (&state.cluster, namespaces.is_empty()) {
        (None, _) => no_server(),
        (_, true) => Verdict::Good("none gives its token to pods".into()),
        (_, false) => Verdict::Bad(format!("pods get their token in {}", some(&namespaces))),
    }
}

fn pods_with_tokens(state: &State) -> Vec<String> {
    let mounts = |pod: &&Value| {
        list(&pod["spec"], "volumes").iter().any(|volume| {
            list(&volume["projected"], "sources").iter().any(|source| source["serviceAccountToken"].is_object())
        })
    };
    state.objects("pods").iter().filter(mounts).map(super::pods::full_name).collect()
}

//! Which command takes what. The rows are upstream's own choices: a command that is in no row lets the shell offer files.

/// Where candidates come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    Nothing,
    /// These words.
    Words(&'static [&'static str]),
    /// Files with these endings.
    Endings(&'static [&'static str]),
    /// `TYPE NAME...` or `TYPE/NAME...`; of these types, or of all where none is named.
    Resources {
        types: &'static [&'static str],
        repeat: bool,
    },
    /// The name of one object of a type.
    Name(&'static str),
    /// A pod, or what has pods.
    Pod,
    /// A pod and then one of its containers.
    PodAndContainer,
    /// A container of the pod that is the first argument.
    Container,
    /// Names from the kubeconfig: of its contexts, clusters or users.
    Config(&'static str),
    /// Every name of a type, whatever stands before: what a flag takes.
    AnyName(&'static str),
    AnyConfig(&'static str),
    /// What can be copied from or to.
    Copy,
}

use Source::*;

const ALL: Source = Resources { types: &[], repeat: true };
const SCALED: Source =
    Resources { types: &["deployment", "replicaset", "replicationcontroller", "statefulset"], repeat: true };
const ROLLED: &[&str] = &["deployment", "daemonset", "statefulset"];
const PAUSED: Source = Resources { types: &["deployment"], repeat: true };
const WITH_IMAGES: &[&str] =
    &["daemonsets", "deployments", "pods", "cronjobs", "replicasets", "replicationcontrollers", "statefulsets"];
const EXPOSED: Source =
    Resources { types: &["pod", "service", "replicationcontroller", "deployment", "replicaset"], repeat: true };

const ARGUMENTS: &[(&str, Source)] = &[
    ("kubectl create token", Name("serviceaccount")),
    ("kubectl expose", EXPOSED),
    ("kubectl set image", Resources { types: WITH_IMAGES, repeat: false }),
    ("kubectl get", ALL),
    ("kubectl edit", ALL),
    ("kubectl delete", ALL),
    ("kubectl rollout history", Resources { types: ROLLED, repeat: true }),
    ("kubectl rollout pause", PAUSED),
    ("kubectl rollout restart", Resources { types: ROLLED, repeat: true }),
    ("kubectl rollout resume", PAUSED),
    ("kubectl rollout status", Resources { types: ROLLED, repeat: false }),
    ("kubectl rollout undo", Resources { types: ROLLED, repeat: true }),
    ("kubectl scale", SCALED),
    ("kubectl autoscale", SCALED),
    ("kubectl top node", Name("node")),
    ("kubectl top pod", Name("pod")),
    ("kubectl cordon", Name("node")),
    ("kubectl uncordon", Name("node")),
    ("kubectl drain", Name("node")),
    ("kubectl taint", Resources { types: &["node"], repeat: true }),
    ("kubectl describe", ALL),
    ("kubectl logs", PodAndContainer),
    ("kubectl attach", Pod),
    ("kubectl exec", Pod),
    ("kubectl port-forward", Pod),
    ("kubectl cp", Copy),
    ("kubectl apply edit-last-applied", ALL),
    ("kubectl apply view-last-applied", ALL),
    ("kubectl patch", ALL),
    ("kubectl label", ALL),
    ("kubectl annotate", ALL),
    ("kubectl completion", Words(&["bash", "zsh", "fish", "powershell"])),
    ("kubectl config delete-cluster", Config("clusters")),
    ("kubectl config delete-context", Config("contexts")),
    ("kubectl config delete-user", Config("users")),
    ("kubectl config rename-context", Config("contexts")),
    ("kubectl config set-context", Config("contexts")),
    ("kubectl config use-context", Config("contexts")),
];

/// What upstream will not run without.
const REQUIRED: &[(&str, &[&str])] = &[
    ("kubectl create clusterrolebinding", &["clusterrole"]),
    ("kubectl create cronjob", &["image", "schedule"]),
    ("kubectl create deployment", &["image"]),
    ("kubectl create service externalname", &["external-name"]),
    ("kubectl run", &["image"]),
    ("kubectl scale", &["replicas"]),
    ("kubectl autoscale", &["max"]),
];

const FORMATS: &[&str] = &[
    "json",
    "yaml",
    "kyaml",
    "name",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "custom-columns",
    "custom-columns-file",
    "wide",
];
const SUBRESOURCES: Source = Words(&["status", "scale", "resize"]);

/// What the values of a flag are: of one command, or of all that have it.
const FLAGS: &[(&str, &str, Source)] = &[
    ("", "namespace", AnyName("namespace")),
    ("", "context", AnyConfig("contexts")),
    ("", "cluster", AnyConfig("clusters")),
    ("", "user", AnyConfig("users")),
    ("", "filename", Endings(&["json", "yaml", "yml"])),
    ("kubectl get", "output", Words(FORMATS)),
    ("kubectl get", "subresource", SUBRESOURCES),
    ("kubectl edit", "subresource", SUBRESOURCES),
    ("kubectl apply", "subresource", SUBRESOURCES),
    ("kubectl patch", "subresource", SUBRESOURCES),
    ("kubectl replace", "subresource", SUBRESOURCES),
    ("kubectl exec", "container", Container),
    ("kubectl create clusterrolebinding", "clusterrole", AnyName("clusterrole")),
    ("kubectl kustomize", "load-restrictor", Words(&["LoadRestrictionsNone", "LoadRestrictionsRootOnly"])),
];

pub(crate) fn arguments(path: &str) -> Source {
    ARGUMENTS.iter().find(|(known, _)| *known == path).map_or(Nothing, |(_, source)| *source)
}

pub(crate) fn required(path: &str) -> &'static [&'static str] {
    REQUIRED.iter().find(|(known, _)| *known == path).map_or(&[], |(_, names)| names)
}

pub(crate) fn flag(path: &str, name: &str) -> Source {
    let is_it = |(of, known, _): &&(&str, &str, Source)| (of.is_empty() || *of == path) && *known == name;
    // These two set a context's parts instead of choosing them.
    let sets = ["kubectl config set-context", "kubectl config set-credentials"].contains(&path);
    match FLAGS.iter().find(is_it) {
        Some((_, _, source)) if !(sets && matches!(source, AnyConfig(_))) => *source,
        _ => Nothing,
    }
}

#[cfg(test)]
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    let flags = FLAGS.iter().map(|(path, ..)| *path).filter(|path| !path.is_empty());
    ARGUMENTS.iter().map(|(path, _)| *path).chain(REQUIRED.iter().map(|(path, _)| *path)).chain(flags)
}

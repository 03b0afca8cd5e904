//! Modes and owners of files: sections 1.1 and 4.1.

use std::path::Path;

use super::state::{Seen, State};
use super::{Check, Verdict, manual, scored, some};

const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;
const FOLDER: u32 = 0o700;
const ONE_PROCESS: &str = "control plane and node run in one process: there is no such file";
const MODE: &str = "take the rights of others away from the file that is named: chmod go= FILE";
const OWNER: &str = "give the file back to root: chown root:root FILE";

pub(super) const CONTROL_PLANE: &[Check] = &[
    scored("1.1.1", "API server's pod manifest is private", MODE, |state| manifest(state, "kube-apiserver", modes)),
    scored("1.1.2", "API server's pod manifest is root's", OWNER, |state| manifest(state, "kube-apiserver", owners)),
    scored("1.1.3", "controller manager's pod manifest is private", MODE, |state| {
        manifest(state, "kube-controller-manager", modes)
    }),
    scored("1.1.4", "controller manager's pod manifest is root's", OWNER, |state| {
        manifest(state, "kube-controller-manager", owners)
    }),
    scored("1.1.5", "scheduler's pod manifest is private", MODE, |state| manifest(state, "kube-scheduler", modes)),
    scored("1.1.6", "scheduler's pod manifest is root's", OWNER, |state| manifest(state, "kube-scheduler", owners)),
    scored("1.1.7", "etcd's pod manifest is private", MODE, |state| manifest(state, "etcd", modes)),
    scored("1.1.8", "etcd's pod manifest is root's", OWNER, |state| manifest(state, "etcd", owners)),
    manual("1.1.9", "files of the pod network are private", MODE, |state| network(state, modes)),
    manual("1.1.10", "files of the pod network are root's", OWNER, |state| network(state, owners)),
    scored("1.1.11", "folder of the store is private", "chmod 700 FOLDER", |state| {
        let folders = of_server(state, |file| file.is_dir && is_store(state, file));
        modes(folders, FOLDER)
    }),
    scored("1.1.12", "folder of the store belongs to whom the store runs as", OWNER, |state| {
        owners(of_server(state, |file| is_store(state, file)), FOLDER)
    }),
    scored("1.1.13", "administrator's kubeconfig is private", MODE, |state| {
        modes(named(state, &["admin.kubeconfig"]), PRIVATE)
    }),
    scored("1.1.14", "administrator's kubeconfig is root's", OWNER, |state| {
        owners(named(state, &["admin.kubeconfig"]), PRIVATE)
    }),
    scored("1.1.15", "scheduler's credentials are private", MODE, |state| {
        modes(named(state, &["tls/scheduler.key", "scheduler.kubeconfig"]), PRIVATE)
    }),
    scored("1.1.16", "scheduler's credentials are root's", OWNER, |state| {
        owners(named(state, &["tls/scheduler.key", "tls/scheduler.crt", "scheduler.kubeconfig"]), PRIVATE)
    }),
    scored("1.1.17", "controller manager's credentials are private", MODE, |state| {
        modes(named(state, &["tls/controller-manager.key", "controller-manager.kubeconfig"]), PRIVATE)
    }),
    scored("1.1.18", "controller manager's credentials are root's", OWNER, |state| {
        owners(named(state, &["tls/controller-manager.key", "tls/controller-manager.crt"]), PRIVATE)
    }),
    scored("1.1.19", "keys and certificates are root's", OWNER, |state| owners(below(state, "tls", ""), PRIVATE)),
    manual("1.1.20", "certificates are not for others to write", "chmod 644 FILE", |state| {
        modes(below(state, "tls", "crt"), PUBLIC)
    }),
    manual("1.1.21", "keys are private", "chmod 600 FILE", |state| modes(below(state, "tls", "key"), PRIVATE)),
];

pub(super) const NODE: &[Check] = &[
    scored("4.1.1", "unit of the service is private", "chmod 600 FILE", |state| modes(units(state), PRIVATE)),
    scored("4.1.2", "unit of the service is root's", OWNER, |state| owners(units(state), PRIVATE)),
    manual("4.1.3", "proxy's kubeconfig is private", MODE, |state| proxy(state, modes)),
    manual("4.1.4", "proxy's kubeconfig is root's", OWNER, |state| proxy(state, owners)),
    scored("4.1.5", "kubelet's credentials are private", MODE, |state| modes(credentials(state), PRIVATE)),
    scored("4.1.6", "kubelet's credentials are root's", OWNER, |state| owners(credentials(state), PRIVATE)),
    manual("4.1.7", "authority of the kubelet's clients is not for others to write", "chmod 644 FILE", |state| {
        modes(authorities(state), PUBLIC)
    }),
    manual("4.1.8", "authority of the kubelet's clients is root's", OWNER, |state| owners(authorities(state), PUBLIC)),
    scored("4.1.9", "kubelet's settings are private", "chmod 600 FILE", |state| modes(settings(state), PRIVATE)),
    scored("4.1.10", "kubelet's settings are root's", OWNER, |state| owners(settings(state), PRIVATE)),
];

type Rule = fn(Vec<&Seen>, u32) -> Verdict;

/// No bit beyond those that are allowed. Folders may be entered by whom their files are for.
fn modes(files: Vec<&Seen>, allowed: u32) -> Verdict {
    let enter = (allowed & 0o444) >> 2;
    let is_open = |file: &&&Seen| file.mode & !(allowed | if file.is_dir { enter } else { 0 }) != 0;
    let open: Vec<String> = files.iter().filter(is_open).map(|file| file.told()).collect();
    all(&files, open, &format!("no more than {allowed:o}"))
}

fn owners(files: Vec<&Seen>, _: u32) -> Verdict {
    let foreign: Vec<String> = files.iter().filter(|file| file.owner != (0, 0)).map(|file| file.told()).collect();
    all(&files, foreign, "root:root")
}

fn all(files: &[&Seen], wrong: Vec<String>, expected: &str) -> Verdict {
    match (files, wrong.as_slice()) {
        ([], _) => Verdict::NotApplicable("there is no such file".into()),
        (_, []) => Verdict::Good(format!("{} of {} files", expected, files.len())),
        (_, wrong) => Verdict::Bad(format!("not {expected}: {}", some(wrong))),
    }
}

impl Seen {
    fn told(&self) -> String {
        format!("{} ({:o} {}:{})", self.path.display(), self.mode, self.owner.0, self.owner.1)
    }
}

/// Files of a server; none where this machine is only a node.
fn of_server(state: &State, which: impl Fn(&Seen) -> bool) -> Vec<&Seen> {
    state.files.iter().filter(|file| which(file)).collect()
}

fn named<'a>(state: &'a State, names: &[&str]) -> Vec<&'a Seen> {
    of_server(state, |file| names.iter().any(|name| file.path == state.data_dir.join(name)))
}

/// All below a folder with that ending, or all.
fn below<'a>(state: &'a State, folder: &str, ending: &str) -> Vec<&'a Seen> {
    let ends = |path: &Path| ending.is_empty() || path.extension().is_some_and(|found| found == ending);
    of_server(state, |file| file.path.starts_with(state.data_dir.join(folder)) && ends(&file.path))
}

fn is_store(state: &State, file: &Seen) -> bool {
    ["store", "etcd"].iter().any(|name| file.path.starts_with(state.data_dir.join(name)))
}

/// Where somebody runs parts of the control plane as static pods, their manifests lie in our folder for those.
fn manifest(state: &State, part: &str, rule: Rule) -> Verdict {
    let files: Vec<&Seen> = below(state, "pod-manifests", "")
        .into_iter()
        .filter(|file| file.path.file_name().is_some_and(|name| name.to_string_lossy().contains(part)))
        .collect();
    if files.is_empty() { Verdict::NotApplicable(ONE_PROCESS.into()) } else { rule(files, PRIVATE) }
}

/// Our own network keeps what it knows in a folder of the node's state; other plugins are configured in theirs.
fn network(state: &State, rule: Rule) -> Verdict {
    let inside = |file: &Seen| {
        let text = file.path.to_string_lossy();
        !file.is_dir && (text.contains("/network/") || text.contains("/cni/"))
    };
    rule(of_server(state, inside), PRIVATE)
}

fn units(state: &State) -> Vec<&Seen> {
    of_server(state, |file| file.path.starts_with("/etc/systemd/system"))
}

fn proxy(state: &State, rule: Rule) -> Verdict {
    let files = named(state, &["proxy.kubeconfig", "agent/proxy.kubeconfig"]);
    if files.is_empty() {
        Verdict::NotApplicable("the proxy is a part of the node's process and uses its credentials".into())
    } else {
        rule(files, PRIVATE)
    }
}

/// What this machine proves with that it is a node, or that it is its own server.
fn credentials(state: &State) -> Vec<&Seen> {
    below(state, "agent", "").into_iter().filter(|file| !file.is_dir).collect()
}

fn authorities(state: &State) -> Vec<&Seen> {
    let agent = below(state, "agent", "crt");
    if agent.is_empty() { named(state, &["tls/ca.crt"]) } else { agent }
}

/// The kubelet takes its settings from those of the whole program.
fn settings(state: &State) -> Vec<&Seen> {
    of_server(state, |file| file.path.starts_with("/etc/knarr") && !file.is_dir)
}

//! Controllers, scheduler, etcd, who users are, and what is audited: sections 1.3, 1.4, 2 and 3.

use std::net::SocketAddr;

use serde_json::Value;

use super::api_server::{no_server, profiling};
use super::kubelet::of_node;
use super::state::State;
use super::{Check, Verdict, manual, scored, some};

const CONTROLLERS_PORT: u16 = 10257;
const SCHEDULER_PORT: u16 = 10259;
const ETCD_TLS: &str = "let knarr run etcd (--cluster-init), or give that etcd certificates";

pub(super) const CHECKS: &[Check] = &[
    manual("1.3.1", "ended pods are removed", "--terminated-pod-gc-threshold=12500", |state| match &state.cluster {
        None => no_server(),
        Some(cluster) => match cluster.flags.get("terminated-pod-gc-threshold").map(String::as_str) {
            None | Some("" | "0") => Verdict::Bad("they stay for ever".into()),
            Some(number) => Verdict::Good(format!("when there are more than {number}")),
        },
    }),
    scored("1.3.2", "controllers show no profiles", "--profiling=false", profiling),
    scored("1.3.3", "each controller has an account of its own", "do not take controllers' roles away", controllers),
    scored("1.3.4", "tokens are signed with a key of their own", "put sa.key back into <data-dir>/tls", |state| {
        flag_given(state, "service-account-signing-key-file")
    }),
    scored(
        "1.3.5",
        "pods get the cluster's authority",
        "let root-ca-certificate-publisher-controller run",
        root_authority,
    ),
    scored("1.3.6", "kubelets' serving certificates are renewed", "serverTLSBootstrap: true", |state| {
        node_setting(state, "serverTLSBootstrap")
    }),
    scored("1.3.7", "controllers are not reached from outside", "--bind-address=127.0.0.1", |state| {
        local(state, CONTROLLERS_PORT)
    }),
    scored("1.4.1", "the scheduler shows no profiles", "--profiling=false", profiling),
    scored("1.4.2", "the scheduler is not reached from outside", "--bind-address=127.0.0.1", |state| {
        local(state, SCHEDULER_PORT)
    }),
    scored("2.1", "etcd is served with TLS", ETCD_TLS, |state| {
        etcd(state, |etcd| etcd.has_all(&["--cert-file", "--key-file"]))
    }),
    scored("2.2", "etcd verifies its clients", ETCD_TLS, |state| etcd(state, |etcd| etcd.is_on("--client-cert-auth"))),
    scored("2.3", "etcd's certificate is not of its own making", ETCD_TLS, |state| {
        etcd(state, |etcd| !etcd.is_on("--auto-tls"))
    }),
    scored("2.4", "etcd's members speak TLS", ETCD_TLS, |state| {
        etcd(state, |etcd| etcd.has_all(&["--peer-cert-file", "--peer-key-file"]))
    }),
    scored("2.5", "etcd's members verify each other", ETCD_TLS, |state| {
        etcd(state, |etcd| etcd.is_on("--peer-client-cert-auth"))
    }),
    scored("2.6", "members' certificates are not of their own making", ETCD_TLS, |state| {
        etcd(state, |etcd| !etcd.is_on("--peer-auto-tls"))
    }),
    manual("2.7", "etcd has an authority of its own", ETCD_TLS, |state| {
        let cluster = state.flag("client-ca-file").unwrap_or_default().to_owned();
        etcd(state, |etcd| etcd.value("--trusted-ca-file").is_some_and(|file| file != cluster))
    }),
    manual(
        "3.1.1",
        "people have no client certificates",
        "let people come by an identity provider; certificates cannot be revoked",
        certificates,
    ),
    manual(
        "3.1.2",
        "people use no service accounts' tokens",
        "give each program a service account, and people none",
        |state| match &state.cluster {
            None => no_server(),
            Some(_) => Verdict::Unknown("a token does not say whether a person uses it".into()),
        },
    ),
    manual(
        "3.1.3",
        "people use no bootstrap tokens",
        "delete tokens of other groups: knarr token delete ID",
        bootstrap_tokens,
    ),
    manual("3.2.1", "there is an audit policy", "--audit-policy-file", |state| flag_given(state, "audit-policy-file")),
    manual("3.2.2", "the audit policy covers what matters", "read it, and add what matters here", |state| match state
        .flag("audit-policy-file")
    {
        None => no_server(),
        Some("") => Verdict::Bad("no audit policy is set".into()),
        Some(file) => Verdict::Unknown(format!("see {file}")),
    }),
];

fn flag_given(state: &State, name: &str) -> Verdict {
    match (&state.cluster, state.flag(name)) {
        (None, _) => no_server(),
        (_, None | Some("")) => Verdict::Bad(format!("{name} is not given")),
        (_, Some(value)) => Verdict::Good(format!("{name}={value}")),
    }
}

pub(super) fn node_setting(state: &State, name: &str) -> Verdict {
    of_node(state, |node| {
        if node.configuration[name] == true {
            Verdict::Good(format!("{name}=true"))
        } else {
            Verdict::Bad(format!("{name}={}", node.configuration[name]))
        }
    })
}

/// Roles of controllers are bound to accounts in kube-system, one each.
fn controllers(state: &State) -> Verdict {
    if state.cluster.is_none() {
        return no_server();
    }
    let bindings = state.objects("clusterrolebindings").iter();
    let of_controllers: Vec<&Value> =
        bindings.filter(|binding| name(&binding["roleRef"]).starts_with("system:controller:")).collect();
    let own = |binding: &&&Value| {
        let subjects = binding["subjects"].as_array().map_or(&[][..], Vec::as_slice);
        matches!(subjects, [one] if one["kind"] == "ServiceAccount" && one["namespace"] == "kube-system")
    };
    let shared: Vec<String> = of_controllers
        .iter()
        .filter(|binding| !own(binding))
        .map(|binding| name(&binding["metadata"]).into())
        .collect();
    match (of_controllers.len(), shared.as_slice()) {
        (0, _) => Verdict::Bad("no role of a controller is bound".into()),
        (count, []) => Verdict::Good(format!("{count} roles, each of one account")),
        (_, shared) => Verdict::Bad(format!("shared: {}", some(shared))),
    }
}

fn root_authority(state: &State) -> Verdict {
    let maps = state.objects("configmaps");
    match (&state.cluster, maps.iter().any(|map| map["metadata"]["name"] == "kube-root-ca.crt")) {
        (None, _) => no_server(),
        (_, true) => Verdict::Good("ConfigMap kube-root-ca.crt is published".into()),
        (_, false) => Verdict::Bad("ConfigMap default/kube-root-ca.crt is missing".into()),
    }
}

/// Nobody listens on that port, unless for this machine alone.
pub(super) fn local(state: &State, port: u16) -> Verdict {
    let on_port = |address: &&SocketAddr| address.port() == port;
    let open: Vec<String> = state
        .listening
        .iter()
        .filter(on_port)
        .filter(|one| !one.ip().is_loopback())
        .map(SocketAddr::to_string)
        .collect();
    match (open.is_empty(), state.listening.iter().any(|address| address.port() == port)) {
        (false, _) => Verdict::Bad(format!("listens at {}", some(&open))),
        (true, true) => Verdict::Good(format!("port {port} is open to this machine only")),
        (true, false) => Verdict::Good(format!("nothing listens on port {port}")),
    }
}

/// The arguments of an etcd.
struct Etcd<'a>(&'a [String]);

impl Etcd<'_> {
    /// `--flag value` or `--flag=value`.
    fn value(&self, flag: &str) -> Option<&str> {
        let inside = |word: &String| word.strip_prefix(flag)?.strip_prefix('=').map(str::len);
        self.0.iter().enumerate().find_map(|(at, word)| match inside(word) {
            Some(length) => Some(&word[word.len() - length..]),
            None if word == flag => self.0.get(at + 1).map(String::as_str),
            None => None,
        })
    }

    fn has_all(&self, flags: &[&str]) -> bool {
        flags.iter().all(|flag| self.value(flag).is_some_and(|value| !value.is_empty()))
    }

    fn is_on(&self, flag: &str) -> bool {
        self.0.iter().any(|word| word == flag || *word == format!("{flag}=true"))
    }
}

fn etcd(state: &State, judge: impl Fn(&Etcd) -> bool) -> Verdict {
    match (&state.etcd, state.flag("etcd-servers")) {
        (Some(arguments), _) if judge(&Etcd(arguments)) => Verdict::Good("as knarr starts it".into()),
        (Some(arguments), _) => Verdict::Bad(format!("it runs as: {}", arguments.join(" "))),
        (None, None | Some("")) => Verdict::NotApplicable("no etcd runs here".into()),
        (None, Some(servers)) => Verdict::NotApplicable(format!("somebody else runs the etcd at {servers}: ask there")),
    }
}

fn certificates(state: &State) -> Verdict {
    if state.cluster.is_none() {
        return no_server();
    }
    let for_people = |request: &&Value| {
        let is_client = request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client";
        let asker = request["spec"]["username"].as_str().unwrap_or_default();
        is_client && request["status"]["certificate"].is_string() && !asker.starts_with("system:node:")
    };
    let issued: Vec<String> = state
        .objects("certificatesigningrequests")
        .iter()
        .filter(for_people)
        .map(|request| name(&request["metadata"]).to_owned())
        .collect();
    if issued.is_empty() {
        Verdict::Good("no request for one was granted".into())
    } else {
        Verdict::Bad(format!("granted: {}", some(&issued)))
    }
}

fn bootstrap_tokens(state: &State) -> Verdict {
    if state.cluster.is_none() {
        return no_server();
    }
    let tokens = state.objects("secrets").iter().filter(|secret| secret["type"] == "bootstrap.kubernetes.io/token");
    let groups = |secret: &Value| {
        let text = secret["data"]["auth-extra-groups"].as_str().unwrap_or_default();
        use base64::Engine;
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default())
            .unwrap_or_default()
    };
    let is_for_nodes = |group: &str| group.is_empty() || group.starts_with("system:bootstrappers:");
    let (count, others) = tokens.fold((0, Vec::new()), |(count, mut others), secret| {
        if !groups(secret).split(',').all(|group| is_for_nodes(group.trim())) {
            others.push(name(&secret["metadata"]).to_owned());
        }
        (count + 1, others)
    });
    if others.is_empty() {
        Verdict::Good(format!("{count} tokens, each for nodes and servers only"))
    } else {
        Verdict::Bad(format!("tokens with other groups: {}", some(&others)))
    }
}

fn name(of: &Value) -> &str {
    of["name"].as_str().unwrap_or_default()
}

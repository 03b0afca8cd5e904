//! The API server's settings: section 1.2. They are what the running server says of itself at `/flagz`.

use super::probe::Offered;
use super::state::State;
use super::{Check, Verdict, manual, scored};

const AUDIT: &str = "do not give --audit-log-path=''; without it a server keeps an audit log in <data-dir>/audit";
const CERTIFICATES: &str = "let the server make its certificates itself, or give their files";
const PLUGIN: &str = "take the plugin out of --disable-admission-plugins";

pub(super) const CHECKS: &[Check] = &[
    manual(
        "1.2.1",
        "anonymous requests are refused",
        "bind nothing to system:unauthenticated beyond upstream's roles",
        |state| {
            with_flag(state, "anonymous-auth", |value| {
                match value {
            "false" => Verdict::Good("anonymous-auth=false".into()),
            _ => Verdict::Unknown("anonymous-auth=true, as upstream: health checks and joining nodes need it; 5.1 says who may do what".into()),
        }
            })
        },
    ),
    scored(
        "1.2.2",
        "no file of static tokens",
        "use certificates or service accounts instead of --token-auth-file",
        |state| empty(state, "token-auth-file"),
    ),
    manual(
        "1.2.3",
        "external addresses of Services are refused",
        "forbid spec.externalIPs by a ValidatingAdmissionPolicy",
        |state| plugin(state, "DenyServiceExternalIPs"),
    ),
    scored("1.2.4", "the server shows kubelets a certificate", CERTIFICATES, |state| {
        both(state, "kubelet-client-certificate", "kubelet-client-key")
    }),
    scored("1.2.5", "kubelets' certificates are verified", "do not give --kubelet-insecure-tls", |state| {
        given(state, "kubelet-certificate-authority")
    }),
    scored("1.2.6", "not everything is allowed", "--authorization-mode=Node,RBAC", |state| {
        with_flag(state, "authorization-mode", |value| is(!has(value, "AlwaysAllow"), "authorization-mode", value))
    }),
    scored("1.2.7", "nodes are kept to their own objects", "--authorization-mode=Node,RBAC", |state| {
        with_flag(state, "authorization-mode", |value| is(has(value, "Node"), "authorization-mode", value))
    }),
    scored("1.2.8", "roles decide", "--authorization-mode=Node,RBAC", |state| {
        with_flag(state, "authorization-mode", |value| is(has(value, "RBAC"), "authorization-mode", value))
    }),
    manual("1.2.9", "Events are limited", "keep --enable-priority-and-fairness, which limits every client", |state| {
        plugin(state, "EventRateLimit")
    }),
    scored("1.2.10", "AlwaysAdmit does not run", "take it out of --enable-admission-plugins", |state| {
        with_flag(state, "enable-admission-plugins", |value| {
            if has(value, "AlwaysAdmit") {
                Verdict::Bad("AlwaysAdmit runs".into())
            } else {
                Verdict::Good("it is not there".into())
            }
        })
    }),
    manual(
        "1.2.11",
        "images are pulled for every pod",
        "set imagePullPolicy: Always where images are private; the node asks for credentials of each pod anyway",
        |state| plugin(state, "AlwaysPullImages"),
    ),
    scored("1.2.12", "ServiceAccount runs", PLUGIN, |state| plugin(state, "ServiceAccount")),
    scored("1.2.13", "NamespaceLifecycle runs", PLUGIN, |state| plugin(state, "NamespaceLifecycle")),
    scored("1.2.14", "NodeRestriction runs", "--enable-admission-plugins=NodeRestriction", |state| {
        plugin(state, "NodeRestriction")
    }),
    scored("1.2.15", "the server shows no profiles", "--profiling=false", profiling),
    scored("1.2.16", "there is an audit log", AUDIT, |state| given(state, "audit-log-path")),
    scored("1.2.17", "audit logs are kept for 30 days", "--audit-log-maxage=30", |state| {
        at_least(state, "audit-log-maxage", 30)
    }),
    scored("1.2.18", "10 old audit logs are kept", "--audit-log-maxbackup=10", |state| {
        at_least(state, "audit-log-maxbackup", 10)
    }),
    scored("1.2.19", "audit logs may have 100 megabytes", "--audit-log-maxsize=100", |state| {
        at_least(state, "audit-log-maxsize", 100)
    }),
    manual("1.2.20", "requests end in time", "--request-timeout=60s", |state| given(state, "request-timeout")),
    scored("1.2.21", "tokens end with their service account", "--service-account-lookup=true", |state| {
        with_flag(state, "service-account-lookup", |value| is(value == "true", "service-account-lookup", value))
    }),
    scored("1.2.22", "tokens are verified with a key of their own", CERTIFICATES, |state| {
        given(state, "service-account-key-file")
    }),
    scored("1.2.23", "the server shows etcd a certificate", "give --etcd-certfile and --etcd-keyfile", |state| {
        of_etcd(state, |state| both(state, "etcd-certfile", "etcd-keyfile"))
    }),
    scored("1.2.24", "the API is served with TLS", CERTIFICATES, |state| {
        both(state, "tls-cert-file", "tls-private-key-file")
    }),
    scored("1.2.25", "clients' certificates are verified", CERTIFICATES, |state| given(state, "client-ca-file")),
    scored("1.2.26", "etcd's certificates are verified", "give --etcd-cafile", |state| {
        of_etcd(state, |state| given(state, "etcd-cafile"))
    }),
    manual("1.2.27", "Secrets are encrypted on disk", ENCRYPTION, |state| given(state, "encryption-provider-config")),
    manual("1.2.28", "Secrets are encrypted with a good provider", ENCRYPTION, |state| {
        if filled(state, "encryption-provider-config") {
            Verdict::Unknown("look whether the first provider is aescbc, kms or secretbox".into())
        } else {
            Verdict::Bad("nothing is encrypted".into())
        }
    }),
    manual("1.2.29", "only strong ciphers are spoken", "use a build of knarr with the TLS library as it is", |state| {
        match &state.cluster {
            None => no_server(),
            Some(cluster) => ciphers(cluster.weak_ciphers),
        }
    }),
    scored(
        "1.2.30",
        "tokens do not live longer than they say",
        "read mounted tokens again before they end, and bind few rights to pods' accounts",
        |state| {
            with_flag(state, "service-account-extend-token-expiration", |value| match value {
                "false" => Verdict::Good("they do not".into()),
                _ => Verdict::Bad(
                    "mounted tokens are taken for a year, as upstream does by default for old clients".into(),
                ),
            })
        },
    ),
];

const ENCRYPTION: &str = "run `knarr secrets-encrypt enable`, or give --encryption-provider-config";

pub(super) fn no_server() -> Verdict {
    Verdict::NotApplicable("this machine is not a server: run this on a server, or set --kubeconfig".into())
}

fn with_flag(state: &State, name: &str, judge: impl Fn(&str) -> Verdict) -> Verdict {
    match &state.cluster {
        None => no_server(),
        Some(cluster) => judge(cluster.flags.get(name).map_or("", String::as_str)),
    }
}

fn has(list: &str, name: &str) -> bool {
    list.split(',').any(|one| one == name)
}

fn is(so: bool, name: &str, value: &str) -> Verdict {
    let told = format!("{name}={value}");
    if so { Verdict::Good(told) } else { Verdict::Bad(told) }
}

fn filled(state: &State, name: &str) -> bool {
    state.flag(name).is_some_and(|value| !value.is_empty())
}

fn given(state: &State, name: &str) -> Verdict {
    with_flag(state, name, |value| is(!value.is_empty(), name, value))
}

fn both(state: &State, first: &str, second: &str) -> Verdict {
    with_flag(state, first, |value| is(!value.is_empty() && filled(state, second), first, value))
}

fn empty(state: &State, name: &str) -> Verdict {
    with_flag(state, name, |value| {
        if value.is_empty() {
            Verdict::Good(format!("{name} is not given"))
        } else {
            Verdict::Bad(format!("{name}={value}"))
        }
    })
}

fn at_least(state: &State, name: &str, least: u64) -> Verdict {
    with_flag(state, name, |value| {
        let enough = value.parse::<u64>().is_ok_and(|number| number >= least);
        is(enough && filled(state, "audit-log-path"), name, value)
    })
}

fn plugin(state: &State, name: &str) -> Verdict {
    with_flag(state, "enable-admission-plugins", |value| {
        if has(value, name) {
            Verdict::Good(format!("{name} runs"))
        } else {
            Verdict::Bad(format!("{name} does not run"))
        }
    })
}

fn of_etcd(state: &State, judge: fn(&State) -> Verdict) -> Verdict {
    match &state.cluster {
        Some(_) if !filled(state, "etcd-servers") => {
            Verdict::NotApplicable("objects are kept in an embedded store, which nothing connects to".into())
        }
        _ => judge(state),
    }
}

pub(super) fn profiling(state: &State) -> Verdict {
    match &state.cluster {
        None => no_server(),
        Some(cluster) if cluster.profile_code == 200 => Verdict::Bad("/debug/pprof is answered".into()),
        Some(_) => with_flag(state, "profiling", |value| is(value == "false", "profiling", value)),
    }
}

pub(super) fn ciphers(offered: Offered) -> Verdict {
    match offered {
        Offered::Refused => Verdict::Good("a client with RC4, 3DES and CBC only was refused".into()),
        Offered::Taken => Verdict::Bad("a client with RC4, 3DES and CBC only was let in".into()),
        Offered::NotAsked => Verdict::Unknown("the server could not be asked".into()),
    }
}

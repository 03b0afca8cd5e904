//! Flags of upstream's programs that knarr's components of the same name know besides their own: what changes nothing here
//! is taken, what has one good value is taken with it, and everything else is refused with a sentence.

mod managers;
#[cfg(test)]
mod every_flag;

use std::ffi::OsString;

use self::managers::{CLOUD_CONTROLLER_MANAGER, CONTROLLER_MANAGER, GENERIC, LEADERS, SCHEDULER};

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It is about logs or speed, or about what knarr does anyway.
    Taken,
    /// The same, without a value of its own: `--x`, `--x=true`, `--x=false`.
    Switch,
    /// Taken with these values; the sentence says why there are no others.
    Only(&'static [&'static str], &'static str),
    Refused(&'static str),
}

use Fate::{Only, Refused, Switch, Taken};

type Table = &'static [(&'static str, Fate)];

/// Of every component.
const COMMON: Table = &[
    ("vmodule", Taken),
    ("log-flush-frequency", Taken),
    ("log-json-info-buffer-size", Taken),
    ("log-json-split-stream", Switch),
    ("log-text-info-buffer-size", Taken),
    ("log-text-split-stream", Switch),
    ("logging-format", Only(&["text"], "knarr logs lines of text")),
    ("show-hidden-metrics-for-version", Taken),
    ("kube-api-burst", Taken),
    ("kube-api-qps", Taken),
    ("kube-api-content-type", Taken),
    ("http2-max-streams-per-connection", Taken),
    ("profiling", Only(&["false"], "knarr has no profiler to show")),
    ("contention-profiling", Only(&["false"], "knarr has no profiler to show")),
    ("enable-contention-profiling", Only(&["false"], "knarr has no profiler to show")),
    ("feature-gates", Only(&["", "AllAlpha=false"], "knarr has no gates: features are as upstream's defaults")),
    ("tls-min-version", Only(&["VersionTLS12"], "knarr speaks TLS 1.2 and 1.3")),
    ("tls-cipher-suites", Refused("knarr speaks the suites that rustls takes for safe, and no others")),
    ("tls-sni-cert-key", Refused("knarr shows one certificate, that of --tls-cert-file")),
    ("tracing-config-file", Refused("knarr sends no traces")),
];

const API_SERVER: Table = &[
    ("endpoint-reconciler-type", Only(&["lease"], "knarr's servers know each other by leases")),
    ("storage-backend", Only(&["etcd3"], "there is no other")),
    ("etcd-compaction-interval", Only(&["5m", "5m0s"], "knarr compacts as often as upstream's default")),
    (
        "runtime-config",
        Only(&["", "api/ga=true", "api/beta=false", "api/alpha=false"], "knarr serves what upstream serves by default"),
    ),
    ("service-account-lookup", Only(&["true"], "knarr always looks")),
    ("service-account-extend-token-expiration", Only(&["true"], "knarr always does")),
    ("enable-garbage-collector", Only(&["true"], "knarr always collects garbage")),
    ("request-timeout", Only(&["1m", "1m0s", "60s"], "knarr gives a request a minute")),
    ("default-not-ready-toleration-seconds", Only(&["300"], "knarr's pods stay for five minutes")),
    ("default-unreachable-toleration-seconds", Only(&["300"], "knarr's pods stay for five minutes")),
    ("kubelet-timeout", Taken),
    ("watch-cache", Switch),
    ("watch-cache-sizes", Taken),
    ("default-watch-cache-size", Taken),
    ("delete-collection-workers", Taken),
    ("enable-aggregator-routing", Switch),
    ("apiserver-count", Taken),
    ("permit-port-sharing", Only(&["false"], "knarr wants its port for itself")),
    ("permit-address-sharing", Only(&["false"], "knarr wants its address for itself")),
    ("admission-control-config-file", Refused("knarr's admission plugins have no configuration files yet")),
    (
        "encryption-provider-config",
        Refused("knarr does not encrypt what it stores yet: use an etcd on an encrypted disk"),
    ),
    ("authentication-config", Refused("knarr takes client certificates, service account, bootstrap and static tokens")),
    ("authentication-token-webhook-config-file", Refused("knarr asks nobody else about tokens")),
    ("authorization-config", Refused("give the modes by --authorization-mode=Node,RBAC")),
    ("authorization-webhook-config-file", Refused("knarr asks nobody else what is allowed: use Node,RBAC")),
    ("authorization-policy-file", Refused("knarr has no ABAC: use Node,RBAC")),
    ("oidc-issuer-url", Refused("knarr does not take tokens of OpenID Connect")),
    ("egress-selector-config-file", Refused("knarr reaches nodes directly")),
    ("cors-allowed-origins", Refused("knarr answers no browsers of other sites")),
    ("service-account-max-token-expiration", Refused("knarr's tokens last as long as upstream's by default")),
    ("service-account-jwks-uri", Refused("knarr's keys are at /openid/v1/jwks of the server")),
    ("external-hostname", Refused("knarr writes no addresses for which this would matter")),
];

const KUBELET: Table = &[
    ("pod-infra-container-image", Taken),
    ("runtime-cgroups", Taken),
    ("kubelet-cgroups", Taken),
    ("cgroup-driver", Only(&["cgroupfs", "systemd"], "the container runtime decides")),
    ("fail-swap-on", Only(&["false"], "knarr runs where there is swap")),
    ("cloud-provider", Only(&["", "external"], "clouds are the work of a cloud-controller-manager")),
    ("config-dir", Refused("give one file by --config")),
    ("anonymous-auth", Only(&["false"], "knarr's kubelet answers nobody whom it does not know")),
    ("authentication-token-webhook", Only(&["true"], "knarr's kubelet always asks the API server")),
    ("authorization-mode", Only(&["Webhook"], "knarr's kubelet always asks the API server")),
    ("read-only-port", Only(&["0"], "knarr's kubelet answers nobody whom it does not know")),
    ("image-credential-provider-config", Refused("knarr starts no programs for credentials; use imagePullSecrets")),
    ("image-credential-provider-bin-dir", Refused("knarr starts no programs for credentials; use imagePullSecrets")),
];

const PROXY: Table = &[
    ("proxy-mode", Only(&["", "nftables"], "knarr's rules are nftables'")),
    ("masquerade-all", Only(&["false"], "knarr hides only the sources that must be hidden")),
    ("config-sync-period", Taken),
    ("oom-score-adj", Taken),
    ("bind-address-hard-fail", Switch),
    ("cleanup", Refused("`nft delete table ip knarr-proxy` takes knarr's rules away")),
    ("conntrack-max-per-core", Taken),
    ("conntrack-min", Taken),
];

fn tables(component: &str) -> Option<&'static [Table]> {
    match component {
        "kube-apiserver" => Some(&[API_SERVER, COMMON]),
        "kube-controller-manager" => Some(&[CONTROLLER_MANAGER, GENERIC, LEADERS, COMMON]),
        "kube-scheduler" => Some(&[SCHEDULER, LEADERS, COMMON]),
        "cloud-controller-manager" => Some(&[CLOUD_CONTROLLER_MANAGER, GENERIC, LEADERS, COMMON]),
        "kubelet" => Some(&[KUBELET, COMMON]),
        "kube-proxy" => Some(&[PROXY, COMMON]),
        _ => None,
    }
}

/// A command line without what was taken here.
#[derive(Debug, Default, PartialEq)]
pub struct Sifted {
    pub arguments: Vec<OsString>,
    /// What `--v` says: 3 logs every request, 5 and more says what is of interest while looking for errors.
    pub verbosity: u8,
    /// Whether only the version is asked for.
    pub version: bool,
}

/// What is logged at that verbosity.
pub fn log_level(verbosity: u8) -> &'static str {
    match verbosity {
        0..=2 => "info,nlink=error",
        3..=4 => "info,nlink=error,requests=debug",
        5..=7 => "debug",
        8.. => "trace",
    }
}

/// `arguments` begins with the program, as the system gives it.
pub fn sift(arguments: impl Iterator<Item = OsString>) -> Result<Sifted, String> {
    let mut rest = arguments.peekable();
    let mut sifted = Sifted { arguments: rest.next().into_iter().collect(), ..Sifted::default() };
    let component = rest.peek().and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    let Some(tables) = tables(&component) else {
        sifted.arguments.extend(rest);
        return Ok(sifted);
    };
    let fate_of = |name: &str| tables.iter().flat_map(|table| table.iter()).find(|(known, _)| *known == name);
    while let Some(word) = rest.next() {
        let text = with_dashes(&word.to_string_lossy());
        let Some((name, given)) = split(&text) else {
            sifted.arguments.push(word);
            continue;
        };
        if name == "version" {
            sifted.version = given != Some("false");
            continue;
        }
        if name == "v" {
            let value = given.map(str::to_owned).or_else(|| Some(rest.next()?.to_string_lossy().into_owned()));
            let value = value.unwrap_or_default();
            sifted.verbosity = value.parse().map_err(|_| format!("--v: {value:?} is no number"))?;
            continue;
        }
        let Some((_, fate)) = fate_of(name) else {
            sifted.arguments.push(if text.is_ascii() { text.into() } else { word });
            continue;
        };
        match fate {
            Refused(why) => return Err(format!("knarr {component} does not take --{name}: {why}")),
            Switch => {}
            Taken if given.is_none() => drop(rest.next()),
            Taken => {}
            Only(values, why) => {
                // A switch without a value is on; everything else has its value in the next word.
                let is_switch = values.iter().any(|value| matches!(*value, "true" | "false"));
                let value = match given {
                    Some(given) => given.to_owned(),
                    None if is_switch => "true".into(),
                    None => rest.next().unwrap_or_default().to_string_lossy().into_owned(),
                };
                if !value.split(',').all(|one| values.contains(&one)) {
                    return Err(format!("knarr {component} does not take --{name}={value}: {why}"));
                }
            }
        }
    }
    Ok(sifted)
}

/// Upstream takes `--some_flag` for `--some-flag`.
fn with_dashes(word: &str) -> String {
    match (word.starts_with("--"), word.split_once('=')) {
        (false, _) => word.to_owned(),
        (true, None) => word.replace('_', "-"),
        (true, Some((name, value))) => format!("{}={value}", name.replace('_', "-")),
    }
}

/// Name and value of a flag; Go's parser also takes one dash for `-v`.
fn split(word: &str) -> Option<(&str, Option<&str>)> {
    let flag = match word.strip_prefix("--") {
        Some(flag) => flag,
        None if word == "-v" || word.starts_with("-v=") => &word[1..],
        None => return None,
    };
    Some(flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sifted(line: &str) -> Result<String, String> {
        let sifted = sift(line.split(' ').map(Into::into))?;
        let words: Vec<String> = sifted.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(format!("{} v{}", words.join(" "), sifted.verbosity))
    }

    #[test]
    fn what_changes_nothing_is_taken_and_the_rest_is_left_to_the_component() {
        let check = |line: &str, expected: &str| assert_eq!(sifted(line).unwrap(), expected, "{line}");
        check("knarr server --v=9", "knarr server --v=9 v0");
        check("knarr kube-apiserver --v=3 --secure-port=1", "knarr kube-apiserver --secure-port=1 v3");
        check("knarr kube-scheduler -v 4 --kubeconfig a", "knarr kube-scheduler --kubeconfig a v4");
        check("knarr kube-apiserver --storage-backend etcd3 --profiling=false --a b", "knarr kube-apiserver --a b v0");
        check("knarr kube-controller-manager --cluster-name=kubernetes", "knarr kube-controller-manager v0");
        check("knarr kube-apiserver --watch-cache --a", "knarr kube-apiserver --a v0");
        let line = "knarr kube-controller-manager --concurrent_rc_syncs=2 --kube_api_qps=1 --cluster_name a_b -x_y=a_b";
        check(line, "knarr kube-controller-manager --concurrent-rc-syncs=2 -x_y=a_b v0");
    }

    #[test]
    fn every_component_says_which_version_it_is() {
        for (line, expected) in
            [("--version", true), ("--version=raw", true), ("--version=false", false), ("--v=1", false)]
        {
            let sifted = sift(["knarr", "kubelet", line].into_iter().map(Into::into)).unwrap();
            assert_eq!((sifted.version, sifted.arguments.len()), (expected, 2), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_a_sentence() {
        let check = |line: &str, expected: &str| assert_eq!(sifted(line).unwrap_err(), expected, "{line}");
        check(
            "knarr kube-apiserver --tls-sni-cert-key=/x",
            "knarr kube-apiserver does not take --tls-sni-cert-key: knarr shows one certificate, that of --tls-cert-file",
        );
        check(
            "knarr kube-apiserver --storage-backend etcd2",
            "knarr kube-apiserver does not take --storage-backend=etcd2: there is no other",
        );
        check(
            "knarr kube-scheduler --profiling",
            "knarr kube-scheduler does not take --profiling=true: knarr has no profiler to show",
        );
        check("knarr kubelet --v=x", "--v: \"x\" is no number");
    }

    #[test]
    fn no_flag_is_in_two_tables() {
        let all = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "cloud-controller-manager"];
        for component in all.into_iter().chain(["kubelet", "kube-proxy"]) {
            let mut names: Vec<&str> =
                tables(component).unwrap().iter().flat_map(|table| table.iter()).map(|(name, _)| *name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{component}");
        }
    }
}

//! Flags of upstream's programs that knarr's components of the same name know besides their own: what changes nothing here
//! is taken, what has one good value is taken with it, and everything else is refused with a sentence.

mod api_server;
mod managers;
mod node;
#[cfg(test)]
mod every_flag;

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};

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
    /// Feature gates by name; those that can be set either way.
    Gates(&'static [&'static str]),
    /// It stands for a field of the component's configuration, and is taken or refused as that.
    Field(&'static str, Shape),
}

/// How a flag's text becomes the value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Text,
    Amount,
    /// `--x`, `--x=true`, `--x=false`.
    Flag,
    /// `a,b`
    List,
    /// `a=1,b=2`
    Pairs,
    /// `a<1,b<2`
    Thresholds,
}

use Fate::{Field, Gates, Only, Refused, Switch, Taken};

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
];

/// Of every component but the API server and the controllers, which have gates that can be opened.
const GATES: Table = &[("feature-gates", Gates(&[]))];

/// Of every component but the API server.
const CERTIFICATES: Table = &[("tls-sni-cert-key", Refused("knarr shows one certificate, that of --tls-cert-file"))];

/// Of what runs on nodes.
const NODES: Table = &[
    ("tls-min-version", Only(&["VersionTLS12"], "knarr speaks TLS 1.2 and 1.3")),
    ("tls-cipher-suites", Refused("knarr speaks the suites that rustls takes for safe, and no others")),
];

fn tables(component: &str) -> Option<&'static [Table]> {
    match component {
        "kube-apiserver" => Some(&[api_server::FLAGS, COMMON]),
        "kube-controller-manager" => Some(&[CONTROLLER_MANAGER, GENERIC, LEADERS, CERTIFICATES, COMMON]),
        "kube-scheduler" => Some(&[SCHEDULER, LEADERS, GATES, CERTIFICATES, COMMON]),
        "cloud-controller-manager" => Some(&[CLOUD_CONTROLLER_MANAGER, GENERIC, LEADERS, GATES, CERTIFICATES, COMMON]),
        "kubelet" => Some(&[node::KUBELET, NODES, GATES, CERTIFICATES, COMMON]),
        "kube-proxy" => Some(&[node::PROXY, NODES, GATES, CERTIFICATES, COMMON]),
        _ => None,
    }
}

/// A command line without what was taken here.
#[derive(Debug, Default, PartialEq)]
pub struct Sifted {
    pub arguments: Vec<OsString>,
    /// Whether only the version is asked for.
    pub version: bool,
    /// What `--v` says: 3 logs every request, 5 and more says what is of interest while looking for errors.
    pub verbosity: u8,
    /// What was taken and by which value, for `/flagz`.
    pub taken: BTreeMap<String, String>,
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
pub fn sift(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Sifted> {
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
        if name == "v" {
            let value = given.map(str::to_owned).or_else(|| Some(rest.next()?.to_string_lossy().into_owned()));
            let value = value.unwrap_or_default();
            sifted.verbosity = value.parse().map_err(|_| anyhow!("--v: {value:?} is not a number"))?;
            sifted.taken.insert("v".into(), value);
            continue;
        }
        if name == "version" {
            sifted.version = given != Some("false");
            continue;
        }
        let Some((_, fate)) = fate_of(name) else {
            sifted.arguments.push(if text.is_ascii() { text.into() } else { word });
            continue;
        };
        let value = match given {
            Some(given) => given.to_owned(),
            // A switch without a value is on; everything else has its value in the next word.
            None if fate.is_switch() => "true".into(),
            None => rest.next().unwrap_or_default().to_string_lossy().into_owned(),
        };
        sifted.arguments.extend(fate.apply(&component, name, &value)?.map(OsString::from));
        sifted.taken.insert(name.to_owned(), value);
    }
    Ok(sifted)
}

impl Fate {
    fn is_switch(&self) -> bool {
        match self {
            Switch | Field(_, Shape::Flag) => true,
            Only(values, _) => values.iter().any(|value| matches!(*value, "true" | "false")),
            Taken | Refused(_) | Gates(_) | Field(..) => false,
        }
    }

    /// The argument that a value becomes, if any.
    fn apply(&self, component: &str, name: &str, value: &str) -> anyhow::Result<Option<String>> {
        match self {
            Refused(why) => bail!("knarr {component} does not support --{name}: {why}"),
            Switch | Taken => Ok(None),
            Gates(open) => {
                let gates = component_base::features::Gates::parse(value, open);
                gates.map(|_| None).map_err(|error| anyhow!("--{name}: {error}"))
            }
            Field(field, shape) => {
                let value = shape.read(value).map_err(|error| anyhow!("--{name}: {error}"))?;
                Ok(Some(format!("--field={field}={value}")))
            }
            Only(values, why) if !value.split(',').all(|one| values.contains(&one)) => {
                bail!("knarr {component} does not support --{name}={value}: {why}")
            }
            Only(..) => Ok(None),
        }
    }
}

impl Shape {
    fn read(self, text: &str) -> anyhow::Result<Value> {
        let pairs = |separator: char| {
            let split = |part: &str| match part.split_once(separator) {
                Some((name, value)) => Ok((name.trim().to_owned(), Value::from(value.trim()))),
                None => Err(anyhow!("{part:?} has no {separator:?}")),
            };
            let parts = text.split(',').filter(|part| !part.is_empty());
            parts.map(split).collect::<anyhow::Result<Map<String, Value>>>().map(Value::from)
        };
        match self {
            Shape::Text => Ok(text.into()),
            Shape::List => Ok(text.split(',').filter(|part| !part.is_empty()).map(Value::from).collect()),
            Shape::Pairs => pairs('='),
            Shape::Thresholds => pairs('<'),
            Shape::Flag => text.parse::<bool>().map(Value::from).map_err(|_| anyhow!("{text:?} is not true or false")),
            Shape::Amount => {
                let number = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<f64>().map(Value::from));
                number.map_err(|_| anyhow!("{text:?} is not a number"))
            }
        }
    }
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

    fn sifted(line: &str) -> anyhow::Result<String> {
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
        check("knarr kube-proxy --feature-gates APIServerIdentity=true,AllAlpha=false", "knarr kube-proxy v0");
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
        let check = |line: &str, expected: &str| assert_eq!(sifted(line).unwrap_err().to_string(), expected, "{line}");
        check(
            "knarr kube-scheduler --tls-sni-cert-key=/x",
            "knarr kube-scheduler does not support --tls-sni-cert-key: knarr shows one certificate, that of --tls-cert-file",
        );
        check(
            "knarr kube-scheduler --feature-gates=Nothing=true",
            "--feature-gates: unrecognized feature gate: Nothing",
        );
        check(
            "knarr kubelet --feature-gates GenericWorkload=true",
            "--feature-gates: knarr does not support GenericWorkload=true: it has this feature only as upstream's default",
        );
        check(
            "knarr kube-apiserver --storage-backend etcd2",
            "knarr kube-apiserver does not support --storage-backend=etcd2: there is no other",
        );
        check(
            "knarr kube-scheduler --profiling",
            "knarr kube-scheduler does not support --profiling=true: knarr has no profiler to show",
        );
        check("knarr kubelet --v=x", "--v: \"x\" is not a number");
    }

    #[test]
    fn no_flag_is_in_two_tables() {
        for component in ["kube-apiserver", "kube-controller-manager", "kubelet", "kube-proxy"] {
            let mut names: Vec<&str> =
                tables(component).unwrap().iter().flat_map(|table| table.iter()).map(|(name, _)| *name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{component}");
        }
    }
}

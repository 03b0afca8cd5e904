use clap::CommandFactory;

use super::*;

fn described(variables: &'static [&'static str]) -> Command {
    describe(crate::Arguments::command(), |name| variables.contains(&name))
}

/// What came of a line and a file, for some flags.
fn told(line: &str, text: &str, flags: &[&str]) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    let arguments = format!("knarr {line} --config {}", file.display());
    let arguments = arguments.split_whitespace().map(OsString::from).collect();
    let matches = parse(&described(&[]), arguments).map_err(|refusal| {
        let text = match refusal {
            Refusal::Arguments(error) => error.to_string(),
            Refusal::File(error) => format!("{error:#}"),
        };
        text.replace(&format!("{}/", folder.path().display()), "")
    })?;
    let (_, matches) = matches.subcommand().unwrap();
    let raw = |flag: &&str| match matches.get_raw(flag) {
        Some(values) => values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join("|"),
        None => String::new(),
    };
    Ok(flags.iter().map(raw).collect())
}

#[test]
fn a_file_says_what_flags_can() {
    let text = "https-port: 8443\ntls-san: [a, b]\ndisable-agent: true\nnode-label: [x=y, z=w]\ntoken: secret-text\n";
    let flags = ["https_port", "tls_san", "disable_agent", "node_label", "token"];
    assert_eq!(told("server", text, &flags).unwrap(), ["8443", "a|b", "true", "x=y|z=w", "secret-text"]);
    // Names that k3s has for the same.
    let text = "https-listen-port: 8443\nflannel-backend: host-gw\n";
    assert_eq!(told("server", text, &["https_port", "network_backend"]).unwrap(), ["8443", "host-gw"]);
}

#[test]
fn a_flag_is_stronger_than_a_file() {
    let text = "https-port: 8443\ntls-san: [a, b]\ndisable-agent: true\ntoken: in-the-file\n";
    let line = "server --https-port 1 --tls-san c --disable-agent=false --token-file /x";
    let flags = ["https_port", "tls_san", "disable_agent", "token_file", "token"];
    assert_eq!(told(line, text, &flags).unwrap(), ["1", "c", "false", "/x", ""]);
}

#[test]
fn what_parts_are_handed_becomes_our_flags() {
    let text = "kubelet-arg: [max-pods=50, \"eviction-hard=memory.available<1Gi\"]\nmax-pods: 7\n";
    let line = "server --kube-apiserver-arg=event-ttl=30m --kube-proxy-arg --nodeport-addresses=primary";
    let flags = ["max_pods", "eviction_hard", "event_ttl", "nodeport_addresses"];
    assert_eq!(told(line, text, &flags).unwrap(), ["50", "memory.available<1Gi", "30m", "primary"].map(str::to_owned));
}

#[test]
fn what_cannot_be_used_is_said_with_its_place() {
    for (line, text, expected) in [
        ("server", "https-prt: 1", "config.yaml: unknown setting \"https-prt\"; did you mean \"https-port\"?"),
        ("server", "https-port: many", "config.yaml: https-port: invalid value 'many'"),
        ("server", "disable-agent: perhaps", "config.yaml: disable-agent: invalid value 'perhaps'"),
        ("server", "data-dir: [a, b]", "config.yaml: data-dir takes one value, not 2"),
        ("server", "service-cidr: 10.0.0.0", "config.yaml: service-cidr: invalid value"),
        ("server", "config: x", "a file cannot include another"),
        ("server", "token: a\ntoken-file: b", "cannot be used with"),
        ("agent", "cluster-init: true", "config.yaml: cluster-init is a setting of `knarr server`"),
        ("server", "kubelet-arg: max-pod=1", "kubelet of knarr has no flag \"max-pod\"; did you mean \"max-pods\"?"),
        (
            "server",
            "flannel-backend: wireguard-native",
            "config.yaml: flannel-backend: invalid value 'wireguard-native'",
        ),
    ] {
        let error = told(line, text, &[]).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn other_commands_find_the_data_where_the_file_puts_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, "data-dir: /elsewhere\ntoken: x\n").unwrap();
    let check = |line: &str, expected: Option<&str>| {
        let given = described(&[]).try_get_matches_from(line.split(' ')).unwrap();
        assert_eq!(data_dir(&given, Some(&file)), expected.map(OsString::from), "{line}");
    };
    check("knarr token create", Some("--data-dir=/elsewhere"));
    check("knarr token create --data-dir /here", None);
    check("knarr image list", Some("--data-dir=/elsewhere"));
    check("knarr kubectl get pods", None);
}

#[test]
fn every_flag_is_a_variable_of_its_own() {
    for name in WITH_FILE.iter().chain(&environment::ALONE) {
        let command = described(&[]);
        let mut seen = std::collections::BTreeSet::new();
        for flag in command.find_subcommand(name).unwrap().get_arguments() {
            let variable = flag.get_env().unwrap_or_else(|| panic!("{name} {} has none", flag.get_id()));
            assert!(variable.to_str().unwrap().starts_with("KNARR_"), "{variable:?}");
            assert!(seen.insert(variable.to_owned()), "{name}: {variable:?} stands for two flags");
        }
    }
}

#[test]
fn variables_of_k3s_count_where_ours_are_not_set() {
    let variable = |variables: &'static [&'static str]| {
        let command = described(variables);
        let server = command.find_subcommand("server").unwrap();
        let token = server.get_arguments().find(|flag| flag.get_id() == "token").unwrap();
        token.get_env().unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(variable(&[]), "KNARR_TOKEN");
    assert_eq!(variable(&["K3S_TOKEN"]), "K3S_TOKEN");
    assert_eq!(variable(&["K3S_TOKEN", "KNARR_TOKEN"]), "KNARR_TOKEN");
}

#[test]
fn the_flags_that_parts_are_handed_exist() {
    let command = described(&[]);
    for name in WITH_FILE {
        let flags = command.find_subcommand(name).unwrap();
        for (part, ours) in handed::targets(name) {
            assert!(flags.get_arguments().any(|flag| flag.get_long() == Some(ours)), "{part}: {ours} of {name}");
        }
    }
}

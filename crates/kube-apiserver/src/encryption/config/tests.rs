use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
/// 32 bytes.
const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// After the example of upstream's documentation, with a plugin, and with a key of a length that there is.
const EXAMPLE: &str = "resources:
  - resources:
      - secrets
      - configmaps
      - pandas.awesome.bears.example
    providers:
      - identity: {}
      - aesgcm:
          keys:
            - name: key1
              secret: c2VjcmV0IGlzIHNlY3VyZQ==
            - name: key2
              secret: dGhpcyBpcyBwYXNzd29yZA==
      - aescbc:
          keys:
            - name: key1
              secret: c2VjcmV0IGlzIHNlY3VyZQ==
            - name: key2
              secret: dGhpcyBpcyBwYXNzd29yZA==
      - secretbox:
          keys:
            - name: key1
              secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=
  - resources:
      - events
    providers:
      - identity: {}
  - resources:
      - '*.apps'
    providers:
      - kms:
          apiVersion: v2
          name: myKmsPlugin
          endpoint: unix:///tmp/socketfile.sock
          timeout: 5s
  - resources:
      - '*.*'
    providers:
      - aescbc:
          keys:
          - name: key3
            secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
";

#[test]
fn upstreams_example_is_read() {
    let configuration = parse(&format!("{HEAD}{EXAMPLE}")).unwrap();
    let names: Vec<String> = configuration.rules.iter().flat_map(|rule| &rule.resources).map(Named::written).collect();
    assert_eq!(names, ["secrets", "configmaps", "pandas.awesome.bears.example", "events", "*.apps", "*.*"]);
    let Provider::Keys { kind, keys } = &configuration.rules[0].providers[1] else { panic!("keys") };
    assert_eq!((*kind, keys.len(), keys[0].secret.as_slice()), (KeyKind::AesGcm, 2, &b"secret is secure"[..]));
    let Provider::Kms { name, socket, timeout } = &configuration.rules[2].providers[0] else { panic!("a plugin") };
    assert_eq!((name.as_str(), socket.to_str(), timeout.as_secs()), ("myKmsPlugin", Some("/tmp/socketfile.sock"), 5));
    assert!(!format!("{configuration:?}").contains("secret is"), "keys are not shown");
}

fn one(resources: &str, providers: &str) -> String {
    format!("resources:\n- resources: {resources}\n  providers: {providers}\n")
}

fn check(rest: &str, expected: &str) {
    let error = parse(&format!("{HEAD}{rest}")).unwrap_err().to_string();
    assert_eq!(error, expected, "{rest}");
    assert!(!error.contains(SECRET));
}

#[test]
fn wrong_resources_are_refused_in_upstreams_words() {
    let identity = "[{identity: {}}]";
    check("", "resources: Required value: at least one resources is required");
    check(
        &one("[]", identity),
        "line 4: resources[0].resources: Required value: at least one resources[0].resources is required",
    );
    let overlap = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
    check(
        &one("[secrets, '*.']", identity),
        &format!("line 4: resources[0].resources: Invalid value: [\"secrets\",\"*.\"]: {overlap}"),
    );
    check(
        &one("[secrets, secrets]", identity),
        "line 4: resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times",
    );
    for (name, detail) in [
        ("Secrets", "resource name should not contain capital letters"),
        ("*", "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("apiserveripinfo", "resources which do not have REST API/s cannot be encrypted"),
        (
            "events.events.k8s.io",
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        ("*.extensions", "'extensions' group has been removed and cannot be used for encryption"),
        ("secrets.*", "encrypting the same resource across groups is not supported"),
    ] {
        check(
            &one(&format!("['{name}']"), identity),
            &format!("line 4: resources[0].resources[0]: Invalid value: \"{name}\": {detail}"),
        );
    }
    let two = format!("{}- resources: [deployments.apps]\n  providers: {identity}\n", one("['*.apps']", identity));
    check(
        &two,
        "line 6: resources[1].resources[0]: Forbidden: resource \"deployments.apps\" is masked by earlier rule \"*.apps\"",
    );
    let two = format!("{}- resources: ['*.']\n  providers: {identity}\n", one("['*.*']", identity));
    check(&two, "line 6: resources[1].resources[0]: Forbidden: resource \"*.\" is masked by earlier rule \"*.*\"");
}

#[test]
fn wrong_providers_are_refused_in_upstreams_words() {
    let check = |providers: &str, expected: &str| check(&one("[secrets]", providers), expected);
    let at = "line 5: resources[0].providers";
    check("[]", &format!("{at}: Required value: at least one resources[0].providers is required"));
    check(
        "[{}]",
        &format!(
            "{at}[0]: Invalid value: {{}}: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        ),
    );
    check(
        &format!("[{{identity: {{}}, aescbc: {{keys: [{{name: a, secret: {SECRET}}}]}}}}]"),
        &format!(
            "{at}[0]: Invalid value: \"REDACTED\": more than one provider specified in a single element, should split into different list elements"
        ),
    );
    check("[{aescbc: {keys: []}}]", &format!("{at}[0].aescbc.keys: Required value: at least one keys is required"));
    check(
        "[{aesgcm: {keys: [{secret: YQ==}]}}]",
        &format!(
            "{at}[0].aesgcm.keys[0].name: Required value: name is a mandatory field for a key; {at}[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 1, expected one of [16 24 32]"
        ),
    );
    check(
        "[{secretbox: {keys: [{name: a, secret: '%'}]}}]",
        &format!("{at}[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded"),
    );
    check(
        "[{secretbox: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}]",
        &format!(
            "{at}[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]"
        ),
    );
    check(
        "[{aescbc: {keys: [{name: a}]}}]",
        &format!("{at}[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key"),
    );
    check("[{aescbc: {kyes: []}}]", "line 5: unknown field \"resources[0].providers[0].aescbc.kyes\"");
}

#[test]
fn wrong_plugins_are_refused_in_upstreams_words() {
    let check = |plugin: &str, expected: &str| {
        check(
            &one("[secrets]", &format!("[{{kms: {{{plugin}}}}}]")),
            &format!("line 5: resources[0].providers[0].kms.{expected}"),
        );
    };
    let base = "apiVersion: v2, name: p, endpoint: 'unix:///s'";
    check("apiVersion: v2, endpoint: 'unix:///s'", "name: Required value: name is a mandatory field for a provider");
    check(
        "apiVersion: v2, name: 'a:b', endpoint: 'unix:///s'",
        "name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'",
    );
    check("apiVersion: v2, name: p", "endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms");
    check(
        "apiVersion: v2, name: p, endpoint: 'tcp://s'",
        "endpoint: Invalid value: \"tcp://s\": unsupported scheme \"tcp\" for KMS provider, only unix is supported",
    );
    check(&format!("{base}, timeout: 0s"), "timeout: Invalid value: \"0s\": timeout should be a positive value");
    check(&format!("{base}, cachesize: 5"), "cachesize: Invalid value: 5: cachesize is not supported in v2");
    check(
        "apiVersion: v3, name: p, endpoint: 'unix:///s'",
        "apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported",
    );
    check(
        "name: p, endpoint: 'unix:///s'",
        "apiVersion: Invalid value: \"v1\": KMSv1 is deprecated and is not supported by knarr. Use KMSv2 instead: apiVersion: v2",
    );
    let two = one("[secrets]", &format!("[{{kms: {{{base}}}}}, {{kms: {{{base}}}}}]"));
    let error = parse(&format!("{HEAD}{two}")).unwrap_err().to_string();
    assert!(
        error.ends_with("name: Invalid value: \"p\": duplicate KMS provider name p, names must be unique"),
        "{error}"
    );
}

#[test]
fn sockets_are_paths_or_names() {
    let socket = |endpoint: &str| {
        let text = one("[secrets]", &format!("[{{kms: {{apiVersion: v2, name: p, endpoint: '{endpoint}'}}}}]"));
        let configuration = parse(&format!("{HEAD}{text}")).unwrap();
        let Provider::Kms { socket, timeout, .. } = &configuration.rules[0].providers[0] else { panic!("a plugin") };
        assert_eq!(*timeout, KMS_TIMEOUT);
        socket.display().to_string()
    };
    assert_eq!(socket("unix:///var/run/kms.sock"), "/var/run/kms.sock");
    assert_eq!(socket("unix:///@kms"), "@kms");
    assert_eq!(socket("unix:/var/run/kms.sock"), "/var/run/kms.sock");
}

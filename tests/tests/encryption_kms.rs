//! Encryption with keys that a KMS v2 plugin keeps, against real servers and a real plugin that can be down, slow, lying or rotated.

#[path = "support/encryption.rs"]
#[allow(dead_code, reason = "the other suite needs the rest")]
mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use store::Store;
use support::*;
use testkit::Etcd;
use testkit::kms::{Fault, KmsPlugin};

#[test]
fn a_plugin_keeps_the_keys_and_its_troubles_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut plugin = KmsPlugin::start(&folder.path().join("kms.sock")).unwrap();
    let text = configuration(&[("secrets", &plugin_of(&plugin))]);
    let mut bed = Bed::start(&text, &["--encryption-provider-config=CONFIG"]);
    assert_eq!(bed.create(SECRETS, &secret("a")).code, 201);
    let all = bed.stored("/registry/secrets/default/a");
    assert!(all[0].1.starts_with(b"k8s:enc:kms:v2:plugin:"));
    assert_clear_of(bed.server.data_dir(), MARKER);
    assert_eq!(bed.get("/healthz/kms-providers").code, 200);
    assert_eq!(plugin.calls("Encrypt"), 1, "one seed, however many values");

    // After a restart the seed of before is decrypted once.
    bed.server.restart().unwrap();
    assert_eq!(bed.get(&format!("{SECRETS}/a")).code, 200);
    assert!(plugin.calls("Decrypt") >= 1);
    assert!(bed.metric("apiserver_envelope_encryption_kms_operations_latency_seconds_count", "Decrypt") >= 1.0);

    // A plugin that is away: what is known stays usable, and health says it.
    plugin.down();
    bed.until("health says it", || bed.get("/healthz/kms-providers").code == 500);
    let why = bed.get("/healthz/kms-providers").text();
    let expected = "internal server error: kms-provider-0: failed to perform status section of the healthz check for KMS Provider plugin, error: rpc error: code = DeadlineExceeded";
    assert!(why.contains(expected), "{why}");
    assert_eq!(bed.create(SECRETS, &secret("b")).code, 201);
    assert_eq!(bed.get(SECRETS).code, 200);

    // A start without it: its values cannot be read, everything else can.
    bed.server.restart().unwrap();
    let began = Instant::now();
    assert_eq!(bed.get(MAPS).code, 200);
    let reply = bed.get(&format!("{SECRETS}/a"));
    assert_eq!(reply.code, 500, "{}", reply.text());
    assert!(reply.text().contains("got unexpected nil transformer"), "{}", reply.text());
    let reply = bed.create(SECRETS, &secret("c"));
    assert_eq!(reply.code, 500, "{}", reply.text());
    assert!(began.elapsed() < Duration::from_secs(3), "nobody waits for it: {:?}", began.elapsed());
    plugin.up().unwrap();
    bed.until("it is back", || bed.get(&format!("{SECRETS}/a")).code == 200);
    assert_eq!(bed.create(SECRETS, &secret("c")).code, 201);
}

#[test]
fn a_plugin_that_lies_or_is_slow_is_not_believed_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = KmsPlugin::start(&folder.path().join("kms.sock")).unwrap();
    let text = configuration(&[("secrets", &plugin_of(&plugin))]);
    let mut bed = Bed::start(&text, &["--encryption-provider-config=CONFIG"]);
    assert_eq!(bed.create(SECRETS, &secret("a")).code, 201);
    let path = format!("{SECRETS}/a");
    for (fault, expected) in [
        (Fault::Lies, "cipher: message authentication failed"),
        (Fault::Refuses, "failed to decrypt DEK, error: rpc error: code = PermissionDenied desc = not for you"),
        (Fault::Slow(Duration::from_secs(20)), "got unexpected nil transformer"),
        (Fault::OtherKey, "got unexpected nil transformer"),
        (Fault::NoKey, "got unexpected nil transformer"),
    ] {
        plugin.set(fault.clone());
        bed.server.restart().unwrap();
        let reply = bed.get(&path);
        assert_eq!(reply.code, 500, "{fault:?}: {}", reply.text());
        assert!(reply.text().contains(expected), "{fault:?}: {}", reply.text());
        let began = Instant::now();
        assert_eq!(bed.get(MAPS).code, 200);
        assert!(began.elapsed() < Duration::from_millis(500), "{fault:?}: {:?}", began.elapsed());
        if fault == Fault::OtherKey {
            assert!(bed.get("/healthz/kms-providers").text().contains("failed to rotate DEK"));
        }
    }
    let name = "apiserver_envelope_encryption_invalid_key_id_from_status_total";
    assert!(bed.metric(name, "error=\"empty\"") >= 1.0);
    plugin.set(Fault::None);
    bed.server.restart().unwrap();
    assert_eq!(bed.get(&path).code, 200);
    assert!(!bed.get("/metrics").text().contains("key-1"), "ids of keys are shown as hashes");
    assert!(!bed.log().contains("key-1"), "{}", bed.log());
}

#[test]
fn a_plugins_new_key_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = KmsPlugin::start(&folder.path().join("kms.sock")).unwrap();
    let bed = Bed::start(&configuration(&[("secrets", &plugin_of(&plugin))]), &["--encryption-provider-config=CONFIG"]);
    assert_eq!(bed.create(SECRETS, &secret("a")).code, 201);
    plugin.rotate("key-2");
    bed.until("the new key is noticed", || {
        assert_eq!(bed.get("/healthz/kms-providers").code, 200);
        plugin.calls("Encrypt") == 2
    });
    let found = bed.get(&format!("{SECRETS}/a"));
    let replaced = bed.runtime.block_on(bed.client().put(&format!("{SECRETS}/a"), &found.json())).unwrap();
    assert_ne!(replaced.json()["metadata"]["resourceVersion"], found.json()["metadata"]["resourceVersion"]);
    let stored = bed.stored("/registry/secrets/default/a").remove(0).1;
    assert!(stored.windows(5).any(|window| window == b"key-2"), "the id of the new key stands beside the value");
}

#[test]
fn two_servers_on_one_etcd_read_each_others_values() {
    let Some(etcd) = Etcd::start().unwrap() else { panic!("there is an etcd: run `make tools`") };
    let folder = tempfile::tempdir().unwrap();
    let plugin = KmsPlugin::start(&folder.path().join("kms.sock")).unwrap();
    let text =
        configuration(&[("secrets", &plugin_of(&plugin)), ("configmaps", &format!("{{aesgcm: {{keys: [{KEY_1}]}}}}"))]);
    let flags = ["--encryption-provider-config=CONFIG", &format!("--etcd-servers={}", etcd.endpoint)];
    let one = Bed::start(&text, &flags);
    let token = std::fs::read_to_string(one.server.data_dir().join("server/token")).unwrap();
    let join = [flags[0], flags[1], &format!("--token={}", token.trim()), &format!("--server={}", one.server.url)];
    let two = Bed::start(&text, &join);
    assert_eq!(one.create(SECRETS, &secret("a")).code, 201);
    assert_eq!(two.create(SECRETS, &secret("b")).code, 201);
    let map = json!({"metadata": {"name": "m", "annotations": {"marker": MARKER}}});
    assert_eq!(one.create(MAPS, &map).code, 201);
    for bed in [&one, &two] {
        for path in [format!("{SECRETS}/a"), format!("{SECRETS}/b"), format!("{MAPS}/m")] {
            bed.until("both see it", || bed.get(&path).code == 200);
        }
    }
    let config = store::etcd::Config { endpoints: vec![etcd.endpoint.clone()], ..Default::default() };
    let raw = one.runtime.block_on(async {
        let store = store::etcd::EtcdStore::connect(config).await.unwrap();
        let secret = store.get("/registry/secrets/default/a").await.unwrap().unwrap().value;
        (secret, store.get("/registry/configmaps/default/m").await.unwrap().unwrap().value)
    });
    assert!(raw.0.starts_with(b"k8s:enc:kms:v2:plugin:") && raw.1.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
    let output = one.knarr(&["secrets-encrypt", "enable"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--encryption-provider-config"), "{output:?}");
}

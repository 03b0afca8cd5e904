//! Encryption of what is stored, against real servers: every provider with keys in the file, keys that are rotated under load, files that
//! change and files that are wrong, encryption by one command, and what is left on the disk. `encryption_kms` has plugins.

#[path = "support/encryption.rs"]
#[allow(dead_code, reason = "the other suite needs the rest")]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use support::*;
use testkit::client::Reply;

#[test]
fn every_provider_encrypts_and_is_read_again_after_a_restart() {
    let (cbc, gcm, boxed) = (
        format!("{{aescbc: {{keys: [{KEY_1}]}}}}"),
        format!("{{aesgcm: {{keys: [{KEY_1}]}}}}"),
        format!("{{secretbox: {{keys: [{KEY_1}]}}}}"),
    );
    let text = configuration(&[
        ("secrets", &format!("{cbc}, {{identity: {{}}}}")),
        ("configmaps", &gcm),
        ("namespaces", "{identity: {}}"),
        ("'*.apps'", &boxed),
    ]);
    let mut bed = Bed::start(&text, &["--encryption-provider-config=CONFIG"]);
    let map = json!({"metadata": {"name": "m", "annotations": {"marker": MARKER}}, "data": {"a": "b"}});
    let deployment = json!({
        "metadata": {"name": "d", "annotations": {"marker": MARKER}},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    for (path, object) in [(SECRETS, &secret("s")), (MAPS, &map), (DEPLOYMENTS, &deployment)] {
        assert_eq!(bed.create(path, object).code, 201);
    }
    let all = bed.stored("/registry/");
    let value = |key: &str| &all.iter().find(|(found, _)| found == key).expect(key).1;
    for (key, prefix) in [
        ("/registry/secrets/default/s", "k8s:enc:aescbc:v1:key1:"),
        ("/registry/configmaps/default/m", "k8s:enc:aesgcm:v1:key1:"),
        ("/registry/deployments/default/d", "k8s:enc:secretbox:v1:key1:"),
        ("/registry/namespaces/default", "{"),
    ] {
        assert!(value(key).starts_with(prefix.as_bytes()), "{key}");
    }
    assert_clear_of(bed.server.data_dir(), MARKER);
    bed.server.restart().unwrap();
    for path in [format!("{SECRETS}/s"), format!("{MAPS}/m"), format!("{DEPLOYMENTS}/d")] {
        let reply = bed.get(&path);
        assert_eq!((reply.code, &reply.json()["metadata"]["annotations"]["marker"]), (200, &json!(MARKER)), "{path}");
    }
    assert!(
        bed.metric("apiserver_storage_transformation_operations_total", "resource=\"secrets\",status=\"OK\"") > 0.0
    );
    for page in ["/metrics", "/flagz", "/configz"] {
        assert!(!bed.get(page).text().contains("MDEyMzQ1Njc4"), "{page}");
    }
    assert!(bed.get("/flagz").text().contains(&format!("encryption-provider-config={}", config_in(bed.folder.path()))));
    assert_clear_of(bed.server.data_dir(), "MDEyMzQ1Njc4");
}

#[test]
fn keys_are_rotated_under_load_and_no_request_fails() {
    let config = |keys: &str| configuration(&[("secrets", &format!("{{aesgcm: {{keys: [{keys}]}}}}"))]);
    let bed = Bed::start(
        &config(KEY_1),
        &["--encryption-provider-config=CONFIG", "--encryption-provider-config-automatic-reload=true"],
    );
    for number in 0..20 {
        assert_eq!(bed.create(SECRETS, &secret(&format!("s-{number}"))).code, 201);
    }
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..4)
        .map(|worker| {
            let (client, stop, done) = (bed.client(), stop.clone(), done.clone());
            bed.runtime.spawn(async move {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("load-{worker}-{number}");
                    let path = format!("{SECRETS}/{name}");
                    assert_eq!(client.post(SECRETS, &secret(&name)).await.unwrap().code, 201);
                    let found = client.get(&path).await.unwrap();
                    assert_eq!(found.code, 200, "{}", found.text());
                    assert_eq!(client.put(&path, &found.json()).await.unwrap().code, 200);
                    assert_eq!(client.get(&format!("{SECRETS}?limit=5")).await.unwrap().code, 200);
                    assert_eq!(client.delete(&path).await.unwrap().code, 200);
                    number += 1;
                    done.fetch_add(5, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let reloads = |count: f64| {
        let name = "apiserver_encryption_config_controller_automatic_reloads_total";
        bed.until("the file is reloaded", || bed.metric(name, "status=\"success\"") == count);
    };
    for (number, keys) in [format!("{KEY_1}, {KEY_2}"), format!("{KEY_2}, {KEY_1}")].iter().enumerate() {
        write(&bed.config(), &config(keys));
        reloads((number + 1) as f64);
    }
    // As upstream's documentation has it: everything is written as it is.
    for number in 0..20 {
        let path = format!("{SECRETS}/s-{number}");
        let found = bed.get(&path);
        let replaced = bed.runtime.block_on(bed.client().put(&path, &found.json())).unwrap();
        assert_eq!(replaced.code, 200);
        let revisions = [&found, &replaced].map(|reply| reply.json()["metadata"]["resourceVersion"].clone());
        assert_ne!(revisions[0], revisions[1], "a value of an older key is written again");
    }
    bed.until("nothing is left of the old key", || {
        let stored = bed.stored("/registry/secrets/");
        stored.iter().all(|(key, value)| {
            let fresh = value.starts_with(b"k8s:enc:aesgcm:v1:key2:");
            if !fresh {
                let name = key.rsplit_once('/').unwrap();
                let path = key.replace("/registry/secrets/", "/api/v1/namespaces/").replace(name.1, "secrets/");
                let path = format!("{path}{}", name.1);
                let found = bed.get(&path);
                bed.runtime.block_on(bed.client().put(&path, &found.json())).unwrap();
            }
            fresh
        })
    });
    write(&bed.config(), &config(KEY_2));
    reloads(3.0);
    std::thread::sleep(Duration::from_secs(1));
    stop.store(true, Ordering::Relaxed);
    for worker in load {
        bed.runtime.block_on(worker).expect("no request failed");
    }
    assert!(done.load(Ordering::Relaxed) > 100, "{done:?}");
    assert_eq!(bed.get(SECRETS).code, 200);
    // What is already as it would be written is not written again.
    let found = bed.get(&format!("{SECRETS}/s-1"));
    let replaced = bed.runtime.block_on(bed.client().put(&format!("{SECRETS}/s-1"), &found.json())).unwrap();
    assert_eq!(replaced.json()["metadata"]["resourceVersion"], found.json()["metadata"]["resourceVersion"]);
}

#[test]
fn a_wrong_file_is_refused_with_line_and_field_and_a_wrong_change_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let run = |text: &str, flags: &[&str]| {
        write(&path, text);
        let output = Command::new("timeout")
            .args(["60", &testkit::server::binary().unwrap().display().to_string(), "server", "--config=/dev/null"])
            .args(["--disable-agent", "--bind-address=127.0.0.1", "--https-port=0", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(flags)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("MDEyMzQ1"), "{said}");
        said
    };
    let flag = format!("--encryption-provider-config={}", path.display());
    let wrong = configuration(&[("secrets", "{aescbc: {keys: [{name: key1, secret: MDEyMzQ1}]}}")]);
    let said = run(&wrong, &[&flag]);
    let expected = "line 5: resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 6, expected one of [16 24 32]";
    assert!(said.contains(expected), "{said}");
    let said = run(&wrong, &["--encryption-provider-config-automatic-reload=true"]);
    let expected = "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config";
    assert!(said.contains(expected), "{said}");

    let good = configuration(&[("secrets", &format!("{{aesgcm: {{keys: [{KEY_1}]}}}}"))]);
    let bed =
        Bed::start(&good, &["--encryption-provider-config=CONFIG", "--encryption-provider-config-automatic-reload"]);
    assert_eq!(bed.create(SECRETS, &secret("a")).code, 201);
    write(&bed.config(), &wrong);
    let name = "apiserver_encryption_config_controller_automatic_reloads_total";
    bed.until("the change is refused", || bed.metric(name, "status=\"failure\"") >= 1.0);
    assert_eq!(bed.get(&format!("{SECRETS}/a")).code, 200);
    assert_eq!(bed.create(SECRETS, &secret("b")).code, 201);
    let ready = bed.get("/readyz?verbose").text();
    assert!(ready.contains("[+]encryption-provider-config ok: the changed file is refused"), "{ready}");
    assert!(ready.contains("[+]kms-providers ok"), "{ready}");
    assert!(!bed.get("/livez?verbose").text().contains("kms-providers"));
    assert!(bed.log().contains("cannot reload encryption configuration; keeping the old one"), "{}", bed.log());
    write(&bed.config(), &good.replace("key1", "key3"));
    bed.until("the next change is taken", || bed.metric(name, "status=\"success\"") >= 1.0);
    assert!(!bed.get("/readyz?verbose").text().contains("refused"));
}

#[test]
fn what_cannot_be_decrypted_fails_alone_and_is_back_with_its_key() {
    let config = |keys: &str| configuration(&[("secrets", &format!("{{aesgcm: {{keys: [{keys}]}}}}"))]);
    let flags = ["--encryption-provider-config=CONFIG", "--encryption-provider-config-automatic-reload=true"];
    let mut bed = Bed::start(&config(KEY_1), &flags);
    assert_eq!(bed.create(SECRETS, &secret("a")).code, 201);
    let namespace = json!({"metadata": {"name": "other"}});
    assert_eq!(bed.create("/api/v1/namespaces", &namespace).code, 201);
    write(&bed.config(), &config(KEY_2));
    bed.server.restart().unwrap();
    let message = |reply: Reply| (reply.code, reply.json()["message"].as_str().unwrap_or_default().to_owned());
    let why = "no matching key was found for the provided AES transformer";
    let path = format!("{SECRETS}/a");
    assert_eq!(message(bed.get(&path)), (500, format!("Internal error occurred: {why}")));
    let listed = format!("Internal error occurred: unable to transform key \"/registry/secrets/default/a\": {why}");
    assert_eq!(message(bed.get(SECRETS)), (500, listed.clone()));
    assert_eq!(message(bed.get(&format!("{SECRETS}?watch=true"))), (500, listed));
    let deleted = bed.runtime.block_on(bed.client().delete(&path)).unwrap();
    assert_eq!(message(deleted), (500, format!("Internal error occurred: {why}")));
    let put = bed.runtime.block_on(bed.client().put(&path, &secret("a"))).unwrap();
    assert_eq!(message(put).0, 500);
    assert_eq!(bed.create(SECRETS, &secret("a")).code, 409);
    // Everything else goes on.
    assert_eq!(bed.get(MAPS).code, 200);
    assert_eq!(bed.create("/api/v1/namespaces/other/secrets", &secret("c")).code, 201);
    assert_eq!(bed.get("/api/v1/namespaces/other/secrets").code, 200);
    let failed = "resource=\"secrets\",status=\"unknown-non-grpc\",transformation_type=\"from_storage\"";
    assert!(bed.metric("apiserver_storage_transformation_operations_total", failed) > 0.0);
    write(&bed.config(), &config(&format!("{KEY_2}, {KEY_1}")));
    bed.until("the value is back", || bed.get(&path).code == 200);
    assert_eq!(bed.get(SECRETS).code, 200);
}

#[test]
fn one_command_encrypts_everything_and_leaves_no_plaintext_behind() {
    let mut bed = Bed::start("", &[]);
    for number in 0..50 {
        assert_eq!(bed.create(SECRETS, &secret(&format!("s-{number}"))).code, 201);
    }
    assert_eq!(bed.encrypt(&["status"]), "Secrets are encrypted: no\n");
    let output = bed.knarr(&["secrets-encrypt", "rotate"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("encryption is not enabled"), "{output:?}");
    let said = bed.encrypt(&["enable"]);
    assert!(said.contains("Secrets are encrypted: yes") && said.contains("no older value is left on disk"), "{said}");
    assert_clear_of(bed.server.data_dir(), MARKER);
    assert!(bed.stored("/registry/secrets/").iter().all(|(_, value)| value.starts_with(b"k8s:enc:secretbox:v1:key-")));
    assert_eq!(bed.create(SECRETS, &secret("after")).code, 201);
    assert_clear_of(bed.server.data_dir(), MARKER);
    let output = bed.knarr(&["secrets-encrypt", "enable"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("encryption is enabled already"), "{output:?}");
    bed.server.restart().unwrap();
    assert_eq!(bed.get(SECRETS).json()["items"].as_array().unwrap().len(), 51);

    let before = bed.encrypt(&["status"]);
    let said = bed.encrypt(&["rotate"]);
    let key = |text: &str| text.lines().find_map(|line| line.strip_prefix("Key: ").map(str::to_owned)).unwrap();
    assert_ne!(key(&before), key(&said));
    let prefix = format!("k8s:enc:secretbox:v1:{}:", key(&said));
    assert!(bed.stored("/registry/secrets/").iter().all(|(_, value)| value.starts_with(prefix.as_bytes())));
    assert_eq!(bed.get(&format!("{SECRETS}/s-7")).json()["data"]["password"], "cy03");
    let folder = bed.server.data_dir().join("store");
    assert_clear_of(&folder, &key(&before));
}

#[test]
fn a_rotation_that_is_killed_goes_on_after_the_next_start() {
    const COUNT: usize = 400;
    let mut bed = Bed::start("", &[]);
    for number in 0..COUNT {
        assert_eq!(bed.create(SECRETS, &secret(&format!("s-{number}"))).code, 201);
    }
    let mut interrupted = 0;
    for (round, what) in ["enable", "rotate", "rotate", "rotate"].into_iter().enumerate() {
        bed.encrypt(&[what, "--no-wait"]);
        std::thread::sleep(Duration::from_millis(15 * round as u64));
        bed.server.kill().unwrap();
        let unfinished = bed.server.data_dir().join("tls/encryption-config.unfinished").exists();
        interrupted += usize::from(unfinished);
        bed.server.restart().unwrap();
        bed.until("it is done", || bed.encrypt(&["status"]).contains("no older value is left on disk"));
        let found = bed.get(&format!("{SECRETS}?limit=1000")).json();
        assert_eq!(found["items"].as_array().unwrap().len(), COUNT);
        let said = bed.encrypt(&["status"]);
        assert!(!said.contains("Old key"), "{said}");
        let key = said.lines().find_map(|line| line.strip_prefix("Key: ")).unwrap();
        let prefix = format!("k8s:enc:secretbox:v1:{key}:");
        let stored = bed.stored("/registry/secrets/default/");
        assert!(stored.iter().all(|(_, value)| value.starts_with(prefix.as_bytes())), "round {round}");
        assert_clear_of(bed.server.data_dir(), MARKER);
    }
    assert!(interrupted > 0, "no round was killed in the middle: this test says nothing");
}

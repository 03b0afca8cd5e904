//! TLS: certificates by name, with real curl.

use std::process::Command;

use serde_json::json;

use crate::backend::Backend;
use crate::world::{PATIENCE, World, certificate, rule};

/// What curl says of a host: the version, the code and who issued the certificate's name; believing only this certificate.
fn curl(world: &World, host: &str, authority: Option<&std::path::Path>, more: &[&str]) -> Result<String, String> {
    let port = world.https.port();
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "-w", "%{http_version} %{http_code}", "-o", "/dev/null"]);
    command.args(["--connect-to", &format!("{host}:443:127.0.0.1:{port}")]).args(more);
    match authority {
        Some(path) => command.arg("--cacert").arg(path),
        None => command.arg("-k"),
    };
    let output = command.arg(format!("https://{host}/")).output().expect("curl runs");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

async fn until(world: &World, host: &str, authority: &std::path::Path) -> String {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let answer = curl(world, host, Some(authority), &[]);
        match answer {
            // Its certificate may be known a moment before its endpoints are.
            Ok(text) if !text.ends_with("503") => return text,
            answer => assert!(std::time::Instant::now() < deadline, "{host}: {answer:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_found_by_name_and_replaced_while_running() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.service("s", &[&backend]);
    let folder = tempfile::tempdir().expect("a folder");
    let save = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let (exact, exact_key) = certificate(&["a.test"]);
    let (wild, wild_key) = certificate(&["*.b.test"]);
    world.secret("exact", &exact, &exact_key);
    world.secret("wild", &wild, &wild_key);
    let rules = json!([rule("a.test", "/", "s"), rule("*.b.test", "/", "s"), rule("bare.test", "/", "s")]);
    let tls = json!([
        {"hosts": ["a.test"], "secretName": "exact"},
        {"hosts": ["*.b.test"], "secretName": "wild"},
        {"hosts": ["bare.test"], "secretName": "missing"},
    ]);
    world.ingress("i", json!({}), json!({"rules": rules, "tls": tls}));
    let (exact, wild) = (save("exact", &exact), save("wild", &wild));
    assert_eq!(until(&world, "a.test", &exact).await, "2 200");
    assert_eq!(until(&world, "x.b.test", &wild).await, "2 200");
    assert_eq!(curl(&world, "a.test", Some(&exact), &["--http1.1"]).expect("an answer"), "1.1 200");
    assert_eq!(curl(&world, "a.test", Some(&exact), &["--tls-max", "1.2"]).expect("an answer"), "2 200");
    assert!(curl(&world, "a.test", Some(&wild), &[]).is_err(), "each host has its own certificate");
    // Hosts without a certificate get one that nobody signed, and are served all the same.
    assert!(curl(&world, "bare.test", Some(&exact), &[]).is_err());
    assert_eq!(curl(&world, "bare.test", None, &[]).expect("an answer"), "2 200");
    assert_eq!(curl(&world, "unknown.test", None, &[]).expect("an answer"), "2 404");
    // The backend learns that there was TLS.
    let said = Command::new("curl")
        .args(["-sSk", "--max-time", "20", "--connect-to", &format!("a.test:443:{}", world.https), "https://a.test/"])
        .output()
        .expect("curl runs");
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("words of a backend");
    assert_eq!(said["headers"]["x-forwarded-proto"], "https");
    assert_eq!(said["headers"]["x-forwarded-port"], world.https.port().to_string());
    // A renewed certificate is there without a restart; one that cannot be read is as good as none.
    let (renewed, renewed_key) = certificate(&["a.test"]);
    world.secret("exact", &renewed, &renewed_key);
    let renewed = save("renewed", &renewed);
    until(&world, "a.test", &renewed).await;
    assert!(curl(&world, "a.test", Some(&exact), &[]).is_err(), "the old one is gone");
    world.secret("exact", "no certificate", &renewed_key);
    let deadline = std::time::Instant::now() + PATIENCE;
    while curl(&world, "a.test", Some(&renewed), &[]).is_ok() {
        assert!(std::time::Instant::now() < deadline, "the broken secret is not noticed");
    }
    assert_eq!(curl(&world, "a.test", None, &[]).expect("an answer"), "2 200");
}

//! Single sign-on at a published provider of OpenID Connect (npm's oidc-provider), with kubectl and `knarr oidc-login` as its
//! exec plugin: in a browser, on another device, with tokens that are kept, refreshed, expired, of another client or another
//! issuer, and with keys that the provider changes.

#[path = "support/published_provider.rs"]
mod published_provider;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use published_provider::{Provider, missing};
use serde_json::{Value, json};
use testkit::{Kubectl, Server};

const PATIENCE: Duration = Duration::from_secs(60);

struct Bed {
    provider: Provider,
    server: Server,
    folder: tempfile::TempDir,
}

/// What a program that signs in said in the end.
struct Said {
    success: bool,
    output: String,
    errors: String,
}

impl Bed {
    fn start() -> Bed {
        let provider = Provider::start();
        let flags = [
            format!("oidc-issuer-url={}", provider.issuer),
            "oidc-client-id=kubernetes".into(),
            format!("oidc-ca-file={}", provider.authority().display()),
            "oidc-username-prefix=sso:".into(),
            "oidc-groups-claim=groups".into(),
            "oidc-groups-prefix=sso:".into(),
        ];
        let flags: Vec<String> = flags.iter().map(|flag| format!("--kube-apiserver-arg={flag}")).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::start_api(&flags).expect("starts");
        Bed { provider, server, folder: tempfile::tempdir().unwrap() }
    }

    /// The plugin's arguments; tokens are kept in a folder of that name.
    fn plugin(&self, provider: &Provider, client: &str, kept: &str, more: &[&str]) -> Vec<String> {
        let kept = self.folder.path().join(kept);
        let mut arguments = vec![
            "oidc-login".to_owned(),
            format!("--issuer-url={}", provider.issuer),
            format!("--client-id={client}"),
            "--scope=groups".into(),
            format!("--certificate-authority={}", provider.authority().display()),
            format!("--cache-dir={}", kept.display()),
            "--no-browser".into(),
        ];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        arguments
    }

    /// A new token of a client of a provider: somebody signs in on another device.
    fn token(&self, provider: &Provider, client: &str, kept: &str) -> String {
        let mut command = Command::new(testkit::server::binary().unwrap());
        command.args(self.plugin(provider, client, kept, &["--device"]));
        let said = signing_in(provider, command, "ada");
        assert!(said.success, "{}", said.errors);
        let credential: Value = serde_json::from_str(&said.output).unwrap();
        assert_eq!(credential["kind"], "ExecCredential");
        assert!(credential["status"]["expirationTimestamp"].is_string(), "{credential}");
        credential["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Who the server takes the bearer for, as `kubectl --token` says it.
    fn who(&self, token: &str) -> Result<Value, String> {
        let path = self.kubeconfig("nobody", json!({}));
        let output = kubectl(&path).run(&["--token", token, "auth", "whoami", "-o", "json"]).unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(serde_json::from_slice::<Value>(&output.stdout).unwrap()["status"]["userInfo"].clone())
    }

    fn kubeconfig(&self, name: &str, user: Value) -> PathBuf {
        let authority = self.server.data_dir().join("tls/ca.crt");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": self.server.url, "certificate-authority": authority}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        let path = self.folder.path().join(name);
        std::fs::write(&path, text.to_string()).unwrap();
        path
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

fn kubectl(kubeconfig: &Path) -> Kubectl {
    let program = testkit::kubectl::programs().pop().expect("there is a kubectl: run `make tools`");
    Kubectl::new(&program, kubeconfig)
}

/// Runs a program, and signs somebody in at the page that it names, should it name one.
fn signing_in(provider: &Provider, mut command: Command, login: &str) -> Said {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(page) = line.strip_prefix("Sign in at ").and_then(|rest| rest.split(' ').next()) {
            provider.sign_in(page, login);
        }
        errors.push_str(&line);
        errors.push('\n');
    }
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    Said { success: child.wait().unwrap().success(), output, errors }
}

fn is_skipped() -> bool {
    let missing = missing();
    if let Some(missing) = &missing {
        eprintln!("nobody signs in at a published provider: {missing}");
    }
    missing.is_some()
}

#[test]
fn kubectl_signs_in_through_our_plugin() {
    if is_skipped() {
        return;
    }
    let bed = Bed::start();
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": testkit::server::binary().unwrap(), "args": bed.plugin(&bed.provider, "kubernetes", "kept", &[]),
    });
    let kubeconfig = bed.kubeconfig("ada", json!({"exec": exec}));
    // kubectl as upstream builds it, and ours.
    let own = bed.folder.path().join("kubectl");
    std::os::unix::fs::symlink(testkit::server::binary().unwrap(), &own).unwrap();
    let programs = [kubectl(&kubeconfig), Kubectl::new(&own, &kubeconfig)];
    let whoami = |kubectl: &Kubectl| {
        let said = signing_in(&bed.provider, kubectl.command(&["auth", "whoami", "-o", "json"]), "ada");
        let who = serde_json::from_str::<Value>(&said.output).unwrap_or_default();
        (said.errors.contains("Sign in at"), who["status"]["userInfo"].clone(), said.errors)
    };
    let (signed_in, _, _) = whoami(&programs[0]);
    assert!(signed_in, "the first call has no token");
    // The server may be asking the provider for its keys still.
    bed.until("the server knows the provider", || whoami(&programs[0]).1["username"] == "sso:ada");
    for kubectl in &programs {
        let (signed_in, who, errors) = whoami(kubectl);
        assert!(!signed_in, "the token is kept: {errors}");
        assert_eq!(who["username"], "sso:ada", "{errors}");
        assert_eq!(who["groups"], json!(["sso:adas", "sso:staff", "system:authenticated"]));
    }

    // A token near its end is refreshed; nobody signs in again.
    let kept = || {
        let file = std::fs::read_dir(bed.folder.path().join("kept")).unwrap().next().unwrap().unwrap().path();
        serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap()["id_token"].clone()
    };
    bed.provider.order("ttl 30");
    std::fs::remove_dir_all(bed.folder.path().join("kept")).unwrap();
    assert!(whoami(&programs[0]).0, "nothing is kept");
    let first = kept();
    std::thread::sleep(Duration::from_millis(1100));
    let (signed_in, who, errors) = whoami(&programs[0]);
    assert_eq!((signed_in, &who["username"]), (false, &json!("sso:ada")), "{errors}");
    assert_ne!(kept(), first, "thirty seconds are too few to be kept");
    let secret = first.as_str().unwrap().rsplit('.').next().unwrap().to_owned();
    let log = std::fs::read_to_string(bed.server.data_dir().join("log")).unwrap();
    assert!(!log.contains(&secret), "a token is in the log");
}

#[test]
fn tokens_that_are_not_for_this_cluster_are_refused() {
    if is_skipped() {
        return;
    }
    let bed = Bed::start();
    let good = bed.token(&bed.provider, "kubernetes", "kept");
    bed.until("the server knows the provider", || bed.who(&good).is_ok());
    let who = bed.who(&good).unwrap();
    assert_eq!((&who["username"], &who["groups"][1]), (&json!("sso:ada"), &json!("sso:staff")));
    let refused = |token: &str, why: &str| {
        let said = bed.who(token).expect_err(why);
        assert!(said.contains("Unauthorized") || said.contains("logged in"), "{why}: {said}");
    };
    refused(&bed.token(&bed.provider, "elsewhere", "elsewhere"), "it is for another client");
    let other = Provider::start();
    refused(&bed.token(&other, "kubernetes", "other"), "nobody believes that issuer");
    let mut changed = good.clone();
    changed.replace_range(changed.len() - 4.., if good.ends_with("AAAA") { "BBBB" } else { "AAAA" });
    refused(&changed, "its signature is another");
    bed.provider.order("ttl 3");
    let short = bed.token(&bed.provider, "kubernetes", "short");
    std::thread::sleep(Duration::from_secs(4));
    refused(&short, "it has expired");
    assert!(bed.who(&good).is_ok());
}

#[test]
fn changed_keys_are_followed_and_old_ones_end() {
    if is_skipped() {
        return;
    }
    let bed = Bed::start();
    let first = bed.token(&bed.provider, "kubernetes", "first");
    bed.until("the server knows the provider", || bed.who(&first).is_ok());
    let key = bed.provider.order("rotate");
    let second = bed.token(&bed.provider, "kubernetes", "second");
    assert_eq!(published_provider::key_of(&second), key, "the provider signs with the new key");
    assert_ne!(published_provider::key_of(&first), key);
    assert!(bed.who(&second).is_ok(), "the new key is fetched when a token names it");
    assert!(bed.who(&first).is_ok(), "the old one is published still");

    bed.provider.order("rotate");
    bed.provider.order("forget");
    let third = bed.token(&bed.provider, "kubernetes", "third");
    assert!(bed.who(&third).is_ok());
    // Who was believed a moment ago is remembered for some seconds, as upstream does it.
    for (token, which) in [(&first, "first"), (&second, "second")] {
        bed.until(&format!("the {which} key is gone"), || bed.who(token).is_err());
    }
    assert!(bed.who(&third).is_ok());
}

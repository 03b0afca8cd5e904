//! Real programs as providers: what they are asked, how long an answer counts, and what becomes of those that misbehave.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::settings::V1;
use super::*;
use crate::fake_api::FakeApi;

fn provider(name: &str) -> Provider {
    Provider {
        name: name.to_owned(),
        match_images: vec!["*.example".to_owned()],
        default_cache_duration: Duration::ZERO,
        api_version: V1.to_owned(),
        args: vec!["get".to_owned()],
        env: vec![("FLAVOR".to_owned(), "sweet".to_owned())],
        token: None,
    }
}

/// A program that counts how often it is asked, keeps the last question, and answers this.
fn program(folder: &Path, name: &str, answer: &str) {
    let script = format!(
        "#!/bin/sh\ncd '{}'\necho x >> {name}.count\ncat > {name}.asked\necho \"$1 $FLAVOR\" > {name}.how\n{answer}\n",
        folder.display()
    );
    let path = folder.join(name);
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn response(cache_key: &str, duration: &str, password: &str) -> String {
    let answer = json!({
        "apiVersion": V1, "kind": "CredentialProviderResponse", "cacheKeyType": cache_key, "cacheDuration": duration,
        "auth": {"*.example": {"username": "u", "password": password}},
    });
    format!("printf '%s' '{answer}'")
}

fn asked(folder: &Path, name: &str) -> usize {
    std::fs::read_to_string(folder.join(format!("{name}.count"))).unwrap_or_default().lines().count()
}

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u1"},
        "spec": {"serviceAccountName": "builder", "containers": []},
    }))
    .unwrap()
}

fn providers(folder: &Path, all: Vec<Provider>, api: &FakeApi, clock: Clock) -> Providers {
    Providers::new(&Settings { bin_dir: folder.to_owned(), providers: all }, api.client(), clock)
}

async fn passwords(providers: &Providers, image: &str) -> Vec<String> {
    providers.credentials(&pod(), image).await.into_iter().map(|given| given.auth.password).collect()
}

#[tokio::test]
async fn a_program_is_asked_once_for_as_long_as_its_answer_counts() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = Arc::new(AtomicI64::new(0));
    let clock = {
        let seconds = seconds.clone();
        Clock::from_fn(move || Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds.load(Ordering::Relaxed)))
    };
    program(folder.path(), "by-registry", &response("Registry", "1m", "one"));
    let providers = providers(folder.path(), vec![provider("by-registry")], &FakeApi::new(), clock);
    assert_eq!(passwords(&providers, "r.example/a:1").await, ["one"]);
    assert_eq!(passwords(&providers, "r.example/b@sha256:0").await, ["one"]);
    assert_eq!(asked(folder.path(), "by-registry"), 1, "one registry, one question");
    let question = std::fs::read_to_string(folder.path().join("by-registry.asked")).unwrap();
    let question: Value = serde_json::from_str(&question).unwrap();
    assert_eq!(question, json!({"kind": "CredentialProviderRequest", "apiVersion": V1, "image": "r.example/a"}));
    assert_eq!(std::fs::read_to_string(folder.path().join("by-registry.how")).unwrap(), "get sweet\n");
    assert_eq!(passwords(&providers, "s.example/a").await, ["one"]);
    assert_eq!(asked(folder.path(), "by-registry"), 2, "another registry");
    assert_eq!(passwords(&providers, "elsewhere.test/a").await, [""; 0]);
    assert_eq!(asked(folder.path(), "by-registry"), 2, "an image that it is not for");
    seconds.store(61, Ordering::Relaxed);
    assert_eq!(passwords(&providers, "r.example/a:1").await, ["one"]);
    assert_eq!(asked(folder.path(), "by-registry"), 3, "the answer has expired");
}

#[tokio::test]
async fn programs_that_misbehave_cost_nobody_else_anything() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "fails", "echo no key >&2; exit 3");
    program(folder.path(), "lies", "echo '{}'");
    program(folder.path(), "good", &response("Image", "0s", "two"));
    let names = ["fails", "lies", "absent", "good"].map(provider).to_vec();
    let providers = providers(folder.path(), names, &FakeApi::new(), Clock::system());
    for _ in 0..2 {
        assert_eq!(passwords(&providers, "r.example/a").await, ["two"]);
    }
    assert_eq!(asked(folder.path(), "good"), 2, "an answer that counts for no time is asked for again");
    let failed = exec::run(
        folder.path(),
        &provider("fails"),
        Request { image: "r.example/a", token: "", annotations: &BTreeMap::new() },
    )
    .await;
    assert_eq!(
        failed.unwrap_err().to_string(),
        "error execing credential provider plugin fails for image r.example/a: exit status: 3: no key"
    );
}

#[tokio::test]
async fn a_program_hears_of_the_pods_account_if_it_wants_to() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "with-token", &response("Image", "1h", "three"));
    program(folder.path(), "returns-token", &response("Image", "1h", "token-1"));
    let wanting = |name: &str, key: &str| Provider {
        token: Some(TokenAttributes {
            audience: "r.example".into(),
            cache_type: CacheType::ServiceAccount,
            require_service_account: true,
            required_annotations: vec![key.to_owned()],
            optional_annotations: vec![],
        }),
        ..provider(name)
    };
    let api = FakeApi::new();
    let all = vec![wanting("with-token", "role"), wanting("returns-token", "role"), wanting("with-token", "missing")];
    let providers = providers(folder.path(), all, &api, Clock::system());
    assert_eq!(passwords(&providers, "r.example/a").await, [""; 0], "there is no such account");
    let account = json!({"metadata": {"name": "builder", "uid": "a1", "annotations": {"role": "reader"}}});
    api.set("/api/v1/namespaces/default/serviceaccounts/builder", account);
    let given = providers.credentials(&pod(), "r.example/a").await;
    assert_eq!(
        given.len(),
        1,
        "a program that gives the token away is refused, one whose annotation is missing is not asked"
    );
    assert_eq!(given[0].account.as_ref().map(|account| account.uid.as_str()), Some("a1"));
    let question: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("with-token.asked")).unwrap()).unwrap();
    assert_eq!(
        (&question["serviceAccountToken"], &question["serviceAccountAnnotations"]),
        (&json!("token-1"), &json!({"role": "reader"}))
    );
    assert_eq!(asked(folder.path(), "with-token"), 1);
    assert_eq!(passwords(&providers, "r.example/a").await, ["three"]);
    assert_eq!(asked(folder.path(), "with-token"), 1, "all pods of the account share the answer");
}

#[test]
fn settings_are_checked() {
    let check = |change: fn(&mut Provider), expected: &str| {
        let mut one = provider("a");
        change(&mut one);
        let settings = Settings { bin_dir: "/".into(), providers: vec![one] };
        assert_eq!(settings.check().map_or_else(|error| error.to_string(), |()| "good".into()), expected);
    };
    check(|_| (), "good");
    check(|one| one.name = "a/b".into(), "providers.name: Invalid value: \"a/b\": provider name cannot contain '/'");
    check(
        |one| one.match_images.clear(),
        "providers.matchImages: Required value: at least 1 item in matchImages is required",
    );
    check(
        |one| one.api_version = "v1".into(),
        "providers.apiVersion: Unsupported value: \"v1\": supported values: credentialprovider.kubelet.k8s.io/v1, credentialprovider.kubelet.k8s.io/v1alpha1, credentialprovider.kubelet.k8s.io/v1beta1",
    );
    let twice = Settings { bin_dir: "/".into(), providers: vec![provider("a"), provider("a")] };
    assert_eq!(twice.check(), Err(Invalid::Twice("a".into())));
    let token = |required: &[&str], optional: &[&str]| TokenAttributes {
        audience: "r.example".into(),
        cache_type: CacheType::ServiceAccount,
        require_service_account: true,
        required_annotations: required.iter().map(ToString::to_string).collect(),
        optional_annotations: optional.iter().map(ToString::to_string).collect(),
    };
    let both = Settings {
        bin_dir: "/".into(),
        providers: vec![Provider { token: Some(token(&["x"], &["x"])), ..provider("a") }],
    };
    assert_eq!(both.check(), Err(Invalid::Token("annotation keys cannot be both required and optional")));
    let all = BTreeMap::from([("x".to_owned(), "1".to_owned()), ("z".to_owned(), "3".to_owned())]);
    assert_eq!(token(&["x"], &["y", "z"]).annotations(&all).unwrap().len(), 2);
    assert_eq!(token(&["y"], &[]).annotations(&all), None, "a required one is missing");
}

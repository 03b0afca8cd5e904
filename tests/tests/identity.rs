//! Identities and permissions that come from elsewhere, against a real server: a provider of OpenID Connect with real keys,
//! webhooks for tokens and for permissions, files that change while the server runs, and files that are wrong.

#[path = "support/oidc.rs"]
mod oidc;
#[path = "support/webhook.rs"]
#[allow(dead_code, reason = "the answers of admission are not for reviews")]
mod webhook;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oidc::{Algorithm, Provider};
use serde_json::{Value, json};
use testkit::Server;
use testkit::client::{Client, Reply};
use webhook::{Answer, Webhook};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(120);

struct Bed {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl Bed {
    fn start(flags: &[String]) -> Bed {
        let flags: Vec<String> = flags.iter().map(|flag| format!("--kube-apiserver-arg={flag}")).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::start_api(&flags).expect("starts");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Bed { server, runtime }
    }

    fn bearer(&self, token: &str) -> Client {
        self.server.anonymous().unwrap().with_header("authorization", &format!("Bearer {token}"))
    }

    /// Who the server takes the bearer for.
    fn who(&self, token: &str) -> Result<Value, u16> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let reply = self.runtime.block_on(self.bearer(token).post(REVIEWS, &review)).unwrap();
        if reply.code == 201 { Ok(reply.json()["status"]["userInfo"].clone()) } else { Err(reply.code) }
    }

    fn get(&self, client: &Client, path: &str) -> Reply {
        self.runtime.block_on(client.get(path)).unwrap()
    }

    fn admin(&self) -> Client {
        self.server.client().unwrap()
    }

    /// The value of the first sample of that name with those labels.
    fn metric(&self, name: &str, labels: &str) -> f64 {
        let text = self.get(&self.admin(), "/metrics").text();
        let found = text.lines().find(|line| line.starts_with(name) && line.contains(labels));
        found.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.server.data_dir().join("log")).unwrap_or_default()
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}\n")).collect()
}

/// An AuthenticationConfiguration with these issuers, and nobody at health checks only.
fn authentication(providers: &[&Provider], username: &str) -> String {
    let issuer = |provider: &&Provider| {
        format!(
            "- issuer:\n    url: {}\n    audiences: [kubernetes, other]\n    audienceMatchPolicy: MatchAny\n    \
             certificateAuthority: |\n{}  claimMappings:\n    username:\n      expression: {username}\n    groups:\n      \
             expression: claims.?groups.orValue([])\n  claimValidationRules:\n  - expression: claims.hd == 'example.com'\n    \
             message: hd must be example.com\n  userValidationRules:\n  - expression: \"!user.username.startsWith('system:')\"\n    \
             message: no system users\n",
            provider.issuer(),
            indented(&provider.authority()),
        )
    };
    let issuers: String = providers.iter().map(issuer).collect();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n{issuers}anonymous:\n  enabled: true\n  \
         conditions:\n  - path: /livez\n"
    )
}

/// A kubeconfig that leads to a webhook.
fn kubeconfig(hook: &Webhook, path: &str) -> String {
    let cluster = json!({
        "server": format!("https://127.0.0.1:{}{path}", hook.port), "certificate-authority-data": hook.bundle,
    });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "of-the-server"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    })
    .to_string()
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn ada(provider: &Provider) -> String {
    provider.token(json!({"sub": "ada", "hd": "example.com", "groups": ["dev"], "jti": "one"}))
}

#[test]
fn people_sign_in_by_a_file_that_may_change() {
    let (first, second) = (Provider::start(), Provider::start());
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "authentication.yaml", &authentication(&[&first], "\"'sso:' + claims.sub\""));
    let bed = Bed::start(&[format!("authentication-config={}", file.display())]);
    bed.until("the provider answers", || bed.who(&ada(&first)).is_ok());

    let user = bed.who(&ada(&first)).unwrap();
    assert_eq!(user["username"], "sso:ada");
    assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/credential-id"], json!(["JTI=one"]));
    for algorithm in [Algorithm::Rs256, Algorithm::Ps512, Algorithm::Es384] {
        first.add_key(algorithm);
        assert_eq!(bed.who(&ada(&first)).map(|user| user["username"].clone()), Ok(json!("sso:ada")), "{algorithm:?}");
    }
    let refused = |claims: Value| assert_eq!(bed.who(&first.token(claims.clone())), Err(401), "{claims}");
    refused(json!({"sub": "ada", "hd": "other.com"}));
    refused(json!({"sub": "ada", "hd": "example.com", "aud": "elsewhere"}));
    refused(json!({"sub": "ada", "hd": "example.com", "exp": 1}));
    refused(json!({"hd": "example.com"}));
    assert_eq!(bed.who(&ada(&second)), Err(401), "nobody believes that issuer");
    let mut changed = ada(&first);
    changed.replace_range(changed.len() - 4.., "AAAA");
    assert_eq!(bed.who(&changed), Err(401));

    // Nobody may ask at one path, and nowhere else.
    let nobody = bed.server.anonymous().unwrap();
    let codes = ["/livez", "/livez/ping", "/version"].map(|path| bed.get(&nobody, path).code);
    assert_eq!(codes, [200, 401, 401]);

    // A wrong file changes nothing, and says so.
    std::fs::write(&file, authentication(&[&first], "claims.sub +")).unwrap();
    let reloads = "apiserver_authentication_config_controller_automatic_reloads_total";
    bed.until("the wrong file is refused", || bed.metric(reloads, "status=\"failure\"") >= 1.0);
    assert!(bed.log().contains("cannot reload authentication configuration"), "{}", bed.log());
    assert!(bed.who(&ada(&first)).is_ok());
    // A right one is taken over without a restart, for both issuers.
    std::fs::write(&file, authentication(&[&first, &second], "\"'new:' + claims.sub\"")).unwrap();
    bed.until("the new file is in use", || bed.metric(reloads, "status=\"success\"") >= 1.0);
    for provider in [&first, &second] {
        assert_eq!(bed.who(&ada(provider)).map(|user| user["username"].clone()), Ok(json!("new:ada")));
    }
    assert!(bed.metric("apiserver_authentication_jwt_authenticator_latency_seconds_count", "success") >= 1.0);
    no_secret_was_told(&bed, &[&ada(&first), "of-the-server"]);
}

/// Neither in the log nor in the metrics.
fn no_secret_was_told(bed: &Bed, secrets: &[&str]) {
    let told = [bed.log(), bed.get(&bed.admin(), "/metrics").text()];
    for secret in secrets {
        let signature = secret.rsplit('.').next().unwrap();
        assert!(told.iter().all(|text| !text.contains(signature)), "a secret was told");
    }
}

#[test]
fn keys_change_under_load_without_a_failed_request() {
    let provider = Arc::new(Provider::start());
    let folder = tempfile::tempdir().unwrap();
    let authority = write(folder.path(), "ca.pem", &provider.authority());
    let bed = Bed::start(&[
        format!("oidc-issuer-url={}", provider.issuer()),
        "oidc-client-id=kubernetes".into(),
        format!("oidc-ca-file={}", authority.display()),
        "oidc-username-prefix=oidc:".into(),
        "oidc-groups-claim=groups".into(),
        "oidc-signing-algs=ES256,RS256".into(),
        "oidc-required-claim=hd=example.com".into(),
    ]);
    bed.until("the provider answers", || bed.who(&ada(&provider)).is_ok());
    assert_eq!(bed.who(&ada(&provider)).unwrap()["username"], "oidc:ada");
    assert_eq!(bed.who(&provider.token(json!({"sub": "ada"}))), Err(401), "the claim is required");

    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let (provider, stop, asked) = (provider.clone(), stop.clone(), asked.clone());
            let anonymous = bed.server.anonymous().unwrap();
            bed.runtime.spawn(async move {
                let mut failed = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    // A new token each time, with whatever key the provider signs with at that moment.
                    let count = asked.fetch_add(1, Ordering::SeqCst);
                    let claims = json!({"sub": format!("u{number}-{count}"), "hd": "example.com"});
                    let client = anonymous.with_header("authorization", &format!("Bearer {}", provider.token(claims)));
                    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
                    match client.post(REVIEWS, &review).await {
                        Ok(reply) if reply.code == 201 => {}
                        other => failed.push(format!("{:?}", other.map(|reply| reply.text()))),
                    }
                }
                failed
            })
        })
        .collect();
    for _ in 0..5 {
        let before = asked.load(Ordering::SeqCst);
        provider.add_key(Algorithm::Es256);
        bed.until("requests go on", || asked.load(Ordering::SeqCst) > before + 20);
        provider.forget_old_keys();
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        let failed = bed.runtime.block_on(task).unwrap();
        assert!(failed.is_empty(), "{failed:?}");
    }
    assert!(provider.fetches() >= 5, "each change was seen");

    // A provider that hangs costs the bearers of unknown keys their time, and nobody else anything.
    provider.add_key(Algorithm::Es256);
    let (known, unknown) = {
        let known = ada(&provider);
        bed.who(&known).unwrap();
        provider.hang(true);
        provider.add_key(Algorithm::Es256);
        (known, ada(&provider))
    };
    let slow = bed.bearer(&unknown);
    let waiting = bed.runtime.spawn(async move { slow.get("/version").await.map(|reply| reply.code) });
    let began = Instant::now();
    assert!(bed.who(&known).is_ok());
    assert_eq!(bed.get(&bed.admin(), "/api/v1/namespaces").code, 200);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(bed.runtime.block_on(waiting).unwrap().unwrap(), 401);
}

#[test]
fn a_webhook_says_whose_tokens_are() {
    let hook = Webhook::start(|_, review| {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        let status = match token {
            "token-of-bob-0123456789" => json!({"authenticated": true, "user": {"username": "bob", "groups": ["ops"]}}),
            "slow-token-0123456789" => return Answer::Hang,
            _ => json!({"authenticated": false, "error": "who is that"}),
        };
        let version = &review["apiVersion"];
        Answer::Raw(200, json!({"kind": "TokenReview", "apiVersion": version, "status": status}).to_string().into())
    });
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "webhook.kubeconfig", &kubeconfig(&hook, "/tokens"));
    let bed = Bed::start(&[
        format!("authentication-token-webhook-config-file={}", file.display()),
        "authentication-token-webhook-version=v1".into(),
        "authentication-token-webhook-cache-ttl=1h".into(),
    ]);
    for _ in 0..3 {
        let user = bed.who("token-of-bob-0123456789").unwrap();
        assert_eq!((&user["username"], &user["groups"]), (&json!("bob"), &json!(["ops", "system:authenticated"])));
    }
    let asked = hook.asked();
    assert_eq!(asked.len(), 1, "its answer is remembered: {asked:?}");
    assert_eq!(asked[0].1["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(bed.who("nobody-0123456789"), Err(401));
    // Tokens of accounts go to nobody else.
    hook.asked();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    bed.until("the account is there", || bed.runtime.block_on(bed.admin().post(path, &request)).unwrap().code == 201);
    let issued = bed.runtime.block_on(bed.admin().post(path, &request)).unwrap().json();
    assert!(bed.who(issued["status"]["token"].as_str().unwrap()).is_ok());
    assert!(hook.asked().is_empty());
    // One that hangs keeps nobody else waiting.
    let slow = bed.bearer("slow-token-0123456789");
    let waiting = bed.runtime.spawn(async move { slow.get("/version").await.map(|reply| reply.code) });
    let began = Instant::now();
    assert!(bed.who("token-of-bob-0123456789").is_ok());
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(!waiting.is_finished(), "it waits for its own answer");
    no_secret_was_told(&bed, &["token-of-bob-0123456789", "of-the-server", "slow-token-0123456789"]);
}

/// An AuthorizationConfiguration whose first authorizer is a webhook about one namespace.
fn authorization(kubeconfig: &Path, policy: &str, namespace: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: guard\n  \
         webhook:\n    authorizedTTL: 1h\n    unauthorizedTTL: 1h\n    timeout: 2s\n    subjectAccessReviewVersion: v1\n    \
         matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: {policy}\n    connectionInfo:\n      \
         type: KubeConfigFile\n      kubeConfigFile: {}\n    matchConditions:\n    - expression: has(request.resourceAttributes)\n    \
         - expression: request.resourceAttributes.namespace == '{namespace}'\n- {{type: Node, name: node}}\n- {{type: RBAC, name: rbac}}\n",
        kubeconfig.display()
    )
}

#[test]
fn a_webhook_says_what_is_allowed_by_a_file_that_may_change() {
    let hangs = Arc::new(AtomicBool::new(false));
    let shared = hangs.clone();
    let hook = Webhook::start(move |_, review| {
        if shared.load(Ordering::SeqCst) {
            return Answer::Hang;
        }
        let status = match review["spec"]["user"].as_str().unwrap_or_default() {
            "eve" => json!({"allowed": true, "reason": "eve may"}),
            "mallory" => json!({"allowed": false, "denied": true, "reason": "never"}),
            _ => json!({"allowed": false}),
        };
        let version = &review["apiVersion"];
        Answer::Raw(
            200,
            json!({"kind": "SubjectAccessReview", "apiVersion": version, "status": status}).to_string().into(),
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let place = write(folder.path(), "webhook.kubeconfig", &kubeconfig(&hook, "/"));
    let file = write(folder.path(), "authorization.yaml", &authorization(&place, "Deny", "default"));
    let bed = Bed::start(&[format!("authorization-config={}", file.display())]);
    let of = |user: &str| bed.admin().with_header("impersonate-user", user);
    let code = |user: &str, path: &str| bed.get(&of(user), path).code;

    for _ in 0..3 {
        assert_eq!(code("eve", MAPS), 200);
    }
    // Controllers are asked about as well.
    let about_eve = || -> Vec<Value> {
        let asked = hook.asked().into_iter().map(|(_, review)| review);
        asked.filter(|review| review["spec"]["user"] == "eve").collect()
    };
    let asked = about_eve();
    assert_eq!(asked.len(), 1, "its answer is remembered: {asked:?}");
    assert_eq!(asked[0]["spec"]["resourceAttributes"]["resource"], "configmaps");
    let refused = bed.get(&of("mallory"), MAPS);
    assert_eq!(refused.code, 403);
    assert!(refused.text().contains("never"), "{}", refused.text());
    assert_eq!(code("bob", MAPS), 403, "no opinion, and no role");
    // What its conditions leave out goes to the roles alone.
    assert_eq!(code("eve", "/api/v1/namespaces/kube-system/configmaps"), 403);
    assert!(about_eve().is_empty());
    assert!(bed.metric("apiserver_authorization_decisions_total", "decision=\"denied\",name=\"guard\"") >= 1.0);

    // It hangs: its time is up after two seconds, and then it denies.
    hangs.store(true, Ordering::SeqCst);
    let began = Instant::now();
    assert_eq!(code("carol", MAPS), 500);
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(code("eve", MAPS), 200, "remembered");

    let reloads = "apiserver_authorization_config_controller_automatic_reloads_total";
    std::fs::write(
        &file,
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []\n",
    )
    .unwrap();
    bed.until("the wrong file is refused", || bed.metric(reloads, "status=\"failure\"") >= 1.0);
    assert!(bed.log().contains("at least one authorization mode must be defined"), "{}", bed.log());
    assert_eq!(code("eve", MAPS), 200, "the old one decides");
    std::fs::write(&file, authorization(&place, "NoOpinion", "kube-public")).unwrap();
    bed.until("the new file is in use", || bed.metric(reloads, "status=\"success\"") >= 1.0);
    assert_eq!(code("eve", MAPS), 403, "nobody speaks for eve there");
}

#[test]
fn files_that_are_wrong_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |flags: &[String], expected: &str| {
        let data = tempfile::tempdir().unwrap();
        let output = Command::new(testkit::server::binary().unwrap())
            .args(["server", "--config=/dev/null", "--disable-agent", "--bind-address=127.0.0.1", "--https-port=0"])
            .arg("--data-dir")
            .arg(data.path())
            .args(flags.iter().map(|flag| format!("--kube-apiserver-arg={flag}")))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{told}");
        assert!(told.contains(expected), "{told}");
    };
    let provider = Provider::start();
    let wrong = authentication(&[&provider], "claims.email");
    let file = write(folder.path(), "a.yaml", &wrong);
    refused(&[format!("authentication-config={}", file.display())], "claims.email_verified must be used");
    let file =
        write(folder.path(), "b.yaml", &wrong.replace("claims.email", "claims.sub").replace("audiences:", "audience:"));
    refused(&[format!("authentication-config={}", file.display())], "line 6: unknown field \"jwt[0].issuer.audience\"");
    let file = write(folder.path(), "c.yaml", &authorization(Path::new("/no/such"), "Deny", "default"));
    refused(
        &[format!("authorization-config={}", file.display())],
        "authorizers[0].connectionInfo.kubeConfigFile: Invalid value",
    );
    let file = write(folder.path(), "d.jsonl", "# policies\n{\"usr\": \"a\"}\n");
    let abac = ["authorization-mode=ABAC".to_owned(), format!("authorization-policy-file={}", file.display())];
    refused(&abac, "line 2: unknown field \"usr\"");
    refused(&["oidc-issuer-url=https://a".to_owned()], "must be specified together");
    refused(&["authorization-mode=Roles".to_owned()], "is not a valid mode");
}

#[test]
fn policies_of_a_file_and_settings_of_accounts_count() {
    let folder = tempfile::tempdir().unwrap();
    let policy = json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
        "spec": {"user": "bob", "namespace": "default", "resource": "configmaps", "readonly": true}});
    let file = write(folder.path(), "policies.jsonl", &format!("# who may what\n{policy}\n"));
    let bed = Bed::start(&[
        "authorization-mode=Node,RBAC,ABAC".into(),
        format!("authorization-policy-file={}", file.display()),
        "service-account-issuer=https://new.example".into(),
        "service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        "service-account-jwks-uri=https://keys.example/jwks".into(),
        "service-account-max-token-expiration=30m".into(),
        "anonymous-auth=false".into(),
    ]);
    let bob = bed.admin().with_header("impersonate-user", "bob");
    assert_eq!(bed.get(&bob, MAPS).code, 200);
    assert_eq!(bed.get(&bob, "/api/v1/namespaces/kube-system/configmaps").code, 403);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(bed.runtime.block_on(bob.post(MAPS, &map)).unwrap().code, 403);

    let discovery = bed.get(&bed.admin(), "/.well-known/openid-configuration").json();
    assert_eq!(discovery["issuer"], "https://new.example");
    assert_eq!(discovery["jwks_uri"], "https://keys.example/jwks");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    bed.until("the account is there", || bed.runtime.block_on(bed.admin().post(path, &request)).unwrap().code == 201);
    let issued = bed.runtime.block_on(bed.admin().post(path, &request)).unwrap().json();
    assert_eq!(issued["spec"]["expirationSeconds"], 1800, "{issued}");
    assert!(bed.who(issued["status"]["token"].as_str().unwrap()).is_ok());
    assert_eq!(bed.get(&bed.server.anonymous().unwrap(), "/livez").code, 401);
}

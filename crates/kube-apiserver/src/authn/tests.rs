//! Service account tokens from issue to refusal, and the order in which methods are asked.

use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::fixtures::{Map, headers, user};
use super::*;
use crate::pki::Signer;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn accounts() -> ServiceAccounts {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    ServiceAccounts::new(ISSUER, &[], &key.serialize_pem(), &[]).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn object(namespace: &str, name: &str, uid: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}})
}

fn shop() -> Map {
    Map::default()
        .with("serviceaccounts", [object("shop", "robot", "sa-uid")])
        .with("pods", [object("shop", "web", "pod-uid")])
        .with("secrets", [object("shop", "box", "secret-uid")])
        .with("nodes", [json!({"metadata": {"name": "n1", "uid": "node-uid"}})])
}

fn request() -> TokenRequest<'static> {
    TokenRequest {
        namespace: "shop",
        account: Reference { name: "robot", uid: "sa-uid" },
        pod: None,
        secret: None,
        node: None,
        audiences: &[],
        expiration_seconds: 600,
    }
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[test]
fn a_pods_token_says_what_upstream_says() {
    let accounts = accounts();
    let pod = TokenRequest {
        pod: Some(Reference { name: "web", uid: "pod-uid" }),
        node: Some(Reference { name: "n1", uid: "node-uid" }),
        expiration_seconds: 3607,
        ..request()
    };
    let issued = accounts.issue_here(&pod, at(1000));
    let mut found = claims(&issued.token);
    let id = found["jti"].take();
    assert_eq!(issued.credential_id, format!("JTI={}", id.as_str().unwrap()));
    assert_eq!(
        found,
        json!({
            "iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:shop:robot",
            "iat": 1000, "nbf": 1000, "exp": 1000 + 31_536_000, "jti": null,
            "kubernetes.io": {
                "namespace": "shop",
                "serviceaccount": {"name": "robot", "uid": "sa-uid"},
                "pod": {"name": "web", "uid": "pod-uid"},
                "node": {"name": "n1", "uid": "node-uid"},
                "warnafter": 4607,
            },
        })
    );
    assert_eq!(issued.expiration, at(4607));

    let (user, audiences) = accounts.verify(&issued.token, &[ISSUER.into()], &shop(), at(1000)).unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:shop:robot", "sa-uid"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:shop"]);
    assert_eq!(audiences, [ISSUER]);
    let extra: Vec<(&str, &str)> = user.extra.iter().map(|(key, values)| (key.as_str(), values[0].as_str())).collect();
    let expected = [
        ("authentication.kubernetes.io/credential-id", issued.credential_id.as_str()),
        ("authentication.kubernetes.io/node-name", "n1"),
        ("authentication.kubernetes.io/node-uid", "node-uid"),
        ("authentication.kubernetes.io/pod-name", "web"),
        ("authentication.kubernetes.io/pod-uid", "pod-uid"),
    ];
    assert_eq!(extra, expected);
}

#[test]
fn only_pods_asking_for_the_usual_time_get_the_long_one() {
    let accounts = accounts();
    let check = |seconds: i64, pod: bool, audiences: &[String], lifetime: i64| {
        let pod = pod.then_some(Reference { name: "web", uid: "pod-uid" });
        let request = TokenRequest { pod, audiences, expiration_seconds: seconds, ..request() };
        assert_eq!(
            claims(&accounts.issue_here(&request, at(0)).token)["exp"],
            lifetime,
            "{seconds} {pod:?} {audiences:?}"
        );
    };
    check(3607, true, &[], 31_536_000);
    check(3607, false, &[], 3607);
    check(3600, true, &[], 3600);
    check(3607, true, &["vault".into()], 3607);
}

#[test]
fn tokens_end_with_what_they_are_bound_to() {
    let (robot, web, secret, n1) = (
        Reference { name: "robot", uid: "sa-uid" },
        Reference { name: "web", uid: "pod-uid" },
        Reference { name: "box", uid: "secret-uid" },
        Reference { name: "n1", uid: "node-uid" },
    );
    let check = |what: &str, request: TokenRequest, change: &dyn Fn(&mut Map), second: i64, expected: &str| {
        let accounts = accounts();
        let mut objects = shop();
        change(&mut objects);
        let token = accounts.issue_here(&request, at(1000)).token;
        let result = accounts.verify(&token, &[ISSUER.into()], &objects, at(second)).unwrap();
        let result = result.map_or_else(|error| error.to_string(), |_| "good".into());
        assert_eq!(result, expected, "{what}");
    };
    let nothing = |_: &mut Map| {};
    let deleted = |resource: &'static str, namespace: &'static str, name: &'static str| {
        move |objects: &mut Map| {
            let mut object = Value::clone(&objects.get(resource, namespace, name).unwrap());
            object["metadata"]["deletionTimestamp"] = at(1100).to_string().into();
            objects.put(resource, object);
        }
    };
    let bound_to_pod = || TokenRequest { pod: Some(web), node: Some(n1), ..request() };
    let bound_to_node = || TokenRequest { node: Some(n1), ..request() };
    let bound_to_secret = || TokenRequest { secret: Some(secret), ..request() };
    check("fresh", request(), &nothing, 1000, "good");
    check("last second", request(), &nothing, 1599, "good");
    check("expired", request(), &nothing, 1600, "service account token has expired");
    check("from the future", request(), &nothing, 999, "service account token is not valid yet");
    check(
        "no account",
        request(),
        &|objects| objects.remove("serviceaccounts", "shop", "robot"),
        1000,
        "serviceaccounts \"robot\" not found",
    );
    check(
        "a new account of that name",
        TokenRequest { account: Reference { uid: "older", ..robot }, ..request() },
        &nothing,
        1000,
        "service account UID (sa-uid) does not match claim (older)",
    );
    check("account on its way", request(), &deleted("serviceaccounts", "shop", "robot"), 1160, "good");
    check(
        "account past its time",
        request(),
        &deleted("serviceaccounts", "shop", "robot"),
        1161,
        "service account has been deleted",
    );
    check("pod", bound_to_pod(), &nothing, 1000, "good");
    let gone = "service account token has been invalidated";
    check("pod gone", bound_to_pod(), &|objects| objects.remove("pods", "shop", "web"), 1000, gone);
    check("pod within its grace", bound_to_pod(), &deleted("pods", "shop", "web"), 1160, "good");
    check("pod past its grace", bound_to_pod(), &deleted("pods", "shop", "web"), 1161, gone);
    check(
        "another pod of that name",
        bound_to_pod(),
        &|objects| objects.put("pods", object("shop", "web", "newer")),
        1000,
        "pod UID (newer) does not match service account pod ref claim (pod-uid)",
    );
    check("node of a pod gone", bound_to_pod(), &|objects| objects.remove("nodes", "", "n1"), 1000, "good");
    check("node gone", bound_to_node(), &|objects| objects.remove("nodes", "", "n1"), 1000, gone);
    check("secret", bound_to_secret(), &nothing, 1000, "good");
    check("secret gone", bound_to_secret(), &|objects| objects.remove("secrets", "shop", "box"), 1000, gone);
}

#[test]
fn audiences_must_meet() {
    let accounts = accounts();
    let check = |of_token: &[&str], wanted: &[&str], expected: Result<&[&str], &str>| {
        let list = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<String>>();
        let audiences = list(of_token);
        let token = accounts.issue_here(&TokenRequest { audiences: &audiences, ..request() }, at(1000)).token;
        let result = accounts.verify(&token, &list(wanted), &shop(), at(1000)).unwrap().map(|(_, good)| good);
        assert_eq!(result.map_err(|error| error.to_string()), expected.map(list).map_err(str::to_string));
    };
    check(&["vault", "api"], &["api", "vault", "x"], Ok(&["vault", "api"]));
    check(&[], &[ISSUER], Ok(&[ISSUER]));
    check(
        &["vault"],
        &["api", "x"],
        Err(r#"token audiences ["vault"] is invalid for the target audiences ["api" "x"]"#),
    );
}

#[test]
fn legacy_tokens_end_with_their_secret() {
    let check = |what: &str, change: &dyn Fn(&mut Value), expected: &str| {
        let accounts = accounts();
        let token = accounts.issue_legacy("shop", Reference { name: "robot", uid: "sa-uid" }, "robot-token");
        let mut secret = object("shop", "robot-token", "x");
        secret["data"] = json!({"token": STANDARD.encode(&token)});
        change(&mut secret);
        let objects = shop().with("secrets", [secret]);
        let result = accounts.verify(&token, &[ISSUER.into()], &objects, at(1000)).unwrap();
        assert_eq!(result.map_or_else(|error| error.to_string(), |(user, _)| user.name), expected, "{what}");
    };
    check("good", &|_| {}, "system:serviceaccount:shop:robot");
    let gone = "service account token has been invalidated";
    check("renamed", &|secret| secret["metadata"]["name"] = "other".into(), gone);
    check("deleted", &|secret| secret["metadata"]["deletionTimestamp"] = at(990).to_string().into(), gone);
    check(
        "replaced",
        &|secret| secret["data"]["token"] = "bmV3".into(),
        "service account token does not match server's copy",
    );
    check(
        "marked",
        &|secret| secret["metadata"]["labels"] = json!({"kubernetes.io/legacy-token-invalid-since": "2024-01-01"}),
        "service account token has been marked invalid",
    );
}

#[test]
fn others_can_check_tokens_too() {
    let accounts = accounts();
    let discovery = accounts.discovery("https://192.0.2.1:6443/openid/v1/jwks");
    assert_eq!(
        discovery,
        json!({
            "issuer": ISSUER, "jwks_uri": "https://192.0.2.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    );
    let keys = accounts.web_keys();
    let token = accounts.issue_here(&request(), at(0)).token;
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(keys["keys"][0]["kid"], header["kid"]);
    assert_eq!(header["alg"], "ES256");
}

#[test]
fn tokens_live_no_longer_than_the_operator_says() {
    let hour = std::time::Duration::from_secs(3600);
    let pod =
        TokenRequest { pod: Some(Reference { name: "web", uid: "pod-uid" }), expiration_seconds: 3607, ..request() };
    let end = |accounts: &ServiceAccounts| claims(&accounts.issue_here(&pod, at(1000)).token)["exp"].as_i64().unwrap();
    assert_eq!(end(&accounts()), 1000 + 31_536_000, "for old clients");
    assert_eq!(end(&accounts().living(None, false)), 1000 + 3607, "as it says");
    let short = accounts().living(Some(hour * 2), true);
    assert_eq!(end(&short), 1000 + 7200);
    assert_eq!((short.seconds_of(600), short.seconds_of(1 << 20)), (600, 7200));
}

#[tokio::test]
async fn methods_are_asked_in_order() {
    static NOW: AtomicI64 = AtomicI64::new(1000);
    let authenticator = Authenticator::new(Config {
        clock: Clock::from_fn(|| at(NOW.load(Ordering::Relaxed))),
        service_accounts: Arc::new(accounts()),
        token_file: TokenFile::parse("secret,tom,1,\"ops\"").unwrap(),
        bootstrap_tokens: true,
        front_proxy: FrontProxy { allowed_names: vec!["proxy".into()], ..FrontProxy::default() },
        anonymous: Anonymous::Everywhere,
        dynamic: Dynamic::default(),
    });
    let objects = shop();
    let robot = format!("Bearer {}", authenticator.service_accounts().issue_here(&request(), at(1000)).token);
    let certificate = |name: &str, signer: Signer| {
        Some(PeerCertificate { signer, user: user(name, &["dev"]), not_before: 0, not_after: 1300 })
    };
    let check = async |peer: Option<PeerCertificate>, lines: &[(&str, &str)], expected: Result<&str, u16>| {
        let result = authenticator.authenticate(&headers(lines), peer.as_ref(), "/api", &objects).await;
        let result = result.map(|user| format!("{} {}", user.name, user.groups.join(",")));
        assert_eq!(result.map_err(|status| status.code), expected.map(str::to_string), "{peer:?} {lines:?}");
    };
    let alice = || certificate("alice", Signer::Cluster);
    let stranger = || certificate("mallory", Signer::Unknown);
    let tom = ("authorization", "Bearer secret");
    let account =
        "system:serviceaccount:shop:robot system:serviceaccounts,system:serviceaccounts:shop,system:authenticated";

    check(None, &[], Ok("system:anonymous system:unauthenticated")).await;
    check(None, &[("x-remote-user", "root")], Ok("system:anonymous system:unauthenticated")).await;
    check(None, &[("authorization", "Bearer wrong")], Err(401)).await;
    check(None, &[("authorization", "Basic Zm9vOmJhcg==")], Ok("system:anonymous system:unauthenticated")).await;
    check(None, &[tom], Ok("tom ops,system:authenticated")).await;
    check(None, &[("authorization", &robot)], Ok(account)).await;
    check(alice(), &[], Ok("alice dev,system:authenticated")).await;
    check(alice(), &[("x-remote-user", "root")], Ok("alice dev,system:authenticated")).await;
    check(alice(), &[("authorization", "Bearer wrong")], Ok("alice dev,system:authenticated")).await;
    check(stranger(), &[], Err(401)).await;
    check(stranger(), &[tom], Ok("tom ops,system:authenticated")).await;
    let proxy = || certificate("proxy", Signer::FrontProxy);
    let told = [("x-remote-user", "bob"), ("x-remote-group", "a")];
    check(proxy(), &told, Ok("bob a,system:authenticated")).await;
    check(proxy(), &[], Err(401)).await;
    check(certificate("other", Signer::FrontProxy), &told, Err(401)).await;

    // A connection outlives its certificate, and a token its cache entry.
    NOW.store(1301, Ordering::Relaxed);
    check(alice(), &[], Err(401)).await;
    check(None, &[("authorization", &robot)], Ok(account)).await;
    NOW.store(1600, Ordering::Relaxed);
    check(None, &[("authorization", &robot)], Err(401)).await;
}

#[tokio::test]
async fn tokens_are_reviewed() {
    let authenticator = Authenticator::new(Config {
        clock: Clock::from_fn(|| at(1000)),
        service_accounts: Arc::new(accounts()),
        token_file: TokenFile::parse("secret,tom,1").unwrap(),
        bootstrap_tokens: true,
        front_proxy: FrontProxy { allowed_names: Vec::new(), ..FrontProxy::default() },
        anonymous: Anonymous::At(vec!["/livez".into()]),
        dynamic: Dynamic::default(),
    });
    let objects = shop();
    let vault = ["vault".to_string()];
    let issue =
        |audiences| authenticator.service_accounts().issue_here(&TokenRequest { audiences, ..request() }, at(1000));
    let check = async |token: &str, audiences: &[String], expected: Result<(&str, &[&str]), &str>| {
        let result = authenticator.review_token(token, audiences, &objects).await;
        let expected =
            expected.map(|(name, audiences)| (name.to_string(), audiences.iter().map(|a| a.to_string()).collect()));
        let result = result.map(|(user, audiences)| (user.name, audiences)).map_err(|error| error.to_string());
        assert_eq!(result, expected.map_err(str::to_string));
    };
    check("secret", &[], Ok(("tom", &[ISSUER]))).await;
    check("secret", &vault, Err("invalid bearer token")).await;
    check(&issue(&[]).token, &[], Ok(("system:serviceaccount:shop:robot", &[ISSUER]))).await;
    check(&issue(&vault).token, &vault, Ok(("system:serviceaccount:shop:robot", &["vault"]))).await;
    check("junk", &[], Err("invalid bearer token")).await;
    for (path, expected) in [("/livez", true), ("/livez/ping", false), ("/api", false)] {
        let nobody = authenticator.authenticate(&headers(&[]), None, path, &objects).await;
        assert_eq!(nobody.is_ok(), expected, "{path}");
    }
}

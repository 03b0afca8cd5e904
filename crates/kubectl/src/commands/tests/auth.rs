//! `kubectl auth` and `certificate`.

use super::*;

const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn allowed(allowed: bool) -> Fake {
    Fake::new().answer(ACCESS, json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}))
}

#[test]
fn questions_name_verb_resource_and_object() {
    let check = |line: &str, attributes: Value| {
        let ran = allowed(true).run(&format!("auth can-i {line}"));
        assert_eq!((ran.out.as_str(), ran.code), ("yes\n", 0), "{line}: {}", ran.err);
        let sent = &ran.request(ACCESS).body["spec"];
        for (key, value) in attributes.as_object().into_iter().flatten() {
            let found = sent["resourceAttributes"].get(key).cloned().unwrap_or_default();
            assert_eq!(&found, value, "{line}: {sent}");
        }
    };
    check("get pods", json!({"verb": "get", "resource": "pods", "namespace": "default"}));
    check("get po", json!({"verb": "get", "resource": "pods"}));
    check("get pods/web", json!({"resource": "pods", "name": "web"}));
    check("get pods --subresource=log", json!({"resource": "pods", "subresource": "log"}));
    check("get pods -n team", json!({"namespace": "team"}));
    check("list deployments.apps", json!({"resource": "deployments", "group": "apps"}));
    check("'*' '*'", json!({"verb": "*", "resource": "*"}));
    let ran = allowed(true).run("auth can-i get pods -A");
    let namespace = &ran.request(ACCESS).body["spec"]["resourceAttributes"]["namespace"];
    assert!(namespace.is_null() || namespace == "", "{namespace}");
    let ran = allowed(true).run("auth can-i get /healthz");
    let path = json!({"path": "/healthz", "verb": "get"});
    assert_eq!(ran.request(ACCESS).body["spec"]["nonResourceAttributes"], path);
}

#[test]
fn a_refusal_is_an_exit_code() {
    let ran = allowed(false).run("auth can-i delete pods");
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("no\n", "", 1));
    let ran = allowed(false).run("auth can-i delete pods -q");
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("", "", 1));
}

#[test]
fn what_looks_wrong_is_warned_of() {
    let warned = |line: &str| allowed(true).run(&format!("auth can-i {line}")).err;
    assert_eq!(warned("fly pods"), "Warning: verb 'fly' is not a known verb\n\n");
    assert_eq!(warned("get nodes"), "Warning: resource 'nodes' is not namespace scoped\n\n");
    assert_eq!(warned("get nodes -A"), "");
    let two = "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.";
    for line in ["auth can-i", "auth can-i get", "auth can-i get pods x"] {
        refuses(line, two);
    }
    refuses("auth can-i --list get pods", "list option must be specified with no arguments");
    let list = "list option can't be specified with neither quiet, all-namespaces nor subresource options";
    for flag in ["-q", "-A", "--subresource=log"] {
        refuses(&format!("auth can-i --list {flag}"), list);
    }
    refuses("auth can-i get /healthz --subresource=log", "--subresource can not be used with NonResourceURL");
    refuses("auth can-i get /healthz --no-headers", "--no-headers cannot be set without --list specified");
    // Paths and resources have verbs of their own.
    assert_eq!(warned("post /healthz"), "");
    assert_eq!(warned("list /healthz"), "Warning: verb 'list' is not a known verb\n\n");
    assert_eq!(warned("post pods"), "Warning: verb 'post' is not a known verb\n\n");
    assert_eq!(warned("post pods -A"), "");
    assert_eq!(warned("attest pods"), "");
}

#[test]
fn everything_that_may_be_done_is_a_table() {
    let rules = json!({"kind": "SelfSubjectRulesReview", "status": {
        "resourceRules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"]}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}], "incomplete": false}});
    let fake = Fake::new().answer("POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", rules);
    let ran = fake.run("auth can-i --list");
    let expected = "\
Resources          Non-Resource URLs   Resource Names   Verbs
deployments.apps   []                  [web]            [*]
pods/log           []                  []               [get list]
pods               []                  []               [get list]
                   [/healthz]          []               [get]
";
    let lines = |text: &str| text.lines().map(str::trim_end).map(str::to_owned).collect::<Vec<_>>();
    let (found, wanted) = (lines(&ran.out), lines(expected));
    assert_eq!(found.first(), wanted.first());
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(sorted(found), sorted(wanted), "{}", ran.out);
}

#[test]
fn who_one_is() {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
        "status": {"userInfo": {"username": "ann", "uid": "7", "groups": ["a", "b"], "extra": {"k": ["v"]}}}});
    let fake = || Fake::new().answer("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", review.clone());
    let ran = fake().run("auth whoami");
    let lines: Vec<&str> = ran.out.lines().map(str::trim_end).collect();
    assert_eq!(
        lines,
        ["ATTRIBUTE   VALUE", "Username    ann", "UID         7", "Groups      [a b]", "Extra: k    [v]"]
    );
    ended_well(&fake().run("auth whoami -o jsonpath='{.status.userInfo.username}'"), "ann");
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(conditions: Value) -> Fake {
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "jane"}, "spec": {"signerName": "example.com/s"}, "status": {"conditions": conditions}});
    Fake::new()
        .objects(REQUESTS, std::slice::from_ref(&request))
        .answer(&format!("PUT {REQUESTS}/jane/approval"), request)
}

#[test]
fn certificates_are_approved_once() {
    let ran = request(json!([])).run("certificate approve jane");
    ended_well(&ran, "certificatesigningrequest.certificates.k8s.io/jane approved\n");
    let condition = &ran.request(&format!("PUT {REQUESTS}/jane/approval")).body["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Approved"), &json!("True")));
    assert_eq!(condition["reason"], "KubectlApprove");
    assert_eq!(condition["message"], "This CSR was approved by kubectl certificate approve.");
    let ran = request(json!([])).run("certificate deny jane");
    ended_well(&ran, "certificatesigningrequest.certificates.k8s.io/jane denied\n");
    let condition = &ran.request(&format!("PUT {REQUESTS}/jane/approval")).body["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Denied"), &json!("KubectlDeny")));
    let decided = |kind: &str| request(json!([{"type": kind, "status": "True"}]));
    ended_badly(
        &decided("Approved").run("certificate deny jane"),
        "error: certificate signing request \"jane\" is already Approved\n",
    );
    ended_badly(
        &decided("Denied").run("certificate approve jane --force"),
        "error: certificate signing request \"jane\" is already Denied\n",
    );
    let again = decided("Approved").run("certificate approve jane");
    ended_well(&again, "certificatesigningrequest.certificates.k8s.io/jane approved\n");
    assert!(!again.lines().iter().any(|line| line.starts_with("PUT")), "{:?}", again.lines());
}

//! Upstream's published example, and its messages for what is wrong.

use serde_json::json;

use super::*;

/// The example of upstream's documentation; only the place of the kubeconfig is a file that is there.
const EXAMPLE: &str = include_str!("../testdata/authorization-config.yaml");

fn example() -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = EXAMPLE.replace("/kube-system-authz-webhook.yaml", file.path().to_str().unwrap());
    (file, text)
}

#[test]
fn the_published_example_loads() {
    let (_file, text) = example();
    let entries = parse(&text).unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["webhook", "node", "rbac", "in-cluster-authorizer"]);
    let Kind::Webhook(hook) = &entries[0].kind else { panic!("{:?}", entries[0]) };
    assert_eq!(hook.settings.timeout, Duration::from_secs(3));
    assert_eq!(hook.settings.authorized_ttl, Duration::from_secs(30));
    assert_eq!(hook.settings.failure_policy, FailurePolicy::Deny);
    let request = |namespace: &str| {
        json!({"user": "ada", "groups": ["system:authenticated"], "uid": "", "extra": {},
        "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods"}})
    };
    assert_eq!(hook.conditions.hold(&request("kube-system")), Ok(true));
    assert_eq!(hook.conditions.hold(&request("default")), Ok(false));
}

#[test]
fn mistakes_are_told_as_upstream_does() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";
    let check = |rest: &str, expected: &str| {
        let told = parse(&format!("{head}{rest}")).unwrap_err().to_string();
        assert_eq!(told, expected, "{rest}");
    };
    check("authorizers: []\n", "line 3: authorizers: Required value: at least one authorization mode must be defined");
    check("authorizers:\n- name: a\n", "line 4: authorizers[0].type: Required value");
    check(
        "authorizers:\n- type: Nobody\n  name: a\n",
        "line 4: authorizers[0].type: Unsupported value: \"Nobody\": supported values: \"ABAC\", \"AlwaysAllow\", \
         \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
    );
    check(
        "authorizers:\n- {type: RBAC, name: rbac}\n- {type: RBAC, name: other}\n",
        "line 5: authorizers[1].type: Duplicate value: \"RBAC\"",
    );
    check(
        "authorizers:\n- {type: RBAC, name: roles}\n",
        "line 4: authorizers[0].name: Invalid value: \"roles\": expected name rbac for authorizer RBAC instead of roles",
    );
    check(
        "authorizers:\n- {type: Webhook, name: a}\n",
        "line 4: authorizers[0].webhook: Required value: required when type=Webhook",
    );
    check(
        "authorizers:\n- {type: RBAC, name: rbac, webhook: {timeout: 3s}}\n",
        "line 4: authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
    );
}

#[test]
fn mistakes_in_a_webhook_are_told_as_upstream_does() {
    let (file, text) = example();
    let check = |from: &str, to: &str, expected: &str| {
        assert!(text.contains(from), "{from}");
        let told = parse(&text.replace(from, to)).unwrap_err().to_string();
        assert!(told.contains(expected), "{to}: {told}");
        assert!(told.starts_with("line "), "{told}");
    };
    check("timeout: 3s", "timeout: 31s", "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s");
    check("timeout: 3s", "timeout: soon", "authorizers[0].timeout: Invalid value: \"soon\": must be > 0s and <= 30s");
    check(
        "subjectAccessReviewVersion: v1\n",
        "subjectAccessReviewVersion: v2\n",
        "subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
    );
    check("failurePolicy: Deny", "failurePolicy: Allow", "authorizers[0].failurePolicy: Unsupported value: \"Allow\"");
    check("type: KubeConfigFile", "type: Elsewhere", "authorizers[0].connectionInfo.type: Unsupported value");
    check(file.path().to_str().unwrap(), "/no/such", "kubeConfigFile: Invalid value: \"/no/such\": error loading file");
    check(file.path().to_str().unwrap(), "relative", "\"relative\": must be an absolute path");
    check(
        "has(request.resourceAttributes)",
        "has(request.attributes)",
        "matchConditions[0].expression: Invalid value: \"has(request.attributes)\": compilation failed",
    );
    check("has(request.resourceAttributes)", "request.user", "must evaluate to bool but got string");
    check("has(request.resourceAttributes)", "1 +", "compilation failed");
    check("cacheAuthorizedRequests: true", "cacheAuthorised: true", "unknown field");
}

#[test]
fn what_is_not_said_is_as_upstream_has_it() {
    let (_file, text) = example();
    let text = text.replace("      unauthorizedTTL: 30s\n", "").replace("      authorizedTTL: 30s\n", "");
    let entries = parse(&text.replace("cacheUnauthorizedRequests: true", "cacheUnauthorizedRequests: false")).unwrap();
    let Kind::Webhook(hook) = &entries[0].kind else { panic!("{:?}", entries[0]) };
    assert_eq!(hook.settings.authorized_ttl, Duration::from_secs(300));
    assert_eq!(hook.settings.unauthorized_ttl, Duration::ZERO, "nothing is remembered");
}

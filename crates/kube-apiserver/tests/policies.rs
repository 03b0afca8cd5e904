//! ValidatingAdmissionPolicy as users meet it: expressions that refuse, warn and are written down, where their bindings
//! say so.

#[path = "support/bed.rs"]
mod bed;

use bed::Bed;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::Service;

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Reply {
    code: u16,
    warnings: Vec<String>,
    object: Value,
}

impl Reply {
    fn text(&self) -> String {
        self.object.to_string()
    }
}

impl Bed {
    async fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let reply = self.loopback.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap();
        let code = reply.status().as_u16();
        let warnings =
            reply.headers().get_all("warning").iter().map(|text| text.to_str().unwrap().to_string()).collect();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        Reply { code, warnings, object: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    async fn post(&self, path: &str, object: Value) -> Reply {
        self.send("POST", path, object).await
    }

    async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, Value::Null).await
    }

    async fn policy(&self, name: &str, spec: Value) -> Reply {
        let mut spec = spec;
        if spec["matchConstraints"].is_null() {
            spec["matchConstraints"] = json!({"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["configmaps"]}]});
        }
        let kind = "ValidatingAdmissionPolicy";
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "spec": spec});
        self.post(&format!("{REGISTRATION}/validatingadmissionpolicies"), object).await
    }

    async fn bind(&self, name: &str, policy: &str, actions: &[&str], more: Value) {
        let mut spec = json!({"policyName": policy, "validationActions": actions,
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let kind = "ValidatingAdmissionPolicyBinding";
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "spec": spec});
        let reply = self.post(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), object).await;
        assert_eq!(reply.code, 201, "{}", reply.text());
    }

    async fn map(&self, name: &str, data: Value) -> Reply {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.post(MAPS, object).await
    }
}

#[track_caller]
fn refused(reply: &Reply, code: u16, reason: &str, message: &str) {
    let status = &reply.object;
    assert_eq!(
        (reply.code, status["reason"].as_str().unwrap_or(""), status["message"].as_str().unwrap_or("")),
        (code, reason, message),
        "{}",
        reply.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_refuse_and_warn_where_they_are_bound() {
    let bed = Bed::start().await;
    let limit = json!({
        "variables": [{"name": "size", "expression": "has(object.data) ? size(object.data) : 0"}],
        "validations": [
            {"expression": "variables.size <= 2", "messageExpression": "'at most 2 keys, not ' + string(variables.size)"},
            {"expression": "!object.metadata.name.startsWith('no')", "reason": "Forbidden", "message": "not that name"},
            {"expression": "namespaceObject.metadata.name == 'default' && request.namespace == 'default'"},
            {"expression": "authorizer.requestResource.check('create').allowed()"},
        ],
    });
    let made = bed.policy("limit", limit).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let many = json!({"a": "1", "b": "2", "c": "3"});
    assert_eq!(bed.map("unbound", many.clone()).await.code, 201, "a policy does nothing by itself");

    bed.bind("here", "limit", &["Deny"], json!({})).await;
    let denied = |name: &str, rest: &str| {
        format!(
            "configmaps \"{name}\" is forbidden: ValidatingAdmissionPolicy 'limit' with binding 'here' denied request: {rest}"
        )
    };
    refused(&bed.map("m", many.clone()).await, 422, "Invalid", &denied("m", "at most 2 keys, not 3"));
    refused(&bed.map("no", json!({})).await, 403, "Forbidden", &denied("no", "not that name"));
    assert_eq!(bed.map("m", json!({"a": "1"})).await.code, 201);
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "no"}});
    assert_eq!(bed.post("/api/v1/namespaces/kube-system/configmaps", elsewhere).await.code, 201);

    // The same as a warning.
    assert_eq!(bed.delete(&format!("{REGISTRATION}/validatingadmissionpolicybindings/here")).await.code, 200);
    bed.bind("soft", "limit", &["Warn", "Audit"], json!({})).await;
    let warned = bed.map("n", many).await;
    assert_eq!(warned.code, 201, "{}", warned.text());
    let text = "Validation failed for ValidatingAdmissionPolicy 'limit' with binding 'soft': at most 2 keys, not 3";
    assert_eq!(warned.warnings, [format!("299 - \"{text}\"")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_found_by_name_and_label() {
    let bed = Bed::start().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "own", "expression": "object.metadata.name != 'params'"}],
        "validations": [{"expression": "size(object.data) <= int(params.data.max)",
            "messageExpression": "'at most ' + params.data.max"}]});
    assert_eq!(bed.policy("sized", spec).await.code, 201);
    let by_name = json!({"paramRef": {"name": "params", "parameterNotFoundAction": "Deny"}});
    bed.bind("sized", "sized", &["Deny"], by_name).await;
    let two = json!({"a": "1", "b": "2"});
    let denied = |rest: &str| {
        format!(
            "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'sized' with binding 'sized' denied request: {rest}"
        )
    };
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    refused(&bed.map("m", two.clone()).await, 422, "Invalid", &denied(missing));
    // The parameters can only be made where they are not asked for.
    assert_eq!(bed.delete(&format!("{REGISTRATION}/validatingadmissionpolicybindings/sized")).await.code, 200);
    assert_eq!(bed.map("params", json!({"max": "1"})).await.code, 201);
    bed.bind("sized", "sized", &["Deny"], json!({"paramRef": {"name": "params", "parameterNotFoundAction": "Deny"}}))
        .await;
    refused(&bed.map("m", two.clone()).await, 422, "Invalid", &denied("at most 1"));
    assert_eq!(bed.delete(&format!("{REGISTRATION}/validatingadmissionpolicybindings/sized")).await.code, 200);
    // Nobody has the label, and that is allowed.
    let selector = json!({"matchLabels": {"role": "limit"}});
    bed.bind(
        "sized",
        "sized",
        &["Deny"],
        json!({"paramRef": {"selector": selector, "parameterNotFoundAction": "Allow"}}),
    )
    .await;
    assert_eq!(bed.map("m", two).await.code, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_fails_decides_what_that_means() {
    let bed = Bed::start().await;
    let bad = bed.policy("bad", json!({"validations": [{"expression": "object.+"}]})).await;
    assert_eq!(bad.code, 422, "{}", bad.text());
    assert!(bad.text().contains("compilation failed: ERROR: <input>:1:"), "{}", bad.text());
    let bad = bed.policy("bad", json!({"validations": [{"expression": "thing.x == 1"}]})).await;
    assert!(bad.text().contains("undeclared reference to 'thing'"), "{}", bad.text());

    let fails = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.nothing == 1"}]});
    assert_eq!(bed.policy("closed", fails("Fail")).await.code, 201);
    assert_eq!(bed.policy("open", fails("Ignore")).await.code, 201);
    bed.bind("open", "open", &["Deny"], json!({})).await;
    assert_eq!(bed.map("m", json!({})).await.code, 201);
    bed.bind("closed", "closed", &["Deny"], json!({})).await;
    refused(
        &bed.map("n", json!({})).await,
        422,
        "Invalid",
        "configmaps \"n\" is forbidden: ValidatingAdmissionPolicy 'closed' with binding 'closed' denied request: expression \
         'object.nothing == 1' resulted in error: no such key: nothing",
    );
}

//! MutatingAdmissionPolicies as users bring them: what they change, whom they ask for parameters, and what becomes of a
//! request when one of them fails.

use serde_json::{Value, json};
use testkit::client::{Client, Reply};
use testkit::server::Server;

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn good(reply: Reply) -> Value {
    assert!(reply.code < 300, "{} {}", reply.code, reply.text());
    reply.json()
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// A policy with its binding, which says what `more` says beside its mutations.
async fn install(client: &Client, name: &str, rule: (&str, &str), mutations: &[Value], more: Value, binding: Value) {
    let rules = json!([{"apiGroups": [rule.0], "apiVersions": ["v1"], "resources": [rule.1], "operations": ["CREATE", "UPDATE"]}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules}, "mutations": mutations, "reinvocationPolicy": "Never",
        "failurePolicy": "Fail"});
    spec.as_object_mut().expect("a map").extend(more.as_object().cloned().unwrap_or_default());
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec});
    good(client.post(&format!("{REGISTRATION}/mutatingadmissionpolicies"), &policy).await.expect("an answer"));
    let mut spec = json!({"policyName": name});
    spec.as_object_mut().expect("a map").extend(binding.as_object().cloned().unwrap_or_default());
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{name}-binding")}, "spec": spec});
    good(client.post(&format!("{REGISTRATION}/mutatingadmissionpolicybindings"), &binding).await.expect("an answer"));
}

fn deployment(name: &str) -> Value {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}})
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_are_changed_in_both_ways() {
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let annotate = "Object{ metadata: Object.metadata{ annotations: { \"mutated-by\": \"admission-policy\" } } }";
    let sidecar = "Object{spec: Object.spec{replicas: object.spec.replicas + 1336, template: Object.spec.template{spec: \
                   Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 'y'}]}}}}";
    let mutations = [apply(annotate), apply(sidecar)];
    install(&client, "first.example.com", ("apps", "deployments"), &mutations, json!({}), json!({})).await;
    let label = "[JSONPatch{op: 'test', path: '/spec/replicas', value: 1337}, \
                 JSONPatch{op: 'add', path: '/metadata/labels', value: {'seen': 'yes'}}, \
                 JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/a'), value: variables.name}]";
    let more = json!({"variables": [{"name": "name", "expression": "object.metadata.name + '!'"}]});
    install(&client, "second.example.com", ("apps", "deployments"), &[patch(label)], more, json!({})).await;

    let made = good(client.post(DEPLOYMENTS, &deployment("a")).await.expect("an answer"));
    assert_eq!(made["spec"]["replicas"], 1337);
    assert_eq!(made["metadata"]["annotations"], json!({"mutated-by": "admission-policy", "example.com/a": "a!"}));
    assert_eq!(made["metadata"]["labels"], json!({"seen": "yes"}));
    let containers = made["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    let names: Vec<&Value> = containers.iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["c", "side"]);
    assert_eq!(containers[1]["terminationMessagePath"], "/dev/termination-log", "what is added gets its defaults");
    // A test that does not hold leaves the object to others.
    let mut more = deployment("b");
    more["spec"]["replicas"] = 2.into();
    let made = good(client.post(DEPLOYMENTS, &more).await.expect("an answer"));
    assert_eq!((&made["spec"]["replicas"], &made["metadata"]["labels"]), (&json!(1338), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_conditions_and_failures() {
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let post = async |object: Value| client.post(MAPS, &object).await.expect("an answer");
    good(post(map("params", json!({"color": "blue"}))).await);
    let more = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "wanted", "expression": "object.data.want == 'yes'"}]});
    let binding = json!({"paramRef": {"name": "params", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    let color = apply("Object{data: {'color': params.data.color}}");
    install(&client, "colors.example.com", ("", "configmaps"), &[color], more, binding).await;
    let made = good(post(map("a", json!({"want": "yes"}))).await);
    assert_eq!(made["data"], json!({"want": "yes", "color": "blue"}));
    assert_eq!(good(post(map("b", json!({"want": "no"}))).await)["data"], json!({"want": "no"}));
    // A condition that cannot be decided is a failure of the policy.
    let failed = post(map("c", json!({}))).await;
    let message = "policy 'colors.example.com' with binding 'colors.example.com-binding' denied request: \
                   expression 'object.data.want == 'yes'' resulted in error: no such key: data";
    assert_eq!((failed.code, failed.json()["message"].as_str()), (403, Some(message)));
    assert_eq!(failed.json()["reason"], "Invalid");

    // Whole values with one owner may not be set; nor may types be misnamed.
    let refused = async |name: &str, mutation: Value, expected: &str| {
        let policy = format!("{name}.example.com");
        let more =
            json!({"matchConditions": [{"name": "own", "expression": format!("object.metadata.name == '{name}'")}]});
        install(&client, &policy, ("apps", "deployments"), &[mutation], more, json!({})).await;
        let reply = client.post(DEPLOYMENTS, &deployment(name)).await.expect("an answer");
        let json = reply.json();
        let message = json["message"].as_str().unwrap_or("");
        assert!(reply.code == 403 && message.ends_with(expected), "{} {message}", reply.code);
    };
    let atomic = apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}");
    let told = "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector";
    refused("atomic", atomic, told).await;
    let misnamed = apply("Object{spec: Object.metadata{}}");
    let told = "type mismatch: unexpected type name \"Object.metadata\", expected \"Object.spec\", which matches field name path \
                from root Object type";
    refused("misnamed", misnamed, told).await;
    let unknown = apply("Object{spec: Object.spec{nothing: 1}}");
    refused("unknown", unknown, ".spec.nothing: field not declared in schema").await;
    // What cannot be compiled is refused when it is written.
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "bad"}, "spec": {"mutations": [apply("Object{spec: nothing}")], "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]}}});
    let reply = client.post(&format!("{REGISTRATION}/mutatingadmissionpolicies"), &policy).await.expect("an answer");
    assert_eq!(reply.code, 422, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_asked_again_where_something_changed_behind_them() {
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let count = |field: &str| {
        let text = format!(
            "Object{{data: {{'{field}': string(has(object.data) && '{field}' in object.data ? int(object.data['{field}']) + 1 : 1)}}}}"
        );
        apply(&text)
    };
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    install(&client, "a.example.com", ("", "configmaps"), &[count("again")], again, json!({})).await;
    install(&client, "b.example.com", ("", "configmaps"), &[count("once")], json!({}), json!({})).await;
    let made = good(client.post(MAPS, &map("m", json!({"x": "y"}))).await.expect("an answer"));
    assert_eq!(made["data"], json!({"x": "y", "again": "2", "once": "1"}));
}

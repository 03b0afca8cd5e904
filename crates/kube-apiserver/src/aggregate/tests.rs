use serde_json::{Value, json};

use super::availability::{Availability, Reference, places, status};
use super::local::{ALWAYS, MANAGED, Next, next, object};
use super::{connect, describe};
use crate::authn::User;

fn reference() -> Reference {
    Reference::of(&json!({"spec": {"service": {"namespace": "n", "name": "s", "port": 443}}})).unwrap()
}

fn slice(ready: Value, port: &str) -> Value {
    json!({"ports": [{"name": port, "port": 8443}],
        "endpoints": [{"addresses": ["10.0.0.5"], "conditions": {"ready": ready}}]})
}

#[test]
fn why_a_service_cannot_be_reached() {
    let service = json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443}]}});
    let check = |service: Option<&Value>, slices: &[Value], expected: Result<&str, (&str, &str)>| {
        let found = places(&reference(), service, slices);
        let found = found
            .map(|places| places.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(" "));
        let expected = expected.map(str::to_string);
        assert_eq!(found.map_err(|it| (it.reason, it.message)), expected.map_err(|(a, b)| (a, b.to_string())));
    };
    check(None, &[], Err(("ServiceNotFound", "service/s in \"n\" is not present")));
    let other = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
    check(Some(&other), &[], Err(("ServicePortError", "service/s in \"n\" is not listening on port 443")));
    check(Some(&service), &[], Err(("EndpointsNotFound", "cannot find endpointslices for service/s in \"n\"")));
    let missing = "endpointslices for service/s in \"n\" have no addresses with port name \"https\"";
    check(Some(&service), &[slice(json!(false), "https")], Err(("MissingEndpoints", missing)));
    check(Some(&service), &[slice(json!(true), "http")], Err(("MissingEndpoints", missing)));
    check(
        Some(&service),
        &[slice(json!(true), "https"), slice(Value::Null, "https")],
        Ok("10.0.0.5:8443 10.0.0.5:8443"),
    );
    let external = json!({"spec": {"type": "ExternalName", "externalName": "elsewhere.example"}});
    check(Some(&external), &[], Ok("elsewhere.example:443"));
}

#[test]
fn a_condition_keeps_the_time_of_its_change() {
    let mut object = json!({});
    object["status"] = status(&object, &Availability::passed(), "t1").unwrap();
    assert_eq!(status(&object, &Availability::passed(), "t2"), None);
    let gone = status(&object, &Availability::silent("u", "why"), "t3").unwrap();
    assert_eq!(
        gone["conditions"],
        json!([{"type": "Available", "status": "False", "lastTransitionTime": "t3", "reason": "FailedDiscoveryCheck",
            "message": "failing or missing response from u: why"}])
    );
    object["status"] = gone;
    let other = status(&object, &Availability::silent("u", "another"), "t4").unwrap();
    assert_eq!(other["conditions"][0]["lastTransitionTime"], "t3");
}

#[test]
fn only_our_own_objects_are_managed() {
    let wanted = object("v1.g", "g", "v1", (1000, 100), ALWAYS);
    let mut theirs = wanted.clone();
    theirs["metadata"]["labels"] = json!({});
    let mut taken = wanted.clone();
    taken["spec"]["service"] = json!({"namespace": "n", "name": "s"});
    let mut changed = wanted.clone();
    changed["spec"]["versionPriority"] = 7.into();
    let mut unmarked = wanted.clone();
    unmarked["metadata"]["labels"][MANAGED] = "false".into();
    let check = |current: Option<&Value>, want: bool, expected: Next| {
        assert_eq!(next(current, want.then_some(&wanted), true), expected, "{current:?}");
    };
    check(None, true, Next::Create);
    check(None, false, Next::Nothing);
    check(Some(&wanted), true, Next::Nothing);
    check(Some(&changed), true, Next::Update);
    check(Some(&wanted), false, Next::Delete);
    let started = object("v1.g", "g", "v1", (1000, 100), super::local::ON_START);
    assert_eq!(next(Some(&started), None, true), Next::Delete);
    assert_eq!(next(Some(&started), None, false), Next::Nothing);
    for others in [&theirs, &taken, &unmarked] {
        check(Some(others), true, Next::Nothing);
        check(Some(others), false, Next::Nothing);
    }
}

#[test]
fn a_list_of_resources_becomes_aggregated_discovery() {
    let list = json!({"kind": "APIResourceList", "resources": [
        {"name": "a/status", "namespaced": true, "kind": "A", "verbs": ["get"]},
        {"name": "a", "singularName": "one", "namespaced": true, "kind": "A", "verbs": ["get", "list"], "shortNames": ["x"]},
        {"name": "b", "namespaced": false, "kind": "B", "group": "other", "version": "v2", "verbs": []},
    ]});
    assert_eq!(
        describe::described(&list, "g", "v1").unwrap(),
        json!({"version": "v1", "freshness": "Current", "resources": [
            {"resource": "a", "responseKind": {"group": "g", "version": "v1", "kind": "A"}, "scope": "Namespaced",
                "singularResource": "one", "verbs": ["get", "list"], "shortNames": ["x"], "subresources": [
                    {"subresource": "status", "responseKind": {"group": "g", "version": "v1", "kind": "A"}, "verbs": ["get"]}]},
            {"resource": "b", "responseKind": {"group": "other", "version": "v2", "kind": "B"}, "scope": "Cluster",
                "singularResource": "", "verbs": []},
        ]})
    );
    assert_eq!(describe::described(&json!({"kind": "Status"}), "g", "v1"), None);
    let index = json!({"paths": {"apis/g/v1": {"serverRelativeURL": "/openapi/v3/apis/g/v1?hash=AB12"}}});
    assert_eq!(describe::document(&index, "g", "v1").as_deref(), Some("AB12"));
    assert_eq!(describe::document(&index, "g", "v2"), None);
}

#[test]
fn nobody_can_say_who_they_are_themselves() {
    let mut headers = http::HeaderMap::new();
    for name in ["x-remote-user", "x-remote-group", "x-remote-uid", "x-remote-extra-scopes"] {
        headers.insert(name, "system:masters".parse().unwrap());
    }
    let user = User {
        name: "ann".into(),
        groups: vec!["a".into(), "b".into()],
        extra: [("example.com/Scope".to_string(), vec!["x".to_string()])].into(),
        ..User::default()
    };
    let secret = "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj";
    headers.insert("sec-websocket-protocol", secret.parse().unwrap());
    connect::hide_token(&mut headers);
    connect::introduce(&mut headers, &user);
    let mut found: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
    found.sort();
    assert_eq!(
        found,
        [
            "sec-websocket-protocol=v5.channel.k8s.io",
            "x-remote-extra-example.com%2fscope=x",
            "x-remote-group=a",
            "x-remote-group=b",
            "x-remote-user=ann"
        ]
    );
}

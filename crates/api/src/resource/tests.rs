//! Devices: each rule once, in upstream's words.

use serde_json::{Value, json};

use crate::testing::Rules;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                     end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                          alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for \
                          validation is '[A-Za-z_][A-Za-z0-9_]*')";
const REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

fn claim() -> Rules {
    Rules::of(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}},
                {"name": "any", "firstAvailable": [
                    {"name": "big", "deviceClassName": "big.example.com"},
                    {"name": "small", "deviceClassName": "small.example.com", "count": 2},
                ]},
            ],
            "constraints": [{"requests": ["gpu", "any/big"], "matchAttribute": "example.com/numa"}],
            "config": [{"requests": ["any"], "opaque": {"driver": "d.example.com", "parameters": {"kind": "X"}}}],
        },
    }}))
}

fn requests(requests: Value, expected: &[&str]) {
    claim().create(json!({"spec": {"devices": {"requests": requests}}}), expected);
}

fn exactly(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec.devices.requests[0].exactly{text}")).collect();
    requests(json!([{"exactly": changes}]), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_request_wants_devices_of_a_class() {
    requests(
        json!([{"exactly": null}]),
        &["spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
    );
    requests(
        json!([{"firstAvailable": [{"name": "x", "deviceClassName": "c"}]}]),
        &[
            "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but \
           multiple fields are set",
        ],
    );
    requests(
        json!([{"name": "any"}]),
        &[
            "spec.devices.requests[1]: Duplicate value: \"any\"",
            &format!("spec.devices.constraints[0].requests[0]: Invalid value: \"gpu\": {REQUEST}"),
        ],
    );
    requests(
        json!([{}, {"firstAvailable": [{}, {"name": "big"}]}]),
        &["spec.devices.requests[1].firstAvailable[1]: Duplicate value: \"big\""],
    );
    let many: Vec<Value> =
        (0..33).map(|number| json!({"name": format!("r{number}"), "exactly": {"deviceClassName": "c"}})).collect();
    claim().create(
        json!({"spec": {"devices": {"requests": many, "constraints": null, "config": null}}}),
        // `firstAvailable` of the second good request stays, but nothing is looked at any more.
        &["spec.devices.requests: Too many: 33: must have at most 32 items"],
    );
    exactly(json!({"deviceClassName": null}), &[".deviceClassName: Required value"]);
    exactly(json!({"deviceClassName": "C"}), &[&format!(".deviceClassName: Invalid value: \"C\": {SUBDOMAIN}")]);
    exactly(
        json!({"allocationMode": "All", "count": 3}),
        &[".count: Invalid value: 3: must not be specified when allocationMode is 'All'"],
    );
    exactly(json!({"count": -1}), &[".count: Invalid value: -1: must be greater than zero"]);
    exactly(
        json!({"allocationMode": "Some"}),
        &[".allocationMode: Unsupported value: \"Some\": supported values: \"All\", \"ExactCount\""],
    );
}

#[test]
fn one_device_is_the_default() {
    let made = claim().made(&Value::Null);
    let requests = &made["spec"]["devices"]["requests"];
    assert_eq!(requests[0]["exactly"]["allocationMode"], "ExactCount");
    assert_eq!(requests[0]["exactly"]["count"], 1);
    assert_eq!(requests[1]["firstAvailable"][0]["count"], 1);
    assert_eq!(requests[1]["firstAvailable"][1]["count"], 2);
    let all = claim().made(&json!({"spec": {"devices": {"requests": [{"exactly": {"allocationMode": "All"}}]}}}));
    assert!(all["spec"]["devices"]["requests"][0]["exactly"].get("count").is_none());
}

#[test]
fn selectors_are_compiled() {
    let select = |expression: &str| json!({"selectors": [{"cel": {"expression": expression}}]});
    for good in [
        "true",
        "device.driver == 'd.example.com'",
        "device.attributes['d.example.com'].model == 'x' && device.capacity['d.example.com'].memory.compareTo(quantity('1Gi')) >= 0",
        "device.attributes['d.example.com'].?preempt.orValue(false)",
        "'d.example.com' in device.attributes",
        "device.attributes['d.example.com'].shared",
        "device.allowMultipleAllocations == true",
        "cel.bind(a, device.attributes['d.example.com'], a.version.isGreaterThan(semver('1.0.0')))",
    ] {
        exactly(select(good), &[]);
    }
    exactly(json!({"selectors": [{}]}), &[".selectors[0].cel: Required value"]);
    exactly(
        select("device.drivers == 'x'"),
        &[
            ".selectors[0].cel.expression: Invalid value: \"device.drivers == 'x'\": compilation failed: ERROR: <input>:1:7: \
         undefined field 'drivers'\n | device.drivers == 'x'\n | ......^",
        ],
    );
    exactly(
        select("dev.driver == 'x'"),
        &[
            ".selectors[0].cel.expression: Invalid value: \"dev.driver == 'x'\": compilation failed: ERROR: <input>:1:1: \
         undeclared reference to 'dev' (in container '')\n | dev.driver == 'x'\n | ^",
        ],
    );
    exactly(
        select("device.driver"),
        &[
            ".selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not \
         string",
        ],
    );
    exactly(
        select(&format!("'{}' == ''", "x".repeat(10 * 1024))),
        &[".selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
    );
    // Each loop goes through 32 domains at most.
    let nested = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != b))))";
    exactly(select(nested), &[".selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"]);
    exactly(
        json!({"selectors": vec![json!({"cel": {"expression": "true"}}); 33]}),
        &[".selectors: Too many: 33: must have at most 32 items"],
    );
}

#[test]
fn tolerations() {
    let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
    exactly(tolerate(json!({"key": "k", "value": "v"})), &[]);
    exactly(tolerate(json!({"operator": "Exists", "effect": "None"})), &[]);
    exactly(
        tolerate(json!({"operator": "Exists", "value": "v", "effect": "Never"})),
        &[
            ".tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
            ".tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ],
    );
    exactly(
        tolerate(json!({"operator": "Gt"})),
        &[".tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\""],
    );
}

#[test]
fn constraints_and_configurations_name_requests() {
    let devices = |changes: Value, expected: &[&str]| claim().create(json!({"spec": {"devices": changes}}), expected);
    let at = "spec.devices.constraints[0]";
    devices(
        json!({"constraints": [{"matchAttribute": null}]}),
        &[&format!(
            "{at}: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
         are set"
        )],
    );
    devices(json!({"constraints": [{"matchAttribute": null, "distinctAttribute": "example.com/id"}]}), &[]);
    devices(
        json!({"constraints": [{"matchAttribute": "numa"}]}),
        &[&format!(
            "{at}.matchAttribute: Invalid value: \"numa\": a fully qualified name must be a domain and a name separated by a \
         slash"
        )],
    );
    devices(
        json!({"constraints": [{"matchAttribute": "/"}]}),
        &[
            &format!("{at}.matchAttribute: Invalid value: \"\": the domain must not be empty"),
            &format!("{at}.matchAttribute: Invalid value: \"\": the name must not be empty"),
        ],
    );
    devices(
        json!({"constraints": [{"requests": ["gpu", "gpu"]}]}),
        &[&format!("{at}.requests[1]: Duplicate value: \"gpu\"")],
    );
    devices(
        json!({"constraints": [{"requests": ["any/none", "a/b/c"]}]}),
        &[
            &format!("{at}.requests[0]: Invalid value: \"any/none\": {REQUEST}"),
            &format!("{at}.requests[1]: Invalid value: \"a/b/c\": {REQUEST}"),
        ],
    );
    devices(
        json!({"config": [{"requests": ["_"]}]}),
        &[
            &format!("spec.devices.config[0].requests[0]: Invalid value: \"_\": {LABEL}"),
            &format!("spec.devices.config[0].requests[0]: Invalid value: \"_\": {REQUEST}"),
        ],
    );
    let opaque = "spec.devices.config[0].opaque";
    devices(json!({"config": [{"opaque": null}]}), &[&format!("{opaque}: Required value")]);
    devices(
        json!({"config": [{"opaque": {"driver": null, "parameters": null}}]}),
        &[&format!("{opaque}.driver: Required value"), &format!("{opaque}.parameters: Required value")],
    );
    devices(
        json!({"config": [{"opaque": {"driver": "d".repeat(64), "parameters": {"x": "x".repeat(10 * 1024)}}}]}),
        &[
            &format!("{opaque}.driver: Too long: may not be more than 63 bytes"),
            &format!("{opaque}.parameters: Too long: may not be more than 10240 bytes"),
        ],
    );
    // As of CSI drivers, names of drivers may have capitals.
    devices(json!({"config": [{"opaque": {"driver": "D.Example.com"}}]}), &[]);
}

#[test]
fn what_a_claim_asks_for_is_for_ever() {
    claim().update(json!({"metadata": {"labels": {"a": "b"}}}), &[]);
    let template = Rules::of(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}},
        ]}}},
    }));
    template.create(json!({"spec": {"metadata": {"name": "x"}}}), &["spec.metadata.name: Forbidden: cannot be set"]);
    template.create(
        json!({"spec": {"spec": {"devices": {"requests": [{"exactly": {"count": -1}}]}}}}),
        &["spec.spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero"],
    );
}

fn result(changes: Value) -> Value {
    let mut result = json!({"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "d0"});
    crate::testing::merge(&mut result, &changes);
    result
}

#[test]
fn an_allocation_names_requests_and_devices() {
    let check = |changes: Value, expected: &[&str]| {
        let status = json!({"allocation": {"devices": {"results": [result(changes)]}}});
        let expected: Vec<String> =
            expected.iter().map(|text| format!("status.allocation.devices.results[0]{text}")).collect();
        claim().status(json!({}), status, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    };
    check(json!({}), &[]);
    check(json!({"request": "any/small", "pool": "node-1/sub"}), &[]);
    check(json!({"request": "none"}), &[&format!(".request: Invalid value: \"none\": {REQUEST}")]);
    check(
        json!({"driver": null, "pool": null, "device": "D"}),
        &[".driver: Required value", ".pool: Required value", &format!(".device: Invalid value: \"D\": {LABEL}")],
    );
    check(
        json!({"bindingConditions": ["a", "a"]}),
        &[
            ".bindingConditions[1]: Duplicate value: \"a\"",
            ".bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
        ],
    );
    check(
        json!({"bindingConditions": ["a"], "bindingFailureConditions": ["a"]}),
        &[".bindingFailureConditions[0]: Invalid value: \"a\": bindingFailureConditions must not overlap with \
         bindingConditions"],
    );
    check(
        json!({"bindingFailureConditions": ["a"]}),
        &[".bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions"],
    );
    check(json!({"shareID": "b0c9b5c2-1a2b-4c3d-8e4f-5a6b7c8d9e0f"}), &[]);
    for (id, problem) in [
        ("x", "error validating uid: invalid UUID length: 1"),
        ("b0c9b5c2-1a2b-4c3d-8e4f-5a6b7c8d9e0g", "error validating uid: invalid UUID format"),
        ("(b0c9b5c2-1a2b-4c3d-8e4f-5a6b7c8d9e0f)", "error validating uid: invalid bracketed UUID format"),
        ("urn/uuid/b0c9b5c2-1a2b-4c3d-8e4f-5a6b7c8d9e0f", "error validating uid: invalid urn prefix: \"urn/uuid/\""),
        (
            "B0C9B5C2-1A2B-4C3D-8E4F-5A6B7C8D9E0F",
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal \
             characters",
        ),
    ] {
        check(json!({"shareID": id}), &[&format!(".shareID: Invalid value: {id:?}: {problem}")]);
    }
    let config = |source: Value| {
        let opaque = json!({"driver": "d.example.com", "parameters": {}});
        json!({"allocation": {"devices": {"results": [result(json!({}))], "config": [{"source": source, "opaque": opaque}]}}})
    };
    claim().status(json!({}), config(json!("FromClass")), &[]);
    claim().status(json!({}), config(Value::Null), &["status.allocation.devices.config[0].source: Required value"]);
    claim().status(json!({}), config(json!("FromPod")), &[
        "status.allocation.devices.config[0].source: Unsupported value: \"FromPod\": supported values: \"FromClaim\", \
         \"FromClass\"",
    ]);
    claim().status(json!({}), json!({"allocation": {"nodeSelector": {"nodeSelectorTerms": []}}}), &[
        "status.allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
    ]);
}

#[test]
fn a_claim_is_reserved_for_users() {
    let user = |uid: &str| json!({"resource": "pods", "name": "p", "uid": uid});
    let reserved =
        |users: Vec<Value>| json!({"reservedFor": users, "allocation": {"devices": {"results": [result(json!({}))]}}});
    claim().status(json!({}), reserved(vec![user("1"), user("2")]), &[]);
    claim().status(json!({}), reserved(vec![user("1"), user("1")]), &["status.reservedFor[1]: Duplicate value: \"1\""]);
    claim().status(
        json!({}),
        reserved(vec![json!({})]),
        &[
            "status.reservedFor[0].resource: Required value",
            "status.reservedFor[0].name: Required value",
            "status.reservedFor[0].uid: Required value",
        ],
    );
    let many = (0..257).map(|number| user(&number.to_string())).collect();
    claim().status(json!({}), reserved(many), &["status.reservedFor: Too many: 257: must have at most 256 items"]);
    claim().status(
        json!({}),
        json!({"reservedFor": [user("1")]}),
        &["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    );
    let mut deleted = claim().made(&Value::Null);
    deleted["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z".into();
    let deleted = Rules::of(deleted);
    let mut errors = machinery::field::Errors::default();
    let (mut old, mut new) = (deleted.made(&Value::Null), deleted.made(&Value::Null));
    (old["status"], new["status"]) = (reserved(vec![user("1")]), reserved(vec![user("1"), user("2")]));
    let root = machinery::node::Node::root;
    (super::resourceclaim::KIND.validate_status)(&root(&new), &root(&old), &mut errors);
    assert_eq!(
        errors.summary(),
        "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` \
         are set"
    );
}

#[test]
fn drivers_tell_of_devices_that_the_claim_has() {
    let allocation = json!({"devices": {"results": [result(json!({}))]}});
    let own = json!({"driver": "d.example.com", "pool": "p", "device": "d0"});
    let check = |changes: Value, expected: &[&str]| {
        let mut device = own.clone();
        crate::testing::merge(&mut device, &changes);
        let expected: Vec<String> = expected.iter().map(|text| format!("status.devices[0]{text}")).collect();
        claim().status(
            json!({}),
            json!({"allocation": allocation, "devices": [device]}),
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    check(json!({}), &[]);
    check(
        json!({"device": "d1"}),
        &[
            ": Invalid value: {\"Driver\":\"d.example.com\",\"Pool\":\"p\",\"Device\":\"d1\",\"ShareID\":\"\"}: must be an \
         allocated device in the claim",
        ],
    );
    check(json!({"data": ["x"]}), &[".data: Invalid value: \"<value omitted>\": must be a valid JSON object"]);
    check(
        json!({"networkData": {"interfaceName": "x".repeat(257), "hardwareAddress": "x".repeat(129)}}),
        &[
            ".networkData.interfaceName: Too long: may not be more than 256 bytes",
            ".networkData.hardwareAddress: Too long: may not be more than 128 bytes",
        ],
    );
    check(json!({"networkData": {"ips": ["10.0.0.1/24", "2001:db8::1/64"]}}), &[]);
    check(
        json!({"networkData": {"ips": ["10.0.0.1", "2001:db8:0::1/64", "10.0.0.1"]}}),
        &[
            ".networkData.ips[0]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or \
         2001:db8::1/64)",
            ".networkData.ips[1]: Invalid value: \"2001:db8:0::1/64\": must be in canonical form (\"2001:db8::1/64\")",
            ".networkData.ips[2]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or \
         2001:db8::1/64)",
            ".networkData.ips[2]: Duplicate value: \"10.0.0.1\"",
        ],
    );
    let twice = json!({"allocation": allocation, "devices": [own, own]});
    claim().status(json!({}), twice, &[
        "status.devices[1]: Duplicate value: {\"Driver\":\"d.example.com\",\"Pool\":\"p\",\"Device\":\"d0\",\"ShareID\":\"\"}",
    ]);
}

#[test]
fn what_was_told_of_a_device_goes_with_it() {
    let told = |device: &str| json!({"driver": "d", "pool": "p", "device": device});
    let claim = |results: Value, devices: Value| json!({"status": {"allocation": {"devices": {"results": results}}, "devices": devices}});
    let old = claim(json!([told("a"), told("b")]), json!([told("a"), told("b")]));
    let mut new = claim(json!([told("b")]), json!([told("a"), told("b"), told("c")]));
    (super::resourceclaim::KIND.prepare_status)(&mut new, &old);
    // Of a device that was never allocated, validation speaks.
    assert_eq!(new["status"]["devices"], json!([told("b"), told("c")]));
    let mut none = json!({"status": {"devices": [told("a"), told("b")]}});
    (super::resourceclaim::KIND.prepare_status)(&mut none, &old);
    assert_eq!(none, json!({"status": {}}));
}

#[test]
fn classes() {
    let class = Rules::of(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd.example.com'"}}]},
    }));
    class.create(json!({"spec": {"extendedResourceName": "example.com/gpu"}}), &[]);
    for bad in ["gpu", "kubernetes.io/gpu", "requests.example.com/gpu"] {
        class.create(
            json!({"spec": {"extendedResourceName": bad}}),
            &[&format!("spec.extendedResourceName: Invalid value: {bad:?}: must be a valid extended resource name")],
        );
    }
    let long = json!({"spec": {"config": [{"opaque": {"driver": "d", "parameters": {"x": "x".repeat(10 * 1024)}}}]}});
    let refusal = "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes";
    class.create(long.clone(), &[refusal]);
    class.update(long.clone(), &[refusal]);
    // What an older server took is kept.
    class.update_from(&long, json!({"metadata": {"labels": {"a": "b"}}}), &[]);
}

fn slice() -> Rules {
    Rules::of(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "d.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [{"name": "d0"}],
    }}))
}

fn spec(changes: Value, expected: &[&str]) {
    slice().create(json!({"spec": changes}), expected);
}

fn device(changes: Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| format!("spec.devices[0]{text}")).collect();
    spec(json!({"devices": [changes]}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_slice_is_of_a_driver_and_a_pool() {
    spec(
        json!({"pool": {"name": null, "generation": -1, "resourceSliceCount": null}}),
        &[
            "spec.pool.name: Required value",
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ],
    );
    spec(json!({"pool": {"name": "a/B"}}), &[&format!("spec.pool.name: Invalid value: \"B\": {SUBDOMAIN}")]);
    spec(
        json!({"sharedCounters": [{"name": "c", "counters": {"a": {"value": "1"}}}]}),
        &["spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"],
    );
    slice().update(
        json!({"spec": {"pool": {"name": "n2", "generation": 2}, "driver": "e.example.com"}}),
        &[
            "spec.pool.name: Invalid value: \"n2\": field is immutable",
            "spec.driver: Invalid value: \"e.example.com\": field is immutable",
        ],
    );
    slice().update(
        json!({"spec": {"nodeName": null, "allNodes": true}}),
        &["spec.nodeName: Invalid value: null: field is immutable"],
    );
}

#[test]
fn a_slice_says_which_nodes_reach_its_devices() {
    let all = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    spec(json!({"nodeName": null}), &[&format!("spec: Required value: {all}")]);
    spec(
        json!({"allNodes": true}),
        &[&format!("spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {all}, but multiple fields are set")],
    );
    spec(
        json!({"nodeName": "", "allNodes": false}),
        &[
            "spec.nodeName: Invalid value: \"\": must be either unset or set to a non-empty string",
            "spec.allNodes: Invalid value: false: must be either unset or set to true",
            &format!("spec: Required value: {all}"),
        ],
    );
    let term = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]});
    let select = |terms: Value| json!({"nodeName": null, "nodeSelector": {"nodeSelectorTerms": terms}});
    spec(select(json!([term])), &[]);
    spec(
        select(json!([term, term])),
        &[&format!(
            "spec.nodeSelector.nodeSelectorTerms: Invalid value: [{0},{0}]: must have exactly one node selector term",
            "{\"MatchExpressions\":[{\"Key\":\"a\",\"Operator\":\"In\",\"Values\":[\"b\"]}],\"MatchFields\":null}"
        )],
    );
}

#[test]
fn devices_have_names_and_are_not_too_many() {
    device(json!({"name": "D"}), &[&format!(".name: Invalid value: \"D\": {LABEL}")]);
    spec(json!({"devices": [{}, {"name": "d0"}]}), &["spec.devices[1]: Duplicate value: \"d0\""]);
    let many = |count: usize, more: Value| -> Value {
        let one = |number| {
            let mut device = json!({"name": format!("d{number}")});
            crate::testing::merge(&mut device, &more);
            device
        };
        json!({"devices": (0..count).map(one).collect::<Vec<_>>()})
    };
    spec(many(128, json!({})), &[]);
    spec(many(129, json!({})), &["spec.devices: Too many: 129: must have at most 128 items"]);
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    spec(many(64, taint.clone()), &[]);
    spec(many(65, taint), &["spec.devices: Too many: 65: must have at most 64 items"]);
}

#[test]
fn attributes_and_capacities() {
    device(
        json!({"attributes": {"a": {"int": 1}, "example.com/b": {"bool": false}, "c": {"version": "1.2.3-rc.1+b"}}}),
        &[],
    );
    device(
        json!({"attributes": {"a-b": {"int": 1}}}),
        &[&format!(".attributes: Invalid value: \"a-b\": {IDENTIFIER}")],
    );
    device(
        json!({"attributes": {"/x": {"int": 1}}}),
        &[".attributes: Invalid value: \"\": the domain must not be empty"],
    );
    device(
        json!({"attributes": {"a": {}}}),
        &[".attributes[a]: Invalid value: \"\": exactly one value must be specified"],
    );
    device(
        json!({"attributes": {"a": {"int": 1, "bool": true}}}),
        &[
            ".attributes[a]: Invalid value: {\"IntValue\":1,\"BoolValue\":true,\"StringValue\":null,\"VersionValue\":null,\
         \"IntValues\":null,\"BoolValues\":null,\"StringValues\":null,\"VersionValues\":null}: exactly one value must be \
         specified",
        ],
    );
    device(
        json!({"attributes": {"a": {"string": "x".repeat(65)}}}),
        &[".attributes[a].string: Too long: may not be more than 64 bytes"],
    );
    for bad in ["1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3.4"] {
        device(
            json!({"attributes": {"a": {"version": bad}}}),
            &[&format!(
                ".attributes[a].version: Invalid value: {bad:?}: must be a string compatible with semver.org spec 2.0.0"
            )],
        );
    }
    let long = "a".repeat(97);
    let shown = format!("{}...{}", "a".repeat(47), "a".repeat(46));
    device(
        json!({"attributes": {long: {}}}),
        &[
            ".attributes: Too long: may not be more than 32 bytes",
            &format!(".attributes[{shown}]: Invalid value: \"\": exactly one value must be specified"),
        ],
    );
    let many: serde_json::Map<String, Value> = (0..33).map(|n| (format!("a{n}"), json!({"int": 1}))).collect();
    device(
        json!({"attributes": many}),
        &[": Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
    );
}

#[test]
fn shared_devices_bound_what_is_asked_of_them() {
    let check = |policy: Value, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|text| format!(".capacity[m].requestPolicy{text}")).collect();
        let capacity = json!({"m": {"value": "10Gi", "requestPolicy": policy}});
        device(
            json!({"allowMultipleAllocations": true, "capacity": capacity}),
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    device(
        json!({"capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}}}),
        &[".capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"],
    );
    check(json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}), &[]);
    check(
        json!({"validValues": ["1Gi"], "validRange": {"min": "1Gi"}}),
        &[
            ": Forbidden: exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        ],
    );
    check(json!({"validValues": ["1Gi"]}), &[".default: Required value: required when validValues is defined"]);
    check(json!({"validRange": {"min": "1Gi"}}), &[".default: Required value: required when validRange is defined"]);
    check(
        json!({"default": "3Gi", "validValues": ["2Gi", "1Gi", "1Gi", "11Gi"]}),
        &[
            ".validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order",
            ".validValues[3]: Invalid value: \"11Gi\": option is larger than capacity value: 10Gi",
            ".validValues[2]: Duplicate value: \"1073741824\"",
            ".validValues: Invalid value: \"3Gi\": default value is not valid according to the requestPolicy",
        ],
    );
    check(json!({"default": "2Gi", "validRange": {"min": "1Gi", "max": "9Gi", "step": "1Gi"}}), &[]);
    check(
        json!({"default": "2Gi", "validRange": {}}),
        &[".validRange.min: Required value: required when validRange is defined"],
    );
    check(
        json!({"default": "1Gi", "validRange": {"min": "11Gi", "max": "12Gi"}}),
        &[
            ".validRange.min: Invalid value: \"11Gi\": min is larger than capacity value: 10Gi",
            ".validRange.min: Invalid value: \"1Gi\": default is less than min: 11Gi",
            ".validRange.max: Invalid value: \"12Gi\": max is larger than capacity value: 10Gi",
        ],
    );
    check(
        json!({"default": "4Gi", "validRange": {"min": "3Gi", "max": "2Gi", "step": "9Gi"}}),
        &[
            ".validRange.max: Invalid value: \"3Gi\": min is larger than max: 2Gi",
            ".validRange.max: Invalid value: \"4Gi\": default is more than max: 2Gi",
            ".validRange.step: Invalid value: \"9Gi\": one step 12Gi is larger than capacity value: 10Gi",
            ".validRange.step: Invalid value: \"4Gi\": value is not a multiple of a given step (9Gi) from (3Gi)",
            ".validRange.step: Invalid value: \"2Gi\": value is not a multiple of a given step (9Gi) from (3Gi)",
        ],
    );
}

#[test]
fn taints_of_devices() {
    let taint = |taint: Value| json!({"taints": [taint]});
    device(taint(json!({"key": "example.com/bad", "effect": "None"})), &[]);
    device(taint(json!({"key": "k"})), &[".taints[0].effect: Required value"]);
    device(
        taint(json!({"key": "k", "value": "a b", "effect": "Now"})),
        &[
            ".taints[0].value: Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ".taints[0].effect: Unsupported value: \"Now\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ],
    );
    device(
        json!({"taints": vec![json!({"key": "k", "effect": "None"}); 17]}),
        &[".taints: Too many: 17: must have at most 16 items"],
    );
    // An effect of a later release stays where it is.
    let stored = json!({"spec": {"devices": [taint(json!({"key": "k", "effect": "Later"}))]}});
    slice().update_from(&stored, json!({"spec": {"pool": {"generation": 2}}}), &[]);
}

#[test]
fn counters() {
    let consumes = |one: Value| json!({"consumesCounters": [one]});
    device(consumes(json!({"counterSet": "c", "counters": {"a": {"value": "1"}}})), &[]);
    device(
        consumes(json!({})),
        &[".consumesCounters[0].counterSet: Required value", ".consumesCounters[0].counters: Required value"],
    );
    let one = json!({"counterSet": "c", "counters": {"a": {"value": "1"}}});
    device(json!({"consumesCounters": [one, one]}), &[".consumesCounters[1]: Duplicate value: \"c\""]);
    device(
        json!({"consumesCounters": [one, one, one]}),
        &[".consumesCounters: Too many: 3: must have at most 2 items"],
    );
    let shared = |set: Value| json!({"devices": null, "sharedCounters": [set]});
    spec(
        shared(json!({"name": "c", "counters": {"A": {"value": "1"}}})),
        &[&format!("spec.sharedCounters[0].counters: Invalid value: \"A\": {LABEL}")],
    );
    let many: serde_json::Map<String, Value> = (0..33).map(|n| (format!("a{n}"), json!({"value": "1"}))).collect();
    spec(
        shared(json!({"name": "c", "counters": many})),
        &["spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items"],
    );
}

#[test]
fn each_device_says_which_nodes_reach_it_where_its_slice_does_not() {
    device(
        json!({"allNodes": true}),
        &[
            ": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set \
         to true in the ResourceSlice spec",
        ],
    );
    let check = |device: Value, expected: &[&str]| {
        spec(json!({"nodeName": null, "perDeviceNodeSelection": true, "devices": [device]}), expected);
    };
    let one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to \
               true in the ResourceSlice spec";
    check(json!({"allNodes": true}), &[]);
    check(json!({"nodeName": "n1"}), &[]);
    check(json!({}), &[&format!("spec.devices[0]: Required value: {one}")]);
    check(
        json!({"nodeName": "n1", "allNodes": true}),
        &[&format!("spec.devices[0]: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}")],
    );
}

#[test]
fn fields_of_features_that_are_off_are_dropped() {
    let with = json!({"spec": {"devices": [{
        "attributes": {"a": {"int": 1}, "b": {"ints": [1, 2]}},
        "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}},
    }]}});
    let made = slice().made(&with);
    assert_eq!(made["spec"]["devices"][0], json!({"name": "d0", "attributes": {"a": {"int": 1}, "b": {}}}));
    // Stored by a server that has them on, they stay.
    let mut stored = slice().made(&Value::Null);
    crate::testing::merge(&mut stored, &with);
    let mut new = stored.clone();
    (super::resourceslice::KIND.prepare_update)(&mut new, &stored);
    assert_eq!(new, stored);
}

//! Rules of APIServices: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn apiservice() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.example.com"},
        "spec": {
            "group": "example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "n", "name": "s"},
        },
    })
}

#[test]
fn api_services() {
    let rules = Rules::of(apiservice());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        json!({"metadata": {"name": "v2.example.com"}}),
        &["metadata.name: Invalid value: \"v2.example.com\": must be `spec.version+\".\"+spec.group`: \
             \"v1.example.com\""],
    );
    rules.create(
        spec(json!({"group": "a_b"})),
        &[
            "metadata.name: Invalid value: \"v1.example.com\": must be `spec.version+\".\"+spec.group`: \
             \"v1.a_b\"",
            "spec.group: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
             (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ],
    );
    rules.create(
        spec(json!({"version": "V"})),
        &[
            "metadata.name: Invalid value: \"v1.example.com\": must be `spec.version+\".\"+spec.group`: \
             \"V.example.com\"",
            "spec.version: Invalid value: \"V\": a DNS-1035 label must consist of lower case alphanumeric \
             characters or '-', start with an alphabetic character, and end with an alphanumeric character \
             (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    rules.create(
        spec(json!({"version": ""})),
        &[
            "metadata.name: Invalid value: \"v1.example.com\": must be `spec.version+\".\"+spec.group`: \
             \".example.com\"",
            "spec.version: Invalid value: \"\": a DNS-1035 label must consist of lower case alphanumeric \
             characters or '-', start with an alphabetic character, and end with an alphanumeric character \
             (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    rules.create(
        spec(json!({"groupPriorityMinimum": 0})),
        &["spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000"],
    );
    rules.create(
        spec(json!({"groupPriorityMinimum": 20001})),
        &["spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000"],
    );
    rules.create(
        spec(json!({"versionPriority": 0})),
        &["spec.versionPriority: Invalid value: 0: must be positive and less than 1000"],
    );
    rules.create(
        spec(json!({"versionPriority": 1001})),
        &["spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"],
    );
    rules.create(
        spec(json!({"service": null})),
        &["spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have \
             insecureSkipTLSVerify"],
    );
    rules.create(spec(json!({"service": null, "insecureSkipTLSVerify": false})), &[]);
    rules.create(
        spec(json!({"service": {"namespace": "", "name": ""}})),
        &["spec.service.namespace: Required value", "spec.service.name: Required value"],
    );
    rules.create(
        spec(json!({"service": {"port": 70000}})),
        &["spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, \
             inclusive"],
    );
    rules.create(spec(json!({"insecureSkipTLSVerify": false})), &[]);
    rules.create(
        spec(json!({"caBundle": "YQ=="})),
        &["spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"],
    );
    rules.create(
        spec(json!({"insecureSkipTLSVerify": false, "service": null, "caBundle": "YQ=="})),
        &["spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle"],
    );
}

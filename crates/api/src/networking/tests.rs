//! Rules of ingresses, their classes, and ranges of services: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn ingress_class() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": "i"},
        "spec": {"controller": "example.com/c"},
    })
}

fn service_cidr() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "s"},
        "spec": {"cidrs": ["10.0.0.0/24"]},
    })
}

fn ingress() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "i", "namespace": "n"},
        "spec": {
            "rules": [
                {
                    "host": "a.example.com",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "s", "port": {"number": 80}}},
                            },
                        ],
                    },
                },
            ],
        },
    })
}

#[test]
fn ingress_classes() {
    let rules = Rules::of(ingress_class());
    let parameters = |inner: Value| json!({"spec": {"parameters": inner}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(spec(json!({"controller": ""})), &["spec.controller: Required value"]);
    rules.create(
        spec(json!({"controller": "example"})),
        &["spec.controller: Invalid value: \"example\": must be a domain-prefixed path (such as \
             \"acme.io/foo\")"],
    );
    rules.create(spec(json!({"controller": "a".repeat(251)})), &[
            "spec.controller: Too long: may not be more than 250 bytes",
            "spec.controller: Invalid value: \
             \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": \
             must be a domain-prefixed path (such as \"acme.io/foo\")",
        ]);
    rules.create(
        spec(json!({"controller": "example.com/a b"})),
        &["spec.controller: Invalid value: \"a b\": Invalid path (regex used for validation is \
             '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"],
    );
    rules.create(parameters(json!({"kind": "K", "name": "n"})), &[]);
    rules.create(
        parameters(json!({"apiGroup": "a_b", "kind": "K", "name": "n"})),
        &["spec.parameters.apiGroup: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist \
             of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        parameters(json!({"kind": "", "name": ""})),
        &["spec.parameters.kind: Required value", "spec.parameters.name: Required value"],
    );
    rules.create(
        parameters(json!({"kind": "K", "name": "n", "scope": "Namespace"})),
        &["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
    );
    rules.create(
        parameters(json!({"kind": "K", "name": "n", "scope": "Cluster", "namespace": "x"})),
        &["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
    );
    rules.create(
        parameters(json!({"kind": "K", "name": "n", "scope": "Galaxy"})),
        &["spec.parameters.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \
             \"Namespace\""],
    );
    rules.create(parameters(json!({"kind": "K", "name": "n", "scope": "Namespace", "namespace": "x"})), &[]);
    rules.update(
        spec(json!({"controller": "example.com/d"})),
        &["spec.controller: Invalid value: \"example.com/d\": field is immutable"],
    );
    rules.update(parameters(json!({"kind": "K", "name": "n"})), &[]);
}

#[test]
fn ranges_of_services() {
    let rules = Rules::of(service_cidr());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(spec(json!({"cidrs": null})), &["spec.cidrs: Required value: at least one CIDR required"]);
    rules.create(
        spec(json!({"cidrs": ["10.0.0.1/24"]})),
        &["spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond the prefix length"],
    );
    rules.create(
        spec(json!({"cidrs": ["10.0.0.0/24", "10.1.0.0/24"]})),
        &["spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP \
             for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"],
    );
    rules.create(spec(json!({"cidrs": ["10.0.0.0/24", "fd00::/112"]})), &[]);
    rules.create(
        spec(json!({"cidrs": ["x"]})),
        &["spec.cidrs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or \
             2001:db8::/64)"],
    );
    rules.create(
        spec(json!({"cidrs": ["10.0.0.0/24", "fd00::/112", "fd01::/112"]})),
        &["spec.cidrs: Invalid value: {\"CIDRs\":[\"10.0.0.0/24\",\"fd00::/112\",\"fd01::/112\"]}: may \
             only hold up to 2 values"],
    );
    rules.create(
        spec(json!({"cidrs": ["FD00::/112"]})),
        &["spec.cidrs[0]: Invalid value: \"FD00::/112\": must be in canonical form (\"fd00::/112\")"],
    );
    rules.update(
        spec(json!({"cidrs": ["10.0.1.0/24"]})),
        &["spec.cidrs[0]: Invalid value: \"10.0.1.0/24\": field is immutable"],
    );
    rules.update(spec(json!({"cidrs": ["10.0.0.0/24", "fd00::/112"]})), &[]);
    rules.update(
        spec(json!({"cidrs": ["10.0.0.0/24", "10.1.0.0/24"]})),
        &["spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP \
             for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"],
    );
}

#[test]
fn ingresses() {
    let rules = Rules::of(ingress());
    let backend = |inner: Value| json!({"spec": {"rules": [{"http": {"paths": [{"backend": inner}]}}]}});
    let path = |inner: Value| json!({"spec": {"rules": [{"http": {"paths": [inner]}}]}});
    let rule = |inner: Value| json!({"spec": {"rules": [inner]}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        spec(json!({"rules": null})),
        &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
    );
    rules.create(
        rule(json!({"host": "A"})),
        &["spec.rules[0].host: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(rule(json!({"host": "*.example.com"})), &[]);
    rules.create(
        rule(json!({"host": "*.*.com"})),
        &["spec.rules[0].host: Invalid value: \"*.*.com\": a wildcard DNS-1123 subdomain must start with \
             '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric \
             characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex \
             used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        rule(json!({"host": "10.0.0.1"})),
        &["spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"],
    );
    rules.create(
        path(json!({"path": "x"})),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path"],
    );
    rules.create(
        path(json!({"path": "/a//b"})),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'"],
    );
    rules.create(
        path(json!({"path": "/a/../b"})),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"/a/../b\": must not contain '/../'"],
    );
    rules.create(
        path(json!({"path": "/a%2fb"})),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"/a%2fb\": must not contain '%2f'"],
    );
    rules.create(
        path(json!({"pathType": null})),
        &["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"],
    );
    rules.create(
        path(json!({"pathType": "Regex"})),
        &["spec.rules[0].http.paths[0].pathType: Unsupported value: \"Regex\": supported values: \
             \"Exact\", \"ImplementationSpecific\", \"Prefix\""],
    );
    rules.create(path(json!({"pathType": "ImplementationSpecific", "path": ""})), &[]);
    rules.create(
        backend(json!({"service": {"name": ""}})),
        &["spec.rules[0].http.paths[0].backend.service.name: Required value"],
    );
    rules.create(
        backend(json!({"service": {"port": {"number": 0}}})),
        &["spec.rules[0].http.paths[0].backend: Required value: port name or number is required"],
    );
    rules.create(
        backend(json!({"service": {"port": {"name": "http"}}})),
        &["spec.rules[0].http.paths[0].backend: Invalid value: \"\": cannot set both port name & port number"],
    );
    rules.create(
        backend(json!({"service": {"port": {"number": null, "name": "http_x"}}})),
        &["spec.rules[0].http.paths[0].backend.service.port.name: Invalid value: \"http_x\": must \
             contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"],
    );
    rules.create(
        backend(json!({"resource": {"kind": "B", "name": "b"}})),
        &["spec.rules[0].http.paths[0].backend: Invalid value: \"\": cannot set both resource and \
             service backends"],
    );
    rules.create(
        backend(json!({"service": null})),
        &["spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required"],
    );
    rules.create(backend(json!({"service": null, "resource": {"apiGroup": "g.com", "kind": "B", "name": "b"}})), &[]);
    rules.create(
        spec(json!({"tls": [{"hosts": ["A"]}]})),
        &["spec.tls[0].hosts[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        spec(json!({"tls": [{"secretName": "S_"}]})),
        &["spec.tls[0].secretName: Invalid value: \"S_\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        spec(json!({"ingressClassName": "A_"})),
        &["spec.ingressClassName: Invalid value: \"A_\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        spec(json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}, "rules": null})),
        &[],
    );
}

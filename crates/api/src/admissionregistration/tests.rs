//! Rules of webhooks, policies and their bindings: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn validating_webhook_configuration() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [
            {
                "name": "a.example.com",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://example.com/hook"},
                "rules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                    },
                ],
            },
        ],
    })
}

fn mutating_webhook_configuration() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [
            {
                "name": "a.example.com",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://example.com/hook"},
                "rules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                    },
                ],
            },
        ],
    })
}

fn validating_admission_policy() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "resources": ["deployments"],
                    },
                ],
            },
            "validations": [{"expression": "object.spec.replicas < 5"}],
        },
    })
}

fn validating_admission_policy_binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    })
}

fn mutating_admission_policy() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "resources": ["deployments"],
                    },
                ],
            },
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
        },
    })
}

#[test]
fn webhooks_say_what_they_do() {
    let rules = Rules::of(validating_webhook_configuration());
    let webhook = |inner: Value| json!({"webhooks": [inner]});
    rules.create(
        webhook(json!({"name": "a"})),
        &["webhooks[0].name: Invalid value: \"a\": should be a domain with at least three segments \
             separated by dots"],
    );
    rules.create(
        webhook(json!({"name": "a.B.c"})),
        &["webhooks[0].name: Invalid value: \"a.B.c\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(json!({"webhooks": [{}, {"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com/hook"}, "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}]}), &["webhooks[1].name: Duplicate value: \"a.example.com\""]);
    rules.create(
        webhook(json!({"sideEffects": "Some"})),
        &["webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \
             \"NoneOnDryRun\""],
    );
    rules.create(
        webhook(json!({"sideEffects": "Unknown"})),
        &["webhooks[0].sideEffects: Unsupported value: \"Unknown\": supported values: \"None\", \
             \"NoneOnDryRun\""],
    );
    rules.create(
        webhook(json!({"failurePolicy": "Retry"})),
        &["webhooks[0].failurePolicy: Unsupported value: \"Retry\": supported values: \"Fail\", \"Ignore\""],
    );
    rules.create(
        webhook(json!({"matchPolicy": "Loose"})),
        &["webhooks[0].matchPolicy: Unsupported value: \"Loose\": supported values: \"Equivalent\", \
             \"Exact\""],
    );
    rules.create(
        webhook(json!({"timeoutSeconds": 0})),
        &["webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds"],
    );
    rules.create(
        webhook(json!({"timeoutSeconds": 31})),
        &["webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"],
    );
    rules.create(
        webhook(json!({"admissionReviewVersions": ["v2"]})),
        &["webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of \
             v1, v1beta1"],
    );
    rules.create(
        webhook(json!({"admissionReviewVersions": ["v1", "v1"]})),
        &["webhooks[0].admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version"],
    );
    rules.create(webhook(json!({"admissionReviewVersions": ["v2", "v1beta1"]})), &[]);
    rules.create(
        webhook(json!({"namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "In"}]}})),
        &["webhooks[0].namespaceSelector.matchExpressions[0].values: Required value: must be specified \
             when `operator` is 'In' or 'NotIn'"],
    );
    rules.create(
        webhook(json!({"objectSelector": {"matchLabels": {"-": "v"}}})),
        &["webhooks[0].objectSelector.matchLabels: Invalid value: \"-\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
    );
}

#[test]
fn rules_of_webhooks() {
    let rules = Rules::of(validating_webhook_configuration());
    let rule = |inner: Value| json!({"webhooks": [{"rules": [inner]}]});
    rules.create(
        rule(json!({"operations": [""]})),
        &["webhooks[0].rules[0].operations[0]: Unsupported value: \"\": supported values: \"*\", \
             \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\""],
    );
    rules.create(
        rule(json!({"operations": ["*", "CREATE"]})),
        &["webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must \
             not specify other operations"],
    );
    rules.create(
        rule(json!({"operations": ["READ"]})),
        &["webhooks[0].rules[0].operations[0]: Unsupported value: \"READ\": supported values: \"*\", \
             \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\""],
    );
    rules.create(
        rule(json!({"apiGroups": ["*", "apps"]})),
        &["webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"apps\"]: if '*' is present, must not \
             specify other API groups"],
    );
    rules.create(rule(json!({"apiVersions": [""]})), &["webhooks[0].rules[0].apiVersions[0]: Required value"]);
    rules.create(
        rule(json!({"apiVersions": ["*", "v1"]})),
        &["webhooks[0].rules[0].apiVersions: Invalid value: [\"*\",\"v1\"]: if '*' is present, must not \
             specify other API versions"],
    );
    rules.create(
        rule(json!({"resources": ["*", "pods"]})),
        &["webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not \
             specify other resources without subresources"],
    );
    rules.create(
        rule(json!({"resources": ["pods/*", "pods/log"]})),
        &["webhooks[0].rules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must \
             not specify pods/log"],
    );
    rules.create(
        rule(json!({"resources": ["*/log", "pods/log"]})),
        &["webhooks[0].rules[0].resources[1]: Invalid value: \"pods/log\": if '*/log' is present, must \
             not specify pods/log"],
    );
    rules.create(
        rule(json!({"resources": ["*/*", "pods"]})),
        &["webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must \
             not specify other resources"],
    );
    rules.create(rule(json!({"resources": [""]})), &["webhooks[0].rules[0].resources[0]: Required value"]);
    rules.create(rule(json!({"resources": ["*/*"]})), &[]);
    rules.create(
        rule(json!({"scope": "Some"})),
        &["webhooks[0].rules[0].scope: Unsupported value: \"Some\": supported values: \"*\", \
             \"Cluster\", \"Namespaced\""],
    );
}

#[test]
fn clients_of_webhooks() {
    let rules = Rules::of(validating_webhook_configuration());
    let client = |inner: Value| json!({"webhooks": [{"clientConfig": inner}]});
    rules.create(
        client(json!({"url": null})),
        &["webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
    );
    rules.create(
        client(json!({"service": {"namespace": "n", "name": "s"}})),
        &["webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
    );
    rules.create(
        client(json!({"url": "http://example.com"})),
        &["webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL \
             scheme; desired format: https://host[/path]"],
    );
    rules.create(
        client(json!({"url": "https://"})),
        &["webhooks[0].clientConfig.url: Invalid value: \"\": host must be specified; desired format: \
             https://host[/path]"],
    );
    rules.create(
        client(json!({"url": "https://a/b?c=d"})),
        &["webhooks[0].clientConfig.url: Invalid value: \"c=d\": query parameters are not permitted in \
             the URL"],
    );
    rules.create(
        client(json!({"url": null, "service": {"namespace": "n", "name": "s", "port": 70000}})),
        &["webhooks[0].clientConfig.service.port: Invalid value: 70000: port is not valid: must be \
             between 1 and 65535, inclusive"],
    );
    rules.create(
        client(json!({"url": null, "service": {"namespace": "n", "name": "s", "path": "a/b"}})),
        &[
            "webhooks[0].clientConfig.service.path: Invalid value: \"a/b\": must start with a '/'",
            "webhooks[0].clientConfig.service.path: Invalid value: \"a/b\": segment[0] may not be empty",
        ],
    );
    rules.create(
        client(json!({"url": null, "service": {"namespace": "n", "name": "s", "path": "/a//b"}})),
        &["webhooks[0].clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty"],
    );
    rules.create(
        client(json!({"url": null, "service": {"namespace": "n", "name": "s", "path": "/a_b/"}})),
        &["webhooks[0].clientConfig.service.path: Invalid value: \"/a_b/\": segment[0]: a lowercase RFC \
             1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
}

#[test]
fn match_conditions_of_webhooks() {
    let rules = Rules::of(validating_webhook_configuration());
    let webhook = |inner: Value| json!({"webhooks": [inner]});
    rules.create(webhook(json!({"matchConditions": [{"name": "a", "expression": "true"}]})), &[]);
    rules.create(
        webhook(json!({"matchConditions": [{"name": "", "expression": ""}]})),
        &[
            "webhooks[0].matchConditions[0].expression: Required value",
            "webhooks[0].matchConditions[0].name: Required value",
        ],
    );
    rules.create(
        webhook(json!({"matchConditions": [{"name": "a", "expression": "1"}]})),
        &["webhooks[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but \
             got int"],
    );
    rules.create(
        webhook(json!({"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]})),
        &["webhooks[0].matchConditions[1].name: Duplicate value: \"a\""],
    );
    rules.create(
        webhook(json!({"matchConditions": [{"name": "a b", "expression": "true"}]})),
        &["webhooks[0].matchConditions[0].name: Invalid value: \"a b\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
    );
}

#[test]
fn mutating_webhooks_may_be_called_again() {
    let rules = Rules::of(mutating_webhook_configuration());
    let webhook = |inner: Value| json!({"webhooks": [inner]});
    rules.create(webhook(json!({"reinvocationPolicy": "IfNeeded"})), &[]);
    rules.create(
        webhook(json!({"reinvocationPolicy": "Always"})),
        &["webhooks[0].reinvocationPolicy: Unsupported value: \"Always\": supported values: \
             \"IfNeeded\", \"Never\""],
    );
}

#[test]
fn policies_say_what_they_match() {
    let rules = Rules::of(validating_admission_policy());
    let constraints = |inner: Value| json!({"spec": {"matchConstraints": inner}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(spec(json!({"matchConstraints": null})), &["spec.matchConstraints: Required value"]);
    rules.create(constraints(json!({"resourceRules": null})), &["spec.matchConstraints.resourceRules: Required value"]);
    rules.create(
        constraints(json!({"matchPolicy": "Loose"})),
        &["spec.matchConstraints.matchPolicy: Unsupported value: \"Loose\": supported values: \
             \"Equivalent\", \"Exact\""],
    );
    rules.create(
        spec(json!({"failurePolicy": "Retry"})),
        &["spec.failurePolicy: Unsupported value: \"Retry\": supported values: \"Fail\", \"Ignore\""],
    );
    rules.create(
        constraints(json!({"resourceRules": [{"resourceNames": ["a", "a"]}]})),
        &["spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: \"a\""],
    );
    rules.create(
        constraints(json!({"resourceRules": [{"resourceNames": ["a/b"]}]})),
        &["spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: \"a/b\": may not \
             contain '/'"],
    );
    rules.create(constraints(json!({"excludeResourceRules": [{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": []}]})), &["spec.matchConstraints.excludeResourceRules[0].resources: Required value"]);
    rules
        .create(spec(json!({"paramKind": {"kind": "", "apiVersion": "v1"}})), &["spec.paramKind.kind: Required value"]);
    rules.create(
        spec(json!({"paramKind": {"kind": "ConfigMap", "apiVersion": "a/b/c"}})),
        &["spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"],
    );
    rules.create(
        spec(json!({"paramKind": {"kind": "Config Map", "apiVersion": "v1"}})),
        &["spec.paramKind.kind: Invalid value: \"Config Map\": may have mixed case, but should otherwise \
             match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
             an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
             'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"],
    );
}

#[test]
fn expressions_of_policies() {
    let rules = Rules::of(validating_admission_policy());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        spec(json!({"validations": null})),
        &[
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
            "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least \
             one item",
        ],
    );
    rules.create(
        spec(json!({"validations": [{"expression": ""}]})),
        &["spec.validations[0].expression: Required value: expression is not specified"],
    );
    rules.create(
        spec(json!({"validations": [{"message": " "}]})),
        &["spec.validations[0].message: Invalid value: \" \": must be non-empty if specified"],
    );
    rules.create(
        spec(json!({"validations": [{"message": "a\nb"}]})),
        &["spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks"],
    );
    rules.create(
        spec(json!({"validations": [{"reason": "Because"}]})),
        &["spec.validations[0].reason: Unsupported value: \"Because\": supported values: \"Forbidden\", \
             \"Invalid\", \"RequestEntityTooLarge\""],
    );
    rules.create(
        spec(json!({"validations": [{"messageExpression": "1"}]})),
        &["spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int"],
    );
    rules.create(spec(json!({"variables": [{"name": "v", "expression": "1"}]})), &[]);
    rules.create(
        spec(json!({"variables": [{"name": "1v", "expression": "1"}]})),
        &["spec.variables[0].name: Invalid value: \"1v\": must be a valid CEL identifier"],
    );
    rules.create(
        spec(json!({"variables": [{"name": "v", "expression": ""}]})),
        &["spec.variables[0].expression: Required value: expression is not specified"],
    );
    rules.create(spec(json!({"variables": [{"name": "v", "expression": "1"}, {"name": "v", "expression": "2"}]})), &[]);
    rules.create(spec(json!({"auditAnnotations": [{"key": "k", "valueExpression": "'x'"}]})), &[]);
    rules.create(
        spec(json!({"auditAnnotations": [{"key": "", "valueExpression": ""}]})),
        &[
            "spec.auditAnnotations[0].key: Invalid value: \"p/\": name part must be non-empty",
            "spec.auditAnnotations[0].key: Invalid value: \"p/\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
             'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified",
        ],
    );
    rules.create(
        spec(json!({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]})),
        &["spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of \
             [string null_type] but got int"],
    );
    rules.create(spec(json!({"auditAnnotations": [{"key": "k", "valueExpression": "'x'"}, {"key": "k", "valueExpression": "'y'"}]})), &["spec.auditAnnotations[1].key: Duplicate value: \"k\""]);
    rules.create(
        spec(json!({"matchConditions": [{"name": "c", "expression": "request.userInfo.username == 'a'"}]})),
        &[],
    );
    rules.create(
        spec(json!({"matchConditions": [{"name": "c", "expression": "1"}]})),
        &["spec.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int"],
    );
}

#[test]
fn bindings_of_policies() {
    let rules = Rules::of(validating_admission_policy_binding());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(spec(json!({"policyName": ""})), &["spec.policyName: Required value"]);
    rules.create(
        spec(json!({"policyName": "a_b"})),
        &["spec.policyName: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of lower \
             case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        spec(json!({"validationActions": null})),
        &["spec.validationActions: Required value: at least one validation action is required"],
    );
    rules.create(
        spec(json!({"validationActions": ["Deny", "Deny"]})),
        &["spec.validationActions[1]: Duplicate value: \"Deny\""],
    );
    rules.create(
        spec(json!({"validationActions": ["Deny", "Warn"]})),
        &["spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and \
             Warn (repeating the same validation failure information in the API response and headers serves \
             no purpose)"],
    );
    rules.create(spec(json!({"validationActions": ["Audit", "Warn"]})), &[]);
    rules.create(
        spec(json!({"validationActions": ["Log"]})),
        &["spec.validationActions[0]: Unsupported value: \"Log\": supported values: \"Audit\", \"Deny\", \
             \"Warn\""],
    );
    rules.create(
        spec(json!({"paramRef": {"parameterNotFoundAction": "Deny"}})),
        &["spec.paramRef: Required value: one of name or selector must be specified"],
    );
    rules.create(
        spec(json!({"paramRef": {"name": "x", "selector": {}, "parameterNotFoundAction": "Deny"}})),
        &[
            "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
        ],
    );
    rules.create(spec(json!({"paramRef": {"name": "x"}})), &["spec.paramRef.parameterNotFoundAction: Required value"]);
    rules.create(
        spec(json!({"paramRef": {"name": "a_b", "parameterNotFoundAction": "Skip"}})),
        &["spec.paramRef.parameterNotFoundAction: Unsupported value: \"Skip\": supported values: \
             \"Deny\", \"Allow\""],
    );
    rules.create(
        spec(json!({"matchResources": {"matchPolicy": "Loose"}})),
        &["spec.matchResources.matchPolicy: Unsupported value: \"Loose\": supported values: \
             \"Equivalent\", \"Exact\""],
    );
    rules.create(spec(json!({"matchResources": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["a"], "apiVersions": ["v1"], "resources": ["x/y", "*/*"]}]}})), &[
            "spec.matchResources.resourceRules[0].resources: Invalid value: [\"x/y\",\"*/*\"]: if '*/*' is \
             present, must not specify other resources",
        ]);
}

#[test]
fn mutating_policies() {
    let rules = Rules::of(mutating_admission_policy());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        spec(json!({"mutations": null})),
        &["spec.mutations: Required value: mutations must contain at least one item"],
    );
    rules.create(
        spec(json!({"mutations": [{"patchType": "Magic"}]})),
        &["spec.mutations[0].patchType: Unsupported value: \"Magic\": supported values: \
             \"ApplyConfiguration\", \"JSONPatch\""],
    );
    rules.create(
        spec(json!({"mutations": [{"patchType": "JSONPatch"}]})),
        &[
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be \
             specified when patchType is JSONPatch",
        ],
    );
    rules.create(
        spec(json!({"mutations": [{"applyConfiguration": null}]})),
        &["spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is \
             ApplyConfiguration"],
    );
    rules.create(
        spec(json!({"mutations": [{"applyConfiguration": {"expression": ""}}]})),
        &["spec.mutations[0].applyConfiguration.expression: Required value"],
    );
    rules.create(
        spec(json!({"mutations": [{"jsonPatch": {"expression": "[]"}}]})),
        &["spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when \
             patchType is ApplyConfiguration"],
    );
    rules.create(spec(json!({"reinvocationPolicy": ""})), &["spec.reinvocationPolicy: Required value"]);
    rules.create(
        spec(json!({"reinvocationPolicy": "Sometimes"})),
        &["spec.reinvocationPolicy: Unsupported value: \"Sometimes\": supported values: \"IfNeeded\", \
             \"Never\""],
    );
    rules.create(
        spec(json!({"failurePolicy": "x"})),
        &["spec.failurePolicy: Unsupported value: \"x\": supported values: \"Fail\", \"Ignore\""],
    );
}

//! Attacks on the API by those who have some rights: they end with what they may do.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use testkit::Server;
use testkit::attack::held;

/// Makes objects as that user.
fn as_ada(server: &Server, object: &str) -> std::process::Output {
    server.kubectl().run_with(&["create", "--as=ada", "-f", "-"], object).unwrap()
}

#[test]
fn who_writes_policies_reads_no_secrets_by_them() {
    let server = Server::start_api(&[]).unwrap();
    let kubectl = server.kubectl();
    let resources = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings";
    kubectl.ok(&["create", "clusterrole", "author", "--verb=*", &format!("--resource={resources}")]);
    kubectl.ok(&["create", "clusterrolebinding", "author", "--clusterrole=author", "--user=ada"]);
    let policy = |name: &str, kind: &str| {
        format!(
            r#"{{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {{"name": "{name}"}},
            "spec": {{"paramKind": {{"apiVersion": "v1", "kind": "{kind}"}},
            "matchConstraints": {{"resourceRules": [{{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}}]}},
            "validations": [{{"expression": "false", "messageExpression": "string(params.data.key)"}}]}}}}"#
        )
    };
    let binding = |name: &str, namespace: &str| {
        format!(
            r#"{{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {{"name": "{name}"}},
            "spec": {{"policyName": "theirs", "validationActions": ["Deny"],
            "paramRef": {{"name": "s", "namespace": "{namespace}", "parameterNotFoundAction": "Deny"}}}}}}"#
        )
    };
    let refused = as_ada(&server, &policy("mine", "Secret"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let why = "spec.paramKind: Forbidden: user &{ada  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    held("a policy with Secrets for parameters", said.contains(why), &said);
    // A policy of somebody else's does not help.
    kubectl.ok_with(&["create", "-f", "-"], &policy("theirs", "Secret"));
    let refused = as_ada(&server, &binding("b", "kube-system"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let why = "spec.paramRef: Forbidden: user &{ada  [system:authenticated] map[]} does not have \"get\" permission on the object referenced by paramRef";
    held("a binding that names somebody's Secret", said.contains(why), &said);
    // With the right to read it, both can be written.
    kubectl.ok(&["create", "role", "reads", "--verb=get", "--resource=secrets", "--resource-name=s"]);
    kubectl.ok(&["create", "rolebinding", "reads", "--role=reads", "--user=ada"]);
    let made = as_ada(&server, &binding("b", "default"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn who_writes_mutating_policies_reads_no_secrets_by_them() {
    let server = Server::start_api(&[]).unwrap();
    let kubectl = server.kubectl();
    let resources = "mutatingadmissionpolicies,mutatingadmissionpolicybindings";
    kubectl.ok(&["create", "clusterrole", "author", "--verb=*", &format!("--resource={resources}")]);
    kubectl.ok(&["create", "clusterrolebinding", "author", "--clusterrole=author", "--user=ada"]);
    let policy = |name: &str| {
        format!(
            r#"{{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {{"name": "{name}"}},
            "spec": {{"paramKind": {{"apiVersion": "v1", "kind": "Secret"}}, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "matchConstraints": {{"resourceRules": [{{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}}]}},
            "mutations": [{{"patchType": "ApplyConfiguration", "applyConfiguration": {{
                "expression": "Object{{metadata: Object.metadata{{annotations: {{'stolen': string(params.data.key)}}}}}}"}}}}]}}}}"#
        )
    };
    let binding = |namespace: &str| {
        format!(
            r#"{{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {{"name": "b"}},
            "spec": {{"policyName": "theirs", "paramRef": {{"name": "s", "namespace": "{namespace}", "parameterNotFoundAction": "Deny"}}}}}}"#
        )
    };
    let refused = as_ada(&server, &policy("mine"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let why = "spec.paramKind: Forbidden: user &{ada  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    assert!(said.contains(why), "{said}");
    // A policy of somebody else's does not help, and neither does changing one.
    kubectl.ok_with(&["create", "-f", "-"], &policy("theirs"));
    let refused = as_ada(&server, &binding("kube-system"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    // Upstream has user and verb the other way round here.
    let why = "spec.paramRef: Forbidden: user get does not have \"&{ada  [system:authenticated] map[]}\" permission on the object referenced by paramRef";
    assert!(said.contains(why), "{said}");
    kubectl.ok(&["create", "role", "reads", "--verb=get", "--resource=secrets", "--resource-name=s"]);
    kubectl.ok(&["create", "rolebinding", "reads", "--role=reads", "--user=ada"]);
    let made = as_ada(&server, &binding("default"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let other = r#"{"spec": {"paramRef": {"namespace": "kube-system"}}}"#;
    let patch = ["patch", "--as=ada", "mutatingadmissionpolicybinding", "b", "--type=merge", "-p", other];
    let refused = kubectl.run(&patch).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains(why), "{said}");
}

#[test]
fn devices_of_others_are_given_only_where_the_namespace_says_so() {
    let server = Server::start_api(&[]).unwrap();
    let kubectl = server.kubectl();
    let spec =
        r#"{"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": true}}]}}"#;
    let claim = format!(
        r#"{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {{"name": "c", "namespace": "default"}}, "spec": {spec}}}"#
    );
    let template = format!(
        r#"{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {{"name": "t", "namespace": "default"}}, "spec": {{"spec": {spec}}}}}"#
    );
    let why = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    for object in [&claim, &template] {
        let said = kubectl.fails_with(&["create", "-f", "-"], object);
        held("admin access to devices without the namespace's label", said.contains(why), &said);
    }
    kubectl.ok(&["label", "namespace", "default", "resource.kubernetes.io/admin-access=true"]);
    for object in [&claim, &template] {
        kubectl.ok_with(&["create", "-f", "-"], object);
    }
}

/// What the kernel says of a process, in MiB.
fn memory_mib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn objects_of_many_keys_take_bounded_memory() {
    const KEYS: usize = 150_000;
    const OBJECTS: usize = 4;
    let server = Server::start_api(&[]).unwrap();
    let client = server.client().unwrap();
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let data: Map<String, Value> = (0..KEYS).map(|number| (format!("{number:x}"), "".into())).collect();
    let bodies: Vec<String> = (0..OBJECTS)
        .map(|number| {
            let metadata = json!({"name": format!("many-{number}"), "namespace": "default"});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string()
        })
        .collect();
    // What only the start has needed is given back by then.
    std::thread::sleep(Duration::from_secs(20));
    let pid = server.pid();
    let before = memory_mib(pid, "VmRSS");
    // From here on the kernel keeps the peak anew.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    for pair in bodies.chunks(2) {
        let sent = pair.iter().map(|body| client.send("POST", path, "application/json", body.clone()));
        for reply in tokio.block_on(futures::future::join_all(sent)) {
            let reply = reply.unwrap();
            assert_eq!(reply.code, 201, "{}", reply.text());
        }
    }
    let peak = memory_mib(pid, "VmHWM").saturating_sub(before);
    // The text of one is 3.4 MiB with what says who owns its fields, and is kept several times: as it is, and for those who
    // watch. The allocator gives back what was freed when it works again, not at once.
    let afterwards_max = 50 * OBJECTS as u64;
    let settled = || memory_mib(pid, "VmRSS").saturating_sub(before);
    let until = Instant::now() + Duration::from_secs(60);
    while settled() > afterwards_max && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
    }
    println!(
        "{OBJECTS} objects of {KEYS} keys, two at a time: {peak} MiB more at most, {} MiB more afterwards",
        settled()
    );
    assert!(peak < 300, "{peak} MiB");
    assert!(settled() <= afterwards_max, "{} MiB", settled());
}

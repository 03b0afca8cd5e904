//! `kubectl set`.

use super::*;

fn web() -> Fake {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "default"},
        "data": {"A": "1", "b.c": "2"}});
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["containers"] = json!([
        {"name": "nginx", "image": "nginx:1", "env": [{"name": "OLD", "value": "x"}]},
        {"name": "side", "image": "busybox"},
    ]);
    Fake::new()
        .objects(DEPLOYMENTS, std::slice::from_ref(&web))
        .answer(&format!("PATCH {DEPLOYMENTS}/web"), web)
        .answer("GET /api/v1/namespaces/default/configmaps/conf", map)
}

/// The containers of the patch, by name. What is not in it was not changed.
fn containers(ran: &Ran) -> Vec<Value> {
    let patch = ran.requests.iter().find(|sent| sent.line.starts_with("PATCH"));
    let containers = patch.map(|patch| patch.body["spec"]["template"]["spec"]["containers"].clone());
    containers.and_then(|containers| containers.as_array().cloned()).unwrap_or_default()
}

fn container(ran: &Ran, name: &str) -> Value {
    containers(ran).into_iter().find(|container| container["name"] == name).unwrap_or_default()
}

#[test]
fn images_are_set_by_the_container() {
    let ran = web().run("set image deploy/web nginx=nginx:2");
    ended_well(&ran, "deployment.apps/web image updated\n");
    assert_eq!(container(&ran, "nginx")["image"], "nginx:2");
    assert!(container(&ran, "side").is_null() || container(&ran, "side")["image"].is_null());
    let ran = web().run("set image deploy/web '*=alpine'");
    assert_eq!(
        (&container(&ran, "nginx")["image"], &container(&ran, "side")["image"]),
        (&json!("alpine"), &json!("alpine"))
    );
    let same = web().run("set image deploy/web nginx=nginx:1");
    ended_well(&same, "");
    assert!(containers(&same).is_empty());
    let dry = web().run("set image deploy/web nginx=nginx:2 --dry-run=client");
    ended_well(&dry, "deployment.apps/web image updated (dry run)\n");
    assert!(containers(&dry).is_empty());
    ended_badly(&web().run("set image deploy/web missing=x"), "error: unable to find container named \"missing\"\n");
    ended_badly(&web().run("set image deploy/web"), "error: at least one image update is required\n");
    ended_badly(
        &web().run("set image cm/conf nginx=x"),
        "error: configmaps/conf the object is not a pod or does not have a pod template: *v1.ConfigMap\n",
    );
}

#[test]
fn environments_are_set_and_cleared() {
    let ran = web().run("set env deploy/web A=1");
    ended_well(&ran, "deployment.apps/web env updated\n");
    for name in ["nginx", "side"] {
        let env = container(&ran, name)["env"].to_string();
        assert!(env.contains(r#"{"name":"A","value":"1"}"#), "{env}");
    }
    let ran = web().run("set env deploy/web A=1 -c 'n*'");
    assert!(container(&ran, "side").is_null() || container(&ran, "side")["env"].is_null());
    let gone = container(&web().run("set env deploy/web OLD-"), "nginx");
    let cleared = gone["env"].is_null() || gone["env"][0]["$patch"] == "delete";
    assert!(cleared, "{gone}");
    ended_well(&web().run("set env deploy/web NONE-"), "");
    let taken = "error: deployments/web 'OLD' already has a value (x), and --overwrite is false\n";
    ended_badly(&web().run("set env deploy/web OLD=y --overwrite=false"), taken);
    let none = web().run("set env deploy/web A=1 -c missing");
    assert_eq!(none.err, "Warning: Deployment/web does not have any containers matching \"missing\"\n");
}

#[test]
fn environments_are_listed() {
    let ran = web().run("set env deploy/web --list");
    ended_well(&ran, "# Deployment web, container nginx\nOLD=x\n# Deployment web, container side\n");
}

#[test]
fn environments_come_from_config_maps() {
    let ran = web().run("set env deploy/web --from=configmap/conf --prefix=PRE_ -c side");
    assert_eq!(ran.err, "Warning: key b.c transferred to B_C\n");
    let env = container(&ran, "side")["env"].clone();
    let from = |key: &str| json!({"configMapKeyRef": {"name": "conf", "key": key}});
    let expected = json!([{"name": "PRE_A", "valueFrom": from("A")}, {"name": "PRE_B_C", "valueFrom": from("b.c")}]);
    assert_eq!(env, expected);
    ended_badly(
        &web().run("set env deploy/web --from=deploy/web"),
        "error: unsupported resource specified in --from\n",
    );
}

#[test]
fn names_of_variables_are_checked() {
    for (line, name) in [("'bad name=x'", "bad name"), ("1A=x", "1A")] {
        let ran = web().run(&format!("set env deploy/web {line}"));
        assert!(ran.err.starts_with(&format!("error: \"{name}\" is not a valid key name: ")), "{}", ran.err);
    }
    refuses("set env A=1", "one or more resources must be specified as <resource> <name> or <resource>/<name>");
}

#[test]
fn resources_are_limits_and_requests() {
    let ran = web().run("set resources deploy/web --limits=cpu=1,memory=1Gi --requests=cpu=100m -c nginx");
    ended_well(&ran, "deployment.apps/web resource requirements updated\n");
    let expected = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}});
    assert_eq!(container(&ran, "nginx")["resources"], expected);
    let check = |flags: &str, err: &str| {
        ended_badly(&web().run(&format!("set resources deploy/web {flags}")), &format!("error: {err}\n"));
    };
    check("", "you must specify an update to requests or limits (in the form of --requests/--limits)");
    check("--limits=cpu", "Invalid argument syntax cpu, expected <resource>=<value>");
    check(
        "--limits=cpu=x",
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
    check("--limits=cpu=1 -c missing", "unable to find container named missing");
}

#[test]
fn selectors_are_of_services() {
    let path = "/api/v1/namespaces/default/services";
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc", "namespace": "default"},
        "spec": {"selector": {"app": "x"}}});
    let fake =
        || web().objects(path, std::slice::from_ref(&service)).answer(&format!("PATCH {path}/svc"), service.clone());
    let ran = fake().run("set selector svc svc a=b,c=d");
    ended_well(&ran, "service/svc selector updated\n");
    let sent = &ran.request(&format!("PATCH {path}/svc")).body["spec"]["selector"];
    assert_eq!((&sent["a"], &sent["c"], &sent["app"]), (&json!("b"), &json!("d"), &Value::Null));
    let check = |line: &str, err: &str| ended_badly(&fake().run(line), &format!("error: {err}\n"));
    check("set selector svc svc bad", "match expression [{bad Exists []}] not supported on this object");
    check("set selector svc svc 'a in (b)'", "match expression [{a In [b]}] not supported on this object");
    check("set selector deploy web a=b", "setting a selector is only supported for Services");
    check("set selector", "one selector is required");
}

#[test]
fn accounts_and_subjects() {
    let ran = web().run("set serviceaccount deploy web robot");
    ended_well(&ran, "deployment.apps/web serviceaccount updated\n");
    let patch = &ran.request(&format!("PATCH {DEPLOYMENTS}/web")).body["spec"]["template"]["spec"];
    assert_eq!(patch["serviceAccountName"], "robot");
    ended_badly(&web().run("set sa"), "error: serviceaccount is required\n");
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let user = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "rb", "namespace": "default"}, "subjects": [user("u")]});
    let fake =
        || web().objects(path, std::slice::from_ref(&binding)).answer(&format!("PATCH {path}/rb"), binding.clone());
    let ran = fake().run("set subject rolebinding rb --user=v");
    ended_well(&ran, "rolebinding.rbac.authorization.k8s.io/rb subjects updated\n");
    assert_eq!(ran.request(&format!("PATCH {path}/rb")).body["subjects"], json!([user("u"), user("v")]));
    ended_well(&fake().run("set subject rolebinding rb --user=u"), "");
    let check = |line: &str, err: &str| ended_badly(&fake().run(line), &format!("error: {err}\n"));
    check("set subject rolebinding rb", "you must specify at least one value of user, group or serviceaccount");
    check("set subject rolebinding rb --serviceaccount=bad", "serviceaccount must be <namespace>:<name>");
    check(
        "set subject cm conf --user=x",
        "configmaps/conf setting subjects is only supported for RoleBinding/ClusterRoleBinding",
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    let all = "all containers are already specified by *, but saw more than one container_name=container_image pairs";
    refuses("set image deployment/web *=nginx main=nginx", all);
    let before = "all resources must be specified before environment changes: A=1 deployment/web";
    refuses("set env A=1 deployment/web", before);
    let keys = "when specifying --keys, a configmap or secret must be provided with --from";
    refuses("set env deployment/web --keys=a", keys);
    refuses("set env deployment/web --list -o yaml", "--list and --output may not be specified together");
}

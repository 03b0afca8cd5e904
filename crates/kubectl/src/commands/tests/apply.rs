//! `kubectl apply`: what is created, patched or left alone.

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Runs a line with a manifest, which it names as `FILE`.
fn with_file(fake: Fake, text: &str, line: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, text).expect("a file");
    let mut ran = fake.run(&line.replace("FILE", &file.display().to_string()));
    ran.err = ran.err.replace(&file.display().to_string(), "FILE");
    ran
}

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: one}\n";

/// The object as an earlier apply has left it, with what somebody else added.
fn applied(data: Value, last: Value) -> Value {
    let last = json!({"apiVersion": "v1", "data": last, "kind": "ConfigMap",
        "metadata": {"annotations": {}, "name": "a", "namespace": "default"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {"name": "a", "namespace": "default",
        "resourceVersion": "5", "uid": "u", "annotations": {APPLIED: format!("{last}\n")}}})
}

fn there(data: Value, last: Value) -> Fake {
    let object = applied(data, last);
    let mut patched = object.clone();
    patched["metadata"]["resourceVersion"] = "6".into();
    Fake::new().answer(&format!("GET {MAPS}/a"), object).answer(&format!("PATCH {MAPS}/a"), patched)
}

fn patch(ran: &Ran) -> Option<Value> {
    ran.requests.iter().find(|sent| sent.line.starts_with("PATCH")).map(|sent| sent.body.clone())
}

#[test]
fn what_is_missing_is_created_with_what_was_applied() {
    let fake = || Fake::new().answer(&format!("POST {MAPS}"), applied(json!({}), json!({})));
    let ran = with_file(fake(), MANIFEST, "apply -f FILE");
    ended_well(&ran, "configmap/a created\n");
    let sent = ran.request(&format!("POST {MAPS}"));
    assert_eq!(sent.query("fieldManager"), "kubectl-client-side-apply");
    let expected = "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"one\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"a\",\"namespace\":\"default\"}}\n";
    assert_eq!(sent.body["metadata"]["annotations"][APPLIED], expected);
    let dry = with_file(Fake::new(), MANIFEST, "apply -f FILE --dry-run=client");
    ended_well(&dry, "configmap/a created (dry run)\n");
    let dry = with_file(fake(), MANIFEST, "apply -f FILE --dry-run=server");
    ended_well(&dry, "configmap/a created (server dry run)\n");
    assert_eq!(dry.request(&format!("POST {MAPS}")).query("dryRun"), "All");
}

#[test]
fn three_sides_make_the_patch() {
    let one = json!({"x": "one"});
    let same = with_file(there(one.clone(), one.clone()), MANIFEST, "apply -f FILE");
    ended_well(&same, "configmap/a unchanged\n");
    assert_eq!(patch(&same), None);
    // What somebody else added stays; what was applied before and is not any more goes.
    let others = with_file(there(json!({"x": "one", "z": "theirs"}), one.clone()), MANIFEST, "apply -f FILE");
    ended_well(&others, "configmap/a unchanged\n");
    let before = json!({"x": "one", "y": "old"});
    let removed = with_file(there(json!({"x": "one", "y": "old", "z": "theirs"}), before), MANIFEST, "apply -f FILE");
    ended_well(&removed, "configmap/a configured\n");
    let sent = patch(&removed).expect("a patch");
    assert_eq!(sent["data"], json!({"y": null}));
    let changed = with_file(there(json!({"x": "two"}), json!({"x": "two"})), MANIFEST, "apply -f FILE");
    ended_well(&changed, "configmap/a configured\n");
    assert_eq!(patch(&changed).expect("a patch")["data"], json!({"x": "one"}));
    let sent = changed.requests.last().expect("a patch");
    assert_eq!(sent.content_type, "application/strategic-merge-patch+json");
}

#[test]
fn an_object_that_was_never_applied_is_warned_of() {
    let mut object = applied(json!({"x": "zero"}), json!({}));
    object["metadata"]["annotations"] = json!({});
    let fake = Fake::new().answer(&format!("GET {MAPS}/a"), object.clone()).answer(&format!("PATCH {MAPS}/a"), object);
    let ran = with_file(fake, MANIFEST, "apply -f FILE");
    let warning = "Warning: resource configmaps/a is missing the kubectl.kubernetes.io/last-applied-configuration annotation which is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically.\n";
    assert_eq!(ran.err, warning);
}

#[test]
fn the_server_can_apply_by_itself() {
    let fake = || Fake::new().answer(&format!("PATCH {MAPS}/a"), applied(json!({}), json!({})));
    let ran = with_file(fake(), MANIFEST, "apply -f FILE --server-side");
    ended_well(&ran, "configmap/a serverside-applied\n");
    let sent = ran.requests.iter().find(|sent| sent.line.starts_with("PATCH")).expect("a patch");
    assert_eq!(sent.content_type, "application/apply-patch+yaml");
    assert!(sent.query("fieldManager") == "kubectl" && sent.query("force") != "true", "{sent:?}");
    let ran = with_file(fake(), MANIFEST, "apply -f FILE --server-side --force-conflicts --field-manager=me");
    let sent = ran.requests.iter().find(|sent| sent.line.starts_with("PATCH")).expect("a patch");
    assert_eq!((sent.query("fieldManager"), sent.query("force")), ("me", "true"));
    let check = |flags: &str, err: &str| {
        let ran = with_file(Fake::new(), MANIFEST, &format!("apply -f FILE {flags}"));
        ended_badly(&ran, &format!("error: {err}\n"));
    };
    check("--force --server-side", "--force cannot be used with --server-side");
    check("--force-conflicts", "--force-conflicts only works with --server-side");
    check(
        "--server-side --dry-run=client",
        "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)",
    );
}

#[test]
fn lines_that_apply_nothing_are_refused() {
    refuses("apply", "must specify one of -f and -k");
    refuses("apply -f /no/such.yaml", "the path \"/no/such.yaml\" does not exist");
    let ran = with_file(Fake::new(), MANIFEST, "apply -f FILE b.yaml");
    ended_badly(&ran, "error: Unexpected args: [b.yaml]\nSee 'kubectl apply -h' for help and examples\n");
    let ran = with_file(Fake::new(), MANIFEST, "apply -f FILE -k .");
    ended_badly(&ran, "error: only one of -f or -k can be specified\n");
}

#[test]
fn what_was_applied_can_be_seen() {
    let one = json!({"x": "one"});
    let ran = there(one.clone(), one.clone()).run("apply view-last-applied cm a");
    let expected = "\
apiVersion: v1
data:
  x: one
kind: ConfigMap
metadata:
  annotations: {}
  name: a
  namespace: default
";
    ended_well(&ran, expected);
    let refused = there(one.clone(), one).run("apply view-last-applied cm a -o name");
    ended_badly(
        &refused,
        "error: Unexpected -o output mode: name, the flag 'output' must be one of yaml|json\nSee 'kubectl apply view-last-applied -h' for help and examples\n",
    );
}

#[test]
fn differences_are_shown_side_by_side() {
    let one = json!({"x": "two"});
    let fake = there(one.clone(), one.clone()).answer(&format!("PATCH {MAPS}/a"), applied(json!({"x": "one"}), one));
    let ran = with_file(fake, MANIFEST, "diff -f FILE");
    assert_eq!(ran.code, 1, "{ran:?}");
}

//! `kubectl delete`: what is sent, what is waited for, and what is said.

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "5"}})
}

fn gone() -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Success", "details": {"name": "a", "kind": "configmaps",
        "uid": "uid-a"}})
}

/// A map that is gone as soon as it was deleted.
fn one() -> Fake {
    let nothing =
        json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": []});
    Fake::new().answer(&format!("DELETE {MAPS}/a"), gone()).answer(&format!("GET {MAPS}"), nothing)
}

#[test]
fn options_are_sent_with_the_request() {
    let check = |flags: &str, out: &str, options: Value| {
        let ran = one().run(&format!("delete cm a {flags}"));
        assert_eq!((ran.out.as_str(), ran.code), (out, 0), "{flags}: {}", ran.err);
        let sent = &ran.request(&format!("DELETE {MAPS}/a")).body;
        for (key, value) in options.as_object().into_iter().flatten() {
            assert_eq!(&sent[key], value, "{flags}: {sent}");
        }
        for absent in ["gracePeriodSeconds", "dryRun"].iter().filter(|key| options.get(key).is_none()) {
            assert!(sent[absent].is_null(), "{flags}: {sent}");
        }
    };
    let said = "configmap \"a\" deleted from default namespace\n";
    check("", said, json!({"propagationPolicy": "Background"}));
    check("--cascade=orphan", said, json!({"propagationPolicy": "Orphan"}));
    check("--cascade=foreground", said, json!({"propagationPolicy": "Foreground"}));
    check("--grace-period=5", said, json!({"gracePeriodSeconds": 5}));
    check("--now", said, json!({"gracePeriodSeconds": 1}));
    // A grace period of zero without force is the shortest that waits.
    check("--grace-period=0", said, json!({"gracePeriodSeconds": 1}));
    check("--force", "configmap \"a\" force deleted from default namespace\n", json!({"gracePeriodSeconds": 0}));
    let dry = "configmap \"a\" deleted from default namespace (server dry run)\n";
    check("--dry-run=server", dry, json!({}));
    let sent = one().run("delete cm a --dry-run=server");
    assert_eq!(sent.request(&format!("DELETE {MAPS}/a")).query("dryRun"), "All");
    check("-o name", "configmap/a\n", json!({}));
}

#[test]
fn nothing_is_waited_for_where_nobody_wants_it() {
    let waited =
        |flags: &str| one().run(&format!("delete cm a {flags}")).lines().contains(&format!("GET {MAPS}").as_str());
    assert!(waited("") && waited("--timeout=5s"));
    assert!(!waited("--wait=false"));
}

#[test]
fn force_is_warned_of() {
    let ran = one().run("delete cm a --force");
    let warning = "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may continue to run on the cluster indefinitely.\n";
    assert_eq!(ran.err, warning);
}

#[test]
fn lines_that_could_delete_too_much_are_refused() {
    refuses("delete cm", "resource(s) were provided, but no name was specified");
    refuses("delete cm a -A", "a resource cannot be retrieved by name across all namespaces");
    refuses("delete cm a --all", "name cannot be provided when a selector is specified");
    refuses("delete cm --all -l a=b", "setting 'all' parameter but found a non empty selector. ");
    refuses("delete cm a --now --grace-period=1", "--now and --grace-period cannot be specified together");
    refuses("delete cm a -o yaml", "unexpected -o output mode: yaml. We only support '-o name'");
    refuses(
        "delete cm a --cascade=wrong",
        "invalid cascade value (wrong). Must be \"background\", \"foreground\", or \"orphan\"",
    );
    let ran = Fake::new().run("delete");
    assert!(ran.err.starts_with("error: You must provide one or more resources by argument or filename.\n"));
}

#[test]
fn one_that_is_missing_does_not_stop_the_others() {
    let ran = one().run("delete cm missing a");
    assert_eq!(ran.out, "configmap \"a\" deleted from default namespace\n");
    ended_badly(&ran, "Error from server (NotFound): configmaps \"missing\" not found\n");
    ended_well(&Fake::new().run("delete cm missing --ignore-not-found"), "");
}

#[test]
fn cluster_wide_kinds_have_no_namespace_in_their_sentence() {
    let ran = Fake::new().answer("DELETE /api/v1/nodes/n1", gone()).run("delete node n1 --wait=false");
    ended_well(&ran, "node \"n1\" deleted\n");
}

#[test]
fn a_selector_deletes_what_it_chooses() {
    let fake = || {
        Fake::new()
            .objects(MAPS, &[map("a"), map("b")])
            .answer(&format!("DELETE {MAPS}/a"), gone())
            .answer(&format!("DELETE {MAPS}/b"), gone())
    };
    let ran = fake().run("delete cm -l app=web --wait=false");
    ended_well(
        &ran,
        "configmap \"a\" deleted from default namespace\nconfigmap \"b\" deleted from default namespace\n",
    );
    assert_eq!(ran.request(&format!("GET {MAPS}")).query("labelSelector"), "app=web");
    let dry = fake().run("delete cm --all --dry-run=client");
    assert_eq!(
        dry.out,
        "configmap \"a\" deleted from default namespace (dry run)\nconfigmap \"b\" deleted from default namespace (dry run)\n"
    );
    assert!(dry.lines().iter().all(|line| line.starts_with("GET")));
}

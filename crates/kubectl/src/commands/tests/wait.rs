//! `kubectl wait`.

use super::*;

fn list(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": pods})
}

fn pending() -> Value {
    let mut pod = pod("web");
    pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]});
    pod
}

#[test]
fn what_is_so_already_is_told_at_once() {
    let check = |condition: &str, out: &str| {
        let ran = Fake::new().objects(PODS, &[pod("web")]).run(&format!("wait pod/web --for={condition}"));
        ended_well(&ran, out);
    };
    check("condition=Ready", "pod/web condition met\n");
    check("condition=ready=True", "pod/web condition met\n");
    check("jsonpath='{.status.phase}'=Running", "pod/web condition met\n");
    check("jsonpath='{.spec.nodeName}' -o name", "pod/web\n");
    check("create", "pod/web condition met\n");
    check("create --for=condition=Ready", "pod/web condition met\npod/web condition met\n");
}

#[test]
fn changes_are_watched_from_the_list_on() {
    let event = json!({"type": "MODIFIED", "object": pod("web")});
    let ran = Fake::new()
        .answer(&format!("GET {PODS}/web"), pending())
        .answer(&format!("GET {PODS}"), list(&[pending()]))
        .answer(&format!("GET {PODS}"), event)
        .run("wait pod/web --for=condition=Ready --timeout=20s");
    ended_well(&ran, "pod/web condition met\n");
    let watch = ran.requests.last().expect("a watch");
    let sent = (watch.query("watch"), watch.query("resourceVersion"), watch.query("fieldSelector"));
    assert_eq!(sent, ("true", "7", "metadata.name=web"));
}

#[test]
fn deletion_is_the_end_of_the_object() {
    let event = json!({"type": "DELETED", "object": pod("web")});
    let ran = Fake::new()
        .answer(&format!("GET {PODS}/web"), pod("web"))
        .answer(&format!("GET {PODS}"), list(&[pod("web")]))
        .answer(&format!("GET {PODS}"), event)
        .run("wait pod/web --for=delete --timeout=20s");
    ended_well(&ran, "pod/web condition met\n");
    ended_well(&Fake::new().run("wait pod/missing --for=delete"), "");
    let missing = "Error from server (NotFound): pods \"missing\" not found\n";
    ended_badly(&Fake::new().run("wait pod/missing --for=condition=Ready"), missing);
}

#[test]
fn a_limit_of_zero_looks_once() {
    let ran = Fake::new().objects(PODS, &[pending()]).run("wait pod/web --for=condition=Ready --timeout=0");
    ended_badly(&ran, "error: condition not met for pods/web\n");
}

#[test]
fn conditions_that_are_none_are_refused() {
    refuses("wait pod/web", "unrecognized condition: []");
    refuses("wait pod/web --for=", "unrecognized condition: \"\"");
    refuses("wait pod/web --for=other", "unrecognized condition: \"other\"");
    refuses(
        "wait pod/web --for=jsonpath='{.a}='",
        "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3",
    );
    refuses(
        "wait pod/web --for=jsonpath='{.data'",
        "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'",
    );
    refuses("wait pods --for=condition=Ready", "resource(s) were provided, but no name was specified");
    let none = Fake::new().answer(&format!("GET {PODS}"), list(&[]));
    ended_badly(&none.run("wait pods -l a=b --for=condition=Ready"), "error: no matching resources found\n");
}

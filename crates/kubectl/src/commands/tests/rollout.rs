//! `kubectl rollout`.

use super::*;

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn replica_set(name: &str, revision: u32, image: &str, cause: Option<&str>) -> Value {
    let mut set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"},
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string()},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web",
                "controller": true}]},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web", "pod-template-hash": name}},
            "spec": {"containers": [{"name": "main", "image": image}]}}}});
    if let Some(cause) = cause {
        set["metadata"]["annotations"]["kubernetes.io/change-cause"] = cause.into();
    }
    set
}

fn deployed(change: impl FnOnce(&mut Value)) -> Fake {
    let mut web = deployment("web");
    change(&mut web);
    Fake::new()
        .objects(DEPLOYMENTS, std::slice::from_ref(&web))
        .objects(SETS, &[replica_set("web-2", 2, "nginx:1", None), replica_set("web-1", 1, "nginx:0", Some("first"))])
        .answer(&format!("PATCH {DEPLOYMENTS}/web"), web)
}

#[test]
fn history_is_sorted_by_revision() {
    let ran = deployed(|_| ()).run("rollout history deploy/web");
    ended_well(&ran, "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         first\n2         <none>\n\n");
    let ran = deployed(|_| ()).run("rollout history deploy web --revision=1");
    assert!(
        ran.out.starts_with("deployment.apps/web with revision #1\nPod Template:\n  Labels:\tapp=web\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("    Image:\tnginx:0\n"), "{}", ran.out);
    ended_badly(
        &deployed(|_| ()).run("rollout history deploy web --revision=9"),
        "error: unable to find the specified revision\n",
    );
}

#[test]
fn only_deployments_pause_and_only_once() {
    let paused = |web: &mut Value| web["spec"]["paused"] = true.into();
    let ran = deployed(|_| ()).run("rollout pause deploy/web");
    ended_well(&ran, "deployment.apps/web paused\n");
    assert_eq!(ran.request(&format!("PATCH {DEPLOYMENTS}/web")).body, json!({"spec": {"paused": true}}));
    let check = |ran: Ran, err: &str| ended_badly(&ran, &format!("error: {err}\n"));
    check(deployed(paused).run("rollout pause deploy/web"), "deployments.apps \"web\" is already paused");
    check(deployed(|_| ()).run("rollout resume deploy/web"), "deployments.apps \"web\" is not paused");
    ended_well(&deployed(paused).run("rollout resume deploy/web"), "deployment.apps/web resumed\n");
    check(
        deployed(paused).run("rollout restart deploy/web"),
        "deployments.apps \"web\" can't restart paused deployment (run rollout resume first)",
    );
    check(
        deployed(paused).run("rollout undo deploy/web"),
        "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and try again",
    );
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds", "namespace": "default"}});
    let fake = Fake::new().objects("/apis/apps/v1/namespaces/default/daemonsets", &[set]);
    check(fake.run("rollout pause ds/ds"), "daemonsets.apps \"ds\" pausing is not supported");
}

#[test]
fn a_restart_is_an_annotation_of_the_template() {
    let ran = deployed(|_| ()).run("rollout restart deploy/web");
    ended_well(&ran, "deployment.apps/web restarted\n");
    let patch = &ran.request(&format!("PATCH {DEPLOYMENTS}/web")).body;
    let at = &patch["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
    assert!(at.as_str().is_some_and(|at| at.len() >= 20 && at.contains('T')), "{patch}");
}

#[test]
fn undo_goes_back_to_the_template_before() {
    let ran = deployed(|_| ()).run("rollout undo deploy/web");
    ended_well(&ran, "deployment.apps/web rolled back\n");
    let sent = ran.request(&format!("PATCH {DEPLOYMENTS}/web"));
    let text = sent.body.to_string();
    assert!(text.contains("nginx:0") && !text.contains("pod-template-hash"), "{text}");
    ended_well(
        &deployed(|_| ()).run("rollout undo deploy/web --dry-run=server"),
        "deployment.apps/web rolled back (server dry run)\n",
    );
    ended_badly(
        &deployed(|_| ()).run("rollout undo deploy/web --to-revision=77"),
        "error: unable to find specified revision 77 in history\n",
    );
    let alone = Fake::new()
        .objects(DEPLOYMENTS, &[deployment("web")])
        .objects(SETS, &[replica_set("web-2", 2, "nginx:1", None)]);
    ended_badly(&alone.run("rollout undo deploy/web"), "error: no rollout history found for deployment \"web\"\n");
}

#[test]
fn status_watches_until_it_is_done() {
    let unfinished = |web: &mut Value| web["status"]["updatedReplicas"] = 1.into();
    let mut half = deployment("web");
    unfinished(&mut half);
    let event = json!({"type": "MODIFIED", "object": deployment("web")});
    let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [half.clone()]});
    let fake = Fake::new()
        .answer(&format!("GET {DEPLOYMENTS}/web"), half)
        .answer(&format!("GET {DEPLOYMENTS}"), event)
        .answer(&format!("GET {DEPLOYMENTS}"), list);
    let ran = fake.run("rollout status deploy/web");
    ended_well(
        &ran,
        "Waiting for deployment \"web\" rollout to finish: 1 out of 2 new replicas have been updated...\ndeployment \"web\" successfully rolled out\n",
    );
    let watch = ran.request(&format!("GET {DEPLOYMENTS}"));
    let sent = (watch.query("watch"), watch.query("fieldSelector"), watch.query("resourceVersion"));
    assert_eq!(sent, ("true", "metadata.name=web", "4"));
    ended_well(
        &deployed(unfinished).run("rollout status deploy/web --watch=false"),
        "Waiting for deployment \"web\" rollout to finish: 1 out of 2 new replicas have been updated...\n",
    );
}

#[test]
fn a_deployment_that_is_deleted_has_no_status() {
    let mut half = deployment("web");
    half["status"]["updatedReplicas"] = 1.into();
    let event = json!({"type": "DELETED", "object": half});
    let fake = Fake::new().answer(&format!("GET {DEPLOYMENTS}/web"), half).answer(&format!("GET {DEPLOYMENTS}"), event);
    ended_badly(&fake.run("rollout status deploy/web"), "error: object has been deleted\n");
}

#[test]
fn revisions_are_positive() {
    for command in ["status", "history"] {
        let ran = Fake::new()
            .objects(DEPLOYMENTS, &[deployment("web")])
            .run(&format!("rollout {command} deployment/web --revision=-1"));
        ended_badly(&ran, "error: revision must be a positive integer: -1\n");
    }
}

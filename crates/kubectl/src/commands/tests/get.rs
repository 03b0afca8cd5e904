//! `kubectl get`: tables, formats, and what is asked for.

use super::*;

fn table(rows: &[(&str, &[&str])]) -> Value {
    let columns = [("Name", 0), ("Ready", 0), ("Status", 0), ("IP", 1)];
    let columns: Vec<Value> =
        columns.iter().map(|(name, priority)| json!({"name": name, "type": "string", "priority": priority})).collect();
    let rows: Vec<Value> = rows
        .iter()
        .map(|(name, cells)| {
            let metadata = json!({"name": name, "namespace": "default", "labels": {"app": name, "tier": "front"}});
            json!({"cells": cells, "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"},
        "columnDefinitions": columns, "rows": rows})
}

fn two_pods() -> Fake {
    let (db, web): (&[&str], &[&str]) = (&["db", "0/1", "Pending", "<none>"], &["web", "2/2", "Running", "10.0.0.7"]);
    Fake::new()
        .answer(&format!("GET {PODS}"), table(&[("db", db), ("web", web)]))
        .answer(&format!("GET {PODS}/web"), table(&[("web", web)]))
}

#[test]
fn the_servers_table_is_aligned() {
    let check = |line: &str, out: &str| ended_well(&two_pods().run(line), out);
    check("get pods", "NAME   READY   STATUS\ndb     0/1     Pending\nweb    2/2     Running\n");
    check("get po/web", "NAME   READY   STATUS\nweb    2/2     Running\n");
    check(
        "get pods -o wide",
        "NAME   READY   STATUS    IP\ndb     0/1     Pending   <none>\nweb    2/2     Running   10.0.0.7\n",
    );
    check("get pods --no-headers", "db    0/1   Pending\nweb   2/2   Running\n");
    check("get pods --show-kind", "NAME      READY   STATUS\npod/db    0/1     Pending\npod/web   2/2     Running\n");
    check(
        "get pods --show-labels",
        "NAME   READY   STATUS    LABELS\ndb     0/1     Pending   app=db,tier=front\nweb    2/2     Running   app=web,tier=front\n",
    );
    check(
        "get pods -L app,missing",
        "NAME   READY   STATUS    APP   MISSING\ndb     0/1     Pending   db    \nweb    2/2     Running   web   \n",
    );
}

#[test]
fn several_kinds_are_several_tables() {
    let services = table(&[("svc", &["svc", "x", "y", "z"])]);
    let ran = two_pods().answer("GET /api/v1/namespaces/default/services", services).run("get pods,svc");
    let expected = "\
NAME      READY   STATUS
pod/db    0/1     Pending
pod/web   2/2     Running

NAME          READY   STATUS
service/svc   x       y
";
    ended_well(&ran, expected);
}

#[test]
fn selectors_and_sizes_are_sent() {
    let ran = two_pods().run("get pods -l 'app in (web,db)' --field-selector status.phase=Running --chunk-size=7");
    let sent = ran.request(&format!("GET {PODS}"));
    assert_eq!(sent.query("labelSelector"), "app in (web,db)");
    assert_eq!((sent.query("fieldSelector"), sent.query("limit")), ("status.phase=Running", "7"));
    let ran =
        Fake::new().answer("GET /api/v1/pods", table(&[("web", &["web", "1/1", "Running", ""])])).run("get pods -A");
    ended_well(&ran, "NAMESPACE   NAME   READY   STATUS\ndefault     web    1/1     Running\n");
}

#[test]
fn nothing_found_is_said() {
    let none = || Fake::new().answer(&format!("GET {PODS}"), table(&[]));
    let ran = none().run("get pods");
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("", "No resources found in default namespace.\n", 0));
    let ran = Fake::new().answer("GET /api/v1/nodes", table(&[])).run("get nodes");
    assert_eq!(ran.err, "No resources found\n");
    let missing = "Error from server (NotFound): pods \"missing\" not found\n";
    ended_badly(&two_pods().run("get pods missing"), missing);
    let ran = two_pods().run("get pods web missing");
    assert_eq!(ran.out, "NAME   READY   STATUS\nweb    2/2     Running\n");
    ended_badly(&ran, missing);
    ended_well(&two_pods().run("get pods missing --ignore-not-found"), "");
}

#[test]
fn lines_that_name_nothing_are_refused() {
    refuses("get pods/", "arguments in resource/name form must have a single resource and name");
    refuses("get /web", "arguments in resource/name form must have a single resource and name");
    refuses("get pods/web/x", "arguments in resource/name form may not have more than one slash");
    refuses(
        "get pod/web db",
        "there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource resource/<resource_name>'",
    );
    refuses("get pods web -A", "a resource cannot be retrieved by name across all namespaces");
    refuses("get pods web -l a=b", "name cannot be provided when a selector is specified");
    refuses("get --raw /healthz pods", "arguments may not be passed when --raw is specified");
    refuses("get --raw /healthz -o json", "--raw and --output are mutually exclusive");
    refuses("get --raw nothing", "--raw must be a valid URL path: parse \"nothing\": invalid URI for request");
    let ran = Fake::new().run("get");
    assert!(ran.err.contains("error: Required resource not specified.\n"), "{}", ran.err);
}

fn objects() -> Fake {
    let mut db = pod("db");
    db["spec"]["containers"][0]["image"] = "postgres".into();
    db["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    Fake::new().objects(PODS, &[pod("web"), db])
}

#[test]
fn objects_have_many_formats() {
    let check = |format: &str, out: &str| ended_well(&objects().run(&format!("get pods {format}")), out);
    check("-o name", "pod/web\npod/db\n");
    check("-o jsonpath='{.items[*].metadata.name}'", "web db");
    check("-o jsonpath='{range .items[*]}{.metadata.name}={.spec.nodeName}{\"\\n\"}{end}'", "web=n1\ndb=n1\n");
    check("-o jsonpath='{.items[?(@.metadata.name==\"db\")].spec.containers[0].image}'", "postgres");
    check("-o go-template='{{range .items}}{{.metadata.name}} {{end}}'", "web db ");
    check(
        "-o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image,NONE:.spec.none",
        "NAME   IMAGE      NONE\nweb    nginx      <none>\ndb     postgres   <none>\n",
    );
    check("-o custom-columns=N:.metadata.name --no-headers", "web\ndb\n");
    check("--sort-by=.metadata.name -o name", "pod/db\npod/web\n");
    check("--sort-by='{.spec.containers[0].image}' -o name", "pod/web\npod/db\n");
    ended_badly(
        &objects().run("get pods --sort-by=.spec.nothing -o name"),
        "error: couldn't find any field with path \"{.spec.nothing}\" in the list of objects\n",
    );
}

#[test]
fn whole_objects_hide_their_managers() {
    let json = |line: &str| -> Value {
        let ran = objects().run(line);
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    };
    assert_eq!(json("get pod db -o json")["metadata"].get("managedFields"), None);
    assert!(json("get pod db -o json --show-managed-fields")["metadata"]["managedFields"].is_array());
    let list = json("get pods -o json");
    assert_eq!((&list["kind"], &list["metadata"]["resourceVersion"]), (&json!("List"), &json!("")));
    assert_eq!(list["items"][1]["metadata"].get("managedFields"), None);
}

#[test]
fn raw_paths_are_asked_as_they_are() {
    let ran = Fake::new().answer_text("GET /healthz", 200, "ok").run("get --raw /healthz");
    ended_well(&ran, "ok");
    let nothing = "Error from server (NotFound): the server could not find the requested resource\n";
    ended_badly(&Fake::new().run("get --raw /nothing"), nothing);
}

#[test]
fn pages_are_put_together() {
    let page = |name: &str, next: &str| json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"continue": next}, "items": [pod(name)]});
    let fake =
        Fake::new().answer(&format!("GET {PODS}"), page("a", "token")).answer(&format!("GET {PODS}"), page("b", ""));
    let ran = fake.run("get pods -o name --chunk-size=1");
    ended_well(&ran, "pod/a\npod/b\n");
    let tokens: Vec<&str> = ran.requests.iter().map(|sent| sent.query("continue")).collect();
    assert_eq!(tokens, ["", "token"]);
}

#[test]
fn refusals_name_who_may_not() {
    let message =
        "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"";
    let ran = Fake::new().refuse(&format!("GET {PODS}"), 403, "Forbidden", message).run("get pods");
    ended_badly(&ran, &format!("Error from server (Forbidden): {message}\n"));
    let ran = Fake::new().refuse(&format!("GET {PODS}"), 401, "Unauthorized", "Unauthorized").run("get pods");
    ended_badly(&ran, "error: You must be logged in to the server (Unauthorized)\n");
}

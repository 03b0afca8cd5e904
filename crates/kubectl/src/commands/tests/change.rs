//! `kubectl label`, `annotate`, `patch`, `scale` and `replace`.

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}, "metadata": {"name": name,
        "namespace": "default", "resourceVersion": "5", "labels": {"k": "v"}, "annotations": {"k": "v"}}})
}

/// Two maps that can be read, and that are as they were after any patch, but for their versions.
fn maps() -> Fake {
    let patched = |name: &str| {
        let mut map = map(name);
        map["metadata"]["resourceVersion"] = "6".into();
        map
    };
    Fake::new()
        .objects(MAPS, &[map("a"), map("b")])
        .answer(&format!("PATCH {MAPS}/a"), patched("a"))
        .answer(&format!("PATCH {MAPS}/b"), patched("b"))
}

#[test]
fn labels_are_added_changed_and_removed() {
    let check = |line: &str, out: &str, patch: Option<Value>| {
        let ran = maps().run(line);
        ended_well(&ran, out);
        let sent = ran.requests.iter().find(|request| request.line.starts_with("PATCH"));
        assert_eq!(sent.map(|sent| sent.body["metadata"]["labels"].clone()), patch, "{line}");
    };
    check("label cm a l=w", "configmap/a labeled\n", Some(json!({"l": "w"})));
    check("label cm a k=v", "configmap/a not labeled\n", None);
    check("label cm a k=w --overwrite", "configmap/a labeled\n", Some(json!({"k": "w"})));
    check("label cm a k-", "configmap/a unlabeled\n", Some(json!({"k": null})));
    check("label cm a m-", "label \"m\" not found.\nconfigmap/a not labeled\n", None);
    check("label cm a l=2 m-", "label \"m\" not found.\nconfigmap/a labeled\n", Some(json!({"l": "2"})));
    check("label cm a l=w --dry-run=client", "configmap/a labeled (dry run)\n", None);
    check("label cm a l=w --dry-run=server", "configmap/a labeled (server dry run)\n", Some(json!({"l": "w"})));
    check("label cm a --list", "k=v\n", None);
}

#[test]
fn several_objects_are_labeled_one_after_the_other() {
    let ran = maps().run("label cm a b n=1");
    ended_well(&ran, "configmap/a labeled\nconfigmap/b labeled\n");
    let ran = maps().run("label cm --all n=1");
    ended_well(&ran, "configmap/a labeled\nconfigmap/b labeled\n");
    assert_eq!(ran.requests.iter().filter(|request| request.line.starts_with("PATCH")).count(), 2);
    let ran = maps().run("label cm -l k=v n=1");
    assert_eq!(ran.request(&format!("GET {MAPS}")).query("labelSelector"), "k=v");
    ended_badly(
        &maps().run("label cm a b k=4 --overwrite --resource-version=1"),
        "error: --resource-version may only be used with a single resource\n",
    );
}

#[test]
fn labels_that_cannot_be_set_are_refused() {
    let check = |line: &str, err: &str| ended_badly(&maps().run(line), &format!("error: {err}\n"));
    check("label cm a k=w", "'k' already has a value (v), and --overwrite is false");
    check("label cm a n=1 n-", "can not both modify and remove a label in the same command");
    check("label cm a", "at least one label update is required");
    check("label a=b", "one or more resources must be specified as <resource> <name> or <resource>/<name>");
    check(
        "label cm a x=1 --local",
        "can only use local files by -f pod.yaml or --filename=pod.json when --local=true is set",
    );
    let ran = maps().run("label cm a k='bad value'");
    assert!(ran.err.starts_with("error: invalid label value: \"k=bad value\": a valid label must be"), "{}", ran.err);
    let missing = "Error from server (NotFound): configmaps \"missing\" not found\n";
    ended_badly(&maps().run("label cm missing k=v"), missing);
}

#[test]
fn annotations_may_hold_anything() {
    let ran = maps().run("annotate cm a description='a value with = and spaces' empty= old-");
    ended_well(&ran, "configmap/a annotated\n");
    let sent = &ran.request(&format!("PATCH {MAPS}/a")).body["metadata"]["annotations"];
    assert_eq!(sent["description"], "a value with = and spaces");
    assert_eq!(sent["empty"], "");
    let taken =
        "error: --overwrite is false but found the following declared annotation(s): 'k' already has a value (v)\n";
    ended_badly(&maps().run("annotate cm a k=w"), taken);
    ended_well(&maps().run("annotate cm a k=w --overwrite"), "configmap/a annotated\n");
    ended_badly(&maps().run("annotate cm a"), "error: at least one annotation update is required\n");
    ended_well(&maps().run("annotate cm a --list"), "k=v\n");
}

#[test]
fn patches_have_a_type() {
    let check = |flags: &str, content_type: &str, body: Value| {
        let ran = maps().run(&format!("patch cm a {flags}"));
        ended_well(&ran, "configmap/a patched\n");
        let sent = ran.request(&format!("PATCH {MAPS}/a"));
        assert_eq!((sent.content_type.as_str(), &sent.body), (content_type, &body), "{flags}");
        assert_eq!(sent.query("fieldManager"), "kubectl-patch");
    };
    let data = json!({"data": {"y": "2"}});
    check("-p '{\"data\":{\"y\":\"2\"}}'", "application/strategic-merge-patch+json", data.clone());
    check("-p 'data: {\"y\": \"2\"}'", "application/strategic-merge-patch+json", data.clone());
    check("--type=merge -p '{\"data\":{\"y\":\"2\"}}'", "application/merge-patch+json", data);
    let operations = json!([{"op": "remove", "path": "/data/x"}]);
    check("--type=json -p '[{\"op\":\"remove\",\"path\":\"/data/x\"}]'", "application/json-patch+json", operations);
    let ran = maps().run("patch cm a --subresource=status -p '{}'");
    assert_eq!(ran.lines().last().copied(), Some(format!("PATCH {MAPS}/a/status").as_str()));
}

#[test]
fn patches_that_are_none_are_refused() {
    let check = |line: &str, err: &str| ended_badly(&maps().run(line), &format!("error: {err}\n"));
    check("patch cm a", "must specify --patch or --patch-file containing the contents of the patch");
    check("patch cm a -p ''", "must specify --patch or --patch-file containing the contents of the patch");
    check("patch cm a --type=other -p '{}'", "--type must be one of [json merge strategic], not \"other\"");
    check("patch cm a --patch-file=x -p '{}'", "cannot specify --patch and --patch-file together");
    check("patch cm a --patch-file=/no/such", "unable to read patch file: open /no/such: no such file or directory");
    let same = maps().answer(&format!("GET {MAPS}/a"), map("a")).answer(&format!("PATCH {MAPS}/c"), map("c"));
    let same = same.answer(&format!("GET {MAPS}/c"), map("c"));
    ended_well(&same.run("patch cm c -p '{}'"), "configmap/c patched (no change)\n");
}

#[test]
fn scaling_may_expect_what_is_there() {
    let scale = |replicas: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas},
            "metadata": {"name": "web", "namespace": "default", "resourceVersion": "4"}})
    };
    let path = format!("{DEPLOYMENTS}/web/scale");
    let fake = || {
        Fake::new()
            .objects(DEPLOYMENTS, &[deployment("web")])
            .answer(&format!("GET {path}"), scale(2))
            .answer(&format!("PUT {path}"), scale(3))
            .answer(&format!("PATCH {path}"), scale(3))
    };
    let writes = |ran: &Ran| -> Vec<String> {
        ran.requests.iter().filter(|sent| !sent.line.starts_with("GET")).map(|sent| sent.line.clone()).collect()
    };
    let ran = fake().run("scale deploy web --replicas=3");
    ended_well(&ran, "deployment.apps/web scaled\n");
    assert_eq!(writes(&ran), [format!("PATCH {path}")]);
    assert_eq!(ran.request(&format!("PATCH {path}")).body["spec"]["replicas"], 3);
    let ran = fake().run("scale deploy/web --replicas=3 --current-replicas=2");
    ended_well(&ran, "deployment.apps/web scaled\n");
    assert_eq!(writes(&ran).len(), 1, "{:?}", ran.lines());
    let other = fake().run("scale deploy/web --replicas=3 --current-replicas=7");
    ended_badly(&other, "error: Expected replicas to be 7, was 2\n");
    assert!(writes(&other).is_empty());
    let other = fake().run("scale deploy web --replicas=4 --resource-version=1");
    ended_badly(&other, "error: Expected resource version to be 1, was 4\n");
    let dry = fake().run("scale deploy web --replicas=5 --dry-run=client");
    ended_well(&dry, "deployment.apps/web scaled (dry run)\n");
    assert!(writes(&dry).is_empty());
    refuses("scale deploy web", "required flag(s) \"replicas\" not set");
    refuses(
        "scale deploy web --replicas=-1",
        "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0",
    );
}

#[test]
fn replacing_puts_the_file_in_the_place_of_the_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {r: \"1\"}\n").expect("a file");
    let file = file.display();
    let fake = || maps().answer(&format!("PUT {MAPS}/a"), map("a"));
    let ran = fake().run(&format!("replace -f {file}"));
    ended_well(&ran, "configmap/a replaced\n");
    assert_eq!(ran.request(&format!("PUT {MAPS}/a")).body["data"], json!({"r": "1"}));
    ended_well(&fake().run(&format!("replace -f {file} --dry-run=server")), "configmap/a replaced (server dry run)\n");
    let dry = fake().run(&format!("replace -f {file} --dry-run=client"));
    ended_well(&dry, "configmap/a replaced (dry run)\n");
    assert!(!dry.lines().iter().any(|line| line.starts_with("PUT")));
    refuses(&format!("replace -f {file} --grace-period=0"), "--grace-period must have --force specified");
    refuses(&format!("replace -f {file} --timeout=1s"), "--timeout must have --force specified");
    refuses("replace", "must specify one of -f and -k");
    refuses("replace -f /no/such.yaml", "the path \"/no/such.yaml\" does not exist");
    let gone = Fake::new().run(&format!("replace -f {file}"));
    let sentence =
        format!("Error from server (NotFound): error when replacing \"{file}\": configmaps \"a\" not found\n");
    ended_badly(&gone, &sentence);
}

#[test]
fn flags_of_labels_and_annotations_that_do_not_go_together_are_refused() {
    for command in ["label", "annotate"] {
        refuses(&format!("{command} pods --all -l a=b c=d"), "cannot set --all and --selector at the same time");
        let fields = "cannot set --all and --field-selector at the same time";
        refuses(&format!("{command} pods --all --field-selector=a=b c=d"), fields);
        let server = "cannot specify --local and --dry-run=server - did you mean --dry-run=client?";
        refuses(&format!("{command} --local --dry-run=server a=b"), server);
    }
    let local = "can only use local files by -f pod.yaml or --filename=pod.json when --local=true is set";
    refuses("label --local pods x a=b", local);
    refuses("annotate --local pods x a=b", &local.replace("pod", "rsrc"));
    refuses("label --local a=b", "one or more files must be specified as -f pod.yaml or --filename=pod.json");
    refuses("annotate --local a=b", "one or more files must be specified as -f rsrc.yaml or --filename=rsrc.json");
    refuses("annotate pods x --list -o yaml", "--list and --output may not be specified together");
    refuses("label pods x a=b=c", "invalid label spec: a=b=c");
}

#[test]
fn scaling_is_asked_for_in_numbers_that_are() {
    let negative = "The --current-replicas must specify an integer of -1 or greater";
    refuses("scale deployment/web --replicas=1 --current-replicas=-2", negative);
    let two = [deployment("web"), deployment("api")];
    let ran = Fake::new().objects(DEPLOYMENTS, &two).run("scale deployment web api --replicas=1 --resource-version=4");
    ended_badly(&ran, "error: cannot use --resource-version with multiple resources\n");
    assert!(ran.lines().iter().all(|line| line.starts_with("GET ")), "{:?}", ran.lines());
}

#[test]
fn a_patch_of_files_names_no_objects() {
    refuses("patch --local pods web -p {}", "cannot specify --local and server resources");
}

#[test]
fn tokens_are_for_somebody() {
    refuses("create token x --audience=", "--audience must not be an empty string");
    let kinds = "supported --bound-object-kind values are Node, Pod, Secret";
    refuses("create token x --bound-object-kind=Service", kinds);
    let name = "--bound-object-name is required if --bound-object-kind is provided";
    refuses("create token x --bound-object-kind=Pod", name);
    let uid = "--bound-object-uid can only be set if --bound-object-kind is provided";
    refuses("create token x --bound-object-uid=1", uid);
}

//! `--local`: files are changed without a server, as upstream's kubectl (v1.36.4) prints them.

use super::*;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
      - {name: prepare, image: busybox}
      containers:
      - {name: main, image: 'nginx:1', env: [{name: A, value: '1'}], resources: {limits: {cpu: '1'}}}
";
const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: b, c: d}, annotations: {x: one}}
spec: {containers: [{name: main, image: nginx}]}
";
const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: s, namespace: default}
spec: {selector: {a: b}, ports: [{port: 80, targetPort: 80}]}
";
const BINDING: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rb, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ann}]
";

/// Runs a line in which a file stands for one of the objects above.
fn run(line: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let mut line = format!("{line} --local");
    for (name, text) in [("d.yaml", DEPLOYMENT), ("p.yaml", POD), ("s.yaml", SERVICE), ("rb.yaml", BINDING)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        line = line.replace(name, &path.display().to_string());
    }
    Fake::new().run(&line)
}

/// What a line prints. No server is asked.
#[track_caller]
fn prints(line: &str, expected: &str) {
    let ran = run(line);
    assert_eq!((ran.err.as_str(), ran.code, ran.lines().len()), ("", 0, 0), "{line}");
    assert_eq!(ran.out, expected.strip_prefix('\n').unwrap_or(expected), "{line}");
}

#[track_caller]
fn refuses(line: &str, expected: &str) {
    let ran = run(line);
    assert_eq!((ran.err, ran.code), (format!("error: {expected}\n"), 1), "{line}");
}

#[test]
fn a_changed_file_has_the_fields_that_its_type_always_has() {
    prints(
        "set image -f d.yaml main=nginx:2 -o yaml",
        "
apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app: web
  name: web
  namespace: default
spec:
  replicas: 2
  selector:
    matchLabels:
      app: web
  strategy: {}
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - env:
        - name: A
          value: \"1\"
        image: nginx:2
        name: main
        resources:
          limits:
            cpu: \"1\"
      initContainers:
      - image: busybox
        name: prepare
        resources: {}
status: {}
",
    );
    prints(
        "set selector -f s.yaml a=c,d=e -o yaml",
        "
apiVersion: v1
kind: Service
metadata:
  name: s
  namespace: default
spec:
  ports:
  - port: 80
    targetPort: 80
  selector:
    a: c
    d: e
status:
  loadBalancer: {}
",
    );
}

#[test]
fn images_and_variables_of_containers() {
    let images =
        "-o jsonpath='{.spec.template.spec.initContainers[*].image} {.spec.template.spec.containers[*].image}'";
    prints(&format!("set image -f d.yaml *=nginx:2 {images}"), "nginx:2 nginx:2");
    prints(&format!("set image -f d.yaml prepare=x main=a=b {images}"), "x a=b");
    let env = "-o jsonpath='{.spec.template.spec.containers[*].env}'";
    prints(&format!("set env -f d.yaml A=2 B=3 {env}"), r#"[{"name":"A","value":"2"},{"name":"B","value":"3"}]"#);
    prints(&format!("set env -f d.yaml A- C=x -c m* {env}"), r#"[{"name":"C","value":"x"}]"#);
    refuses(
        "set env -f d.yaml A=2 A-",
        "can not both modify and remove the same environment variable in the same command",
    );
    refuses("set env -f d.yaml --from=configmap/x", "unsupported resource specified in --from");
    // Upstream ends the line behind a kind that has a group.
    refuses(
        "set env -f d.yaml A=2 --overwrite=false",
        "deployment.apps/web\n 'A' already has a value (1), and --overwrite is false",
    );
    refuses(
        "set image -f s.yaml m=x",
        "service/s the object is not a pod or does not have a pod template: *v1.Service",
    );
}

#[test]
fn only_files_are_changed() {
    let files = "you must specify resources by --filename when --local is set.\nExample resource specifications include:\n   \
                 '-f rsrc.yaml'\n   '--filename=rsrc.json'";
    refuses("set image -f d.yaml main", files);
    refuses("set resources deployment web --limits=cpu=1", files);
    refuses("set subject rolebinding rb --user=x", files);
}

#[test]
fn selectors_of_services_have_values() {
    refuses("set selector -f s.yaml a!=c", "\"!=\" is not a valid label selector operator");
    refuses("set selector -f s.yaml a", "match expression [{a Exists []}] not supported on this object");
    refuses("set selector -f p.yaml a=c", "setting a selector is only supported for Services");
}

#[test]
fn subjects_of_bindings() {
    let subjects = "-o jsonpath='{range .subjects[*]}{.kind} {.namespace}/{.name};{end}'";
    let check = |flags: &str, expected: &str| prints(&format!("set subject -f rb.yaml {flags} {subjects}"), expected);
    check("--user=bob --group=g", "User /ann;User /bob;Group /g;");
    check("--serviceaccount=ns:sa", "User /ann;ServiceAccount ns/sa;");
    check("--serviceaccount=:sa", "User /ann;ServiceAccount default/sa;");
    for account in ["sa", "a:b:c", "ns:"] {
        refuses(
            &format!("set subject -f rb.yaml --serviceaccount={account}"),
            "serviceaccount must be <namespace>:<name>",
        );
    }
    refuses(
        "set subject -f d.yaml --user=x",
        "deployment.apps/web\n setting subjects is only supported for RoleBinding/ClusterRoleBinding",
    );
}

/// Without a server nobody knows which kinds have a namespace.
#[test]
fn no_namespace_is_added() {
    prints(
        "label -f p.yaml n=1 --resource-version=3 -o yaml",
        "
apiVersion: v1
kind: Pod
metadata:
  annotations:
    x: one
  labels:
    a: b
    c: d
    \"n\": \"1\"
  name: p
  resourceVersion: \"3\"
spec:
  containers:
  - image: nginx
    name: main
",
    );
    let metadata = "-o jsonpath='{.metadata}'";
    let check = |line: &str, expected: &str| prints(&format!("{line} {metadata}"), expected);
    check("annotate -f p.yaml x-", r#"{"annotations":{},"labels":{"a":"b","c":"d"},"name":"p"}"#);
    check(
        r#"patch -f p.yaml --type merge -p '{"metadata":{"labels":{"a":null}}}'"#,
        r#"{"annotations":{"x":"one"},"labels":{"c":"d"},"name":"p"}"#,
    );
    check(
        r#"patch -f p.yaml --type json -p '[{"op":"replace","path":"/metadata/labels/a","value":"q"}]'"#,
        r#"{"annotations":{"x":"one"},"labels":{"a":"q","c":"d"},"name":"p"}"#,
    );
}

#[test]
fn patches_of_files() {
    prints(r#"patch -f p.yaml -p '{"metadata":{"labels":{"a":"b"}}}'"#, "pod/p patched (no change)\n");
    let containers = "-o jsonpath='{.spec.containers[*].name}'";
    let replaced = r#"{"spec":{"containers":[{"name":"main","$patch":"delete"},{"name":"o","image":"i"}]}}"#;
    prints(&format!("patch -f p.yaml -p '{replaced}' {containers}"), "o");
    refuses(
        r#"patch -f p.yaml -p '{"spec":{"containers":[{"image":"i"}]}}'"#,
        "map: map[image:i] does not contain declared merge key: name",
    );
    refuses(
        r#"patch -f p.yaml --type json -p '[{"op":"test","path":"/metadata/labels/a","value":"q"}]'"#,
        "testing value /metadata/labels/a failed: test failed",
    );
}

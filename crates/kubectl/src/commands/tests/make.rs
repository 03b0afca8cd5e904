//! `kubectl run`, `expose` and `autoscale`: objects made from flags, and from other objects.

use super::*;

#[test]
fn a_pod_has_a_label_by_its_name() {
    makes(
        "run web --image=nginx",
        "
apiVersion: v1
kind: Pod
metadata:
  labels:
    run: web
  name: web
spec:
  containers:
  - image: nginx
    name: web
    resources: {}
  dnsPolicy: ClusterFirst
  restartPolicy: Always
status: {}
",
    );
    makes(
        "run web --image=nginx --port=80 --env=A=1 --env=B=x=y --labels=a=b,c=d --annotations=note=1 --image-pull-policy=Never --privileged",
        "
apiVersion: v1
kind: Pod
metadata:
  annotations:
    note: \"1\"
  labels:
    a: b
    c: d
  name: web
spec:
  containers:
  - env:
    - name: A
      value: \"1\"
    - name: B
      value: x=y
    image: nginx
    imagePullPolicy: Never
    name: web
    ports:
    - containerPort: 80
    resources: {}
    securityContext:
      privileged: true
  dnsPolicy: ClusterFirst
  restartPolicy: Always
status: {}
",
    );
}

#[test]
fn words_behind_the_dashes_are_arguments_or_the_command() {
    let container = |line: &str| {
        let ran = Fake::new().run(line);
        let pod: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        pod["spec"]["containers"][0].clone()
    };
    let with = container("run p --image=i --restart=Never --dry-run=client -o json -- sleep 1");
    assert_eq!((&with["args"], &with["command"]), (&json!(["sleep", "1"]), &Value::Null));
    let with = container("run p --image=i --command --dry-run=client -o json -- sleep 1");
    assert_eq!((&with["args"], &with["command"]), (&Value::Null, &json!(["sleep", "1"])));
}

#[test]
fn overrides_change_what_was_made() {
    let pod = |flags: &str| -> Value {
        let ran = Fake::new().run(&format!("run p --image=busybox {flags} --dry-run=client -o json"));
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    };
    let merged = pod("--overrides='{\"spec\":{\"hostNetwork\":true,\"containers\":[{\"name\":\"q\"}]}}'");
    assert_eq!(merged["spec"]["hostNetwork"], true);
    assert_eq!(merged["spec"]["containers"].as_array().map(Vec::len), Some(1), "a merge replaces lists");
    assert_eq!(merged["spec"]["containers"][0]["name"], "q");
    let strategic = "--override-type=strategic --overrides='{\"apiVersion\":\"v1\",\"spec\":{\"containers\":[{\"name\":\"p\",\"tty\":true}]}}'";
    let container = &pod(strategic)["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["tty"]), (&json!("busybox"), &json!(true)));
    let operations =
        "--override-type=json --overrides='[{\"op\":\"add\",\"path\":\"/metadata/labels/x\",\"value\":\"y\"}]'";
    assert_eq!(pod(operations)["metadata"]["labels"], json!({"run": "p", "x": "y"}));
    refuses("run p --image=busybox --overrides='{bad'", "Invalid JSON Patch");
}

#[test]
fn pods_that_cannot_be_are_refused() {
    refuses("run p", "required flag(s) \"image\" not set");
    refuses("run p --image='bad image'", "Invalid image name \"bad image\": invalid reference format");
    refuses("run p --image=busybox --env=bad", "invalid env: bad");
    misused("run --image=x", "run", "NAME is required for run");
    misused("run p --image=x --restart=Sometimes", "run", "invalid restart policy: Sometimes");
    misused("run p --image=x --image-pull-policy=Maybe", "run", "invalid image pull policy: Maybe");
    misused("run p --image=x --expose", "run", "--port must be set when exposing a service");
    misused("run p --image=x --rm", "run", "--rm should only be used for attached containers");
    misused(
        "run p --image=x -it --dry-run=client",
        "run",
        "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)",
    );
}

#[test]
fn a_pod_may_come_with_its_service() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}});
    let mut made = pod("web");
    made["metadata"]["labels"] = json!({"run": "web"});
    let ran = Fake::new()
        .answer("POST /api/v1/namespaces/default/services", service)
        .answer(&format!("POST {PODS}"), made)
        .run("run web --image=nginx --port=80 --expose");
    ended_well(&ran, "service/web created\npod/web created\n");
    let sent = &ran.request("POST /api/v1/namespaces/default/services").body["spec"];
    assert_eq!(sent["selector"], json!({"run": "web"}));
    assert_eq!(sent["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
}

fn exposed(flags: &str) -> Value {
    let fake = Fake::new().objects(DEPLOYMENTS, &[deployment("web")]);
    let ran = fake.run(&format!("expose deployment web {flags} --dry-run=client -o json"));
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn services_select_the_pods_of_what_is_exposed() {
    let service = exposed("--port=8080 --target-port=80 --type=NodePort --name=other --protocol=UDP");
    assert_eq!(service["metadata"]["name"], "other");
    assert_eq!(service["spec"]["selector"], json!({"app": "web"}));
    assert_eq!(service["spec"]["type"], "NodePort");
    assert_eq!(service["spec"]["ports"], json!([{"protocol": "UDP", "port": 8080, "targetPort": 80}]));
    let own = exposed("--port=80 --selector=a=b --labels=c=d --session-affinity=ClientIP --external-ip=1.2.3.4");
    assert_eq!((&own["spec"]["selector"], &own["metadata"]["labels"]), (&json!({"a": "b"}), &json!({"c": "d"})));
    assert_eq!(
        (&own["spec"]["sessionAffinity"], &own["spec"]["externalIPs"]),
        (&json!("ClientIP"), &json!(["1.2.3.4"]))
    );
    // Where no port is given, those of the containers are taken.
    assert_eq!(exposed("")["spec"]["ports"], json!([{"protocol": "TCP", "port": 80, "targetPort": 80}]));
    let several = exposed("--port=80,443");
    let names: Vec<&Value> =
        several["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["name"]).collect();
    assert_eq!(names, ["port-1", "port-2"]);
    assert_eq!(exposed("--cluster-ip=None --port=80")["spec"]["clusterIP"], "None");
}

#[test]
fn what_has_no_pods_is_not_exposed() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "real", "namespace": "default"}});
    let maps = Fake::new().objects("/api/v1/namespaces/default/configmaps", &[map]);
    ended_badly(&maps.run("expose cm real --port=80"), "error: cannot expose a ConfigMap\n");
    let mut bare = deployment("web");
    bare["spec"]["template"]["spec"]["containers"] = json!([{"name": "main", "image": "nginx"}]);
    let fake = Fake::new().objects(DEPLOYMENTS, &[bare]);
    ended_badly(&fake.run("expose deployment web"), "error: couldn't find port via --port flag or introspection\n");
    let missing = "Error from server (NotFound): deployments.apps \"missing\" not found\n";
    ended_badly(&Fake::new().run("expose deployment missing --port=80"), missing);
}

#[test]
fn autoscalers_have_limits_and_a_measure() {
    let made = |flags: &str| -> Value {
        let fake = Fake::new().objects(DEPLOYMENTS, &[deployment("web")]);
        let ran = fake.run(&format!("autoscale deployment web {flags} --dry-run=client -o json"));
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    };
    let scaler = made("--min=2 --max=5 --cpu=50%");
    assert_eq!((&scaler["apiVersion"], &scaler["spec"]["maxReplicas"]), (&json!("autoscaling/v2"), &json!(5)));
    assert_eq!(scaler["spec"]["minReplicas"], 2);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    assert_eq!(scaler["spec"]["scaleTargetRef"], target);
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    assert_eq!(scaler["spec"]["metrics"], cpu);
    let average = made("--max=3 --memory=1Gi");
    let memory = json!({"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}});
    assert_eq!(average["spec"]["metrics"][0]["resource"], memory);
    refuses("autoscale deployment web", "required flag(s) \"max\" not set");
    refuses(
        "autoscale deployment web --min=5 --max=2",
        "--max=MAXPODS must be larger or equal to --min=MINPODS, max: 2, min: 5",
    );
}

//! What a node refuses, and what it grants no more than was asked for, on real containers.

#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use on_node::{Node, condition, node, one, pod_path, script, status, with};
use serde_json::{Value, json};

fn refused(node: &Node, name: &str, spec: Value, reason: &str, message: &str) {
    node.pod(name, spec);
    let pod = node.until_phase(name, "Failed");
    assert_eq!(pod["status"]["reason"], reason, "{}", pod["status"]);
    assert_eq!(pod["status"]["message"], format!("Pod was rejected: {message}"));
    assert!(pod["status"]["containerStatuses"].is_null(), "{}", pod["status"]);
    node.until_event(name, &format!("Warning {reason} {message}"));
}

#[test]
fn a_port_of_the_node_is_given_once() {
    let node = node();
    let serve =
        |port: Value| with(one(json!({"command": ["serve"], "ports": [port]})), json!({"restartPolicy": "Always"}));
    let port = |more: Value| with(json!({"containerPort": 8080, "hostPort": 18080}), more);
    node.pod("port-first", serve(port(json!({}))));
    node.until_ready("port-first");
    let ask = || {
        node.server
            .machine()
            .shell("exec 3<>/dev/tcp/172.29.0.1/18080; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")
    };
    assert!(ask().unwrap().contains("pod: port-first"));
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    refused(&node, "port-second", serve(port(json!({}))), "NodePorts", message);
    refused(&node, "port-address", serve(port(json!({"hostIP": "172.29.0.1"}))), "NodePorts", message);
    let own_network = with(serve(json!({"containerPort": 18080})), json!({"hostNetwork": true}));
    refused(&node, "port-network", own_network, "NodePorts", message);
    node.pod("port-udp", serve(port(json!({"protocol": "UDP"}))));
    node.until_ready("port-udp");
    // Free again with the pod that had it, and only then.
    node.delete("port-first", None);
    node.until_gone("port-first");
    node.pod("port-third", serve(port(json!({}))));
    node.until_ready("port-third");
    assert!(ask().unwrap().contains("pod: port-third"));
    for name in ["port-udp", "port-third"] {
        node.delete(name, Some(0));
    }
}

#[test]
fn what_the_node_cannot_enforce_is_not_run() {
    let node = node();
    if !std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y')) {
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        for (name, profile) in [
            ("armor-default", json!({"type": "RuntimeDefault"})),
            ("armor-own", json!({"type": "Localhost", "localhostProfile": "mine"})),
        ] {
            let context = json!({"securityContext": {"appArmorProfile": profile}});
            refused(&node, name, with(one(script("true")), context), "AppArmor", message);
        }
        let unconfined = json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}});
        assert_eq!(node.output("armor-none", with(one(script("echo ran")), unconfined)), "ran\n");
    }
    let missing = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "none.json"}});
    node.pod("filter-missing", one(with(script("true"), json!({"securityContext": missing}))));
    let pod = node.until("filter-missing", "refused", |pod| {
        status(pod, "main")["state"]["waiting"]["reason"].as_str().is_some_and(|reason| reason.starts_with("Create"))
    });
    let message = status(&pod, "main")["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("none.json"), "{message}");
    node.delete("filter-missing", Some(0));
    // No pages were set aside on a machine of ours; where there are, the pod fits.
    let pages = json!({"hugepages-2Mi": "900Gi", "memory": "16Mi"});
    let spec = one(with(script("true"), json!({"resources": {"limits": pages}})));
    node.pod("huge", spec);
    let pod = node.until_phase("huge", "Failed");
    assert_eq!(pod["status"]["reason"], "OutOfhugepages-2Mi");
    refused(
        &node,
        "other-system",
        with(one(script("true")), json!({"os": {"name": "windows"}})),
        "PodOSNotSupported",
        "Failed to admit pod as the OS field doesn't match node OS",
    );
}

#[test]
fn a_taint_that_ends_pods_lets_none_in() {
    let node = Node::start(&["--node-taint=broken=yes:NoExecute"]);
    let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    // The controller that evicts may be faster in taking the object away than we are in looking at it.
    node.pod("intolerant", one(script("true")));
    node.until_event("intolerant", &format!("Warning TaintToleration {message}"));
    let tolerant = json!({"tolerations": [{"key": "broken", "operator": "Exists"}]});
    assert_eq!(node.output("tolerant", with(one(script("echo ran")), tolerant)), "ran\n");
    // What was labelled a moment ago counts at once: the watch may be behind.
    node.patch("/api/v1/nodes/node-1", json!({"metadata": {"labels": {"disk": "new"}}}));
    let selects = json!({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"disk": "new"}});
    assert_eq!(node.output("labelled", with(one(script("echo ran")), selects)), "ran\n");
}

#[test]
fn limits_and_devices_are_the_nodes() {
    let node = node();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.server.pid())).unwrap();
    let line = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = node.output("ulimits", one(script("cat /proc/self/limits")));
    for name in ["Max open files", "Max locked memory", "Max core file size"] {
        assert_eq!(line(&text, name), line(&limits, name));
    }
    // A device that is mounted is seen, and opened only by who may.
    let device = json!({"volumes": [{"name": "d", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}}]});
    let look = |privileged: bool| {
        let text = "stat /device; echo from a container > /device && echo opened; echo end";
        let mount = json!({"volumeMounts": [{"name": "d", "mountPath": "/device"}],
            "securityContext": {"privileged": privileged}});
        with(one(with(script(text), mount)), device.clone())
    };
    let plain = node.output("device-plain", look(false));
    assert!(plain.contains("character mode") && !plain.contains("opened"), "{plain}");
    // Output and errors come by pipes of their own, in either order.
    assert!(plain.contains("not permitted") && plain.contains("end\n"), "{plain}");
    let privileged = node.output("device-privileged", look(true));
    assert!(privileged.contains("opened"), "{privileged}");
}

#[test]
fn read_only_goes_as_deep_as_asked_for() {
    let node = node();
    let data = node.server.data_dir().join("deep");
    std::fs::create_dir_all(data.join("below")).unwrap();
    let machine = node.server.machine();
    let below = data.join("below");
    machine.shell(&format!("mount -t tmpfs knarr-test {}", below.display())).unwrap();
    let mount = |recursive: Value| {
        let text = "touch /v/x || echo top locked; touch /v/below/x && echo below open; sleep 300";
        let mount = with(json!({"name": "v", "mountPath": "/v", "readOnly": true}), recursive);
        let volumes = json!({"volumes": [{"name": "v", "hostPath": {"path": data}}]});
        with(one(with(script(text), json!({"volumeMounts": [mount]}))), volumes)
    };
    for (name, asked, open, shown) in [
        ("flat", json!({}), true, "Disabled"),
        ("deep", json!({"recursiveReadOnly": "Enabled"}), false, "Enabled"),
        ("deep-if", json!({"recursiveReadOnly": "IfPossible"}), false, "Enabled"),
    ] {
        node.pod(name, mount(asked));
        let pod = node.until_ready(name);
        let text = node.until_log(name, "main", "top locked");
        let text = if open { node.until_log(name, "main", "below open") } else { text };
        assert_eq!(text.contains("below open"), open, "{name}: {text}");
        let mounts = status(&pod, "main")["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == "v").unwrap();
        assert_eq!((&mount["readOnly"], mount["recursiveReadOnly"].as_str()), (&json!(true), Some(shown)), "{name}");
        node.delete(name, Some(0));
        node.until_gone(name);
    }
    machine.shell(&format!("umount {}", below.display())).unwrap();
}

#[test]
fn certificates_that_the_cluster_trusts_are_shown_to_pods() {
    let gates = "ClusterTrustBundle=true,ClusterTrustBundleProjection=true";
    let node = Node::start(&[&format!("--kube-apiserver-arg=feature-gates={gates}")]);
    let certificate = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.self_signed(&key).unwrap().pem().replace("\r\n", "\n")
    };
    let (one_pem, two_pem, three_pem) = (certificate("one"), certificate("two"), certificate("three"));
    let bundles = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    // The API that has them is not served unless asked for, as upstream; a definition stands in for it.
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"signerName": text, "trustBundle": text}}}});
    let names =
        json!({"plural": "clustertrustbundles", "singular": "clustertrustbundle", "kind": "ClusterTrustBundle"});
    node.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json!({
        "metadata": {"name": "clustertrustbundles.certificates.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": "certificates.k8s.io", "scope": "Cluster", "names": names, "versions": [{
            "name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "selectableFields": [{"jsonPath": ".spec.signerName"}]}]},
    }));
    node.until_served(bundles);
    let role = json!({"metadata": {"name": "bundles"}, "rules": [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": ["get", "list", "watch"]}]});
    node.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
    let nodes = json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"}]);
    let reference = json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "bundles"});
    let binding = json!({"metadata": {"name": "bundles"}, "roleRef": reference, "subjects": nodes});
    node.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding);
    let bundle = |name: &str, signer: &str, text: &str, live: &str| {
        let mut spec = json!({"trustBundle": text});
        if !signer.is_empty() {
            spec["signerName"] = signer.into();
        }
        let metadata = json!({"name": name, "labels": {"live": live}});
        node.create(bundles, json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": metadata, "spec": spec}));
    };
    bundle("by-name", "", &format!("ours\n{one_pem}{one_pem}"), "yes");
    bundle("signer-live", "example.com/signer", &two_pem, "yes");
    bundle("signer-old", "example.com/signer", &three_pem, "no");
    let named = json!({"clusterTrustBundle": {"name": "by-name", "path": "named.pem"}});
    let chosen = json!({"clusterTrustBundle": {"signerName": "example.com/signer", "path": "chosen.pem",
        "labelSelector": {"matchLabels": {"live": "yes"}}}});
    let none = json!({"clusterTrustBundle": {"name": "nobody", "path": "none.pem", "optional": true}});
    let volume = |sources: Value| json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]});
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let spec = with(one(with(script("sleep 300"), mount.clone())), volume(json!([named, chosen, none])));
    node.pod("trusting", spec);
    node.until_ready("trusting");
    let read = |file: &str| node.exec("trusting", "main", &["cat", &format!("/v/{file}")]);
    // Each certificate once, without the text around it.
    assert_eq!(read("named.pem"), one_pem);
    assert_eq!(read("chosen.pem"), two_pem);
    assert_eq!(read("none.pem"), "");
    let strict = json!([{"clusterTrustBundle": {"name": "nobody", "path": "none.pem"}}]);
    node.pod("strict", with(one(with(script("true"), mount)), volume(strict)));
    node.until_event("strict", "Warning FailedMount MountVolume.SetUp failed for volume \"v\" : ");
    assert_eq!(condition(&node.get("strict"), "PodReadyToStartContainers"), "False");
    bundle("nobody", "", &three_pem, "yes");
    node.until_phase("strict", "Succeeded");
    assert_eq!(node.send("GET", &pod_path("strict"), Value::Null).code, 200);
}

#[test]
fn pods_that_do_not_fit_are_refused() {
    let node = node();
    let ask = |resource: &str, amount: &str| {
        one(with(script("true"), json!({"resources": {"requests": {resource: amount}}})))
    };
    node.pod("too-much", ask("cpu", "900"));
    let pod = node.until_phase("too-much", "Failed");
    assert_eq!(pod["status"]["reason"], "OutOfcpu");
    let message = pod["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("Pod was rejected: Node didn't have enough resource: cpu, requested: 900000, used: "),
        "{message}"
    );
    node.until_event("too-much", "Warning OutOfcpu Node didn't have enough resource: cpu, requested: 900000, used: ");
    node.pod("too-large", ask("memory", "900Ti"));
    assert_eq!(node.until_phase("too-large", "Failed")["status"]["reason"], "OutOfmemory");
    node.pod("elsewhere", with(one(script("true")), json!({"nodeSelector": {"disk": "none"}})));
    let pod = node.until_phase("elsewhere", "Failed");
    assert_eq!(pod["status"]["reason"], "NodeAffinity");
    let expected = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(pod["status"]["message"], expected);
}

#[test]
fn what_cannot_start_says_why() {
    let node = node();
    node.pod("no-command", one(json!({"command": ["/nope"]})));
    let pod =
        node.until("no-command", "failed", |pod| status(pod, "main")["state"]["terminated"]["reason"] == "StartError");
    let terminated = &status(&pod, "main")["state"]["terminated"];
    assert_eq!(terminated["exitCode"], 128);
    let message = terminated["message"].as_str().unwrap();
    assert!(message.contains("exec: \"/nope\": stat /nope: no such file or directory"), "{message}");
    node.until_event("no-command", "Warning Failed Error: ");
    let reference = json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]});
    node.pod("no-map", one(with(script("echo $A"), reference)));
    let pod = node.until("no-map", "waiting", |pod| {
        status(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(status(&pod, "main")["state"]["waiting"]["message"], "configmap \"later\" not found");
    assert_eq!(pod["status"]["phase"], "Pending");
    node.until_event("no-map", "Warning Failed Error: configmap \"later\" not found");
    node.create("configmaps", json!({"metadata": {"name": "later"}, "data": {"a": "now"}}));
    node.until_phase("no-map", "Succeeded");
    assert_eq!(node.until_log("no-map", "main", "now"), "now\n");
}

#[test]
fn a_node_under_pressure_ends_pods_and_takes_no_more() {
    // A node that is content only with more memory than there is. The pod comes first: afterwards none is taken.
    let node = on_node::Node::start(&["--eviction-hard=memory.available<99%"]);
    let asked = json!({"resources": {"requests": {"memory": "1Mi"}}});
    node.pod("asked", one(with(script("sleep 300"), asked)));
    let pod = node.until_phase("asked", "Failed");
    assert_eq!(pod["status"]["reason"], "Evicted");
    let message = pod["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    assert_eq!(condition(&pod, "DisruptionTarget"), "True");
    node.until_event("asked", "Warning Evicted The node was low on resource: memory.");
    let path = "/api/v1/nodes/node-1";
    let pressed = |node: &Value| condition(node, "MemoryPressure") == "True";
    let begun = Instant::now();
    while !pressed(&node.send("GET", path, Value::Null).json()) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the node does not say that it is under pressure");
        std::thread::sleep(Duration::from_millis(50));
    }
    node.pod("refused", one(script("sleep 300")));
    let pod = node.until_phase("refused", "Failed");
    assert_eq!(pod["status"]["reason"], "Evicted");
    assert_eq!(pod["status"]["message"], "Pod was rejected: The node had condition: [MemoryPressure]. ");
}

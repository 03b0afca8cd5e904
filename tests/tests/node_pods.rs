//! What a container's settings do to its processes, on real containers.

#[path = "support/on_node.rs"]
mod on_node;

use on_node::{IMAGE, ended, node, one, script, status, with};
use serde_json::json;

/// The value of a line of `/proc/self/status`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim()
}

const SHOW_STATUS: &str = "cat /proc/self/status";

#[test]
fn commands_see_their_arguments_folder_and_variables() {
    let node = node();
    node.create("configmaps", json!({"metadata": {"name": "words"}, "data": {"COLOUR": "blue"}}));
    node.create("secrets", json!({"metadata": {"name": "hidden"}, "stringData": {"KEY": "s3cret"}}));
    let container = json!({
        "command": ["sh", "-c"],
        "args": ["env; cat /proc/self/cwd/marker; echo arg $(GREETING) $$(GREETING) $(UNKNOWN)"],
        "workingDir": "/work",
        "env": [
            {"name": "GREETING", "value": "hello"},
            {"name": "CHAINED", "value": "$(GREETING) you, $$(GREETING), $(LATER)"},
            {"name": "LATER", "value": "too late"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
            {"name": "COLOUR_KEY", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "COLOUR"}}},
            {"name": "SECRET_KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "KEY"}}},
            {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "no", "optional": true}}},
        ],
        "envFrom": [{"prefix": "CM_", "configMapRef": {"name": "words"}}, {"secretRef": {"name": "hidden"}}],
        "resources": {"limits": {"cpu": "250m"}, "requests": {"memory": "32Mi", "cpu": "10m"}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    });
    let spec = with(one(container), json!({"volumes": [{"name": "work", "emptyDir": {}}]}));
    let metadata = json!({"name": "variables", "labels": {"team": "blue team".replace(' ', "-")}});
    node.pod_with(metadata, spec);
    let pod = node.until("variables", "ended", ended);
    let text = node.until_log("variables", "main", "arg ");
    let has = |line: &str| assert!(text.lines().any(|found| found == line), "no {line:?} in\n{text}");
    has("GREETING=hello");
    has("CHAINED=hello you, $(GREETING), $(LATER)");
    has("POD_NAME=variables");
    has(&format!("POD_IP={}", pod["status"]["podIP"].as_str().unwrap()));
    has("HOST_IP=172.29.0.1");
    has("NODE=node-1");
    has("ACCOUNT=default");
    has("LABEL=blue-team");
    has("CPU=250");
    has("MEMORY=32");
    has("COLOUR_KEY=blue");
    has("SECRET_KEY=s3cret");
    has("KEY=s3cret");
    has("CM_COLOUR=blue");
    has("HOSTNAME=variables");
    has("KUBERNETES_SERVICE_PORT_HTTPS=443");
    assert!(!text.contains("ABSENT="), "{text}");
    assert!(text.contains("/proc/self/cwd/marker: No such file"), "the folder is not /work: {text}");
    // The kubelet replaces `$(GREETING)` and leaves `$(UNKNOWN)` to the shell, which runs it as a command.
    assert!(text.contains("arg hello"), "{text}");
}

#[test]
fn users_groups_and_capabilities_are_as_asked_for() {
    let node = node();
    let text = node.output(
        "user",
        with(
            one(with(
                script("id; touch /data/mine; stat /data /data/mine"),
                json!({
                    "securityContext": {"runAsUser": 1000, "runAsGroup": 2000},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }),
            )),
            json!({
                "securityContext": {"fsGroup": 3000, "supplementalGroups": [4000], "runAsNonRoot": true},
                "volumes": [{"name": "data", "emptyDir": {}}],
            }),
        ),
    );
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("uid=1000 gid=2000 groups="), "{first}");
    assert!(first.contains("3000") && first.contains("4000"), "{first}");
    assert!(text.contains("mode 2777 uid 0 gid 3000"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("/data/mine") && line.contains("uid 1000 gid 3000")), "{text}");

    let usual = node.output("capabilities-usual", one(script(SHOW_STATUS)));
    assert_eq!(field(&usual, "CapEff"), "00000000a80425fb");
    assert_eq!(field(&usual, "CapInh"), "0000000000000000");
    assert_eq!((field(&usual, "NoNewPrivs"), field(&usual, "Seccomp")), ("0", "0"));
    let context = json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}});
    let few = node.output("capabilities-few", one(with(script(SHOW_STATUS), context)));
    assert_eq!(field(&few, "CapEff"), "0000000000001000");
    assert_eq!(field(&few, "CapBnd"), "0000000000001000");
    let context = json!({"securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": false}});
    let none = node.output("capabilities-user", one(with(script(SHOW_STATUS), context)));
    assert_eq!((field(&none, "CapEff"), field(&none, "NoNewPrivs")), ("0000000000000000", "1"));
    assert_eq!(field(&none, "CapBnd"), "00000000a80425fb");

    // A user that must not be root is not started as root, with the words upstream has for it.
    node.pod("not-root", one(with(script("id"), json!({"securityContext": {"runAsNonRoot": true}}))));
    let pod = node.until("not-root", "refused", |pod| {
        status(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    let message = status(&pod, "main")["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("container has runAsNonRoot and image will run as root"), "{message}");
}

#[test]
fn what_a_container_may_touch_is_limited() {
    let node = node();
    let context = json!({"securityContext": {"readOnlyRootFilesystem": true}});
    let text = node.output(
        "read-only",
        one(with(script("touch /new || echo refused; touch /dev/shm/new && echo memory; touch /proc/sys/kernel/hostname || echo sysctl; cat /proc/kcore && echo kcore; ls /proc/acpi; ls /sys/firmware; echo end"), context)),
    );
    assert!(text.contains("refused") && text.contains("memory\n") && text.contains("sysctl"), "{text}");
    assert!(text.ends_with("end\n"), "{text:?}");

    let seccomp = json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}});
    let show = format!("{SHOW_STATUS}; sleep 300");
    node.pod("seccomp", with(one(script(&show)), seccomp));
    let shown = node.until_log("seccomp", "main", "Seccomp:");
    assert_eq!(field(&shown, "Seccomp"), "2");
    let in_exec = node.exec("seccomp", "main", &["cat", "/proc/self/status"]);
    assert_eq!((field(&in_exec, "Seccomp"), field(&in_exec, "CapEff")), ("2", "00000000a80425fb"));
    node.delete("seccomp", Some(0));

    let privileged = json!({"securityContext": {"privileged": true}});
    let text = node
        .output("privileged", one(with(script("cat /proc/self/status; ls /dev; cat /proc/self/mounts"), privileged)));
    assert_eq!(field(&text, "CapEff"), field(&text, "CapBnd"));
    assert!(field(&text, "CapEff") > "0000001000000000", "{text}");
    assert!(text.lines().any(|line| line == "kmsg" || line == "loop-control" || line == "fuse"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("sysfs /sys sysfs rw")), "{text}");

    // Without being privileged there is no way to a device, not even one that was made by hand.
    let plain = node.output("plain", one(script("ls /dev; cat /proc/self/mounts")));
    assert!(!plain.lines().any(|line| line == "kmsg" || line == "mem"), "{plain}");
    assert!(plain.lines().any(|line| line.starts_with("sysfs /sys sysfs ro")), "{plain}");
    assert!(plain.contains(" /proc/keys ") && plain.contains(" /proc/sys proc ro"), "{plain}");

    let unmasked = json!({"securityContext": {"procMount": "Unmasked"}});
    let spec = with(one(with(script("cat /proc/self/mounts"), unmasked)), json!({"hostUsers": false}));
    let text = node.output("unmasked", spec);
    assert!(!text.contains(" /proc/keys ") && !text.contains(" /proc/sys "), "{text}");
}

#[test]
fn namespaces_are_shared_or_not_as_asked_for() {
    let node = node();
    let machine = |what: &str| node.server.machine().shell(&format!("readlink /proc/1/ns/{what}")).unwrap();
    let links = "ls -l /proc/self/ns";
    let namespace = |text: &str, kind: &str| {
        let line = text.lines().find(|line| line.contains(&format!(" {kind} -> "))).expect(kind);
        format!("{}\n", line.rsplit(' ').next().unwrap())
    };
    let own = node.output("own-namespaces", one(script(links)));
    for kind in ["net", "ipc", "uts", "pid", "mnt"] {
        assert_ne!(namespace(&own, kind), machine(kind), "{kind}");
    }
    assert_eq!(namespace(&own, "user"), machine("user"));
    let host = json!({"hostNetwork": true, "hostPID": true, "hostIPC": true});
    let shared = node.output("host-namespaces", with(one(script(&format!("{links}; hostname; cat /etc/hosts"))), host));
    for kind in ["net", "ipc", "uts", "pid"] {
        assert_eq!(namespace(&shared, kind), machine(kind), "{kind}");
    }
    assert!(shared.contains("# Kubernetes-managed hosts file (host network)."), "{shared}");
    assert_eq!(node.get("host-namespaces")["status"]["podIP"], "172.29.0.1");

    // All containers of a pod see each other's processes; the first is the one that waits.
    let containers = json!([
        {"name": "main", "command": ["sleep", "300"]},
        {"name": "other", "command": ["sh", "-c", "sleep 300; echo"]},
    ]);
    node.pod("shared", json!({"shareProcessNamespace": true, "containers": containers}));
    node.until_ready("shared");
    let seen = node.exec(
        "shared",
        "main",
        &["sh", "-c", "for p in 1 2 3 4 5 6 7 8 9 10 11 12; do cat /proc/$p/cmdline; echo; done"],
    );
    let sleeping = seen.replace('\0', " ");
    assert!(sleeping.contains("sleep 300") && sleeping.contains("sh -c"), "{sleeping}");
    assert_ne!(node.exec("shared", "main", &["sh", "-c", "echo $$"]).trim(), "1");
    node.delete("shared", Some(0));

    // Root in the container is nobody on the node, and still owns its volumes.
    let volume = json!({"hostUsers": false, "volumes": [{"name": "v", "emptyDir": {}}]});
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let mapped = with(
        one(with(script("id; cat /proc/self/uid_map; touch /v/f && stat /v/f; ls -l /proc/self/ns; hostname"), mount)),
        volume,
    );
    let text = node.output("mapped", mapped);
    assert!(text.starts_with("uid=0 gid=0"), "{text}");
    let map: Vec<u64> = text.lines().nth(1).unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(map[0] == 0 && map[1] >= 65536 && map[2] == 65536, "{map:?}");
    assert!(text.contains("/v/f: -rw") && text.contains("uid 0 gid 0"), "{text}");
    assert_ne!(namespace(&text, "user"), machine("user"));
}

#[test]
fn names_and_resolvers_are_the_pods() {
    let node = node();
    let show = "hostname; cat /etc/hosts; echo ---; cat /etc/resolv.conf; cat /etc/hostname";
    node.pod(
        "names",
        with(
            one(script(show)),
            json!({
                "hostname": "web", "subdomain": "site",
                "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["db", "cache"]}],
            }),
        ),
    );
    let pod = node.until("names", "ended", ended);
    let text = node.until_log("names", "main", "ndots");
    let address = pod["status"]["podIP"].as_str().unwrap();
    assert!(text.starts_with("web\n# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{text}");
    assert!(text.contains(&format!("\n{address}\tweb.site.default.svc.cluster.local\tweb\n")), "{text}");
    assert!(text.contains("\n10.1.2.3\tdb\tcache\n"), "{text}");
    let resolver = "---\nsearch default.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.43.0.10\noptions ndots:5\n";
    assert!(text.contains(resolver), "{text}");

    let config = json!({"dnsPolicy": "None", "dnsConfig": {
        "nameservers": ["10.9.9.9"], "searches": ["example.com"], "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
    }});
    let text = node.output("resolver-own", with(one(script("cat /etc/resolv.conf")), config));
    assert_eq!(text, "search example.com\nnameserver 10.9.9.9\noptions ndots:2 rotate\n");
    let config = json!({"dnsConfig": {"searches": ["more.example"], "options": [{"name": "ndots", "value": "3"}]}});
    let text = node.output("resolver-merged", with(one(script("cat /etc/resolv.conf")), config));
    assert!(
        text.starts_with("search default.svc.cluster.local svc.cluster.local cluster.local more.example\n"),
        "{text}"
    );
    assert!(text.contains("options ndots:3\n"), "{text}");
    let text = node.output("resolver-host", with(one(script("cat /etc/resolv.conf")), json!({"dnsPolicy": "Default"})));
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap();
    let server = own.lines().find(|line| line.starts_with("nameserver")).unwrap_or_default();
    assert!(text.contains(server) && !text.contains("cluster.local"), "{text}");
    let fully = json!({"setHostnameAsFQDN": true, "hostname": "web", "subdomain": "site"});
    let text = node.output("full-name", with(one(script("hostname")), fully));
    assert_eq!(text, "web.site.default.svc.cluster.local\n");
}

#[test]
fn limits_are_those_of_the_kernel() {
    let node = node();
    let limits = json!({"resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}}});
    node.pod("limits", one(with(script("cat /proc/self/oom_score_adj; sleep 300"), limits)));
    let pod = node.until_ready("limits");
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let name = node.server.machine().name();
    let read = |controller: &str, file: &str| {
        let folder = format!("/sys/fs/cgroup/{controller}/{name}/kubepods/burstable/pod{uid}");
        let id = status(&pod, "main")["containerID"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let read = |path: String| std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        (read(format!("{folder}/{file}")).trim().to_owned(), read(format!("{folder}/{id}/{file}")).trim().to_owned())
    };
    assert_eq!(read("memory", "memory.limit_in_bytes"), ("67108864".into(), "67108864".into()));
    assert_eq!(read("cpu", "cpu.cfs_quota_us"), ("50000".into(), "50000".into()));
    assert_eq!(read("cpu", "cpu.shares"), ("102".into(), "102".into()));
    assert_eq!(read("pids", "pids.max").0, "300", "what --pod-max-pids says");
    let score: i64 = node.until_log("limits", "main", "\n").trim().parse().unwrap();
    assert!((900..1000).contains(&score), "{score}");
    node.delete("limits", Some(0));
    assert_eq!(node.output("score-best-effort", one(script("cat /proc/self/oom_score_adj"))), "1000\n");

    let limits = json!({"command": ["eat-memory", "200Mi"], "resources": {"limits": {"memory": "20Mi"}}});
    node.pod("hungry", one(limits));
    let pod = node.until_phase("hungry", "Failed");
    let terminated = &status(&pod, "main")["state"]["terminated"];
    assert_eq!((&terminated["reason"], &terminated["exitCode"]), (&json!("OOMKilled"), &json!(137)), "{terminated}");
    // A child that is killed for its memory leaves the container alive: the exit code is its own.
    let limits = json!({"resources": {"limits": {"cpu": "100m", "memory": "20Mi"}}});
    let text = node.output("hungry-child", one(with(script("eat-memory 200Mi; echo code $?"), limits)));
    assert!(text.contains("code 137"), "{text}");
    let pod = node.get("hungry-child");
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
}

#[test]
fn kernel_settings_are_set_or_refused() {
    let node = node();
    let sysctls = |name: &str, value: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": value}]}});
    let text = node.output(
        "sysctl-safe",
        with(
            one(script("cat /proc/sys/net/ipv4/ip_unprivileged_port_start")),
            sysctls("net.ipv4.ip_unprivileged_port_start", "79"),
        ),
    );
    assert_eq!(text, "79\n");
    let text = node
        .output("sysctl-allowed", with(one(script("cat /proc/sys/kernel/msgmax")), sysctls("kernel.msgmax", "65537")));
    assert_eq!(text, "65537\n");
    node.pod("sysctl-unsafe", with(one(script("true")), sysctls("net.core.somaxconn", "128")));
    let pod = node.until_phase("sysctl-unsafe", "Failed");
    assert_eq!(pod["status"]["reason"], "SysctlForbidden");
    assert_eq!(pod["status"]["message"], "Pod was rejected: forbidden sysctl: \"net.core.somaxconn\" not allowlisted");
    node.until_event("sysctl-unsafe", "Warning SysctlForbidden");
}

#[test]
fn a_terminal_is_one_and_images_are_found_by_digest() {
    let node = node();
    node.pod("terminal", one(with(script("ls -l /proc/self/fd; sleep 300"), json!({"tty": true, "stdin": true}))));
    let pod = node.until_ready("terminal");
    let text = node.until_log("terminal", "main", "2 -> /dev/pts/0");
    assert!(text.contains("0 -> /dev/pts/0"), "{text}");
    node.delete("terminal", Some(0));

    let id = status(&pod, "main")["imageID"].as_str().unwrap().to_owned();
    assert!(id.contains("sha256:"), "{id}");
    assert_eq!(status(&pod, "main")["image"], IMAGE);
    let never = |image: &str| one(with(script("echo ran"), json!({"image": image, "imagePullPolicy": "Never"})));
    assert_eq!(node.output("by-name", never(IMAGE)), "ran\n");
    assert_eq!(node.output("by-id", never(&id)), "ran\n");
    node.pod("never", never("local/none:1"));
    let pod =
        node.until("never", "refused", |pod| status(pod, "main")["state"]["waiting"]["reason"] == "ErrImageNeverPull");
    let expected = "Container image \"local/none:1\" is not present with pull policy of Never";
    assert_eq!(status(&pod, "main")["state"]["waiting"]["message"], expected);
    node.until_event("never", &format!("Warning ErrImageNeverPull {expected}"));
    node.until_event("never", "Warning Failed Error: ErrImageNeverPull");
    // Always asks the registry; there is none, and the machine has no way out. What is built in is there all the same.
    node.pod("built-in", one(with(script("true"), json!({"imagePullPolicy": "Always"}))));
    node.until_phase("built-in", "Succeeded");
    const ELSEWHERE: &str = "172.29.0.1:1/none:1";
    node.pod("always", one(with(script("true"), json!({"image": ELSEWHERE, "imagePullPolicy": "Always"}))));
    node.until("always", "backing off", |pod| status(pod, "main")["state"]["waiting"]["reason"] == "ImagePullBackOff");
    node.until_event("always", &format!("Normal Pulling Pulling image \"{ELSEWHERE}\""));
    node.until_event("always", &format!("Warning Failed Failed to pull image \"{ELSEWHERE}\": "));
    node.until_event("always", "Warning Failed Error: ErrImagePull");
    node.until_event("always", &format!("Normal BackOff Back-off pulling image \"{ELSEWHERE}\""));
}

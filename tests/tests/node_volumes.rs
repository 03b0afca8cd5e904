//! Volumes in real containers: what is in them, how it changes while they run, and what no trick reaches.

#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use on_node::{IMAGE, condition, ended, folder, mounting as spec, node, none, one, script, status, with};
use serde_json::{Value, json};

#[test]
fn empty_folders_are_shared_and_limited() {
    let node = node();
    let text = node.output("empty", spec(
        "stat /disk /memory; cat /proc/self/mounts; echo x > /disk/a && cat /disk/a; touch /locked/x || echo locked",
        &[
            ("disk", json!({"emptyDir": {}}), none()),
            ("memory", json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}), none()),
            ("locked", json!({"emptyDir": {}}), json!({"readOnly": true})),
        ],
    ));
    assert!(text.contains("/disk: drwxrwxrwx directory mode 0777"), "{text}");
    assert!(text.contains("/memory: drwxrwxrwt directory mode 1777"), "{text}");
    assert!(text.lines().any(|line| line.contains(" /memory tmpfs rw") && line.contains("size=1024k")), "{text}");
    assert!(text.contains("\nx\n") && text.ends_with("\nlocked\n"), "{text}");

    // What survives a restart of the container, and what is seen by the other one.
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let writer = with(script("test -f /v/once && sleep 300; echo once > /v/once; exit 1"), mount.clone());
    let reader = with(
        script("while test ! -f /v/once; do sleep 0.1; done; echo seen; sleep 300"),
        with(mount, json!({"name": "reader"})),
    );
    node.pod("shared", json!({"containers": [writer, reader], "volumes": [{"name": "v", "emptyDir": {}}]}));
    node.until("shared", "restarted", |pod| {
        status(pod, "main")["restartCount"] == 1 && condition(pod, "Ready") == "True"
    });
    node.until_log("shared", "reader", "seen");
    node.delete("shared", Some(0));

    // More than the limit on the disk ends the pod.
    node.pod(
        "too-full",
        spec(
            "log --rate 0 --bytes 1024 --lines 4096 > /disk/big; sleep 300",
            &[("disk", json!({"emptyDir": {"sizeLimit": "1Mi"}}), none())],
        ),
    );
    let pod = node.until_phase("too-full", "Failed");
    assert_eq!(pod["status"]["reason"], "Evicted");
    assert_eq!(pod["status"]["message"], "Usage of EmptyDir volume \"disk\" exceeds the limit \"1Mi\". ");
    node.until_event("too-full", "Warning Evicted Usage of EmptyDir volume \"disk\" exceeds the limit \"1Mi\".");
}

#[test]
fn host_paths_are_what_their_type_says() {
    let node = node();
    let data = folder(&node, "host");
    std::fs::write(data.join("file"), "from the host\n").unwrap();
    let at = |name: &str, kind: &str| json!({"hostPath": {"path": data.join(name), "type": kind}});
    let text = node.output(
        "host",
        spec(
            "cat /whole/file /one; echo new > /made/inside; ls /whole; echo text > /written",
            &[
                ("whole", json!({"hostPath": {"path": data}}), none()),
                ("one", at("file", "File"), none()),
                ("made", at("made", "DirectoryOrCreate"), none()),
                ("written", at("written", "FileOrCreate"), none()),
            ],
        ),
    );
    assert!(text.starts_with("from the host\nfrom the host\n"), "{text}");
    assert_eq!(std::fs::read_to_string(data.join("made/inside")).unwrap(), "new\n");
    assert_eq!(std::fs::read_to_string(data.join("written")).unwrap(), "text\n");
    for (pod, name, kind, message) in [
        ("wrong-directory", "file", "Directory", "hostPath type check failed: "),
        ("wrong-missing", "missing", "Directory", "hostPath type check failed: "),
        ("wrong-file", "made", "File", "hostPath type check failed: "),
        ("wrong-socket", "file", "Socket", "hostPath type check failed: "),
        ("wrong-device", "file", "CharDevice", "hostPath type check failed: "),
    ] {
        node.pod(pod, spec("true", &[("v", at(name, kind), none())]));
        node.until_event(pod, &format!("Warning FailedMount MountVolume.SetUp failed for volume \"v\" : {message}"));
        assert_eq!(status(&node.get(pod), "main")["state"]["waiting"]["reason"], "ContainerCreating");
        node.delete(pod, Some(0));
    }
    // A pod that waits for its folder starts when there is one.
    node.pod("patient", spec("cat /v/word", &[("v", at("later", "Directory"), none())]));
    node.until_event("patient", "Warning FailedMount");
    folder(&node, "host/later");
    std::fs::write(data.join("later/word"), "at last\n").unwrap();
    node.until_phase("patient", "Succeeded");
    assert_eq!(node.until_log("patient", "main", "last"), "at last\n");
}

#[test]
fn running_containers_see_new_versions_whole() {
    let node = node();
    node.create(
        "configmaps",
        json!({"metadata": {"name": "config"}, "data": {"a": "1", "b": "1"}, "binaryData": {"raw": "AAEC"}}),
    );
    node.create("secrets", json!({"metadata": {"name": "secret"}, "stringData": {"password": "old"}}));
    let projected = json!({"projected": {"defaultMode": 0o440, "sources": [
        {"configMap": {"name": "config", "items": [{"key": "a", "path": "from/config", "mode": 0o400}]}},
        {"secret": {"name": "secret"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"secret": {"name": "absent", "optional": true}},
    ]}});
    let downward = json!({"downwardAPI": {"items": [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
    ]}});
    let volumes = [
        ("config", json!({"configMap": {"name": "config"}}), none()),
        ("secret", json!({"secret": {"secretName": "secret", "defaultMode": 0o400}}), none()),
        ("projected", projected, none()),
        ("downward", downward, none()),
        ("part", json!({"configMap": {"name": "config"}}), json!({"subPath": "a"})),
    ];
    let mut spec = spec("sleep 300", &volumes);
    spec["containers"][0]["resources"] = json!({"limits": {"cpu": "300m"}});
    node.pod_with(json!({"name": "live", "labels": {"tier": "gold"}, "annotations": {"note": "first"}}), spec);
    node.until_ready("live");
    let shell = |text: &str| node.exec("live", "main", &["sh", "-c", text]);
    let first = shell(
        "cat /config/a /config/b /secret/password /projected/from/config /projected/password /projected/labels /downward/name /downward/cpu /part; echo; cat /downward/notes",
    );
    assert!(first.starts_with("11old1oldtier=\"gold\"live3001\n"), "{first}");
    assert!(first.contains("note=\"first\""), "{first}");
    assert!(shell("stat /config/..data/raw").contains(" size 3 "), "{}", shell("ls -l /config/..data/"));
    let listing =
        shell("ls -la /config; ls -l /secret/..data/ /projected/..data/ /projected/..data/from; cat /proc/self/mounts");
    assert!(listing.contains("a -> ..data/a") && listing.contains("..data -> ..20"), "{listing}");
    assert!(listing.contains("-r--------"), "{listing}");
    assert!(listing.lines().any(|line| line.contains(" /secret tmpfs ro")), "{listing}");

    let path = "/api/v1/namespaces/default";
    let begun = Instant::now();
    node.patch(&format!("{path}/configmaps/config"), json!({"data": {"a": "2", "b": "2", "c": "2"}}));
    node.patch(&format!("{path}/secrets/secret"), json!({"stringData": {"password": "new"}}));
    node.patch(
        &on_node::pod_path("live"),
        json!({"metadata": {"labels": {"tier": "silver"}, "annotations": {"note": "second"}}}),
    );
    loop {
        let seen = shell(
            "cat /config/a /config/b /config/c; cat /secret/password /projected/from/config /projected/password /projected/labels; echo; cat /downward/notes",
        );
        // Both keys of one map change at once.
        assert!(seen.starts_with("11") || seen.starts_with("222"), "{seen}");
        if seen.starts_with("222new2newtier=\"silver\"\n") && seen.contains("note=\"second\"") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{seen}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // A part of a volume stays as it was, as upstream says.
    assert_eq!(shell("cat /part"), "1");
    node.delete("live", Some(0));
}

#[test]
fn what_is_missing_is_waited_for() {
    let node = node();
    let volume = |source: Value| [("v", source, none())];
    node.pod("no-secret", spec("cat /v/key", &volume(json!({"secret": {"secretName": "late"}}))));
    node.pod("no-map", spec("cat /v/key", &volume(json!({"configMap": {"name": "late"}}))));
    node.pod(
        "no-key",
        spec(
            "true",
            &volume(json!({"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "none", "path": "x"}]}})),
        ),
    );
    node.pod("optional", spec("ls -a /v", &volume(json!({"secret": {"secretName": "nobody", "optional": true}}))));
    node.until_event(
        "no-secret",
        "Warning FailedMount MountVolume.SetUp failed for volume \"v\" : secret \"late\" not found",
    );
    node.until_event(
        "no-map",
        "Warning FailedMount MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found",
    );
    node.until_event("no-key", "Warning FailedMount MountVolume.SetUp failed for volume \"v\" : configmap references non-existent config key: none");
    let pod = node.get("no-secret");
    assert_eq!(status(&pod, "main")["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(
        (pod["status"]["phase"].as_str(), condition(&pod, "PodReadyToStartContainers")),
        (Some("Pending"), "False")
    );
    node.until_phase("optional", "Succeeded");
    node.create("secrets", json!({"metadata": {"name": "late"}, "stringData": {"key": "here"}}));
    node.create("configmaps", json!({"metadata": {"name": "late"}, "data": {"key": "there"}}));
    node.until_phase("no-secret", "Succeeded");
    node.until_phase("no-map", "Succeeded");
    assert_eq!(node.until_log("no-secret", "main", "here").trim_end(), "here");
    node.delete("no-key", Some(0));
}

#[test]
fn tokens_are_good_for_the_api() {
    let node = node();
    let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "vault"}}]}});
    let mut spec = spec("sleep 300", &[("own", token, none())]);
    spec["securityContext"] = json!({"fsGroup": 1234});
    node.pod("tokens", spec);
    node.until_ready("tokens");
    let standard = "/var/run/secrets/kubernetes.io/serviceaccount";
    let read = |path: &str| node.exec("tokens", "main", &["cat", path]);
    assert_eq!(read(&format!("{standard}/namespace")), "default");
    let authority = std::fs::read_to_string(node.server.data_dir().join("tls/ca.crt")).unwrap();
    assert_eq!(read(&format!("{standard}/ca.crt")), authority);
    let bearer = read(&format!("{standard}/token"));
    let myself = node.get_with_token("/apis/authentication.k8s.io/v1/selfsubjectreviews", &bearer);
    assert_ne!(myself.code, 401, "{}", myself.text());
    let review = |token: &str, audience: &str| {
        let body = json!({"spec": {"token": token, "audiences": [audience]}});
        node.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body).json()["status"].clone()
    };
    let own = review(&read("/own/token"), "vault");
    assert_eq!(own["authenticated"], true, "{own}");
    assert_eq!(own["user"]["username"], "system:serviceaccount:default:default");
    let names = &own["user"]["extra"]["authentication.kubernetes.io/pod-name"];
    assert_eq!(names, &json!(["tokens"]), "{own}");
    assert_eq!(review(&read("/own/token"), "other")["authenticated"], Value::Null);
    let listing = node.exec("tokens", "main", &["ls", "-l", "/own/..data/"]);
    assert!(listing.contains("-rw-r-----") && listing.contains(" 1234 "), "{listing}");
    // A token lives no longer than its pod, but for a moment in which the server remembers it.
    node.delete("tokens", Some(0));
    node.until_gone("tokens");
    let begun = Instant::now();
    while node.get_with_token("/api/v1/namespaces/default/pods", &bearer).code != 401 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the token outlives its pod");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn images_are_volumes_too() {
    let node = node();
    let image = json!({"image": {"reference": IMAGE, "pullPolicy": "Never"}});
    let text = node.output(
        "image",
        spec(
            "ls /v; touch /v/x || echo refused; ls /part",
            &[("v", image.clone(), none()), ("part", image, json!({"subPath": "bin"}))],
        ),
    );
    assert!(text.contains("bin\n") && text.contains("refused") && text.contains("sleep\n"), "{text}");
    node.pod(
        "image-missing",
        spec("true", &[("v", json!({"image": {"reference": "local/none:1", "pullPolicy": "Never"}}), none())]),
    );
    node.until_event("image-missing", "Warning ErrImageNeverPull");
    node.delete("image-missing", Some(0));
}

#[test]
fn parts_of_volumes_lead_nowhere_else() {
    let node = node();
    let data = folder(&node, "parts");
    let outside = folder(&node, "outside");
    std::fs::write(outside.join("secret"), "secret\n").unwrap();
    std::fs::create_dir_all(data.join("sub")).unwrap();
    std::fs::write(data.join("sub/file"), "part\n").unwrap();
    std::os::unix::fs::symlink(&outside, data.join("out")).unwrap();
    std::os::unix::fs::symlink("../outside", data.join("up")).unwrap();
    std::os::unix::fs::symlink("sub", data.join("within")).unwrap();
    let volume = json!({"hostPath": {"path": data}});
    let part = |path: &str| spec("ls /v; cat /v/secret /v/file", &[("v", volume.clone(), json!({"subPath": path}))]);
    let mut good = spec("cat /v/file; echo x > /logs/x", &[("v", volume.clone(), json!({"subPath": "sub"}))]);
    let logs = json!({"name": "v", "mountPath": "/logs", "subPathExpr": "logs/$(POD)"});
    good["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(logs);
    good["containers"][0]["env"] = json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    assert_eq!(node.output("part-good", good), "part\n");
    assert_eq!(std::fs::read_to_string(data.join("logs/part-good/x")).unwrap(), "x\n");
    node.pod("part-within", part("within"));
    node.until("part-within", "ended", ended);
    assert!(node.until_log("part-within", "main", "part").contains("file"));
    for (name, path, step) in [
        ("part-out", "out", "prepare subPath"),
        ("part-up", "up", "prepare subPath"),
        ("part-file", "out/secret", "prepare subPath"),
        ("part-new", "out/new/folder", "create subPath directory"),
    ] {
        node.pod(name, part(path));
        let pod = node.until(name, "refused or ended", |pod| {
            status(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError" || ended(pod)
        });
        assert!(!ended(&pod), "{name}: {}", node.log(name, "main"));
        let message = format!("failed to {step} for volumeMount \"v\" of container \"main\"");
        assert_eq!(status(&pod, "main")["state"]["waiting"]["message"], message);
        node.until_event(name, &format!("Warning Failed Error: {message}"));
        node.delete(name, Some(0));
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "nothing was made outside");
}

#[test]
fn mounts_are_passed_on_as_asked_for() {
    let node = node();
    let data = folder(&node, "propagation");
    let at = data.display();
    let machine = node.server.machine();
    machine.shell(&format!("mkdir {at}/host {at}/container {at}/alone")).unwrap();
    machine.shell(&format!("mount --bind {at}/alone {at}/alone && mount --make-private {at}/alone")).unwrap();
    let mounts = || machine.shell("cut -d' ' -f5 /proc/self/mountinfo | grep -v /pods/ | grep -v overlay").unwrap();
    let before = mounts();
    let volume = json!({"hostPath": {"path": data}});
    let mount = |name: &str, propagation: &str| {
        with(
            script("sleep 300"),
            json!({"name": name, "volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]}),
        )
    };
    let privileged = json!({"securityContext": {"privileged": true}});
    let containers = json!([
        mount("none", "None"),
        mount("follows", "HostToContainer"),
        with(mount("both", "Bidirectional"), privileged)
    ]);
    node.pod(
        "propagation",
        with(json!({"containers": containers}), json!({"volumes": [with(json!({"name": "v"}), volume)]})),
    );
    node.until_ready("propagation");
    // What a container of shared mounts mounts for itself stays its own.
    let rest = |text: &str| text.lines().filter(|line| !line.contains("/knarr")).count();
    assert_eq!(rest(&mounts()), rest(&before), "{}", mounts());
    machine.shell(&format!("mount -t tmpfs later {at}/host && touch {at}/host/seen")).unwrap();
    let list = |container: &str| node.exec("propagation", container, &["ls", "/v/host"]);
    assert_eq!((list("none"), list("follows"), list("both")), (String::new(), "seen\n".into(), "seen\n".into()));
    let shown = node.exec("propagation", "both", &["cat", "/proc/self/mountinfo"]);
    assert!(shown.lines().any(|line| line.contains(" /v ") && line.contains("shared:")), "{shown}");
    node.delete("propagation", Some(0));
    node.until_gone("propagation");
    machine.shell(&format!("umount {at}/host")).unwrap();

    // A mount that passes nothing on cannot give what the pod asks for.
    let volume = json!({"name": "v", "hostPath": {"path": data.join("alone")}});
    let asks = with(mount("main", "HostToContainer"), json!({"name": "main"}));
    node.pod("propagation-none", with(one(asks), json!({"volumes": [volume]})));
    let why = format!(
        "Warning Failed Error: path \"{at}/alone\" is mounted on \"{at}/alone\" but it is not a shared or slave mount"
    );
    node.until_event("propagation-none", &why);
    node.delete("propagation-none", Some(0));
    node.until_gone("propagation-none");
    machine.shell(&format!("umount {at}/alone")).unwrap();
}

#[test]
fn the_group_of_a_pod_owns_its_volumes() {
    let node = node();
    node.create("secrets", json!({"metadata": {"name": "grouped"}, "stringData": {"key": "x"}}));
    let mut spec = spec(
        "stat /dir; cat /secret/key; echo; ls -l /secret/..data/; touch /dir/x; ls -l /dir",
        &[
            ("dir", json!({"emptyDir": {}}), none()),
            ("secret", json!({"secret": {"secretName": "grouped", "defaultMode": 0o400}}), none()),
        ],
    );
    spec["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 777});
    let text = node.output("grouped", spec);
    assert!(text.contains("/dir: drwxrwxrwx directory mode 2777 uid 0 gid 777"), "{text}");
    assert!(text.contains("-r--r----- "), "{text}");
    assert!(
        text.lines().any(|line| line.contains(" 1000 ") && line.contains(" 777 ") && line.ends_with(" x")),
        "{text}"
    );
}

//! Attacks on a node by a user of its machine and by what runs in its containers.

#[path = "support/on_node.rs"]
mod on_node;

use on_node::{Node, folder, node, one, script, with};
use serde_json::{Value, json};
use testkit::attack::held;

/// Who has no rights on a machine.
const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn a_user_of_the_machine_reads_and_writes_nothing_of_ours() {
    let node = node();
    let secret = json!({"env": [{"name": "PASSWORD", "value": "hunter2-of-the-test"}]});
    node.pod("walk-env", with(one(with(script("sleep 600"), secret)), json!({"restartPolicy": "Always"})));
    let users = json!({"hostUsers": false, "restartPolicy": "Always", "volumes": [{"name": "v", "emptyDir": {}}]});
    node.pod("walk-users", with(one(script("sleep 600")), users));
    all_kinds(&node);
    for name in PODS {
        node.until_ready(name);
    }
    let machine = node.server.machine();
    let data = node.server.data_dir().display().to_string();
    // Each folder below keeps itself; the one above it may be anywhere.
    let walk = format!(
        "mode=$(stat -c %a {data}); chmod 755 {data}; {NOBODY} find {data} /run/knarr \\( -readable -o -writable \\) -print 2>/dev/null; chmod $mode {data}; echo mode $mode"
    );
    let found = machine.shell(&walk).unwrap();
    let mut lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.pop(), Some("mode 700"), "{found}");
    // The folder itself, and what the test writes beside it.
    let (log, beside) = (format!("{data}/log"), format!("{data}/message"));
    lines.retain(|line| *line != data && *line != log && !line.starts_with(&beside));
    held("a walk over all files of a node", lines.is_empty(), format!("{lines:#?}"));
    // Names that are known do not help either: layers hold setuid programs, `shm` is written by everybody.
    let known = "for f in $(find /run/knarr -name shm -o -name config.json) $(find DATA/runtime -name fs -maxdepth 5); do NOBODY test -r $f -o -w $f -o -x $f && echo $f; done; true";
    let known = known.replace("DATA", &data).replace("NOBODY", NOBODY);
    let open = machine.shell(&known).unwrap();
    held("layers and shared memory by their names", open.is_empty(), &open);
    // As upstream, folders of logs show the names of pods, and nothing more.
    let logs = machine
        .shell(&format!(
            "find /var/log/pods -type f | wc -l; {NOBODY} find -L /var/log/pods /var/log/containers -type f -readable 2>/dev/null; true"
        ))
        .unwrap();
    held("what containers said", logs.lines().count() == 1 && logs.trim() != "0", &logs);
    sockets(&node, &data);
    modes(&node, &data);
    for name in PODS {
        node.delete(name, Some(0));
    }
}

const PODS: [&str; 5] = ["walk-env", "walk-users", "walk-volumes", "walk-host", "walk-memory"];

/// Pods with everything that leaves files on a node.
fn all_kinds(node: &Node) {
    node.create("configmaps", json!({"metadata": {"name": "walk"}, "data": {"file": "text"}}));
    node.create("secrets", json!({"metadata": {"name": "walk"}, "stringData": {"password": "hunter2-of-the-test"}}));
    let sources = json!([
        {"name": "config", "configMap": {"name": "walk"}}, {"name": "secret", "secret": {"secretName": "walk"}},
        {"name": "all", "projected": {"sources": [{"secret": {"name": "walk"}}, {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        {"name": "disk", "emptyDir": {}}, {"name": "image", "image": {"reference": on_node::IMAGE, "pullPolicy": "IfNotPresent"}},
    ]);
    let mounts = json!([
        {"name": "config", "mountPath": "/config"}, {"name": "config", "mountPath": "/one", "subPath": "file"},
        {"name": "secret", "mountPath": "/secret"}, {"name": "all", "mountPath": "/all"}, {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/part", "subPath": "a/b"}, {"name": "image", "mountPath": "/image"},
    ]);
    let always = |spec: Value| with(spec, json!({"restartPolicy": "Always"}));
    let busy = "echo said; echo secret > /disk/file; chmod 777 /disk/file; sleep 600";
    node.pod(
        "walk-volumes",
        always(with(one(with(script(busy), json!({"volumeMounts": mounts}))), json!({"volumes": sources}))),
    );
    let privileged = json!({"securityContext": {"privileged": true}, "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "true"]}}}});
    let host = json!({"hostNetwork": true, "hostPID": true, "initContainers": [{"name": "first", "command": ["sh", "-c", "true"]}]});
    node.pod("walk-host", always(with(one(with(script("sleep 600"), privileged)), host)));
    let memory = json!({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}], "securityContext": {"fsGroup": 65534, "runAsUser": 1000}});
    let mounted = json!({"volumeMounts": [{"name": "m", "mountPath": "/m"}]});
    node.pod("walk-memory", always(with(one(with(script("umask 0; echo x > /m/file; sleep 600"), mounted)), memory)));
}

/// Whoever may not read a folder must not talk to the sockets in it either, by whatever name.
fn sockets(node: &Node, data: &str) {
    let find = format!("find {data} /run/knarr -type s");
    let sockets = node.server.machine().shell(&find).unwrap();
    assert!(sockets.lines().count() > 0, "there are sockets to try");
    for socket in sockets.lines() {
        let reached = node.server.machine().shell(&format!("{NOBODY} test -w {socket} && echo reached; true")).unwrap();
        held(&format!("the socket {}", socket.rsplit('/').next().unwrap_or_default()), reached.is_empty(), socket);
    }
}

/// Even for somebody who came through the folders above: no record of ours is for others to read or write.
fn modes(node: &Node, data: &str) {
    // What containers and users fill is theirs to decide about; the layers and volumes of pods are behind folders of root's, and so is
    // what the library that starts containers keeps in a folder of its own.
    let ours = format!(
        "find {data} /run/knarr -xdev \\( -path '{data}/runtime/*/layers/*' -o -path '*/snapshots/*' -o -path '*/volumes' -o -path '*/volume-subpaths' \
         -o -path '*/libcontainer' -o -path '*/rootfs' -o -path '*/shm' -o -path '*/plugins' -o -path '{data}/log' -o -path '{data}/message*' -o -path '*/containers/*/*' \
         -o -path '*/images/work/*' -o -name etc-hosts -o -name '*hosts*' -o -name 'resolv.conf' -o -name hostname \\) -prune \
         -o -type f -perm /077 ! -name '*.crt' ! -name sa.pub -printf '%m %p\\n'"
    );
    let open = node.server.machine().shell(&ours).unwrap();
    held("records with modes for others", open.is_empty(), &open);
}

#[test]
fn what_stands_in_the_place_of_a_message_is_not_opened() {
    let node = node();
    // A pipe would hold the kubelet up for ever, a device would be read by it.
    let pipe = folder(&node, "message").join("pipe");
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    );
    made.expect("a pipe");
    let volume = json!({"volumes": [{"name": "v", "hostPath": {"path": pipe}}]});
    let mount = json!({"terminationMessagePath": "/message", "volumeMounts": [{"name": "v", "mountPath": "/message"}]});
    node.pod("message-pipe", with(one(with(script("true"), mount)), volume));
    node.until_phase("message-pipe", "Succeeded");
    node.delete("message-pipe", Some(0));
}

#[test]
fn a_working_folder_that_the_image_lacks_is_made() {
    let node = node();
    let there = json!({"workingDir": "/made/by/the/node"});
    let look = "touch here && ls /made/by/the/node";
    assert_eq!(node.output("cwd-made", one(with(script(look), there.clone()))), "here\n");
    let users = with(one(with(script(look), there)), json!({"hostUsers": false}));
    assert_eq!(node.output("cwd-users", users), "here\n");
    let volume = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let inside = json!({"workingDir": "/data/a/b", "volumeMounts": [{"name": "v", "mountPath": "/data"}]});
    let look = "touch here && ls /data/a/b";
    assert_eq!(node.output("cwd-volume", with(one(with(script(look), inside)), volume)), "here\n");
}

/// Calls of the kernel that no small program has: one to add a key to the keys of the session, one to look for it there.
const KEYS: &str = "import ctypes, platform
add, ctl = {'x86_64': (248, 250), 'aarch64': (217, 219)}[platform.machine()]
call = ctypes.CDLL(None).syscall
";

#[test]
fn containers_have_no_keys_of_whoever_started_the_node() {
    // What this thread starts has the keys of its session: the node, and without a measure of its own what the node starts.
    linux::process::new_session_keyring().unwrap();
    let add = format!("{KEYS}print(call(add, b'user', b'knarr-test', b'hunter2', 7, -3))");
    let look = format!("{KEYS}print('session:', call(ctl, 10, -3, b'user', b'knarr-test', 0))");
    let python = |text: &str| {
        let output = std::process::Command::new("/usr/bin/python3").args(["-c", text]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let key = python(&add);
    assert_eq!(python(&look), format!("session: {key}"));
    let node = Node::start(&[]);
    // Nothing of an image can ask the kernel about keys, so the machine's own program does it.
    let parts = ["usr", "lib", "lib64"];
    let volumes: Vec<_> =
        parts.iter().map(|name| json!({"name": name, "hostPath": {"path": format!("/{name}")}})).collect();
    let mounts: Vec<_> = parts.iter().map(|name| json!({"name": name, "mountPath": format!("/{name}")})).collect();
    let command = json!(["/usr/bin/python3", "-u", "-c", format!("{look}\nimport time\ntime.sleep(600)")]);
    for (name, host_users) in [("keys", true), ("keys-users", false)] {
        let more = json!({"volumes": volumes, "hostUsers": host_users, "restartPolicy": "Always"});
        node.pod(name, with(one(json!({"command": command, "volumeMounts": mounts})), more));
        assert_eq!(node.until_log(name, "main", "session:").trim(), "session: -1", "{name}");
        assert_eq!(node.exec(name, "main", &["/usr/bin/python3", "-c", &look]).trim(), "session: -1", "{name}");
        node.delete(name, Some(0));
    }
}

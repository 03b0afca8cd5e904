//! Attacks on a node by a user of its machine and by what runs in its containers.

#[path = "support/on_node.rs"]
mod on_node;

use on_node::{Node, folder, node, one, script, with};
use serde_json::json;

/// Who has no rights on a machine.
const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn a_user_of_the_machine_reads_and_writes_nothing_of_ours() {
    let node = node();
    let secret = json!({"env": [{"name": "PASSWORD", "value": "hunter2-of-the-test"}]});
    node.pod("walk-env", with(one(with(script("sleep 600"), secret)), json!({"restartPolicy": "Always"})));
    let users = json!({"hostUsers": false, "restartPolicy": "Always", "volumes": [{"name": "v", "emptyDir": {}}]});
    node.pod("walk-users", with(one(script("sleep 600")), users));
    node.until_ready("walk-env");
    node.until_ready("walk-users");
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
    let reached = lines;
    assert!(reached.is_empty(), "{reached:#?}");
    // Names that are known do not help either: layers hold setuid programs, `shm` is written by everybody.
    let known = "for f in $(find /run/knarr -name shm -o -name config.json) $(find DATA/runtime -name fs -maxdepth 5); do NOBODY test -r $f -o -w $f -o -x $f && echo $f; done; true";
    let known = known.replace("DATA", &data).replace("NOBODY", NOBODY);
    assert_eq!(machine.shell(&known).unwrap(), "");
    for name in ["walk-env", "walk-users"] {
        node.delete(name, Some(0));
    }
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

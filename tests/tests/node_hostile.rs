//! What pods, registries and disks do to a node in bad faith or bad luck: the node stays healthy, other pods run on, and
//! what is wrong stands in the pod's status and Events.

#[path = "support/node.rs"]
mod node;
#[path = "support/small_disk.rs"]
mod small_disk;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use node::{Node, container, is_ready, restarts, script, with_folder};
use serde_json::{Value, json};
use testkit::machine;

fn neighbor(node: &Node) {
    node.create_pod(&script("neighbor", "Always", "exec serve"));
    node.ready("neighbor");
}

/// A pod that runs before, during and after somebody else's trouble.
fn neighbor_is_well(node: &Node) {
    let pod = node.ready("neighbor");
    assert_eq!(restarts(&pod), 0, "{}", pod["status"]);
    let began = Instant::now();
    assert_eq!(node.exec("neighbor", &["echo", "well"]), "well\n");
    assert!(began.elapsed() < Duration::from_secs(15), "took {:?}", began.elapsed());
    assert_eq!(node.condition("Ready"), "True");
}

#[test]
fn a_full_disk_costs_the_pod_that_filled_it() {
    let (_disk, node) = small_disk::on_small_disk(
        "640m",
        &["--eviction-pressure-transition-period", "5s", "--eviction-hard", "nodefs.available<10%"],
    );
    neighbor(&node);
    let mut glutton = script("glutton", "Never", "log --rate 0 --bytes 100000 > /full/file; exec sleep infinity");
    glutton["spec"]["volumes"] = json!([{"name": "full", "emptyDir": {}}]);
    glutton["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "full", "mountPath": "/full"}]);
    node.create_pod(&glutton);
    let evicted = node.until("glutton", "evicted", |pod| pod["status"]["reason"] == "Evicted");
    assert_eq!(evicted["status"]["phase"], "Failed");
    let message = evicted["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("The node was low on resource: ephemeral-storage."), "{message}");
    node.until_event("glutton", "Evicted: The node was low on resource: ephemeral-storage.");
    neighbor_is_well(&node);
    // What the pod wrote is gone with it, and the node takes pods again.
    let until = Instant::now() + node::PATIENCE;
    while node.condition("DiskPressure") != "False" {
        assert!(Instant::now() < until, "the pressure does not end");
        std::thread::sleep(Duration::from_millis(200));
    }
    node.create_pod(&script("later", "Always", "exec sleep infinity"));
    node.ready("later");
    neighbor_is_well(&node);
}

/// A registry on the node's own machine that answers each request, or keeps silent.
fn registry(node: &Node, answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> String {
    let listener = machine::listen_within(&node.server.machine().network(), "127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 8192];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let head = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
                    let Some(reply) = answer(&path) else {
                        // The other side gives up at some time; this one has it.
                        std::thread::sleep(Duration::from_secs(600));
                        return;
                    };
                    if stream.write_all(&reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn reply(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn of_image(name: &str, image: &str) -> Value {
    let mut pod = script(name, "Always", "exec sleep infinity");
    pod["spec"]["containers"][0]["image"] = image.into();
    pod
}

#[test]
fn a_registry_that_hangs_keeps_only_its_own_pods_waiting() {
    let node = Node::start(&[]);
    let silent = registry(&node, |_| None);
    // More than are pulled at the same time.
    for n in 0..8 {
        node.create_pod(&of_image(&format!("hangs-{n}"), &format!("{silent}/image-{n}:1")));
    }
    node.until_event("hangs-0", "Pulling: Pulling image");
    // A pod whose image is here waits for nobody.
    neighbor(&node);
    neighbor_is_well(&node);

    let waits = |pod: &Value| {
        let reason = container(pod)["state"]["waiting"]["reason"].as_str().unwrap_or("").to_owned();
        reason == "ErrImagePull" || reason == "ImagePullBackOff"
    };
    let hung = node.until("hangs-0", "given up", waits);
    assert_eq!(hung["status"]["phase"], "Pending");
    let told = node.until_event("hangs-0", "Failed: Failed to pull image");
    assert!(told.contains(&silent), "{told}");
    node.until_event("hangs-0", "Error: ErrImagePull");
}

#[test]
fn a_registry_that_lies_is_named() {
    let node = Node::start(&[]);
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 5},
        "layers": [],
    });
    let liar = registry(&node, move |path| match path.contains("/manifests/") {
        true => Some(reply(MANIFEST, manifest.to_string().as_bytes())),
        // Announced were five bytes.
        false => Some(reply("application/octet-stream", &vec![b'x'; 1 << 20])),
    });
    node.create_pod(&of_image("lied-to", &format!("{liar}/image:1")));
    let told = node.until_event("lied-to", "Failed: Failed to pull image");
    assert!(told.contains(&liar) && (told.contains("size") || told.contains("bytes")), "{told}");
    node.until_event("lied-to", "Back-off pulling image");
    assert_eq!(node.condition("Ready"), "True");
}

#[test]
fn a_container_that_ignores_its_end_is_killed_after_its_grace() {
    let node = Node::start(&[]);
    let mut pod = script("stubborn", "Always", "exec ignore-term");
    pod["spec"]["terminationGracePeriodSeconds"] = 3.into();
    node.create_pod(&pod);
    let pod = node.ready("stubborn");
    let until = Instant::now() + node::PATIENCE;
    while node.log("stubborn").is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let processes = node.processes(&node::container_id(&pod));
    let began = Instant::now();
    node.server.kubectl().ok(&["delete", "pod", "stubborn"]);
    let took = began.elapsed();
    assert!(Duration::from_secs(3) <= took && took < Duration::from_secs(20), "{took:?}");
    node.until_event("stubborn", "Killing: Stopping container main");
    assert!(processes.keys().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{processes:?}");
}

#[test]
fn a_fork_bomb_stays_in_its_pod() {
    let node = Node::start(&["--pod-max-pids", "64"]);
    neighbor(&node);
    node.create_pod(&script("bomb", "Always", "exec fork-bomb"));
    node.ready("bomb");
    let until = Instant::now() + node::PATIENCE;
    let told = loop {
        let told = node.log("bomb");
        if !told.is_empty() || Instant::now() > until {
            break told;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let children: usize = told.split(' ').next().and_then(|number| number.parse().ok()).expect(&told);
    assert!((30..64).contains(&children) && told.contains("Resource temporarily unavailable"), "{told}");
    neighbor_is_well(&node);
    assert_eq!(node.condition("PIDPressure"), "False");
    // It can still be ended.
    node.server.kubectl().ok(&["delete", "pod", "bomb", "--timeout=30s"]);
}

#[test]
fn a_flood_of_log_lines_is_bounded() {
    let node = Node::start(&["--container-log-max-size", "1Mi", "--container-log-max-files", "3"]);
    neighbor(&node);
    node.create_pod(&script("flood", "Always", "exec log --rate 0 --bytes 1000 --lines 100000"));
    let pod = node.until("flood", "through", |pod| restarts(pod) >= 1);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let folder = node.server.machine().path(format!("/var/log/pods/default_flood_{uid}/main"));
    // A hundred megabytes were written, and written again: of each run no more than three files of a megabyte stay, a
    // little more while one is being exchanged.
    let size: u64 = std::fs::read_dir(&folder).unwrap().flatten().map(|file| file.metadata().unwrap().len()).sum();
    assert!((1 << 19..=12 << 20).contains(&size), "{size} bytes in {}", folder.display());
    neighbor_is_well(&node);
    assert_eq!(node.condition("DiskPressure"), "False");
    let tail = node.server.kubectl().ok(&["logs", "flood", "--tail=1"]);
    assert!(tail.starts_with("line "), "{tail}");
}

/// A pod with the tools an attacker would bring along.
fn armed(name: &str, attack: &str) -> Value {
    let mut pod = script(name, "Never", "");
    pod["spec"]["containers"][0]["command"] = json!(["/busybox", "sh", "-c", attack]);
    pod["spec"]["volumes"] = json!([{"name": "tools", "hostPath": {"path": "/bin/busybox", "type": "File"}}]);
    let mount = json!({"name": "tools", "mountPath": "/busybox", "readOnly": true});
    pod["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
    pod
}

fn outcome(node: &Node, name: &str) -> String {
    node.until(name, "over", |pod| ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or("")));
    node.log(name)
}

#[test]
fn devices_mounts_and_descriptors_give_no_way_out() {
    let node = Node::start(&[]);
    node.create_pod(&armed(
        "devices",
        "b=/busybox; $b mknod /disk b 253 0; $b mknod /disk2 b 8 0; $b mknod /mem c 1 1; \
         for d in /disk /disk2 /mem; do $b head -c1 $d && echo OPEN; done; \
         for d in /disk /disk2; do $b dd if=/dev/zero of=$d count=1 && echo WRITTEN; done; echo end",
    ));
    // No seccomp profile unless one is asked for, as upstream: what a user namespace allows is up to the kernel. What is
    // masked and read-only must stay so in it.
    node.create_pod(&armed(
        "mounts",
        "b=/busybox; $b mkdir -p /m; $b mount -t tmpfs none /m && echo MOUNTED; \
         $b unshare -Urm /busybox sh -c '/busybox mount -t proc proc /m && echo PROC; \
         /busybox umount /proc/kcore && echo UNMASKED; /busybox umount /proc/sys && echo UNMASKED; \
         /busybox mount -o remount,bind,rw /proc/sys && echo REMOUNTED; /busybox mknod /d b 8 0 && echo MADE'; \
         $b nsenter -t 1 -m /busybox true && echo ENTERED; echo end",
    ));
    // Every descriptor that the first process or a later one was born with.
    node.create_pod(&armed(
        "descriptors",
        "for f in /proc/1/fd/* /proc/self/fd/*; do /busybox readlink $f; done; echo end",
    ));
    for number in 3..10 {
        let mut pod = armed(&format!("folder-{number}"), "/busybox ls ../../../../../../..; echo end");
        pod["spec"]["containers"][0]["workingDir"] = format!("/proc/self/fd/{number}").into();
        node.create_pod(&pod);
    }
    let output = outcome(&node, "devices");
    assert!(output.ends_with("end\n") && !output.contains("OPEN") && !output.contains("WRITTEN"), "{output}");
    let output = outcome(&node, "mounts");
    assert!(output.ends_with("end\n"), "{output}");
    for word in ["MOUNTED", "PROC", "UNMASKED", "REMOUNTED", "MADE", "ENTERED"] {
        assert!(!output.contains(word), "{word}: {output}");
    }
    let output = outcome(&node, "descriptors");
    let own = |line: &str| line.starts_with("pipe:") || line == "/dev/null" || line == "/proc" || line == "end";
    assert!(output.lines().all(|line| own(line) || line.starts_with("/proc/")), "{output}");
    for number in 3..10 {
        let name = format!("folder-{number}");
        let pod = node.until(&name, "over or refused", |pod| {
            let state = &container(pod)["state"];
            !state["terminated"].is_null()
                || state["waiting"]["reason"].as_str().is_some_and(|reason| reason != "ContainerCreating")
        });
        // Most do not start; one that does has its own root above it.
        if container(&pod)["state"]["terminated"]["reason"] == "Completed" {
            let output = node.log(&name);
            assert!(!output.lines().any(|line| line == "home" || line == "work"), "{output}");
        }
    }
}

#[test]
fn the_program_of_the_runtime_cannot_be_overwritten() {
    let node = Node::start(&[]);
    let program = testkit::server::binary().unwrap();
    let before = std::fs::read(&program).unwrap();
    // Whatever enters the container is waited for, opened, and written to as soon as it has ended.
    node.create_pod(&armed(
        "thief",
        "while :; do for p in /proc/[0-9]*; do case $p in /proc/1) continue;; esac; \
         t=$(/busybox readlink $p/exe); case \"$t\" in */busybox|'') continue;; esac; \
         exec 9< $p/exe || continue; for i in 1 2 3 4 5 6 7 8 9 10; do \
         (echo x >> /proc/self/fd/9) 2>/dev/null && echo WRITTEN $t; done; echo held $t; exec 9<&-; done; done",
    ));
    node.ready("thief");
    for _ in 0..5 {
        // The first asks for the runtime's own program under another name, as in CVE-2019-5736.
        for command in [&["/proc/self/exe", "sleep", "1"][..], &["/busybox", "true"]] {
            let _ = node.server.kubectl().run(&[&["exec", "thief", "--"], command].concat());
        }
    }
    // And one whose first process is that program.
    let mut pod = script("mirror", "Never", "");
    pod["spec"]["containers"][0]["command"] = json!(["/proc/self/exe", "--version"]);
    node.create_pod(&pod);
    node.until("mirror", "tried", |pod| {
        let state = &container(pod)["state"];
        !state["terminated"].is_null()
            || state["waiting"]["reason"].as_str().is_some_and(|reason| reason != "ContainerCreating")
    });
    let output = node.log("thief");
    assert!(!output.contains("WRITTEN"), "{output}");
    assert!(std::fs::read(&program).unwrap() == before, "the program was changed");
}

#[test]
fn a_sub_path_that_is_swapped_for_a_link_leads_nowhere() {
    let node = Node::start(&[]);
    let volume = node.server.data_dir().join("volume");
    std::fs::create_dir_all(volume.join("dir")).unwrap();
    std::os::unix::fs::symlink("/", volume.join("link")).unwrap();
    let mount = |name: &str, path: &str| {
        let look = "if test -d /host/usr; then exit 66; fi; echo kept";
        let mut pod = with_folder(script(name, "Never", look), &volume);
        pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = path.into();
        pod
    };
    // A link that leads out is refused, whatever is behind it.
    for (name, path) in [("link", "link"), ("below-link", "link/etc")] {
        node.create_pod(&mount(name, path));
        let refused = "Failed: Error: failed to prepare subPath for volumeMount \"host\" of container \"main\"";
        node.until_event(name, refused);
        node.until(name, "refused", |pod| container(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError");
    }

    // Now the folder and the link change places all the time.
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, folder) = (stop.clone(), volume.clone());
    let swapping = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            for (from, to) in [("dir", "kept"), ("link", "dir"), ("dir", "link"), ("kept", "dir")] {
                let _ = std::fs::rename(folder.join(from), folder.join(to));
            }
        }
    });
    let names: Vec<String> = (0..10).map(|n| format!("swapped-{n}")).collect();
    names.iter().for_each(|name| node.create_pod(&mount(name, "dir")));
    for name in &names {
        let pod = node.until(name, "over or refused", |pod| {
            let state = &container(pod)["state"];
            !state["terminated"].is_null() || state["waiting"]["reason"] == "CreateContainerConfigError"
        });
        assert_ne!(container(&pod)["state"]["terminated"]["exitCode"], 66, "{name} got out");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
}

#[test]
fn paths_of_the_host_are_what_they_claim_to_be() {
    let node = Node::start(&[]);
    let folder = node.server.data_dir().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let mut pod = with_folder(script("file", "Never", "true"), &folder);
    pod["spec"]["volumes"][0]["hostPath"]["type"] = "File".into();
    node.create_pod(&pod);
    node.until_event("file", "hostPath type check failed: ");
    let mut climbing = with_folder(script("climbing", "Never", "true"), &folder.join("../../etc"));
    climbing["metadata"]["namespace"] = "default".into();
    let refused = node.server.kubectl().run_with(&["apply", "-f", "-"], &climbing.to_string()).unwrap();
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("must not contain '..'"), "{refused}");
    assert!(!is_ready(&node.pod("file")));
}

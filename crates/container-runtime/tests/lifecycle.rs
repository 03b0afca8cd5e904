//! Pods and containers from their beginning to their end, on real processes.

mod support;

use cri::{Runtime, v1};
use support::{World, wait};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_writes_and_ends() {
    let world = World::new().await;
    let (sandbox, container) = world.run("pod", "echo hello; echo trouble >&2; exit 3").await;
    let status = world.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.started_at >= status.created_at && status.finished_at >= status.started_at);
    let mut lines = world.lines("pod", "main");
    lines.sort();
    assert_eq!(lines, ["stderr F trouble", "stdout F hello"]);

    let runtime = world.runtime();
    runtime.remove_container(&container).await.unwrap();
    assert_eq!(runtime.container_status(&container).await.unwrap_err().code, cri::Code::NotFound);
    runtime.stop_pod_sandbox(&sandbox).await.unwrap();
    let status = runtime.pod_sandbox_status(&sandbox).await.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    runtime.remove_pod_sandbox(&sandbox).await.unwrap();
    // Everything may be repeated.
    runtime.remove_container(&container).await.unwrap();
    runtime.stop_pod_sandbox(&sandbox).await.unwrap();
    runtime.remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(world.images.snapshots().is_empty());
    assert!(world.network.attached.lock().is_empty());
    assert_eq!(std::fs::read_dir(world.folder.path().join("state")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.folder.path().join("root/sandboxes")).unwrap().count(), 0);
}

/// On machines of systemd all mounts are shared, also the one that a chroot is on.
#[test]
fn a_container_runs_in_a_chroot_on_shared_mounts() {
    let root = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-ec", "mount --make-rshared /; mount --rbind / $0; exec chroot $0 $@"])
        .arg(root.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_container_runs_writes_and_ends", "a_pod_can_have_users_of_its_own"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("test result: ok. 2 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_told_as_they_were() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    for (name, script, code, reason) in
        [("fine", "exit 0", 0, "Completed"), ("error", "exit 42", 42, "Error"), ("signal", "kill -9 $$", 137, "Error")]
    {
        // The first process of a PID namespace cannot kill itself, a child of it can.
        let script = format!("sh -c '{script}'; exit $?");
        let container = world.create(&sandbox, "pod", world.container_config(name, &["sh", "-c", &script])).await;
        world.runtime().start_container(&container).await.unwrap();
        let status = world.ended(&container).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_says_why() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    for (command, words) in [
        (vec!["nope"], "exec: \"nope\": executable file not found in $PATH"),
        (vec!["/nope"], "exec: \"/nope\": stat /nope: no such file or directory"),
        (vec!["/etc/script"], "exec: \"/etc/script\": permission denied"),
        (vec!["/etc"], "exec: \"/etc\": is a directory"),
    ] {
        let container = world.create(&sandbox, "pod", world.container_config("main", &command)).await;
        let error = world.runtime().start_container(&container).await.unwrap_err();
        let expected = format!(
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: {words}: unknown"
        );
        assert_eq!(error.message, expected);
        let status = world.status(&container).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
        assert_eq!(status.message, expected);
        world.runtime().remove_container(&container).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_is_not_there_is_named() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let mut config = world.container_config("main", &["true"]);
    config.mounts.push(v1::Mount {
        container_path: "/data".into(),
        host_path: "/nowhere/at/all".into(),
        ..Default::default()
    });
    let created = world.runtime().create_container(&sandbox, config, world.sandbox_config("pod")).await;
    let error = match created {
        Ok(container) => world.runtime().start_container(&container).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(error.message.contains("/nowhere/at/all"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_waits_for_the_grace_and_no_longer() {
    let world = World::new().await;
    let (_, polite) = world.run("polite", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done").await;
    wait("it listens", || async { world.log("polite", "main").contains("ready").then_some(()) }).await;
    let begin = std::time::Instant::now();
    world.runtime().stop_container(&polite, 20).await.unwrap();
    assert!(begin.elapsed().as_secs() < 10);
    assert_eq!(world.status(&polite).await.exit_code, 7);

    let (_, deaf) = world.run("deaf", "trap '' TERM; echo ready; while :; do sleep 1; done").await;
    wait("it listens", || async { world.log("deaf", "main").contains("ready").then_some(()) }).await;
    let begin = std::time::Instant::now();
    world.runtime().stop_container(&deaf, 1).await.unwrap();
    assert!((1..10).contains(&begin.elapsed().as_secs()));
    assert_eq!(world.status(&deaf).await.exit_code, 137);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stop_signal_can_be_chosen() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let script = "trap 'exit 10' USR1; trap 'exit 15' TERM; echo ready; while :; do sleep 0.01; done";
    let mut config = world.container_config("main", &["sh", "-c", script]);
    config.set_stop_signal(v1::Signal::Sigusr1);
    let container = world.create(&sandbox, "pod", config).await;
    world.runtime().start_container(&container).await.unwrap();
    wait("it listens", || async { world.log("pod", "main").contains("ready").then_some(()) }).await;
    world.runtime().stop_container(&container, 20).await.unwrap();
    assert_eq!(world.status(&container).await.exit_code, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_its_own_world() {
    let world = World::new().await;
    let (sandbox, container) = world.run("pod", "sleep 1000").await;
    assert_eq!(world.output(&container, "hostname").await, "pod");
    assert_eq!(world.output(&container, "cat /etc/hostname").await, "pod");
    let resolv_conf = "search default.svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5";
    assert_eq!(world.output(&container, "cat /etc/resolv.conf").await, resolv_conf);
    assert_eq!(world.output(&container, "ls /sys/class/net").await, "lo");
    assert_eq!(world.output(&container, "cat /proc/1/cmdline | tr '\\0' ' '").await, "sleep 1000");
    assert!(world.output(&container, "grep ' /dev/shm ' /proc/mounts").await.contains("size=65536k"));
    let pid = world.runtime().pid(&container).unwrap();
    for namespace in ["net", "ipc", "uts", "mnt", "pid"] {
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
        assert_ne!(link(&pid.to_string()), link("self"), "{namespace}");
    }
    let status = world.runtime().pod_sandbox_status(&sandbox).await.unwrap();
    assert_eq!(status.network.unwrap().ip, "10.42.0.2");
    // The root is mounted in the container's namespace alone.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("/rootfs "), "{mounts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_containers_share_what_a_pod_shares() {
    let world = World::new().await;
    let (sandbox, first) = world.run("pod", "echo shared > /dev/shm/note; sleep 1000").await;
    let second = world.create(&sandbox, "pod", world.container_config("second", &["sleep", "1000"])).await;
    world.runtime().start_container(&second).await.unwrap();
    assert_eq!(world.output(&second, "cat /dev/shm/note").await, "shared");
    let link = |id: &str, namespace: &str| {
        std::fs::read_link(format!("/proc/{}/ns/{namespace}", world.runtime().pid(id).unwrap())).unwrap()
    };
    for namespace in ["net", "ipc", "uts"] {
        assert_eq!(link(&first, namespace), link(&second, namespace));
    }
    assert_ne!(link(&first, "pid"), link(&second, "pid"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_pid_namespace_has_a_reaper() {
    let world = World::new().await;
    let mut pod = world.sandbox_config("pod");
    let shared = v1::NamespaceOption { pid: v1::NamespaceMode::Pod as i32, ..Default::default() };
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(shared.clone());
    let sandbox = world.runtime().run_pod_sandbox(pod.clone(), "").await.unwrap();
    let mut config = world.container_config("main", &["sh", "-c", "sleep 2000 & sleep 1000"]);
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(shared);
    let container = world.runtime().create_container(&sandbox, config, pod).await.unwrap();
    world.runtime().start_container(&container).await.unwrap();
    let processes = world.output(&container, "ps -o pid,comm").await;
    assert!(processes.lines().any(|line| line.trim().starts_with("1 pause")), "{processes}");
    // The end of the first process ends what it started.
    world.runtime().stop_container(&container, 1).await.unwrap();
    let left = std::process::Command::new("pgrep").args(["-f", "^sleep 2000$"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_namespaces_can_be_asked_for() {
    let world = World::new().await;
    let mut pod = world.sandbox_config("pod");
    let node = v1::NamespaceMode::Node as i32;
    let host = v1::NamespaceOption { network: node, pid: node, ipc: node, ..Default::default() };
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(host.clone());
    let sandbox = world.runtime().run_pod_sandbox(pod.clone(), "").await.unwrap();
    assert!(world.network.attached.lock().is_empty(), "such a pod asks for no address");
    let mut config = world.container_config("main", &["sleep", "1000"]);
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(host);
    let container = world.runtime().create_container(&sandbox, config, pod).await.unwrap();
    world.runtime().start_container(&container).await.unwrap();
    let pid = world.runtime().pid(&container).unwrap();
    for namespace in ["net", "ipc", "uts", "pid"] {
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
        assert_eq!(link(&pid.to_string()), link("self"), "{namespace}");
    }
    let result = world.exec(&container, "true").await;
    assert_eq!(result.exit_code, 0);
    world.runtime().stop_container(&container, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_can_have_users_of_its_own() {
    let world = World::new().await;
    let mut pod = world.sandbox_config("pod");
    let mapping = v1::IdMapping { host_id: 1_000_000, container_id: 0, length: 65_536 };
    let users = v1::UserNamespace { mode: v1::NamespaceMode::Pod as i32, uids: vec![mapping], gids: vec![mapping] };
    let options = v1::NamespaceOption { userns_options: Some(users), ..support::namespaces() };
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(options.clone());
    let sandbox = world.runtime().run_pod_sandbox(pod.clone(), "").await.unwrap();
    let mut config = world.container_config("main", &["sleep", "1000"]);
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(options);
    let container = world.runtime().create_container(&sandbox, config, pod).await.unwrap();
    world.runtime().start_container(&container).await.unwrap();
    let pid = world.runtime().pid(&container).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("Uid:\t1000000\t1000000"), "{status}");
    assert_eq!(world.output(&container, "id -u").await, "0");
    assert_eq!(world.output(&container, "hostname").await, "pod");
}

#[tokio::test(flavor = "multi_thread")]
async fn sysctls_of_the_pod_hold_in_it_alone() {
    let world = World::new().await;
    let before = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let mut pod = world.sandbox_config("pod");
    pod.linux.as_mut().unwrap().sysctls.insert("net.ipv4.ip_local_port_range".into(), "1024 2048".into());
    pod.linux.as_mut().unwrap().sysctls.insert("kernel.shm_rmid_forced".into(), "1".into());
    let sandbox = world.runtime().run_pod_sandbox(pod, "").await.unwrap();
    let container = world.create(&sandbox, "pod", world.container_config("main", &["sleep", "1000"])).await;
    world.runtime().start_container(&container).await.unwrap();
    assert_eq!(world.output(&container, "cat /proc/sys/net/ipv4/ip_local_port_range").await, "1024\t2048");
    assert_eq!(world.output(&container, "cat /proc/sys/kernel/shm_rmid_forced").await, "1");
    assert_eq!(std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap(), before);

    let mut pod = world.sandbox_config("wrong");
    pod.linux.as_mut().unwrap().sysctls.insert("net.nope".into(), "1".into());
    let error = world.runtime().run_pod_sandbox(pod, "").await.unwrap_err();
    assert!(error.message.contains("set sysctl net.nope=1"), "{error}");
    assert_eq!(world.runtime().list_pod_sandboxes(None).await.unwrap().len(), 1, "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_quickly() {
    let world = World::new().await;
    // The first compiles the filter, as it is done once per node.
    world.run("first", "sleep 1000").await;
    let mut times = Vec::new();
    for number in 0..10 {
        let begin = std::time::Instant::now();
        world.run(&format!("pod-{number}"), "sleep 1000").await;
        times.push(begin.elapsed());
    }
    times.sort();
    println!("pod and container: median {:?}, slowest {:?}", times[5], times[9]);
    assert!(times[5] < std::time::Duration::from_millis(500), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_can_be_a_volume() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let mut config = world.container_config("main", &["sleep", "1000"]);
    config.mounts.push(v1::Mount {
        container_path: "/volume".into(),
        image: Some(v1::ImageSpec { image: support::IMAGE.into(), ..Default::default() }),
        ..Default::default()
    });
    let container = world.create(&sandbox, "pod", config).await;
    world.runtime().start_container(&container).await.unwrap();
    assert_eq!(world.output(&container, "cat /volume/etc/script").await, "no program");
    assert_ne!(world.exec(&container, "touch /volume/new").await.exit_code, 0, "it cannot be written to");
    assert_eq!(world.images.snapshots().len(), 2);
    world.runtime().remove_container(&container).await.unwrap();
    assert!(world.images.snapshots().is_empty());
}

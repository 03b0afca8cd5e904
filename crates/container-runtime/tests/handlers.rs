//! Containers that an OCI runtime of the host runs, asked for by a runtime handler. Debian's runc is the host's here.

mod support;

use std::path::{Path, PathBuf};

use cri::streams::Streaming;
use cri::{Runtime, v1};
use support::{World, wait};
use tokio::io::AsyncReadExt;

const RUNC: &str = "/usr/sbin/runc";

/// A runtime with the handler `host`, which is a script around runc that writes down how it was called.
async fn world() -> (World, PathBuf) {
    assert!(Path::new(RUNC).exists(), "this test needs runc: scripts/install-tools test");
    let mut world = World::new().await;
    let (program, calls) = (world.folder.path().join("host-runtime"), world.folder.path().join("calls"));
    let text = format!("#!/bin/sh\necho \"$@\" >> {}\nexec {RUNC} \"$@\"\n", calls.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.handlers = [("host".to_owned(), program)].into();
    world.close();
    world.open().await;
    (world, calls)
}

/// The verbs that the program was called with, in order.
fn verbs(calls: &Path) -> Vec<String> {
    let known = ["features", "create", "start", "exec", "kill", "delete"];
    let text = std::fs::read_to_string(calls).unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').find(|word| known.contains(word))).map(str::to_owned).collect()
}

async fn start(world: &World, name: &str, config: v1::ContainerConfig) -> (String, String) {
    let sandbox = world.runtime().run_pod_sandbox(world.sandbox_config(name), "host").await.unwrap();
    let container = world.create(&sandbox, name, config).await;
    world.runtime().start_container(&container).await.unwrap();
    (sandbox, container)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_lives_in_a_runtime_of_the_host() {
    let (mut world, calls) = world().await;
    let script = "trap 'echo bye; exit 7' TERM; echo out; echo err >&2; hostname; while :; do sleep 0.05; done";
    let (sandbox, container) = start(&world, "web", world.container_config("main", &["sh", "-c", script])).await;
    assert_eq!(world.runtime().pod_sandbox_status(&sandbox).await.unwrap().runtime_handler, "host");
    wait("it has said all", || async { (world.lines("web", "main").len() == 3).then_some(()) }).await;
    let mut lines = world.lines("web", "main");
    lines.sort();
    assert_eq!(lines, ["stderr F err", "stdout F out", "stdout F web"]);

    // A command sees what the container sees, is confined like it, and its code comes back.
    assert_eq!(world.output(&container, "hostname; cat /proc/1/comm").await, "web\nsh");
    assert_eq!(world.output(&container, "grep Seccomp: /proc/self/status").await, "Seccomp:\t2");
    let done = world.exec(&container, "echo here; echo there >&2; exit 9").await;
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice(), done.exit_code), (&b"here\n"[..], &b"there\n"[..], 9));
    let stats = world.runtime().list_container_stats().await.unwrap();
    assert!(stats[0].memory.as_ref().unwrap().usage_bytes.unwrap().value > 0, "its cgroup is where it is looked for");

    // It outlives knarr, and hears its stop signal afterwards.
    let pid = world.runtime().pid(&container).unwrap();
    world.close();
    world.open().await;
    assert_eq!(world.runtime().pid(&container), Some(pid));
    world.runtime().stop_container(&container, 20).await.unwrap();
    let status = world.status(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (7, "Error"));
    assert_eq!(world.lines("web", "main").last().unwrap(), "stdout F bye");
    wait("the program forgets it", || async { verbs(&calls).contains(&"delete".to_owned()).then_some(()) }).await;
    let all = verbs(&calls);
    let asked: Vec<&str> = all.iter().map(String::as_str).filter(|verb| *verb != "features").collect();
    assert_eq!(asked, ["create", "start", "exec", "exec", "exec", "kill", "delete"]);
    world.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(!world.folder.path().join("state").join(&sandbox).exists(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn terminals_and_failures_come_through() {
    let (world, _) = world().await;
    let mut config = world.container_config("main", &["sh", "-c", "tty; stty size; sleep 1000"]);
    config.tty = true;
    let (_, container) = start(&world, "tty", config).await;
    wait("it has a terminal", || async { world.log("tty", "main").contains("/dev/").then_some(()) }).await;
    let request = v1::ExecRequest {
        container_id: container.clone(),
        cmd: ["sh", "-c", "tty; echo $TERM"].map(String::from).to_vec(),
        tty: true,
        stdout: true,
        ..Default::default()
    };
    let Ok(Streaming::Local(mut session)) = world.runtime().exec(request).await else { panic!("no session") };
    let mut text = String::new();
    // A terminal whose last program has gone ends with an error.
    let _ = session.stdout.take().unwrap().read_to_string(&mut text).await;
    assert!(text.starts_with("/dev/pts/") && text.trim_end().ends_with("xterm"), "{text:?}");
    assert_eq!(session.exit.await.unwrap(), 0);
    world.runtime().stop_container(&container, 0).await.unwrap();
    assert_eq!(world.status(&container).await.exit_code, 137);

    let sandbox = world.runtime().run_pod_sandbox(world.sandbox_config("bad"), "host").await.unwrap();
    let container = world.create(&sandbox, "bad", world.container_config("main", &["/no/such/program"])).await;
    let error = world.runtime().start_container(&container).await.unwrap_err();
    let expected = "unable to start container process: exec: \"/no/such/program\": stat /no/such/program: no such file or directory";
    assert!(error.message.contains(expected), "{}", error.message);
    assert_eq!(world.status(&container).await.reason, "StartError");
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_told_and_unknown_ones_refused() {
    let (world, _) = world().await;
    let status = world.runtime().status_response().await.unwrap();
    let names: Vec<&str> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "host", "knarr"]);
    let features = status.runtime_handlers.iter().map(|handler| handler.features.unwrap().user_namespaces);
    assert_eq!(features.collect::<Vec<_>>(), [true, false, true]);
    assert!(status.features.unwrap().supplemental_groups_policy);

    let refused = world.runtime().run_pod_sandbox(world.sandbox_config("x"), "gvisor").await.unwrap_err();
    assert_eq!(refused.message, "failed to get sandbox runtime: no runtime for \"gvisor\" is configured");
    let mut users = world.sandbox_config("users");
    let mapping = v1::IdMapping { host_id: 100_000, container_id: 0, length: 65_536 };
    let options = users.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options.as_mut().unwrap();
    options.userns_options = Some(v1::UserNamespace { mode: 0, uids: vec![mapping], gids: vec![mapping] });
    let refused = world.runtime().run_pod_sandbox(users, "host").await.unwrap_err();
    assert_eq!(refused.message, "RuntimeClass handler \"host\" does not support user namespaces");
    // Our own runtime by its name.
    world.runtime().run_pod_sandbox(world.sandbox_config("own"), "knarr").await.unwrap();
}

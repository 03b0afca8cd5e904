//! Commands in running containers, terminals, attaching and connections.

mod support;

use std::time::{Duration, Instant};

use cri::streams::{Streaming, TerminalSize};
use cri::{Runtime, Session, v1};
use support::{World, wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn local<T>(streaming: Streaming<T>) -> T {
    match streaming {
        Streaming::Local(local) => local,
        Streaming::Url(url) => panic!("expected a local stream, got {url}"),
    }
}

fn request(container: &str, command: &[&str], tty: bool) -> v1::ExecRequest {
    v1::ExecRequest {
        container_id: container.to_string(),
        cmd: command.iter().map(ToString::to_string).collect(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    }
}

async fn text(stream: Option<cri::streams::Reader>) -> String {
    let mut text = String::new();
    stream.unwrap().read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_streams_and_an_exit_code() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "sleep 1000").await;
    let result = world.exec(&container, "echo out; echo err >&2; exit 5").await;
    assert_eq!((result.exit_code, &result.stdout[..], &result.stderr[..]), (5, &b"out\n"[..], &b"err\n"[..]));

    let session = world.runtime().exec(request(&container, &["cat"], false)).await.unwrap();
    let Session { stdin, stdout, exit, .. } = local(session);
    let mut stdin = stdin.unwrap();
    let big = vec![b'x'; 300_000];
    let writer = tokio::spawn(async move {
        stdin.write_all(&big).await.unwrap();
        drop(stdin);
    });
    assert_eq!(text(stdout).await.len(), 300_000);
    writer.await.unwrap();
    assert_eq!(exit.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_run_says_why() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "sleep 1000").await;
    let error = world.runtime().exec_sync(&container, &["nope".to_string()], 5).await.unwrap_err();
    assert!(error.message.contains("OCI runtime exec failed: exec failed: unable to start container process: exec: \"nope\": executable file not found in $PATH: unknown"), "{error}");
    world.runtime().stop_container(&container, 0).await.unwrap();
    let error = world.runtime().exec_sync(&container, &["true".to_string()], 5).await.unwrap_err();
    assert_eq!(error.message, "container is in CONTAINER_EXITED state");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_takes_too_long_is_killed() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "sleep 1000").await;
    let begin = Instant::now();
    let command = ["sleep", "777"].map(String::from);
    let error = world.runtime().exec_sync(&container, &command, 1).await.unwrap_err();
    assert_eq!(error.code, cri::Code::DeadlineExceeded);
    assert_eq!(error.message, "command \"sleep 777\" timed out");
    assert!(begin.elapsed() < Duration::from_secs(5));
    wait("it is gone", || async {
        (!world.output(&container, "ps -o args").await.contains("sleep 777")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_do_no_more_than_the_container() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    for (name, user, no_new_privileges) in [("root", 0, false), ("user", 1000, false), ("bound", 1000, true)] {
        let mut config = world.container_config(name, &["sleep", "1000"]);
        let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.run_as_user = Some(v1::Int64Value { value: user });
        security.supplemental_groups = vec![4242];
        security.no_new_privs = no_new_privileges;
        config.working_dir = "/tmp".into();
        let container = world.create(&sandbox, "pod", config).await;
        world.runtime().start_container(&container).await.unwrap();
        let wanted = ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"];
        let pick = |status: &str| -> Vec<String> {
            status
                .lines()
                .filter(|line| wanted.iter().any(|name| line.starts_with(name)))
                .map(|line| line.trim().to_string())
                .collect()
        };
        let first = pick(
            &std::fs::read_to_string(format!("/proc/{}/status", world.runtime().pid(&container).unwrap())).unwrap(),
        );
        let command = pick(&world.output(&container, "cat /proc/self/status").await);
        assert_eq!(first, command, "{name}");
        assert!(first.contains(&"Seccomp:\t2".to_string()), "{first:?}");
        assert!(first.contains(&format!("NoNewPrivs:\t{}", i32::from(no_new_privileges))), "{first:?}");
        assert_eq!(world.output(&container, "pwd").await, "/tmp");
        let bounding = first.iter().find(|line| line.starts_with("CapBnd")).unwrap();
        assert_eq!(bounding, "CapBnd:\t00000000a80425fb");
        // Filtered: only a privileged process may.
        assert_ne!(world.exec(&container, "mount -t tmpfs none /tmp").await.exit_code, 0);
        let own =
            std::fs::read_to_string(format!("/proc/{}/cgroup", world.runtime().pid(&container).unwrap())).unwrap();
        let groups = world.output(&container, "cat /proc/self/cgroup").await;
        assert_eq!(groups.trim(), own.trim(), "a command counts where its container counts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_descriptor_of_ours_reaches_a_container() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "echo $(ls /proc/self/fd); sleep 1000").await;
    let listed = wait("it has listed", || async { world.lines("pod", "main").pop() }).await;
    // The three streams, and the folder that `ls` itself reads.
    assert_eq!(listed, "stdout F 0 1 2 3");
    assert_eq!(world.output(&container, "echo $(ls /proc/self/fd)").await, "0 1 2 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_a_size() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "sleep 1000").await;
    let script = "tty; stty size; read line; stty size; echo got $line; exit 9";
    let session = world.runtime().exec(request(&container, &["sh", "-c", script], true)).await.unwrap();
    let Session { stdin, stdout, stderr, resize, exit } = local(session);
    assert!(stderr.is_none());
    resize.as_ref().unwrap().send(TerminalSize { width: 123, height: 45 }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut stdin = stdin.unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    let output = text(stdout).await.replace('\r', "");
    assert!(output.starts_with("/dev/pts/"), "{output}");
    assert!(output.contains("45 123\ngot hello\n"), "{output}");
    assert_eq!(exit.await.unwrap(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_dropped_ends_its_command() {
    let world = World::new().await;
    let (_, container) = world.run("pod", "sleep 1000").await;
    let script = "echo begun; exec cat";
    let mut session = local(world.runtime().exec(request(&container, &["sh", "-c", script], true)).await.unwrap());
    let mut begun = [0; 5];
    session.stdout.as_mut().unwrap().read_exact(&mut begun).await.unwrap();
    drop(session);
    wait("it is gone", || async {
        (!world.output(&container, "ps -o args").await.lines().any(|line| line.trim() == "cat")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_shows_what_is_written_from_now_on() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let script = "echo before; while read line; do echo got $line; echo err >&2; done; echo end; exit 4";
    let mut config = world.container_config("main", &["sh", "-c", script]);
    config.stdin = true;
    config.stdin_once = true;
    let container = world.create(&sandbox, "pod", config).await;
    world.runtime().start_container(&container).await.unwrap();
    wait("it begins", || async { world.log("pod", "main").contains("before").then_some(()) }).await;
    let attach =
        v1::AttachRequest { container_id: container.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    let attached = local(world.runtime().attach(attach).await.unwrap());
    let mut stdin = attached.stdin.unwrap();
    stdin.write_all(b"a\nb\n").await.unwrap();
    // Its input is attached to once: the end of this is the end of it.
    drop(stdin);
    let (stdout, stderr) = tokio::join!(text(attached.stdout), text(attached.stderr));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("got a\ngot b\nend\n", "err\nerr\n"));
    assert_eq!(world.ended(&container).await.exit_code, 4);
    let lines = world.lines("pod", "main");
    assert_eq!(lines.iter().filter(|line| line.starts_with("stdout")).count(), 4, "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_talking_to_a_container_that_goes_on_is_let_go() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let mut config =
        world.container_config("main", &["sh", "-c", "echo before; while read line; do echo got $line; done"]);
    config.stdin = true;
    let container = world.create(&sandbox, "pod", config).await;
    world.runtime().start_container(&container).await.unwrap();
    wait("it begins", || async { world.log("pod", "main").contains("before").then_some(()) }).await;
    for said in ["once", "again"] {
        let attach =
            v1::AttachRequest { container_id: container.clone(), stdin: true, stdout: true, stderr: true, tty: false };
        let attached = local(world.runtime().attach(attach).await.unwrap());
        let mut stdin = attached.stdin.unwrap();
        stdin.write_all(format!("{said}\n").as_bytes()).await.unwrap();
        let heard = format!("got {said}");
        wait("it is heard", || async { world.log("pod", "main").contains(&heard).then_some(()) }).await;
        drop(stdin);
        let ended = async { tokio::join!(text(attached.stdout), text(attached.stderr)) };
        let (stdout, _) = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the session ends");
        assert_eq!(stdout, format!("{heard}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_a_terminal_can_be_talked_to() {
    let world = World::new().await;
    let sandbox = world.sandbox("pod").await;
    let script = "tty; while read line; do stty size; echo got $line; done";
    let mut config = world.container_config("main", &["sh", "-c", script]);
    (config.stdin, config.tty) = (true, true);
    let container = world.create(&sandbox, "pod", config).await;
    world.runtime().start_container(&container).await.unwrap();
    wait("it begins", || async { world.log("pod", "main").contains("/dev/pts/0").then_some(()) }).await;
    let attach = v1::AttachRequest {
        container_id: container.clone(),
        stdin: true,
        stdout: true,
        tty: true,
        ..Default::default()
    };
    let attached = local(world.runtime().attach(attach).await.unwrap());
    let size = TerminalSize { width: 99, height: 33 };
    attached.resize.as_ref().unwrap().send(size).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut stdin = attached.stdin.unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    let mut output = String::new();
    let mut stdout = attached.stdout.unwrap();
    while !output.contains("got hello") {
        let mut buffer = [0; 256];
        let length = stdout.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "{output}");
        output += &String::from_utf8_lossy(&buffer[..length]);
    }
    assert!(output.contains("33 99"), "{output}");
    wait("the log has it", || async { world.log("pod", "main").contains("got hello").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_reached_inside_the_pod() {
    let world = World::new().await;
    let (sandbox, _) = world.run("pod", "echo ready; echo answer | nc -l -p 8123").await;
    wait("it listens", || async { world.log("pod", "main").contains("ready").then_some(()) }).await;
    let forwarded = wait("it is connected", || async { world.runtime().port_forward(&sandbox, 8123).await.ok() }).await;
    let cri::Forwarded { mut read, .. } = local(forwarded);
    let mut line = [0; 7];
    read.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"answer\n");
    let error = world.runtime().port_forward(&sandbox, 1).await.err().unwrap();
    assert!(error.message.contains("failed to connect to localhost:1 inside namespace"), "{error}");
}

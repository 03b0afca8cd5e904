//! A runtime in this process, served on a socket and driven through it: what goes in comes out.

mod fake;

use std::sync::Arc;
use std::time::Duration;

use cri::serve::{Config, Stream, StreamServer, serve};
use cri::{Code, Remote, Runtime, Streaming, v1};
use futures::StreamExt;
use tokio::sync::oneshot;

use fake::Fake;

struct Served {
    folder: tempfile::TempDir,
    fake: Arc<Fake>,
    remote: Remote,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<cri::Result<()>>,
}

struct Streams;

#[async_trait::async_trait]
impl StreamServer for Streams {
    async fn offer(&self, stream: Stream) -> cri::Result<String> {
        Ok(match stream {
            Stream::Exec(request) => format!("http://streams/exec/{}", request.cmd.join("+")),
            Stream::Attach(request) => format!("http://streams/attach/{}", request.container_id),
            Stream::PortForward(request) => format!("http://streams/port-forward/{:?}", request.port),
        })
    }
}

async fn start(fake: Fake, streams: Option<Arc<dyn StreamServer>>) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let fake = Arc::new(fake);
    let (end, ended) = oneshot::channel::<()>();
    let config = Config { socket: socket.clone(), cgroup_driver: v1::CgroupDriver::Cgroupfs, streams };
    let task = tokio::spawn(serve(fake.clone(), config, async { drop(ended.await) }));
    let endpoint = format!("unix://{}", socket.display());
    for _ in 0..500 {
        if let Ok(remote) = Remote::connect(&endpoint).await {
            return Served { folder, fake, remote, end, task };
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the socket does not open")
}

fn pod(name: &str) -> v1::PodSandboxConfig {
    let metadata = v1::PodSandboxMetadata { name: name.to_owned(), ..v1::PodSandboxMetadata::default() };
    v1::PodSandboxConfig { metadata: Some(metadata), ..v1::PodSandboxConfig::default() }
}

fn container(image: &str) -> v1::ContainerConfig {
    let image = v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() };
    v1::ContainerConfig { image: Some(image), ..v1::ContainerConfig::default() }
}

#[tokio::test]
async fn a_pod_lives_and_ends() {
    let served = start(Fake::default(), None).await;
    let remote = &served.remote;
    assert_eq!(remote.version().await.unwrap().runtime_name, "fake");
    assert_eq!(remote.status().await.unwrap().conditions[0].r#type, "RuntimeReady");
    let sandbox = remote.run_pod_sandbox(pod("web"), "").await.unwrap();
    assert_eq!(remote.pod_sandbox_status(&sandbox).await.unwrap().metadata.unwrap().name, "web");
    let id = remote.create_container(&sandbox, container("image"), pod("web")).await.unwrap();
    remote.start_container(&id).await.unwrap();
    assert_eq!(remote.container_status(&id).await.unwrap().state, v1::ContainerState::ContainerRunning as i32);
    let filter = v1::ContainerFilter { pod_sandbox_id: sandbox.clone(), ..Default::default() };
    assert_eq!(remote.list_containers(Some(filter)).await.unwrap()[0].id, id);
    let done = remote.exec_sync(&id, &["echo".to_owned(), "hello".to_owned()], 5).await.unwrap();
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice(), done.exit_code), (&b"echo hello"[..], &b"err"[..], 3));
    let resources = v1::LinuxContainerResources { cpu_shares: 7, ..Default::default() };
    remote.update_container_resources(&id, resources).await.unwrap();
    remote.reopen_container_log(&id).await.unwrap();
    assert_eq!(remote.list_container_stats().await.unwrap().len(), 1);
    assert_eq!(remote.list_pod_sandbox_stats().await.unwrap().len(), 1);
    remote.stop_container(&id, 30).await.unwrap();
    remote.remove_container(&id).await.unwrap();
    remote.stop_pod_sandbox(&sandbox).await.unwrap();
    remote.remove_pod_sandbox(&sandbox).await.unwrap();
    assert!(remote.list_pod_sandboxes(None).await.unwrap().is_empty());
    remote.update_pod_cidr("10.0.0.0/24").await.unwrap();
    let expected = ["update 7", "reopen", "stop 30", "cidr 10.0.0.0/24"];
    assert_eq!(*served.fake.heard.lock().unwrap(), expected);
}

#[tokio::test]
async fn refusals_keep_their_code_and_words() {
    let served = start(Fake::default(), None).await;
    let remote = &served.remote;
    let error = remote.container_status("nobody").await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::NotFound, "no container \"nobody\""));
    for (command, code) in [
        ("deadline", Code::DeadlineExceeded),
        ("exhausted", Code::ResourceExhausted),
        ("exists", Code::AlreadyExists),
        ("invalid", Code::InvalidArgument),
        ("unavailable", Code::Unavailable),
        ("unimplemented", Code::Unimplemented),
        ("unknown", Code::Unknown),
    ] {
        let error = remote.exec_sync("x", &["fail".to_owned(), command.to_owned()], 0).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, command));
    }
    // What is not there need not be ended, even where the runtime insists.
    remote.stop_container("nobody", 1).await.unwrap();
    remote.remove_container("nobody").await.unwrap();
    remote.remove_image("nothing").await.unwrap();
    assert_eq!(remote.image_status("nothing").await.unwrap(), None);
}

#[tokio::test]
async fn images_are_pulled_with_credentials() {
    let served = start(Fake::default(), None).await;
    let auth = v1::AuthConfig { username: "me".to_owned(), ..Default::default() };
    assert_eq!(served.remote.pull_image("a/b:c", Some(auth), Some(pod("web"))).await.unwrap(), "id of a/b:c for me");
    assert_eq!(served.remote.image_status("a/b:c").await.unwrap().unwrap().id, "id of a/b:c for me");
    assert_eq!(served.remote.list_images().await.unwrap().len(), 1);
    assert_eq!(served.remote.image_fs_info().await.unwrap().image_filesystems.len(), 1);
    served.remote.remove_image("a/b:c").await.unwrap();
    assert!(served.remote.list_images().await.unwrap().is_empty());
}

#[tokio::test]
async fn streams_are_addresses() {
    let request =
        v1::ExecRequest { container_id: "c".into(), cmd: vec!["sh".into(), "-i".into()], ..Default::default() };
    let url = |streaming: cri::Result<Streaming<cri::Session>>| match streaming {
        Ok(Streaming::Url(url)) => url,
        Ok(Streaming::Local(_)) => "local".to_owned(),
        Err(error) => error.message,
    };
    let served = start(Fake::default(), Some(Arc::new(Streams))).await;
    assert_eq!(url(served.remote.exec(request.clone()).await), "http://streams/exec/sh+-i");
    let Ok(Streaming::Url(forward)) = served.remote.port_forward("s", 80).await else {
        panic!("an address is expected")
    };
    assert_eq!(forward, "http://streams/port-forward/[80]");
    // Without a server for streams, what the runtime has itself.
    let served = start(Fake::default(), None).await;
    assert_eq!(url(served.remote.exec(request).await), "http://fake/c");
}

#[tokio::test]
async fn events_arrive_as_they_happen() {
    check_events(Fake::default()).await;
}

#[tokio::test]
async fn events_that_are_slow_to_begin_arrive_too() {
    check_events(Fake::slow()).await;
}

#[tokio::test]
async fn without_events_the_lists_are_compared() {
    check_events(Fake::silent()).await;
}

async fn check_events(fake: Fake) {
    let served = start(fake, None).await;
    let remote = &served.remote;
    let sandbox = remote.run_pod_sandbox(pod("old"), "").await.unwrap();
    let mut events = remote.events().await.unwrap();
    let id = remote.create_container(&sandbox, container("image"), pod("old")).await.unwrap();
    remote.start_container(&id).await.unwrap();
    let mut next = async || {
        let event =
            tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("an event").expect("no end");
        (event.container_id, event.container_event_type, event.containers_statuses.len())
    };
    assert_eq!(next().await, (id.clone(), v1::ContainerEventType::ContainerCreatedEvent as i32, 1));
    assert_eq!(next().await, (id.clone(), v1::ContainerEventType::ContainerStartedEvent as i32, 1));
    remote.stop_container(&id, 0).await.unwrap();
    assert_eq!(next().await, (id.clone(), v1::ContainerEventType::ContainerStoppedEvent as i32, 1));
    remote.remove_container(&id).await.unwrap();
    assert_eq!(next().await, (id, v1::ContainerEventType::ContainerDeletedEvent as i32, 0));
}

#[tokio::test]
async fn the_end_of_the_runtime_ends_the_events_and_frees_the_socket() {
    let served = start(Fake::silent(), None).await;
    let socket = served.folder.path().join("cri.sock");
    assert!(Remote::connect("not/a/socket").await.is_err());
    // A second server must not take the socket from a living one.
    let config = Config { socket: socket.clone(), cgroup_driver: v1::CgroupDriver::Cgroupfs, streams: None };
    let error = serve(served.fake.clone(), config, std::future::pending()).await.unwrap_err();
    assert_eq!(error.code, Code::AlreadyExists);
    let mut events = served.remote.events().await.unwrap();
    served.end.send(()).unwrap();
    drop(served.remote);
    served.task.await.unwrap().unwrap();
    assert!(!socket.exists());
    let end = tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("the stream ends");
    assert!(end.is_none());
    let error = Remote::connect(socket.to_str().unwrap()).await.err().expect("nobody is there");
    assert_eq!(error.code, Code::Unavailable);
}

//! A real message bus of its own, and a logind on it that does as told.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::wire::Message;
use super::*;
use crate::node::Health;
use crate::pods::Pods;

const PATIENCE: Duration = Duration::from_secs(20);

struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let (socket, config) = (folder.path().join("bus"), folder.path().join("bus.conf"));
        let text = format!(
            "<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context='default'><allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/>\
             <allow user='*'/></policy></busconfig>",
            socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let process = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile"])
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this test needs dbus-daemon: scripts/install-tools test");
        let daemon = Daemon { process, folder };
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(daemon.socket()).is_err() {
            assert!(Instant::now() < until, "the bus does not open");
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    fn settings(&self, grace: u64) -> Settings {
        Settings {
            bus: self.socket(),
            conf_dir: self.folder.path().join("logind.conf.d"),
            grace: Duration::from_secs(grace),
            critical_grace: Duration::ZERO,
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the fake is told to do.
enum Order {
    PrepareForShutdown(bool),
    Stop,
}

/// What it has seen.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Inhibited(Vec<String>),
    Released,
    Killed(String, i32),
}

struct Logind {
    orders: mpsc::Sender<Order>,
    seen: mpsc::Receiver<Seen>,
}

/// A logind that waits five seconds at first, and what its settings say after SIGHUP when it `reloads`.
fn logind(daemon: &Daemon, reloads: bool) -> Logind {
    let ((orders, told), (tell, seen)) = (mpsc::channel(), mpsc::channel());
    let mut bus = Bus::connect(&daemon.socket()).unwrap();
    let names = Target {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
    };
    for name in [MANAGER.destination, SYSTEMD.destination] {
        bus.call(names, "RequestName", vec![Value::Text(name.into()), Value::Number(0)]).unwrap();
    }
    let conf = daemon.folder.path().join("logind.conf.d").join(OVERRIDE_FILE);
    bus.wait_at_most(Some(Duration::from_millis(20))).unwrap();
    std::thread::spawn(move || serve(bus, &told, &tell, reloads.then_some(conf.as_path())));
    Logind { orders, seen }
}

fn serve(mut bus: Bus, orders: &mpsc::Receiver<Order>, tell: &mpsc::Sender<Seen>, conf: Option<&Path>) {
    let mut seconds = 5;
    let mut lock: Option<OwnedFd> = None;
    loop {
        match orders.try_recv() {
            Ok(Order::PrepareForShutdown(starts)) => {
                let signal = Message {
                    kind: wire::SIGNAL,
                    path: MANAGER.path.into(),
                    interface: MANAGER.interface.into(),
                    member: "PrepareForShutdown".into(),
                    body: vec![Value::Bool(starts)],
                    ..Message::default()
                };
                bus.send(signal).unwrap();
            }
            Ok(Order::Stop) | Err(mpsc::TryRecvError::Disconnected) => return,
            Err(mpsc::TryRecvError::Empty) => {}
        }
        if let Some(read) = &lock {
            // The last writer of the pipe is the lock.
            if rustix::io::read(read, &mut [0]) == Ok(0) {
                lock = None;
                let _ = tell.send(Seen::Released);
            }
        }
        let Ok((call, _)) = bus.receive() else { continue };
        if call.kind != wire::METHOD_CALL {
            continue;
        }
        let mut answer = Message {
            kind: wire::METHOD_RETURN,
            reply_serial: call.serial,
            destination: call.sender.clone(),
            ..Message::default()
        };
        match call.member.as_str() {
            "Get" => answer.body = vec![Value::Property(seconds * 1_000_000)],
            "KillUnit" => {
                let (Value::Text(unit), Value::Int(signal)) = (&call.body[0], &call.body[2]) else {
                    panic!("{call:?}")
                };
                let text = conf.map(|conf| std::fs::read_to_string(conf).unwrap()).unwrap_or_default();
                let told = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec="));
                seconds = told.map_or(seconds, |told| told.parse().unwrap());
                let _ = tell.send(Seen::Killed(unit.clone(), *signal));
            }
            "Inhibit" => {
                let words = call.body.iter().map(|value| match value {
                    Value::Text(text) => text.clone(),
                    other => panic!("{other:?}"),
                });
                let _ = tell.send(Seen::Inhibited(words.collect()));
                let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
                let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
                answer.body = vec![Value::Handle(0)];
                answer.fds = 1;
                send_with(&bus, &answer, &write);
                lock = Some(read);
                continue;
            }
            other => panic!("nobody should call {other}"),
        }
        bus.send(answer).unwrap();
    }
}

fn send_with(bus: &Bus, message: &Message, fd: &OwnedFd) {
    let bytes = Message { serial: u32::MAX, ..message.clone() }.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let socket = bus.socket().unwrap();
    let sent = rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

impl Logind {
    fn sees(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("something happens")
    }
}

fn lock_words() -> Seen {
    let words = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
    Seen::Inhibited(words.map(String::from).to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_waits_for_the_pods_and_a_cancelled_shutdown_is_taken_back() {
    let daemon = Daemon::start();
    let logind = logind(&daemon, true);
    let (power_off, health, shutdown) = (Arc::new(PowerOff::default()), Arc::new(Health::new(0)), Shutdown::new());
    let (pods, ending) = (Pods::default(), power_off.clone());
    let shown = health.clone();
    tokio::spawn(async move { ending.run(&pods, &shown).await });
    let watching = tokio::spawn(run(daemon.settings(20), power_off, shutdown.clone()));
    // Five seconds are too short for twenty: logind is told, and reads it.
    assert_eq!(logind.sees(), Seen::Killed("systemd-logind.service".into(), 1));
    assert_eq!(logind.sees(), lock_words());
    let path = daemon.folder.path().join("logind.conf.d/99-kubelet.conf");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=20\n");
    assert!(!health.problems().contains(&"node is shutting down".to_owned()));

    logind.orders.send(Order::PrepareForShutdown(true)).unwrap();
    assert_eq!(logind.sees(), Seen::Released, "no pod is left to wait for");
    assert!(health.problems().contains(&"node is shutting down".to_owned()));
    logind.orders.send(Order::PrepareForShutdown(false)).unwrap();
    assert_eq!(logind.sees(), lock_words());
    let until = Instant::now() + PATIENCE;
    while health.problems().contains(&"node is shutting down".to_owned()) {
        assert!(Instant::now() < until, "the node does not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The kubelet ends, and with it the lock.
    shutdown.cancel();
    watching.await.unwrap();
    assert_eq!(logind.sees(), Seen::Released);
    let _ = logind.orders.send(Order::Stop);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logind_that_does_not_wait_long_enough_is_an_error() {
    let daemon = Daemon::start();
    let logind = logind(&daemon, false);
    let watching = tokio::spawn(run(daemon.settings(20), Arc::default(), Shutdown::new()));
    assert_eq!(logind.sees(), Seen::Killed("systemd-logind.service".into(), 1));
    // It ends by itself: nothing was locked, and trying for ever would not help.
    tokio::time::timeout(PATIENCE, watching).await.unwrap().unwrap();
    assert!(logind.seen.try_recv().is_err());
    let error = LogindError::DelayTooShort { wanted: Duration::from_secs(20), now: Duration::from_secs(5) };
    assert!(
        error.to_string().starts_with("node shutdown manager was unable to update logind InhibitDelayMaxSec to 20s")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_bus_is_told_once() {
    let settings = Settings {
        bus: "/nonexistent/bus".into(),
        conf_dir: "/nonexistent".into(),
        grace: Duration::from_secs(1),
        critical_grace: Duration::ZERO,
    };
    tokio::time::timeout(PATIENCE, run(settings, Arc::default(), Shutdown::new())).await.unwrap();
}

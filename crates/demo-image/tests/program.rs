//! The program as it is in the image, run directly.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The very file that is embedded.
const PROGRAM: &str = env!("DEMO_PROGRAM");

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    demo(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A child that is gone when the test is.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Running {
        Running(demo(arguments).stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for_port(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "port {port} does not open");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn request(port: u16, head: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{head} HTTP/1.1\r\nHost: x\r\nX-Color: blue\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_is_static() {
    // A dynamic program has an interpreter, whose name would be in the file.
    let program = demo_image::program();
    assert!(!program.windows(14).any(|window| window == b"/lib64/ld-linu"));
    assert_eq!(&program[..4], b"\x7fELF");
}

#[test]
fn every_applet_has_a_link() {
    let archive = demo_image::archive();
    for applet in text(&run(&["applets"])).lines() {
        let name = format!("bin/{applet}\0");
        assert!(archive.windows(name.len()).any(|window| window == name.as_bytes()), "{applet}");
    }
}

#[test]
fn serve_answers_and_ends_gracefully() {
    let (port, other) = (free_port(), free_port());
    let mut server = Running::start(&["serve", "--port", &format!("{port},{other}")]);
    wait_for_port(port);
    wait_for_port(other);
    let answer = request(port, "GET /some/path?x=1");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    for line in ["request: GET /some/path?x=1 HTTP/1.1\n", "header: X-Color: blue\n", "remote: 127.0.0.1:", "pod: "] {
        assert!(answer.contains(line), "{answer}");
    }
    assert!(request(other, "GET /healthz").ends_with("\r\n\r\nok\n"));
    assert!(request(port, "GET /readyz").starts_with("HTTP/1.1 200"));
    assert!(request(port, "POST /readyz?ready=false").ends_with("ready: false\n"));
    assert!(request(port, "GET /readyz").starts_with("HTTP/1.1 503"));
    assert!(request(port, "GET /fail").starts_with("HTTP/1.1 500"));
    let url = format!("http://127.0.0.1:{port}/hostname");
    assert!(run(&["get", &url]).status.success());
    assert!(!run(&["get", &format!("http://127.0.0.1:{port}/fail")]).status.success());

    // The request that is open when SIGTERM comes is still answered.
    let slow = std::thread::spawn(move || request(port, "GET /delay?ms=500"));
    std::thread::sleep(Duration::from_millis(150));
    server.signal("-TERM");
    assert!(slow.join().unwrap().ends_with("waited 500 ms\n"));
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

#[test]
fn serve_exits_as_asked() {
    let port = free_port();
    let mut server = Running::start(&["--port", &port.to_string()]);
    wait_for_port(port);
    request(port, "GET /exit?code=7");
    assert_eq!(server.0.wait().unwrap().code(), Some(7));
}

#[test]
fn ends() {
    assert_eq!(run(&["exit", "42"]).status.code(), Some(42));
    assert_eq!(run(&["true"]).status.code(), Some(0));
    assert_eq!(run(&["false"]).status.code(), Some(1));
    assert_eq!(run(&["no-such"]).status.code(), Some(127));
    assert_eq!(run(&["crash"]).status.signal(), Some(6));
    let mut sleeping = Running::start(&["sleep", "infinity"]);
    std::thread::sleep(Duration::from_millis(200));
    sleeping.signal("-TERM");
    assert_eq!(sleeping.0.wait().unwrap().code(), Some(143));
    // A shell's last command takes its place.
    let mut shell = Running::start(&["sh", "-c", "echo first; sleep 100"]);
    std::thread::sleep(Duration::from_millis(300));
    shell.signal("-TERM");
    assert_eq!(shell.0.wait().unwrap().code(), Some(143));
    let mut stubborn = Running::start(&["ignore-term"]);
    std::thread::sleep(Duration::from_millis(200));
    stubborn.signal("-TERM");
    std::thread::sleep(Duration::from_millis(100));
    assert!(stubborn.0.try_wait().unwrap().is_none());
    stubborn.signal("-KILL");
    assert_eq!(stubborn.0.wait().unwrap().signal(), Some(9));
}

#[test]
fn sockets_echo() {
    let port = free_port();
    let _tcp = Running::start(&["tcp-echo", &port.to_string()]);
    wait_for_port(port);
    let answer = run(&["connect", &format!("127.0.0.1:{port}"), "--send", "over, tcp"]);
    assert!(text(&answer).ends_with("over, tcp\n"), "{answer:?}");
    let _udp = Running::start(&["udp-echo", &port.to_string()]);
    let mut heard = String::new();
    for _ in 0..50 {
        heard =
            text(&run(&["connect", &format!("127.0.0.1:{port}"), "--udp", "--send", "over udp", "--timeout", "0.2"]));
        if !heard.is_empty() {
            break;
        }
    }
    assert_eq!(heard, "over udp\n");
    assert!(!run(&["connect", &format!("127.0.0.1:{}", free_port())]).status.success());
}

#[test]
fn names_are_looked_up() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, sender)) = server.recv_from(&mut buffer) {
            let question = &buffer[12..length];
            let kind = question[question.len() - 3];
            let mut answer = [&buffer[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], question].concat();
            answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 5]);
            match kind {
                1 => answer.extend([0, 4, 10, 1, 2, 3]),
                33 => answer.extend(b"\0\x0c\0\x01\0\x02\x00\x50\x03web\xc0\x0c"),
                12 => answer.extend(b"\0\x06\x03pod\xc0\x0c"),
                _ => {
                    // No such record, but the name exists.
                    answer.truncate(12 + question.len());
                    answer[7] = 0;
                }
            }
            server.send_to(&answer, sender).unwrap();
        }
    });
    let server = format!("127.0.0.1:{port}");
    assert_eq!(text(&run(&["lookup", "web.test.", &server])), "web.test A 10.1.2.3\n");
    assert_eq!(text(&run(&["lookup", "a.b.", &server, "--type", "SRV"])), "a.b SRV 1 2 80 web.a.b\n");
    let reverse = text(&run(&["lookup", "10.1.2.3", &server]));
    assert_eq!(reverse, "3.2.1.10.in-addr.arpa PTR pod.3.2.1.10.in-addr.arpa\n");
}

#[test]
fn the_shell_does_what_examples_want() {
    let folder = tempfile::tempdir().unwrap();
    let check = |script: &str, expected: &str, code: i32| {
        let output = demo(&["sh", "-c", script]).current_dir(folder.path()).env("COLOR", "blue sky").output().unwrap();
        assert_eq!((text(&output).as_str(), output.status.code()), (expected, Some(code)), "{script}: {output:?}");
    };
    check("echo one; echo 'two  words' && false || echo three", "one\ntwo  words\nthree\n", 0);
    check("echo a > file; echo b >> file; cat file", "a\nb\n", 0);
    check("exit 3; echo never", "", 3);
    check("false && echo never; echo $?", "1\n", 0);
    check("echo \"$COLOR\" ${COLOR} x$COLOR", "blue sky blue sky xblue sky\n", 0);
    check("while true; do echo round; exit 4; done", "round\n", 4);
    check("for i in 1 2; do echo n$i; done", "n1\nn2\n", 0);
    check("if test -f file; then echo yes; else echo no; fi; [ -d nothing ] || echo none", "yes\nnone\n", 0);
    check("X=1 env > out; cat nothing 2>/dev/null; echo $?", "1\n", 0);
    check("echo to-errors >&2", "", 0);
    check("echo $(echo inner)", "inner\n", 0);
    check("no-such-command", "", 127);
    check("exec false", "", 1);
    assert!(std::fs::read_to_string(folder.path().join("out")).unwrap().contains("X=1\n"));
    assert_eq!(run(&["sh", "-c", "echo a | cat"]).status.code(), Some(1));
}

#[test]
fn tar_carries_a_folder_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let long = "l".repeat(120);
    std::fs::create_dir_all(source.join("inner")).unwrap();
    std::fs::write(source.join("inner/file"), "x".repeat(1000)).unwrap();
    std::fs::write(source.join(&long), "long").unwrap();
    std::os::unix::fs::symlink("inner/file", source.join("link")).unwrap();
    let packed = demo(&["tar", "cf", "-", "source"]).current_dir(folder.path()).output().unwrap();
    assert!(packed.status.success());
    for (program, name) in [(None, "ours"), (Some("tar"), "theirs")] {
        let target = folder.path().join(name);
        std::fs::create_dir(&target).unwrap();
        let mut command = program.map_or_else(|| demo(&["tar"]), Command::new);
        let mut child = command.args(["-xmf", "-", "-C"]).arg(&target).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&packed.stdout).unwrap();
        assert!(child.wait().unwrap().success(), "{name}");
        assert_eq!(std::fs::read_to_string(target.join("source/link")).unwrap(), "x".repeat(1000));
        assert_eq!(std::fs::read_to_string(target.join("source").join(&long)).unwrap(), "long");
    }
    // What another tar made, with pax headers.
    let theirs =
        Command::new("tar").args(["--format=pax", "-cf", "-", "source"]).current_dir(folder.path()).output().unwrap();
    std::fs::write(folder.path().join("theirs.tar"), theirs.stdout).unwrap();
    let target = folder.path().join("back");
    std::fs::create_dir(&target).unwrap();
    let status =
        demo(&["tar", "-x", "-f"]).arg(folder.path().join("theirs.tar")).current_dir(&target).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read_to_string(target.join("source").join(&long)).unwrap(), "long");
}

#[test]
fn a_name_that_climbs_out_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("victim"), "safe").unwrap();
    let packed = Command::new("tar").args(["-P", "-cf", "-", "../victim"]).current_dir(&inner).output().unwrap();
    std::fs::write(inner.join("climb.tar"), packed.stdout).unwrap();
    std::fs::write(folder.path().join("victim"), "still safe").unwrap();
    let output = demo(&["tar", "-xf", "climb.tar"]).current_dir(&inner).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(std::fs::read_to_string(folder.path().join("victim")).unwrap(), "still safe");
}

#[test]
fn log_writes_numbered_lines() {
    let output = run(&["log", "--rate", "0", "--lines", "3", "--bytes", "20"]);
    assert_eq!(text(&output), "line 1 xxxxxxxxxxxx\nline 2 xxxxxxxxxxxx\nline 3 xxxxxxxxxxxx\n");
}

#[test]
fn it_is_the_command_it_is_called_as() {
    let output = Command::new(PROGRAM).arg0("/bin/echo").args(["hello", "there"]).output().unwrap();
    assert_eq!(text(&output), "hello there\n");
    assert!(text(&run(&["id"])).starts_with("uid="));
    assert!(text(&run(&["stat", "/"])).contains("directory"));
    assert!(text(&run(&["ls", "/proc/self"])).contains("status\n"));
}

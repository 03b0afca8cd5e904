//! The web server: says who it is, can be made unready, slow or failing, and ends when asked, after the last answer.

use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::http::{Request, respond};
use crate::options::Options;
use crate::{Outcome, files, signals};

const DRAIN_SECONDS_MAX: u64 = 25;

#[derive(Default)]
struct State {
    unready: AtomicBool,
    draining: AtomicBool,
    /// Requests that are being answered now.
    open: AtomicUsize,
}

pub fn serve(arguments: &[String]) -> Outcome {
    let mut options = Options::new(arguments);
    let mut ports: Vec<u16> = options.values("--port")?;
    options.positional(0, 0)?;
    if ports.is_empty() {
        let text = std::env::var("PORT").unwrap_or_else(|_| "8080".to_owned());
        for port in text.split(',') {
            ports.push(port.parse().map_err(|_| format!("$PORT: {port:?} is no port"))?);
        }
    }
    run(&ports, answer)
}

/// `http-echo PORT`: every request is answered with itself.
pub fn http_echo(arguments: &[String]) -> Outcome {
    let port = arguments.first().and_then(|text| text.parse().ok()).ok_or("which port?")?;
    run(&[port], |_, request, _, _| {
        let mut text = format!("{}\n", request.line);
        request.headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\n")));
        text.push('\n');
        let mut body = text.into_bytes();
        body.extend_from_slice(&request.body);
        (200, body)
    })
}

/// Listens on both families where the kernel has IPv6.
pub fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("::", port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .map_err(|error| format!("listen on port {port}: {error}").into())
}

type Answer = fn(&State, &Request, SocketAddr, SocketAddr) -> (u16, Vec<u8>);

fn run(ports: &[u16], answer: Answer) -> Outcome {
    let end = signals::Request::listen()?;
    let state = Arc::new(State::default());
    for port in ports {
        let listener = listen(*port)?;
        println!("listening on {}", listener.local_addr()?);
        let state = state.clone();
        thread::spawn(move || accept(listener, state, answer));
    }
    end.wait();
    println!("asked to end, {} requests open", state.open.load(Ordering::SeqCst));
    state.draining.store(true, Ordering::SeqCst);
    // An accepting thread sees that it shall close its listener when one more connection wakes it.
    for port in ports {
        let _ = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], *port)), Duration::from_secs(1));
    }
    let deadline = Instant::now() + Duration::from_secs(DRAIN_SECONDS_MAX);
    while state.open.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(0)
}

fn accept(listener: TcpListener, state: Arc<State>, answer: Answer) {
    for stream in listener.incoming() {
        if state.draining.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            Ok(stream) => {
                let state = state.clone();
                // A thread that cannot be started (pids limit) costs this connection, not the server.
                let _ = thread::Builder::new().spawn(move || connection(stream, &state, answer));
            }
            Err(error) => {
                eprintln!("accept: {error}");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn connection(stream: TcpStream, state: &State, answer: Answer) {
    let (Ok(local), Ok(remote), Ok(mut to)) = (stream.local_addr(), stream.peer_addr(), stream.try_clone()) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let mut from = BufReader::new(stream);
    while let Some(request) = Request::read(&mut from) {
        state.open.fetch_add(1, Ordering::SeqCst);
        let (status, body) = answer(state, &request, canonical(local), canonical(remote));
        let keep_alive = request.keep_alive && !state.draining.load(Ordering::SeqCst);
        let sent = respond(&mut to, status, &body, keep_alive);
        state.open.fetch_sub(1, Ordering::SeqCst);
        if sent.is_err() || !keep_alive {
            return;
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn answer(state: &State, request: &Request, local: SocketAddr, remote: SocketAddr) -> (u16, Vec<u8>) {
    let (status, text) = match request.path.as_str() {
        "/healthz" => (200, "ok\n".to_owned()),
        "/readyz" if request.method == "POST" => {
            let ready = request.parameter("ready").map(str::to_owned);
            let ready = ready.unwrap_or_else(|| String::from_utf8_lossy(&request.body).trim().to_owned());
            match ready.as_str() {
                "true" | "1" | "on" => state.unready.store(false, Ordering::SeqCst),
                "false" | "0" | "off" => state.unready.store(true, Ordering::SeqCst),
                // Without a word it is switched over.
                _ => drop(state.unready.fetch_xor(true, Ordering::SeqCst)),
            }
            (200, format!("ready: {}\n", !state.unready.load(Ordering::SeqCst)))
        }
        "/readyz" if state.unready.load(Ordering::SeqCst) || state.draining.load(Ordering::SeqCst) => {
            (503, "not ready\n".to_owned())
        }
        "/readyz" => (200, "ok\n".to_owned()),
        "/env" => (200, files::environment()),
        "/hostname" => (200, format!("{}\n", files::host_name())),
        "/fail" => (500, "failed as asked\n".to_owned()),
        "/exit" => {
            let code = request.parameter("code").and_then(|text| text.parse().ok()).unwrap_or(0);
            println!("asked to exit with {code}");
            // The answer leaves first.
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                std::process::exit(code)
            });
            (200, format!("exit {code}\n"))
        }
        "/delay" => {
            let milliseconds = request.parameter("ms").and_then(|text| text.parse().ok()).unwrap_or(1000);
            thread::sleep(Duration::from_millis(milliseconds));
            (200, format!("waited {milliseconds} ms\n"))
        }
        _ => (200, who(request, local, remote)),
    };
    (status, text.into_bytes())
}

fn who(request: &Request, local: SocketAddr, remote: SocketAddr) -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut text = format!("pod: {}\n", variable("POD_NAME").unwrap_or_else(files::host_name));
    let namespace = variable("POD_NAMESPACE")
        .or_else(|| std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace").ok());
    for (name, value) in [("namespace", namespace), ("node", variable("NODE_NAME"))] {
        if let Some(value) = value {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text.push_str(&format!("address: {local}\nremote: {remote}\nrequest: {}\n", request.line));
    request.headers.iter().for_each(|(name, value)| text.push_str(&format!("header: {name}: {value}\n")));
    text
}

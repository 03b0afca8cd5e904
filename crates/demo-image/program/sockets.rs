//! Plain TCP and UDP: echo servers, and a client that says whether a port answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::error::Result;
use crate::options::Options;
use crate::{Outcome, dns, http, serve, signals};

pub fn tcp_echo(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    let listener = serve::listen(port(arguments)?)?;
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let _ = thread::Builder::new().spawn(move || {
            let (mut from, mut to) = (&stream, &stream);
            let _ = std::io::copy(&mut from, &mut to);
        });
    }
    Ok(0)
}

pub fn udp_echo(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    let port = port(arguments)?;
    let socket = UdpSocket::bind(("::", port))
        .or_else(|_| UdpSocket::bind(("0.0.0.0", port)))
        .map_err(|error| format!("listen on port {port}: {error}"))?;
    let mut buffer = vec![0; 65536];
    loop {
        // An unreachable earlier sender is reported by the next receive; it is not ours to care for.
        if let Ok((length, sender)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], sender);
        }
    }
}

/// Succeeds when the port can be reached (TCP), or answers (UDP). With `--send` the answer is printed.
pub fn connect(arguments: &[String]) -> Outcome {
    let mut options = Options::new(arguments);
    let timeout = Duration::from_secs_f64(options.value("--timeout")?.unwrap_or(5.0));
    let udp = options.flag("--udp");
    let send: Option<String> = options.value("--send")?;
    let target = options.positional(1, 1)?.remove(0);
    let (host, port) = http::split_port(&target, 0)?;
    if port == 0 {
        return Err("HOST:PORT is wanted".into());
    }
    let problem = |error: std::io::Error| format!("{target}: {error}");
    let mut answer = Vec::new();
    if udp {
        let address = SocketAddr::new(dns::resolve(&host)?[0], port);
        let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(local).map_err(problem)?;
        socket.connect(address).map_err(problem)?;
        socket.set_read_timeout(Some(timeout)).map_err(problem)?;
        socket.send(send.as_deref().unwrap_or("hello").as_bytes()).map_err(problem)?;
        answer.resize(65536, 0);
        let length = socket.recv(&mut answer).map_err(problem)?;
        answer.truncate(length);
    } else {
        let mut stream = dns::connect(&host, port, timeout)?;
        println!(
            "connected to {} from {}",
            stream.peer_addr().map_err(problem)?,
            stream.local_addr().map_err(problem)?
        );
        if let Some(text) = &send {
            stream.set_read_timeout(Some(timeout)).map_err(problem)?;
            stream.write_all(text.as_bytes()).map_err(problem)?;
            stream.shutdown(Shutdown::Write).map_err(problem)?;
            stream.read_to_end(&mut answer).map_err(problem)?;
        }
    }
    if udp || send.is_some() {
        println!("{}", String::from_utf8_lossy(&answer));
    }
    Ok(0)
}

fn port(arguments: &[String]) -> Result<u16> {
    arguments.first().and_then(|text| text.parse().ok()).ok_or_else(|| "which port?".into())
}

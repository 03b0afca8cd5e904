//! Who asks: threads with one socket each, which keep so many questions on their way.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::report::Latencies;

#[derive(Clone, Copy)]
pub struct Asking {
    pub askers: usize,
    pub window: usize,
    /// The type of the records.
    pub kind: u16,
}

/// A question that is not answered in this time was lost.
const LOST: Duration = Duration::from_millis(500);
/// One latency in so many is kept.
const SAMPLE: usize = 8;

/// How many answers came, and how long they took.
pub fn ask(to: SocketAddr, names: &[String], asking: Asking, time: Duration) -> anyhow::Result<(usize, Latencies)> {
    let questions: Vec<Vec<u8>> = names.iter().map(|name| question(name, asking.kind)).collect();
    let (mut total, mut latencies) = (0, Vec::new());
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let (questions, window) = (&questions, asking.window);
        let askers: Vec<_> = (0..asking.askers)
            .map(|number| scope.spawn(move || keep_asking(to, questions, number * 1009, window, time)))
            .collect();
        for asker in askers {
            let (answers, took) = asker.join().map_err(|_| anyhow::anyhow!("an asker panicked"))??;
            total += answers;
            latencies.extend(took);
        }
        Ok(())
    })?;
    Ok((total, Latencies::new(latencies)))
}

fn keep_asking(
    to: SocketAddr,
    questions: &[Vec<u8>],
    mut next: usize,
    window: usize,
    time: Duration,
) -> anyhow::Result<(usize, Vec<Duration>)> {
    let socket = connect(to)?;
    let (mut buffer, mut packet) = ([0; 2000], Vec::new());
    let mut sent_at = vec![Instant::now(); window];
    // The number of a question is its place in the window.
    let mut send = |place: usize, sent_at: &mut [Instant]| -> anyhow::Result<()> {
        // A step that meets all of them, in no order that helps.
        next = (next + 7919) % questions.len();
        packet.clear();
        packet.extend_from_slice(&questions[next]);
        packet[..2].copy_from_slice(&(place as u16).to_be_bytes());
        sent_at[place] = Instant::now();
        socket.send(&packet)?;
        Ok(())
    };
    for place in 0..window {
        send(place, &mut sent_at)?;
    }
    let (until, mut answers, mut latencies, mut lost) = (Instant::now() + time, 0, Vec::new(), 0);
    while Instant::now() < until {
        match socket.recv(&mut buffer) {
            Ok(length) if length >= 12 => {
                let place = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
                let code = buffer[3] & 0xf;
                if place >= window || (code != 0 && code != 3) {
                    bail!("an answer with code {code}");
                }
                answers += 1;
                if answers % SAMPLE == 0 {
                    latencies.push(sent_at[place].elapsed());
                }
                send(place, &mut sent_at)?;
            }
            Ok(_) => bail!("an answer that is none"),
            Err(_) => {
                lost += 1;
                (0..window).try_for_each(|place| send(place, &mut sent_at))?;
            }
        }
    }
    if lost > 3 {
        bail!("{lost} times nothing came back");
    }
    Ok((answers, latencies))
}

/// Whether a name has an address.
pub fn is_known(to: SocketAddr, name: &str) -> bool {
    let asked = connect(to).and_then(|socket| {
        socket.send(&question(name, 1))?;
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer)?;
        Ok(length > 12 && buffer[7] == 1)
    });
    asked.unwrap_or(false)
}

fn connect(to: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("a socket")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(LOST))?;
    Ok(socket)
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut packet = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

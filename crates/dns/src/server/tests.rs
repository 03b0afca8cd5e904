//! Real sockets on the loopback address.

use rand::{Rng, SeedableRng};

use super::*;
use crate::wire::text::{ask, describe};
use crate::zone::tests::{cluster, resolver};

const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    wanted: watch::Sender<Vec<SocketAddr>>,
    bound: watch::Receiver<Vec<SocketAddr>>,
    address: SocketAddr,
    _stop: tokio_util::sync::DropGuard,
}

async fn start() -> Running {
    let address = free_address().await;
    let server = Server::new(resolver(cluster()), vec!["203.0.113.0/24".parse().unwrap()]);
    let ((wanted, wants), (sender, bound)) = (watch::channel(vec![address]), watch::channel(Vec::new()));
    let shutdown = Shutdown::new();
    tokio::spawn(server.run_on_own_thread(wants, sender, shutdown.clone()));
    let mut running = Running { wanted, bound, address, _stop: shutdown.drop_guard() };
    running.until_bound(&[address]).await;
    running
}

impl Running {
    async fn until_bound(&mut self, addresses: &[SocketAddr]) {
        let seen = self.bound.wait_for(|bound| bound == addresses);
        tokio::time::timeout(PATIENCE, seen).await.expect("in time").expect("it runs");
    }
}

/// A port that is free for datagrams and streams.
async fn free_address() -> SocketAddr {
    loop {
        let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = datagrams.local_addr().unwrap();
        if TcpListener::bind(address).await.is_ok() {
            return address;
        }
    }
}

async fn by_datagram(to: SocketAddr) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&ask("web.shop.svc.cluster.local", "A", None), to).await.unwrap();
    let mut buffer = [0; 2000];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await.expect("an answer").unwrap();
    describe(&buffer[..length])
}

async fn read_answer(stream: &mut TcpStream) -> std::io::Result<String> {
    let read = async {
        let mut packet = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut packet).await?;
        Ok(describe(&packet))
    };
    tokio::time::timeout(PATIENCE, read).await.expect("an answer, or the end")
}

fn framed(packet: &[u8]) -> Vec<u8> {
    [&(packet.len() as u16).to_be_bytes(), packet].concat()
}

#[tokio::test]
async fn hostile_datagrams_leave_it_answering() {
    let running = start().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut random = rand::rngs::SmallRng::seed_from_u64(3);
    for _ in 0..2000 {
        let mut packet = vec![0; random.random_range(0..600)];
        random.fill(&mut packet[..]);
        // The system may have no room for it just now.
        let _ = socket.try_send_to(&packet, running.address);
    }
    assert!(by_datagram(running.address).await.contains("10.43.0.20"));
}

#[test]
fn names_are_answered_while_all_workers_are_busy() {
    // One worker, and this test on it: nothing else of this runtime runs until the answer is there.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = start().await;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&ask("web.shop.svc.cluster.local", "A", None), running.address).unwrap();
        let mut buffer = [0; 2000];
        let length = socket.recv(&mut buffer).expect("an answer");
        assert!(describe(&buffer[..length]).contains("10.43.0.20"));
    });
}

#[tokio::test]
async fn a_stream_takes_one_question_after_the_other() {
    let running = start().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let questions =
        ["web.shop", "db-0.db.shop"].map(|name| framed(&ask(&format!("{name}.svc.cluster.local"), "A", None)));
    stream.write_all(&questions.concat()).await.unwrap();
    assert!(read_answer(&mut stream).await.unwrap().contains("10.43.0.20"));
    assert!(read_answer(&mut stream).await.unwrap().contains("10.42.0.5"));
    // Nonsense is refused; what cannot even be refused ends the stream, and so does what is too large.
    stream.write_all(&[framed(&[9; 30]), framed(&[0; 3])].concat()).await.unwrap();
    assert!(read_answer(&mut stream).await.unwrap().contains("NOTIMP"));
    assert!(read_answer(&mut stream).await.is_err());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(&[0xff, 0xff, 0, 0]).await.unwrap();
    assert!(read_answer(&mut stream).await.is_err());
    assert!(by_datagram(running.address).await.contains("10.43.0.20"));
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let running = start().await;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS_MAX_EACH {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(&framed(&ask("web.shop.svc.cluster.local", "A", None))).await.unwrap();
        assert!(read_answer(&mut stream).await.is_ok());
        streams.push(stream);
    }
    let mut more = TcpStream::connect(running.address).await.unwrap();
    let _ = more.write_all(&framed(&ask("web.shop.svc.cluster.local", "A", None))).await;
    assert!(read_answer(&mut more).await.is_err());
    drop(streams);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut again = TcpStream::connect(running.address).await.unwrap();
        let _ = again.write_all(&framed(&ask("web.shop.svc.cluster.local", "A", None))).await;
        if read_answer(&mut again).await.is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "places come free again");
    }
}

#[tokio::test]
async fn it_follows_its_addresses_and_waits_for_a_port() {
    let mut running = start().await;
    // An address that no device has yet.
    let later: SocketAddr = "192.0.2.77:10053".parse().unwrap();
    let (first, second) = (running.address, free_address().await);
    let taken = TcpListener::bind(second).await.unwrap();
    running.wanted.send_replace(vec![later, second]);
    running.until_bound(&[later]).await;
    // Its sockets close as soon as what reads from them has ended.
    let deadline = Instant::now() + Duration::from_secs(5);
    while bind(first).is_err() {
        assert!(Instant::now() < deadline, "the old one is free again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(taken);
    running.until_bound(&[second, later]).await;
    assert!(by_datagram(second).await.contains("10.43.0.20"));
}

#[tokio::test]
async fn strangers_are_not_answered() {
    let server = Server::new(resolver(cluster()), vec!["203.0.113.0/24".parse().unwrap()]);
    for (peer, expected) in [
        ("10.42.0.9", true),
        ("192.168.1.1", true),
        ("100.64.0.1", true),
        ("127.0.0.1", true),
        ("203.0.113.7", true),
        ("fd00::1", true),
        ("100.128.0.1", false),
        ("198.51.100.1", false),
        ("2001:db8::1", false),
    ] {
        assert_eq!(server.may_ask(peer.parse().unwrap()), expected, "{peer}");
    }
}

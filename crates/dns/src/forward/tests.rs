//! Against resolvers that are slow, dead, lying or brief, on the loopback address.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::*;
use crate::wire::Name;
use crate::wire::text::{ask, describe};

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Answers under another number first, then with another question, then rightly.
    Confused,
    /// Answers only so.
    Lying,
    Silent,
    Failing,
    /// Only the header and the question, and the rest by TCP.
    Brief,
    /// Says that it does not know EDNS.
    Old,
    Denying,
}

struct Fake {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    async fn start(manner: Manner, answer: [u8; 4]) -> Fake {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().unwrap();
        let listener = TcpListener::bind(address).await.expect("the same port");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 2000];
            loop {
                let (length, peer) = socket.recv_from(&mut buffer).await.expect("a question");
                count.fetch_add(1, Ordering::SeqCst);
                for reply in replies(manner, &buffer[..length], answer) {
                    socket.send_to(&reply, peer).await.expect("it is sent");
                }
            }
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut packet = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut packet).await.unwrap();
                let reply = reply(&packet, 0, Some(answer));
                stream.write_all(&[&(reply.len() as u16).to_be_bytes(), &reply[..]].concat()).await.unwrap();
            }
        });
        Fake { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// The question again, with a code and an address or an SOA record, and an OPT record as a good resolver adds one.
fn reply(packet: &[u8], code: u8, address: Option<[u8; 4]>) -> Vec<u8> {
    let has_opt = packet[11] == 1;
    let end = packet.len() - if has_opt { 11 } else { 0 };
    let mut reply = packet[..end].to_vec();
    reply[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    match address {
        Some(address) => {
            reply[7] = 1;
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 2, 0, 0, 4]);
            reply.extend(address);
        }
        None => {
            reply[9] = 1;
            reply.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 2, 0, 0, 22, 0, 0]);
            reply.extend([0; 16]);
            reply.extend(7_u32.to_be_bytes());
        }
    }
    if has_opt {
        reply.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    reply
}

fn replies(manner: Manner, packet: &[u8], address: [u8; 4]) -> Vec<Vec<u8>> {
    let good = reply(packet, 0, Some(address));
    let mut wrong_number = reply(packet, 0, Some([6, 6, 6, 6]));
    wrong_number[0] ^= 0xff;
    let mut wrong_question = reply(packet, 0, Some([6, 6, 6, 6]));
    wrong_question[13] ^= 1;
    match manner {
        Manner::Good => vec![good],
        Manner::Confused => vec![wrong_number, wrong_question, good[..20].to_vec(), vec![1], good],
        Manner::Lying => vec![wrong_number, wrong_question],
        Manner::Silent => vec![],
        Manner::Failing => vec![reply(packet, 2, Some(address))],
        Manner::Brief => {
            let mut brief = packet.to_vec();
            brief[2..4].copy_from_slice(&[0x83, 0x80]);
            vec![brief]
        }
        Manner::Old if packet[11] == 1 => vec![[&packet[..2], &[0x81, 0x81], &[0; 8]].concat()],
        Manner::Old => vec![good],
        Manner::Denying => vec![reply(packet, 3, None)],
    }
}

fn question(name: &str) -> Question {
    Question { name: Name::parse(name).expect("a name"), kind: 1, dnssec_ok: false, checking_disabled: false }
}

fn forwarder() -> Arc<Forwarder> {
    Forwarder::with_timeout(Arc::new(Metrics::default()), Duration::from_millis(500))
}

/// What the asker is told, as text.
async fn told(forwarder: &Arc<Forwarder>, name: &str, upstreams: &[&Fake]) -> String {
    let upstreams: Vec<SocketAddr> = upstreams.iter().map(|fake| fake.address).collect();
    let asked = tokio::time::timeout(PATIENCE, forwarder.ask(question(name), &upstreams)).await.expect("it ends");
    match asked {
        Ok(kept) => text(name, &kept),
        Err(failure) => format!("{failure:?}"),
    }
}

fn text(name: &str, kept: &Kept) -> String {
    let packet = ask(name, "A", None);
    let Ok(query) = crate::wire::read_query(&packet) else { panic!("no question") };
    let mut out = Vec::new();
    query.relay(&mut out, &kept.relayed, Some(9), false);
    let text = describe(&out);
    text.lines().filter(|line| !line.starts_with('?')).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn a_good_resolver_is_asked_once_and_remembered() {
    let (forwarder, good) = (forwarder(), Fake::start(Manner::Good, [192, 0, 2, 1]).await);
    let now = Instant::now();
    assert!(forwarder.cached(&question("a.example"), now).is_none());
    // Letters of the answer are those of the question, also from memory.
    assert_eq!(told(&forwarder, "A.example", &[&good]).await, "qr rd ra NOERROR; = A.example. 9 A 192.0.2.1");
    let now = Instant::now();
    let kept = forwarder.cached(&question("a.example"), now).expect("it is remembered");
    assert!((20..=30).contains(&kept.seconds_left(now)));
    assert_eq!(text("a.eXample", &kept), "qr rd ra NOERROR; = a.eXample. 9 A 192.0.2.1");
    assert_eq!(good.asked(), 1);
    forwarder.forget();
    assert!(forwarder.cached(&question("a.example"), now).is_none());
}

#[tokio::test]
async fn a_denial_is_remembered_as_long_as_it_says() {
    let (forwarder, denying) = (forwarder(), Fake::start(Manner::Denying, [0; 4]).await);
    let told = told(&forwarder, "no.example", &[&denying]).await;
    assert!(told.starts_with("qr rd ra NXDOMAIN; @ no.example. 9 SOA"), "{told}");
    let now = Instant::now();
    let kept = forwarder.cached(&question("no.example"), now).expect("it is remembered");
    assert!(kept.seconds_left(now) <= 7 && kept.is_denial());
}

#[tokio::test]
async fn what_answers_another_question_is_no_answer() {
    let (confused, lying) =
        (Fake::start(Manner::Confused, [192, 0, 2, 1]).await, Fake::start(Manner::Lying, [0; 4]).await);
    assert_eq!(told(&forwarder(), "a.example", &[&confused]).await, "qr rd ra NOERROR; = a.example. 9 A 192.0.2.1");
    assert_eq!(told(&forwarder(), "a.example", &[&lying]).await, "Unanswered");
    assert_eq!(lying.asked(), 2, "a single resolver is asked again");
}

#[tokio::test]
async fn the_next_is_asked_when_one_is_silent_or_fails() {
    let silent = Fake::start(Manner::Silent, [0; 4]).await;
    let failing = Fake::start(Manner::Failing, [0; 4]).await;
    let good = Fake::start(Manner::Good, [192, 0, 2, 1]).await;
    let forwarder = forwarder();
    for name in ["a.example", "b.example", "c.example", "d.example"] {
        assert!(told(&forwarder, name, &[&silent, &failing, &good]).await.contains("192.0.2.1"));
    }
    assert_eq!(silent.asked(), 2, "after two silences it is asked last");
    assert_eq!(failing.asked(), 4, "it does answer");
    // Its failure is handed on when nobody knows better.
    assert!(told(&forwarder, "e.example", &[&failing, &silent]).await.starts_with("qr rd ra SERVFAIL"));
    assert_eq!(told(&forwarder, "f.example", &[]).await, "Unanswered");
}

#[tokio::test]
async fn a_port_that_nobody_listens_at_is_passed_over_at_once() {
    let good = Fake::start(Manner::Good, [192, 0, 2, 1]).await;
    let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let forwarder = Forwarder::with_timeout(Arc::new(Metrics::default()), PATIENCE);
    let began = Instant::now();
    assert!(forwarder.ask(question("a.example"), &[dead, good.address]).await.is_ok());
    assert!(began.elapsed() < TOTAL_TIMEOUT);
}

#[tokio::test]
async fn a_brief_answer_is_fetched_whole_and_old_resolvers_are_understood() {
    let (brief, old) =
        (Fake::start(Manner::Brief, [192, 0, 2, 1]).await, Fake::start(Manner::Old, [192, 0, 2, 2]).await);
    assert_eq!(told(&forwarder(), "a.example", &[&brief]).await, "qr rd ra NOERROR; = a.example. 9 A 192.0.2.1");
    assert_eq!(told(&forwarder(), "a.example", &[&old]).await, "qr rd ra NOERROR; = a.example. 9 A 192.0.2.2");
}

#[tokio::test]
async fn one_question_is_asked_once_for_all_who_wait() {
    let (forwarder, silent) = (forwarder(), Fake::start(Manner::Silent, [0; 4]).await);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..WAITING_MAX + 50 {
        let (forwarder, upstream) = (forwarder.clone(), silent.address);
        asking.spawn(async move { forwarder.ask(question("a.example"), &[upstream]).await.err() });
    }
    let mut outcomes: HashMap<String, usize> = HashMap::new();
    while let Some(outcome) = asking.join_next().await {
        *outcomes.entry(format!("{:?}", outcome.unwrap().unwrap())).or_default() += 1;
    }
    assert_eq!(outcomes, [("Unanswered".to_owned(), WAITING_MAX), ("Busy".to_owned(), 50)].into());
    assert_eq!(silent.asked(), 2);
    assert!(forwarder.asked.lock().is_empty());
}

#[tokio::test]
async fn nobody_leads_us_back_to_ourselves() {
    let (forwarder, good) = (forwarder(), Fake::start(Manner::Good, [192, 0, 2, 1]).await);
    forwarder.set_own(vec![good.address.ip()]);
    assert_eq!(told(&forwarder, "a.example", &[&good]).await, "Unanswered");
    assert_eq!(good.asked(), 0);
}

#[tokio::test]
async fn nobody_waits_long_for_resolvers_that_were_silent_before() {
    let (forwarder, silent) = (Forwarder::new(Arc::new(Metrics::default())), Fake::start(Manner::Silent, [0; 4]).await);
    let began = Instant::now();
    assert_eq!(told(&forwarder, "a.example", &[&silent]).await, "Unanswered");
    assert!(began.elapsed() < TOTAL_TIMEOUT + ATTEMPT_TIMEOUT, "{:?}", began.elapsed());
    for name in ["b.example", "c.example", "b.example"] {
        let began = Instant::now();
        assert_eq!(told(&forwarder, name, &[&silent]).await, "Unanswered");
        assert!(began.elapsed() < ATTEMPT_TIMEOUT, "{:?}", began.elapsed());
    }
    // The questions go on, so that the first answer is noticed.
    let good = Fake::start(Manner::Good, [192, 0, 2, 1]).await;
    assert!(told(&forwarder, "d.example", &[&silent, &good]).await.contains("192.0.2.1"));
}

//! What comes from a network: questions for the DNS, frames of SPDY and WebSocket, certificates, kubeconfigs.

use bytes::{BufMut, Bytes, BytesMut};
use dns::wire;
use kubelet::server::{spdy, websocket};

fn question(name: &str, kind: u16, edns: Option<bool>) -> Vec<u8> {
    wire::question(7, &wire::Name::parse(name).expect("a name"), kind, false, edns)
}

#[test]
fn a_question_is_answered_with_its_id_and_in_its_size() {
    let examples = [
        question("kubernetes.default.svc.cluster.local", wire::kind::A, None),
        question("a.b.c.example.com", wire::kind::SRV, Some(true)),
        question("4.3.2.1.in-addr.arpa", wire::kind::PTR, Some(false)),
    ];
    assert!(examples.iter().all(|example| wire::read_query(example).is_ok()));
    fuzz::bytes("dns", &examples, &[b"\xc0\x0c", b"\x00", b"\x3f", b"\xff\xff", b"\x00\x29"], |packet| {
        let mut answer = Vec::new();
        match wire::read_query(packet) {
            Ok(query) => query.reply(&mut answer, wire::Code::NxDomain),
            Err(refusal) => wire::refusal(&mut answer, packet, refusal),
        }
        // Nothing is answered to what has no id, or is an answer itself; otherwise it has the question's id and says that it answers.
        if !answer.is_empty() {
            assert_eq!(answer[..2], packet[..2]);
            assert!(
                answer[2] & 0x80 != 0 && answer.len() <= packet.len().max(12) + 64,
                "{} for {}",
                answer.len(),
                packet.len()
            );
        }
        if let Some(name) = wire::Name::read(packet, 12) {
            assert!(name.bytes().len() <= 255);
        }
        // An answer from outside is only taken for the question that was asked.
        let asked = wire::Name::parse("a.b.c.example.com").expect("a name");
        let _ = wire::read_response(packet, 7, &asked, 1);
    });
}

/// All frames of some bytes, however they are cut.
fn spdy_frames(input: &[u8], pieces: usize) -> (Vec<spdy::Frame>, Option<spdy::FrameError>) {
    let (mut decoder, mut found) = (spdy::Decoder::default(), Vec::new());
    for piece in input.chunks(pieces.max(1)) {
        decoder.buffer().put_slice(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

#[test]
fn spdy_frames_do_not_depend_on_how_bytes_come() {
    let headers = spdy::Headers(vec![("streamtype".into(), "stdout".into()), ("port".into(), "80".into())]);
    let frames = [
        spdy::Frame::SynStream { id: 1, fin: false, unidirectional: false, headers: headers.clone() },
        spdy::Frame::SynReply { id: 1, fin: true, headers },
        spdy::Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"some data") },
        spdy::Frame::Settings(vec![(7, 65536)]),
        spdy::Frame::Ping(5),
        spdy::Frame::WindowUpdate { id: 1, delta: 100 },
        spdy::Frame::GoAway { last: 1, status: 0 },
        spdy::Frame::RstStream { id: 1, status: 9 },
    ];
    let (mut encoder, mut all) = (spdy::Encoder::default(), BytesMut::new());
    frames.iter().for_each(|frame| encoder.encode(frame, &mut all));
    assert_eq!(spdy_frames(&all, 3).0, frames);
    fuzz::bytes(
        "spdy",
        &[all.to_vec()],
        &[b"\x80\x03\x00\x01", b"\x80\x03\x00\x08", b"\x80\x03\x00\x04", b"\x00\xff\xff\xff"],
        |input| {
            let whole = spdy_frames(input, input.len());
            assert_eq!(whole, spdy_frames(input, 1));
            let (mut encoder, mut written) = (spdy::Encoder::default(), BytesMut::new());
            whole.0.iter().for_each(|frame| encoder.encode(frame, &mut written));
            let named = |frames: &[spdy::Frame]| format!("{frames:?}").to_ascii_lowercase();
            assert_eq!(
                named(&spdy_frames(&written, 100).0),
                named(&whole.0),
                "what we write we read, with names in lower case"
            );
        },
    );
}

fn messages(input: &[u8], pieces: usize) -> (Vec<websocket::Message>, Option<websocket::FrameError>) {
    let (mut decoder, mut found) = (websocket::Decoder::default(), Vec::new());
    for piece in input.chunks(pieces.max(1)) {
        decoder.buffer().put_slice(piece);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

#[test]
fn websocket_messages_do_not_depend_on_how_bytes_come() {
    let frame = |first: u8, payload: &[u8]| {
        let mut out = vec![first, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        out.extend(payload);
        out
    };
    let example = [
        frame(0x82, b"\x01data"),
        frame(0x02, b"par"),
        frame(0x89, b"ping"),
        frame(0x80, b"ts"),
        frame(0x88, b"\x03\xe8bye"),
    ]
    .concat();
    fuzz::bytes("websocket", &[example], &[b"\x82\xfe\xff\xff", b"\x82\xff", b"\x80", b"\x89\x80", b"\x88"], |input| {
        let whole = messages(input, input.len());
        assert_eq!(whole, messages(input, 1));
        for message in &whole.0 {
            let payload = match message {
                websocket::Message::Ping(bytes) | websocket::Message::Pong(bytes) => bytes.len(),
                websocket::Message::Close(_, reason) => reason.len().min(123),
                websocket::Message::Text(_) | websocket::Message::Binary(_) => 0,
            };
            assert!(payload <= 125, "frames of the connection itself are short (RFC 6455, 5.5)");
        }
    });
}

#[test]
fn nobody_is_known_by_a_certificate_that_was_changed() {
    let now = jiff::Timestamp::now();
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = kube_apiserver::pki::Authority::create("kubernetes", key, now).expect("an authority");
    let request = kube_apiserver::pki::Request {
        common_name: "ada",
        organization: Some("dev"),
        host_names: Vec::new(),
        addresses: Vec::new(),
        usage: kube_apiserver::pki::Usage::Client,
    };
    let pair = authority.issue(&request, now).expect("a certificate");
    let chain = rustls::pki_types::CertificateDer::from(der(&pair.certificate_pem));
    let authorities =
        kube_apiserver::pki::ClientAuthorities::new(Some(&authority.certificate_pem), None).expect("authorities");
    let known = authorities.identify(std::slice::from_ref(&chain), now);
    assert!(known.is_some_and(|peer| peer.signer == kube_apiserver::pki::Signer::Cluster));
    fuzz::bytes(
        "certificate",
        &[chain.to_vec()],
        &[b"\x30\x82", b"\x0c\x03ada", b"\x0c\x0esystem:masters", b"\x02\x01"],
        |input| {
            let changed = rustls::pki_types::CertificateDer::from(input.to_vec());
            let found = authorities.identify(&[changed], now);
            // Nobody who is believed; the server answers such a client with 401.
            let believed = found.is_some_and(|peer| peer.signer != kube_apiserver::pki::Signer::Unknown);
            assert!(!believed || input.starts_with(&chain), "somebody is believed");
        },
    );
}

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate").to_vec()
}

#[test]
fn kubeconfigs_are_read_as_yaml_is() {
    let example = "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: 'https://127.0.0.1:6443'}\nusers:\n- name: u\n  user: {token: t}\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n";
    fuzz::text(
        "kubeconfig",
        &[example],
        &["\n", "- ", "name: ", "cluster:", "user:", "context:", "{", "}", "null", "x: *a", "&a "],
        |text| {
            let (Ok(theirs), Ok(ours)) =
                (kube::config::Kubeconfig::from_yaml(text), machinery::codec::decode_yaml(text.as_bytes()))
            else {
                return;
            };
            let current = ours.value["current-context"].as_str();
            if let (Some(theirs), Some(ours)) = (&theirs.current_context, current) {
                assert_eq!(theirs, ours);
            }
        },
    );
}

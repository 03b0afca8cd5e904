//! A folder from first start to renewal, and a real handshake across a renewal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn options() -> Options {
    Options {
        host_name: "harbour".into(),
        service_addresses: vec!["10.43.0.1".parse().unwrap()],
        extra_names: vec!["api.example.com".into()],
        ..Options::default()
    }
}

/// Of a cluster of its own.
pub(crate) fn credentials() -> Credentials {
    let folder = tempfile::tempdir().unwrap();
    ensure(folder.path(), &options(), now()).unwrap().credentials(true)
}

fn days(count: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * count)
}

/// Certificates are compared by the clock of the TLS library, so these tests live in the present.
fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

#[test]
fn a_first_start_makes_everything_and_a_second_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data/tls");
    let first = ensure(&dir, &options(), now()).unwrap();
    let second = ensure(&dir, &options(), now()).unwrap();
    assert_eq!(first.cluster_ca.certificate_pem, second.cluster_ca.certificate_pem);
    assert_eq!(first.service_account_key_pem, second.service_account_key_pem);
    for leaf in Leaf::ALL {
        assert_eq!(first.leaf(leaf).certificate_pem, second.leaf(leaf).certificate_pem, "{leaf:?}");
        assert_eq!(first.leaf(leaf).not_after, second.leaf(leaf).not_after, "{leaf:?}");
    }
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if name.ends_with(".key") { 0o600 } else { 0o644 }, "{name}");
        assert!(!name.ends_with(".new"), "{name}");
    }
}

#[test]
fn leaves_are_issued_again_when_due() {
    let folder = tempfile::tempdir().unwrap();
    let start = now();
    let material = ensure(folder.path(), &options(), start).unwrap();
    let check = |what: &str, options: &Options, at: Timestamp, expected: &[Leaf]| {
        let renewed = renew_if_needed(&material, options, at).unwrap();
        let changed = |leaf: &Leaf| {
            renewed.as_ref().is_some_and(|new| new.leaf(*leaf).certificate_pem != material.leaf(*leaf).certificate_pem)
        };
        let found: Vec<Leaf> = Leaf::ALL.into_iter().filter(changed).collect();
        assert_eq!(found, expected, "{what}");
    };
    check("the same day", &options(), start, &[]);
    check("two thirds are not over", &options(), start + days(240), &[]);
    check("less than a third is left", &options(), start + days(245), &Leaf::ALL);
    check("long after the end", &options(), start + days(800), &Leaf::ALL);
    check("a clock that was set back", &options(), start - days(2), &Leaf::ALL);
    let mut more = options();
    more.extra_addresses.push("192.0.2.7".parse().unwrap());
    check("another address", &more, start, &[Leaf::Serving]);
    check("another host name", &Options { host_name: "quay".into(), ..options() }, start, &[Leaf::Serving]);
    assert!(material.next_renewal() > start + days(240) && material.next_renewal() < start + days(245));
}

#[test]
fn broken_leaves_are_replaced_but_a_broken_authority_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let material = ensure(dir, &options(), now()).unwrap();

    fs::remove_file(dir.join("admin.key")).unwrap();
    fs::write(dir.join("scheduler.crt"), "nonsense").unwrap();
    fs::copy(dir.join("controller-manager.key"), dir.join("apiserver.key")).unwrap();
    let repaired = ensure(dir, &options(), now()).unwrap();
    for leaf in [Leaf::Admin, Leaf::Scheduler, Leaf::Serving] {
        assert_ne!(repaired.leaf(leaf).certificate_pem, material.leaf(leaf).certificate_pem, "{leaf:?}");
    }
    assert_eq!(
        repaired.leaf(Leaf::ControllerManager).certificate_pem,
        material.leaf(Leaf::ControllerManager).certificate_pem
    );

    // An operator's own CA: everything below it is issued again.
    let other = tempfile::tempdir().unwrap();
    ensure(other.path(), &options(), now()).unwrap();
    for file in ["ca.crt", "ca.key"] {
        fs::copy(other.path().join(file), dir.join(file)).unwrap();
    }
    let moved = ensure(dir, &options(), now()).unwrap();
    assert_ne!(moved.leaf(Leaf::Admin).certificate_pem, repaired.leaf(Leaf::Admin).certificate_pem);

    fs::remove_file(dir.join("ca.key")).unwrap();
    assert!(matches!(ensure(dir, &options(), now()), Err(Error::HalfAuthority { .. })));
    fs::copy(dir.join("front-proxy-ca.key"), dir.join("ca.key")).unwrap();
    assert!(matches!(ensure(dir, &options(), now()), Err(Error::Unusable { .. })));

    // A first start that was cut off after the key.
    fs::remove_file(dir.join("front-proxy-ca.crt")).unwrap();
    for file in ["ca.crt", "ca.key"] {
        fs::copy(other.path().join(file), dir.join(file)).unwrap();
    }
    ensure(dir, &options(), now()).unwrap();
}

#[test]
fn a_name_that_cannot_stand_in_a_certificate_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { extra_names: vec!["käse.example.com".into()], ..options() };
    let error = ensure(folder.path(), &options, now()).unwrap_err();
    assert_eq!(error.to_string(), "make a certificate for host \"käse.example.com\"");
}

#[test]
fn no_leaf_outlives_its_authority() {
    let start = now();
    let authority = Authority::create("old", authority::new_key("old").unwrap(), start - days(3600)).unwrap();
    let (common_name, organization) = Leaf::Admin.subject();
    let request = Request { common_name, organization, host_names: vec![], addresses: vec![], usage: Usage::Client };
    let pair = authority.issue(&request, start).unwrap();
    assert_eq!(pair.not_after, authority.not_after);
    // There is nothing to gain from issuing it over and over.
    assert!(!Leaf::Admin.is_due(&pair, &authority, &options(), pair.renew_at()));
}

#[test]
fn certificates_are_identified_by_their_signer() {
    let folder = tempfile::tempdir().unwrap();
    let stranger = tempfile::tempdir().unwrap();
    let material = ensure(folder.path(), &options(), now()).unwrap();
    let authorities = material.credentials(true).client_authorities().unwrap();
    let identify = |pair: &Pair, at| authorities.identify(&[pair.der().unwrap()], at).unwrap();

    let admin = identify(material.leaf(Leaf::Admin), now());
    assert_eq!(admin.signer, Signer::Cluster);
    assert_eq!(
        (admin.user.name.as_str(), admin.user.groups.as_slice()),
        ("system:admin", &["system:masters".into()][..])
    );
    assert!(admin.user.extra[crate::authn::CREDENTIAL_ID][0].starts_with("X509SHA256="));
    assert_eq!(admin.user.extra[crate::authn::CREDENTIAL_ID][0].len(), "X509SHA256=".len() + 64);
    assert_eq!(admin.not_after, material.leaf(Leaf::Admin).not_after.as_second());

    assert_eq!(identify(material.leaf(Leaf::FrontProxyClient), now()).signer, Signer::FrontProxy);
    assert_eq!(identify(material.leaf(Leaf::Admin), now() + days(400)).signer, Signer::Unknown, "expired");
    // A certificate for servers is none for clients.
    assert_eq!(identify(material.leaf(Leaf::Serving), now()).signer, Signer::Unknown);
    let foreign = ensure(stranger.path(), &options(), now()).unwrap();
    assert_eq!(identify(foreign.leaf(Leaf::Admin), now()).signer, Signer::Unknown);
    assert_eq!(authorities.identify(&[], now()), None);
    assert_eq!(authorities.identify(&[b"junk".to_vec().into()], now()).unwrap().signer, Signer::Unknown);
}

#[test]
fn the_kubeconfig_holds_everything() {
    let text = kubeconfig("https://127.0.0.1:6443", "CA", "CERT", "KEY");
    for line in [
        "    server: \"https://127.0.0.1:6443\"\n",
        "    certificate-authority-data: Q0E=\n",
        "    client-certificate-data: Q0VSVA==\n",
        "    client-key-data: S0VZ\n",
        "current-context: default\n",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

/// One connection: what the server thinks of the client, what the client saw of the server, and how it was set up.
async fn handshake(
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
    authorities: &ClientAuthorities,
    name: &'static str,
) -> (Option<PeerCertificate>, Vec<u8>, rustls::HandshakeKind) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let server = async {
        let mut stream = acceptor.accept(near).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let chain = stream.get_ref().1.peer_certificates().unwrap_or(&[]).to_vec();
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        (authorities.identify(&chain, now()), kind)
    };
    let client = async {
        let mut stream = connector.connect(ServerName::try_from(name).unwrap(), far).await.unwrap();
        let mut text = String::new();
        // The session ticket arrives with the first bytes, so they are read.
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let ((peer, kind), shown) = tokio::join!(server, client);
    (peer, shown, kind)
}

fn connector(material: &Material, client: Option<&Pair>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(material.cluster_ca.der().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
            let chain = vec![CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Clients that ask for a name of another certificate see that one, and all others the server's own.
#[tokio::test]
async fn a_certificate_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let material = ensure(folder.path(), &options(), now()).unwrap();
    let request = Request {
        common_name: "other",
        organization: None,
        host_names: vec!["public.example.com".into(), "*.apps.example.com".into()],
        addresses: Vec::new(),
        usage: Usage::Server,
    };
    let pair = material.cluster_ca.issue(&request, now()).unwrap();
    let other = pair.der().unwrap().to_vec();
    let own = material.leaf(Leaf::Serving);
    let named = NamedPair { pair, names: Vec::new() };
    let serving = Arc::new(ServingCertificate::with_named(own, std::slice::from_ref(&named)).unwrap());
    let authorities = Arc::new(material.credentials(true).client_authorities().unwrap());
    let acceptor = |settings: &TlsSettings| {
        TlsAcceptor::from(Arc::new(server_config(serving.clone(), &authorities, settings).unwrap()))
    };
    let admin = connector(&material, Some(material.leaf(Leaf::Admin)));
    let newest = TlsSettings::new(MinVersion::Tls13, &[]).unwrap();
    for settings in [TlsSettings::default(), newest] {
        for (name, is_other) in [("public.example.com", true), ("a.apps.example.com", true), ("localhost", false)] {
            let (peer, shown, _) = handshake(&acceptor(&settings), &admin, &authorities, name).await;
            assert!(peer.is_some(), "{name}");
            assert_eq!(shown == other, is_other, "{name}");
        }
    }
    let only = NamedPair { names: vec!["localhost".into()], ..named };
    serving.replace_all(own, &[only]).unwrap();
    let shown = serving.shown_for("LOCALHOST");
    assert_eq!(shown, other, "names that are given count instead of the certificate's");
    assert_eq!(serving.shown_for("public.example.com"), own.der().unwrap().to_vec());
}

/// A certificate and CAs that come together: where one of them cannot be used, neither is.
#[test]
fn new_certificates_are_taken_over_whole_or_not_at_all() {
    let (old, new) = (credentials(), credentials());
    let serving = Arc::new(ServingCertificate::new(&old.serving).unwrap());
    let clients = old.client_authorities().unwrap();
    let handshake = Handshake::new(serving.clone(), clients, &TlsSettings::default()).unwrap();
    let shown = || serving.shown_for("localhost");
    let (before, tls, believed) = (shown(), handshake.tls(), handshake.clients().load_full());

    let broken = Pair { key_pem: "no key".into(), ..new.serving.clone() };
    assert!(handshake.prepare(&broken, &[], Some(new.client_authorities().unwrap())).is_err());
    let named = NamedPair { pair: broken, names: vec!["other".into()] };
    assert!(handshake.prepare(&new.serving, &[named], Some(new.client_authorities().unwrap())).is_err());
    let wrong = Credentials { client_ca: Some("no certificate".into()), ..new.clone() };
    assert!(wrong.client_authorities().is_err());
    let next = handshake.prepare(&new.serving, &[], Some(new.client_authorities().unwrap())).unwrap();
    assert_eq!(shown(), before, "it is only prepared");
    assert!(Arc::ptr_eq(&tls, &handshake.tls()) && Arc::ptr_eq(&believed, &handshake.clients().load_full()));

    handshake.take_over(next);
    assert_eq!(shown(), new.serving.der().unwrap().to_vec());
    assert!(!Arc::ptr_eq(&tls, &handshake.tls()) && !Arc::ptr_eq(&believed, &handshake.clients().load_full()));
    let tls = handshake.tls();
    handshake.take_over(handshake.prepare(&old.serving, &[], None).unwrap());
    assert_eq!(shown(), before);
    assert!(Arc::ptr_eq(&tls, &handshake.tls()), "the same CAs");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let material = ensure(folder.path(), &options(), now()).unwrap();
    let serving = Arc::new(ServingCertificate::new(material.leaf(Leaf::Serving)).unwrap());
    let authorities = Arc::new(material.credentials(true).client_authorities().unwrap());
    let acceptor =
        TlsAcceptor::from(Arc::new(server_config(serving.clone(), &authorities, &TlsSettings::default()).unwrap()));
    let admin = connector(&material, Some(material.leaf(Leaf::Admin)));

    for name in ["localhost", "127.0.0.1", "::1", "10.43.0.1", "harbour", "api.example.com"] {
        let (peer, shown, _) = handshake(&acceptor, &admin, &authorities, name).await;
        assert_eq!(peer.unwrap().user.name, "system:admin", "{name}");
        assert_eq!(shown, material.leaf(Leaf::Serving).der().unwrap().to_vec(), "{name}");
    }
    let (peer, _, kind) = handshake(&acceptor, &admin, &authorities, "localhost").await;
    assert_eq!(kind, rustls::HandshakeKind::Resumed);
    assert_eq!(peer.unwrap().user.name, "system:admin", "a resumed session keeps its identity");

    // Renewal as the task does it, at a time when it is due but the clock of the library still accepts the result.
    let renewed =
        renew_if_needed(&material, &Options { host_name: "quay".into(), ..options() }, now()).unwrap().unwrap();
    serving.replace(renewed.leaf(Leaf::Serving)).unwrap();
    let anonymous = connector(&material, None);
    let (peer, shown, _) = handshake(&acceptor, &anonymous, &authorities, "quay").await;
    assert_eq!(peer, None);
    assert_eq!(shown, renewed.leaf(Leaf::Serving).der().unwrap().to_vec());

    // A stranger's certificate does not break the connection; authentication will answer 401.
    let stranger = tempfile::tempdir().unwrap();
    let foreign = ensure(stranger.path(), &options(), now()).unwrap();
    let (peer, _, _) =
        handshake(&acceptor, &connector(&material, Some(foreign.leaf(Leaf::Admin))), &authorities, "quay").await;
    assert_eq!(peer.unwrap().signer, Signer::Unknown);
}

#[tokio::test(start_paused = true)]
async fn the_task_renews_when_the_time_has_come() {
    let folder = tempfile::tempdir().unwrap();
    let start = now();
    let material = ensure(folder.path(), &options(), start).unwrap();
    let old = material.leaf(Leaf::Serving).certificate_pem.clone();
    let serving = Arc::new(ServingCertificate::new(material.leaf(Leaf::Serving)).unwrap());
    let (sender, mut receiver) = tokio::sync::watch::channel(Arc::new(material));
    let began = tokio::time::Instant::now();
    let clock = move || start + SignedDuration::try_from(began.elapsed()).unwrap();
    let (readvertise, addresses) = tokio::sync::watch::channel(IpAddr::from([127, 0, 0, 1]));
    let task = tokio::spawn(renewal_task(sender, options(), addresses, serving, clock));
    receiver.changed().await.unwrap();
    let waited = began.elapsed().as_secs() / 86_400;
    assert!((240..250).contains(&waited), "renewed after {waited} days");
    assert_ne!(receiver.borrow().leaf(Leaf::Serving).certificate_pem, old);

    // A new address does not wait.
    let (new, asked) = (IpAddr::from([192, 0, 2, 77]), tokio::time::Instant::now());
    readvertise.send_replace(new);
    receiver.changed().await.unwrap();
    assert!(asked.elapsed().as_secs() < 60);
    assert!(receiver.borrow().leaf(Leaf::Serving).addresses().contains(&new));
    task.abort();
}

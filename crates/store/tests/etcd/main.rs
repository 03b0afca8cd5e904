//! The store over real etcd processes: what it promises, on one member and over the death of a leader.

mod failover;
mod processes;
mod through_cache;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use store::etcd::client::{Client, Options};
use store::etcd::{Config, EtcdStore};
use store::{Change, Expect, Revision, Store, StoreError, Written, conformance};

use processes::{Etcd, Tls, installed};

/// The suite compacts by itself.
fn without_compaction() -> Config {
    Config { compaction_interval: None, ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_conforms() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start(1, None).await;
    let store: Arc<dyn Store> = Arc::new(etcd.connect(without_compaction()).await);
    conformance::suite(async || store.clone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_share_a_lease() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start(1, None).await;
    let store = etcd.connect(without_compaction()).await;
    for number in 0..100 {
        let change = Change::Put { value: Bytes::from_static(b"x"), ttl: Some(Duration::from_secs(3600)) };
        let key = format!("/registry/events/default/{number}");
        let written = store.write_if(&key, Expect::Absent, change).await.expect("it takes writes");
        assert!(matches!(written, Written::Done(_)));
    }
    let mut client = Client::new(&etcd.endpoints(), &Options::default()).expect("these are addresses");
    let leases = client.leases().await.expect("it serves");
    assert_eq!(leases.len(), 1);
    // A lease that someone else ended is replaced, and the write goes through.
    client.lease_revoke(leases[0]).await.expect("it can be revoked");
    let change = Change::Put { value: Bytes::from_static(b"x"), ttl: Some(Duration::from_secs(3600)) };
    let written = store.write_if("/registry/events/default/0", Expect::Absent, change).await;
    assert!(matches!(written, Ok(Written::Done(_))), "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_take_turns_compacting() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start(1, None).await;
    let often = Config { compaction_interval: Some(Duration::from_millis(500)), ..Config::default() };
    let first = etcd.connect(often.clone()).await;
    let _second = etcd.connect(often).await;
    let key = "/registry/pods/default/a";
    let put = |value: &'static str| Change::Put { value: Bytes::from_static(value.as_bytes()), ttl: None };
    let Ok(Written::Done(one)) = first.write_if(key, Expect::Absent, put("1")).await else { panic!("it takes writes") };
    let Ok(Written::Done(_)) = first.write_if(key, Expect::At(one), put("2")).await else { panic!("it takes writes") };
    let compacted = async {
        loop {
            let request = store::RangeRequest { prefix: key.to_owned(), at: Some(one), ..Default::default() };
            match first.range(request).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(StoreError::Compacted { wanted, oldest }) => return assert!(wanted == one && oldest > one),
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), compacted).await.expect("old history goes");
    assert_eq!(first.get(key).await.expect("it serves").expect("it stays").value, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_checked_both_ways() {
    if !installed() {
        return;
    }
    let tls = certificates();
    let etcd = Etcd::start(1, Some(&tls)).await;
    let pem = |text: &str| Some(text.as_bytes().to_vec());
    let good =
        Config { ca: pem(&tls.ca), cert: pem(&tls.client_cert), key: pem(&tls.client_key), ..without_compaction() };
    let store = etcd.connect(good.clone()).await;
    let change = Change::Put { value: Bytes::from_static(b"x"), ttl: None };
    let written = store.write_if("/registry/pods/default/a", Expect::Absent, change).await;
    assert!(matches!(written, Ok(Written::Done(revision)) if revision > Revision(0)));

    drop(store);
    let stranger = certificates();
    for (what, bad) in [
        ("no client certificate", Config { cert: None, key: None, ..good.clone() }),
        ("another authority", Config { ca: pem(&stranger.ca), ..good.clone() }),
        (
            "a stranger's certificate",
            Config { cert: pem(&stranger.client_cert), key: pem(&stranger.client_key), ..good.clone() },
        ),
        ("a certificate without its key", Config { key: None, ..good.clone() }),
    ] {
        let refused = EtcdStore::connect(Config { endpoints: etcd.endpoints(), ..bad }).await;
        let error = refused.err().unwrap_or_else(|| panic!("{what} was accepted"));
        println!("{what}: {error}");
    }
}

fn certificates() -> Tls {
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "etcd test authority");
    let ca = CertifiedIssuer::self_signed(params, key()).expect("an authority");
    let issue = |names: Vec<String>| {
        let mut params = CertificateParams::new(names).expect("good names");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = key();
        let certificate = params.signed_by(&key, &ca).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    };
    let (server_cert, server_key) = issue(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]);
    let (client_cert, client_key) = issue(vec!["apiserver".to_owned()]);
    Tls { ca: ca.pem(), client_cert, client_key, server_cert, server_key }
}

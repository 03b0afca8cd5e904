use super::super::cipher::tests::{PLACE, TEXT, bytes, unhex};
use super::*;

/// Made by Python's `cryptography` and by hand: the seed is the bytes from 7 on, and the plugin calls it `sealed seed`.
const ENVELOPE: &str = "0a73464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f6061626364655a5b5c5d5e5f60616263646503cc701a4ef125331015ed5415e932b906adeef86cedb26d1211f0b53dba6e3756d62ff8c713b8dde1ee093eec370c0aa7d963b3d2938f18b465b9bfedc937917080e49b62242512056b65792d311a0b7365616c6564207365656422180a1376657273696f6e2e6578616d706c652e636f6d1201312801";
/// The same without derivation, as servers before v1.29 wrote: those bytes are the key.
const KEYED: &str = "0a535a5b5c5d5e5f606162636465861a8f1ed47534afa604a5139c916a07ea6ef947903350570022db214422abd728d83c067528cb35052bc64522936e284443fa0b785cea1539d54b28692bdd1f7d312b97aa26ae12056b65792d311a0b7365616c65642073656564";

/// A plugin that nobody plays: what is needed of it is there already.
fn envelope() -> Arc<Envelope> {
    let plugin = Plugin::new(std::path::Path::new("/nonexistent/kms.sock"), Duration::from_millis(20));
    Envelope::new("p", plugin, Arc::default(), Arc::default(), Clock::system())
}

fn state(key_id: &str) -> State {
    State {
        seed: Arc::new(Seed::new(&bytes(7, 32)).unwrap()),
        key_id: key_id.into(),
        source: b"sealed seed".to_vec(),
        annotations: [("version.example.com".to_owned(), b"1".to_vec())].into(),
        expires: Timestamp::now() + Duration::from_secs(60),
    }
}

#[tokio::test]
async fn values_of_others_are_read_and_ours_are_the_same() {
    let envelope = envelope();
    assert_eq!(envelope.seal(TEXT, PLACE), Err(EnvelopeError::NoState));
    envelope.probe.set(state("key-1"));
    let sealed = envelope.seal(TEXT, PLACE).unwrap();
    let (ours, theirs) =
        (EncryptedObject::decode(&sealed[..]).unwrap(), EncryptedObject::decode(&unhex(ENVELOPE)[..]).unwrap());
    assert_eq!(theirs.encode_to_vec(), unhex(ENVELOPE), "the same bytes");
    assert_eq!(EncryptedObject { encrypted_data: theirs.encrypted_data.clone(), ..ours }, theirs);
    for (value, is_stale) in [(sealed, false), (unhex(ENVELOPE), false)] {
        let opened = envelope.open(&value, PLACE, Patience::Full).await.unwrap();
        assert_eq!(opened, (TEXT.to_vec(), is_stale));
    }
    envelope.probe.set(state("key-2"));
    assert!(envelope.open(&unhex(ENVELOPE), PLACE, Patience::Full).await.unwrap().1, "of an older key");
    let error = envelope.open(&unhex(ENVELOPE), b"elsewhere", Patience::Full).await.unwrap_err();
    assert_eq!(error.to_string(), "cipher: message authentication failed");
}

#[tokio::test]
async fn older_values_are_read_and_would_be_written_anew() {
    let envelope = envelope();
    envelope.probe.set(state("key-1"));
    let object = EncryptedObject::decode(&unhex(KEYED)[..]).unwrap();
    let key = SourceKey {
        kind: 0,
        source: object.encrypted_dek_source,
        key_id: object.key_id,
        annotations: object.annotations,
    };
    let opener = Opener::Key(Arc::new(Gcm::new(&bytes(7, 32)).unwrap()));
    envelope.sources.lock().insert(key, Arc::new(Source(OnceCell::new_with(Some(opener)))));
    assert_eq!(envelope.open(&unhex(KEYED), PLACE, Patience::Full).await.unwrap(), (TEXT.to_vec(), true));
}

#[tokio::test]
async fn an_expired_seed_only_reads() {
    let envelope = envelope();
    envelope.probe.set(state("key-1"));
    let sealed = envelope.seal(TEXT, PLACE).unwrap();
    envelope.probe.set(State { expires: Timestamp::UNIX_EPOCH, ..state("key-1") });
    let error = envelope.seal(TEXT, PLACE).unwrap_err().to_string();
    assert!(error.starts_with("encryptedDEKSource with keyID hash \"sha256:"), "{error}");
    assert!(error.contains("expired at 1970-01-01T00:00:00Z (current time is "), "{error}");
    assert!(envelope.open(&sealed, PLACE, Patience::Full).await.is_ok());
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_is_asked_once_for_many_values() {
    let envelope = envelope();
    envelope.probe.set(state("key-1"));
    let began = Instant::now();
    for number in 0..50 {
        let mut object = EncryptedObject::decode(&unhex(ENVELOPE)[..]).unwrap();
        object.encrypted_dek_source = vec![number];
        let error = envelope.open(&object.encode_to_vec(), PLACE, Patience::Full).await.unwrap_err().to_string();
        assert!(error.starts_with("failed to decrypt DEK, error: rpc error: code = DeadlineExceeded"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}

#[test]
fn objects_are_checked_as_upstream_checks_them() {
    let good = EncryptedObject::decode(&unhex(ENVELOPE)[..]).unwrap();
    assert_eq!(check(&good), Ok(()));
    let told = |change: fn(&mut EncryptedObject)| {
        let mut object = good.clone();
        change(&mut object);
        check(&object).unwrap_err().to_string()
    };
    assert_eq!(told(|object| object.encrypted_dek_source_type = 5), "unknown encryptedDEKSourceType: 5");
    assert_eq!(told(|object| object.encrypted_data.clear()), "encrypted data is empty");
    assert_eq!(
        told(|object| object.encrypted_dek_source = vec![0; 1025]),
        "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which exceeds the max size of 1024"
    );
    assert_eq!(told(|object| object.key_id.clear()), "failed to validate key id: keyID is empty");
    let large = |object: &mut EncryptedObject| drop(object.annotations.insert("a.b".into(), vec![0; 32 * 1024]));
    assert!(told(large).contains("which exceeds the max size of 32768"));
    let plain = |object: &mut EncryptedObject| drop(object.annotations.insert("plain".into(), Vec::new()));
    assert_eq!(
        told(plain),
        "failed to validate annotations: annotations: Invalid value: \"plain\": should be a domain with at least two segments separated by dots"
    );
}

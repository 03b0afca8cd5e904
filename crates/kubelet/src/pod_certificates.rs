//! Certificates of pods: for each `podCertificate` of a volume a key that never leaves this node, a request that a signer
//! answers, and another one in time before the certificate ends. Nothing is kept over a restart of the kubelet, as upstream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use component_base::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Pod, PodCertificateProjection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

use crate::objects::{ObjectError, Objects};

#[derive(Debug, thiserror::Error)]
pub enum PodCertificateError {
    #[error("credential bundle is not issued yet")]
    NotYet,
    #[error("PodCertificateRequest was permanently denied: reason={reason:?} message={message:?}")]
    Denied { reason: String, message: String },
    #[error("PodCertificateRequest was permanently failed: reason={reason:?} message={message:?}")]
    Failed { reason: String, message: String },
    #[error("knarr cannot make keys of type {0}; it makes ED25519, ECDSAP256 and ECDSAP384")]
    KeyType(String),
    #[error("while generating keypair: {0}")]
    Key(#[from] rcgen::Error),
    #[error("while fetching service account: {0}")]
    Account(ObjectError),
    #[error("while getting node object from local cache: {0}")]
    Node(ObjectError),
    #[error("while creating PodCertificateRequest: {0}")]
    Create(kube::Error),
    #[error("while getting PodCertificateRequest: {0}")]
    Get(kube::Error),
}

/// A request that is not there any more is taken for deleted when it is so old.
const ABANDONED: SignedDuration = SignedDuration::from_mins(10);
/// Certificates that were given in the same second are not all renewed in the same second.
const JITTER_MS: i64 = 5 * 60 * 1000;
/// A certificate that is not renewed so long after it should be is overdue.
const OVERDUE: SignedDuration = SignedDuration::from_mins(10);
/// When a renewal that is under way is looked at again.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// Most signers answer at once, so a new request is looked at so often before the volume waits for the next try.
const LOOKS_MAX: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Key and certificates as PEM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credential {
    pub key: String,
    pub chain: String,
}

/// Which `podCertificate`: of which pod, which volume, which source of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub uid: String,
    pub volume: String,
    pub source: usize,
}

/// Told once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Overdue,
    Expired,
}

#[derive(Clone, Debug)]
struct Asked {
    key: String,
    name: String,
    abandoned: Timestamp,
}

#[derive(Clone, Debug)]
struct Given {
    credential: Credential,
    refresh: Timestamp,
    expires: Timestamp,
    told: Vec<Told>,
}

#[derive(Clone, Debug, Default)]
struct State {
    given: Option<Given>,
    asked: Option<Asked>,
    /// Neither is asked for again as long as the pod lives.
    refused: Option<Answer>,
}

/// How a request was answered.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Pending,
    Denied { reason: String, message: String },
    Failed { reason: String, message: String },
    Issued { chain: String, refresh: Timestamp, expires: Timestamp },
}

pub struct PodCertificates {
    objects: Arc<Objects>,
    node_name: String,
    kept: Mutex<HashMap<Key, State>>,
    clock: Clock,
}

/// What pods' users are told: a reason and a message.
pub type Events = Vec<(&'static str, String)>;

impl PodCertificates {
    pub fn new(objects: Arc<Objects>, node_name: &str, clock: Clock) -> PodCertificates {
        PodCertificates { objects, node_name: node_name.to_owned(), kept: Mutex::default(), clock }
    }

    /// The credential as it is now. Where there is none yet one is asked for, and where it gets old a new one.
    pub async fn get(
        &self,
        pod: &Pod,
        key: &Key,
        source: &PodCertificateProjection,
        events: &mut Events,
    ) -> Result<Credential, PodCertificateError> {
        let mut state = self.kept.lock().get(key).cloned().unwrap_or_default();
        let outcome = self.go_on(pod, source, &mut state, events).await;
        let answer = match (&state.refused, &state.given) {
            (Some(Answer::Denied { reason, message }), _) => {
                Err(PodCertificateError::Denied { reason: reason.clone(), message: message.clone() })
            }
            (Some(Answer::Failed { reason, message }), _) => {
                Err(PodCertificateError::Failed { reason: reason.clone(), message: message.clone() })
            }
            (_, Some(given)) => {
                if let Err(error) = &outcome {
                    tracing::warn!(%error, pod = crate::pod::spec::full_name(pod), "cannot renew certificate of pod; retrying");
                }
                Ok(given.credential.clone())
            }
            (_, None) => outcome.and(Err(PodCertificateError::NotYet)),
        };
        self.kept.lock().insert(key.clone(), state);
        answer
    }

    /// One step, or two: what is asked for is looked at.
    async fn go_on(
        &self,
        pod: &Pod,
        source: &PodCertificateProjection,
        state: &mut State,
        events: &mut Events,
    ) -> Result<(), PodCertificateError> {
        let now = self.clock.now();
        if let Some(given) = &mut state.given {
            tell(given, now, events);
        }
        if state.refused.is_some() || state.given.as_ref().is_some_and(|given| now < given.refresh) {
            return Ok(());
        }
        let looks = if state.given.is_none() { LOOKS_MAX } else { 1 };
        if state.asked.is_none() {
            state.asked = Some(self.ask(pod, source).await?);
        }
        for look in 0..looks {
            if look > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            if self.look(pod, state, events).await? {
                break;
            }
        }
        Ok(())
    }

    /// Whether the request has been answered.
    async fn look(&self, pod: &Pod, state: &mut State, events: &mut Events) -> Result<bool, PodCertificateError> {
        let Some(asked) = &state.asked else { return Ok(true) };
        let found = self.requests(pod).get_opt(&asked.name).await.map_err(PodCertificateError::Get)?;
        let Some(request) = found else {
            // Who deletes requests deletes decided ones, too; another one is made in time.
            if self.clock.now() > asked.abandoned {
                state.asked = None;
            }
            return Ok(true);
        };
        let shown = format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), asked.name);
        match answer_of(&request) {
            Answer::Pending => return Ok(false),
            Answer::Issued { chain, refresh, expires } => {
                let credential = Credential { key: asked.key.clone(), chain };
                let refresh = refresh + SignedDuration::from_millis(rand::random_range(0..JITTER_MS));
                state.given = Some(Given { credential, refresh, expires, told: Vec::new() });
            }
            answer @ (Answer::Denied { .. } | Answer::Failed { .. }) => {
                events.push(told(&shown, &answer));
                state.refused = Some(answer);
            }
        }
        state.asked = None;
        Ok(true)
    }

    fn requests(&self, pod: &Pod) -> Api<PodCertificateRequest> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.objects.client().clone(), namespace)
    }

    async fn ask(&self, pod: &Pod, source: &PodCertificateProjection) -> Result<Asked, PodCertificateError> {
        let (namespace, name) = (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".into());
        let found = self.objects.service_account(&namespace, &account).await.map_err(PodCertificateError::Account)?;
        let node = self.objects.node(&self.node_name).await.map_err(PodCertificateError::Node)?;
        let (key, stub) = key_and_stub(&source.key_type)?;
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: name.clone().unwrap_or_default(),
            uid: uid.clone(),
            ..Default::default()
        };
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                generate_name: Some("req-".into()),
                namespace: Some(namespace),
                owner_references: Some(vec![owner]),
                ..Default::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: source.signer_name.clone(),
                pod_name: name.unwrap_or_default(),
                pod_uid: uid,
                service_account_name: account,
                service_account_uid: found.metadata.uid.clone().unwrap_or_default(),
                node_name: self.node_name.clone(),
                node_uid: node.metadata.uid.clone().unwrap_or_default(),
                max_expiration_seconds: source.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(stub),
                unverified_user_annotations: source.user_annotations.clone(),
                ..Default::default()
            },
            status: None,
        };
        let made = self.requests(pod).create(&PostParams::default(), &request).await;
        let made = made.map_err(PodCertificateError::Create)?;
        let jitter = SignedDuration::from_millis(rand::random_range(0..JITTER_MS));
        let abandoned = self.clock.now() + ABANDONED + jitter;
        Ok(Asked { key, name: made.metadata.name.unwrap_or_default(), abandoned })
    }

    /// When the first of the pod's certificates must be looked at.
    pub(crate) fn next_refresh(&self, uid: &str) -> Option<Timestamp> {
        let kept = self.kept.lock();
        let of_pod = kept.iter().filter(|(key, state)| key.uid == uid && state.refused.is_none());
        let due = of_pod.filter_map(|(_, state)| {
            let given = state.given.as_ref()?;
            Some(if state.asked.is_some() { self.clock.now() + LOOK_AGAIN } else { given.refresh })
        });
        due.min()
    }

    pub fn forget(&self, uid: &str) {
        self.kept.lock().retain(|key, _| key.uid != uid);
    }
}

/// Says of a certificate that it gets too old, once each.
fn tell(given: &mut Given, now: Timestamp, events: &mut Events) {
    let due = [
        (
            Told::Overdue,
            now > given.refresh + OVERDUE,
            "CertificateOverdueForRefresh",
            "PodCertificate refresh overdue",
        ),
        (Told::Expired, now > given.expires, "CertificateExpired", "PodCertificate expired"),
    ];
    for (what, is_due, reason, message) in due {
        if is_due && !given.told.contains(&what) {
            given.told.push(what);
            events.push((reason, message.to_owned()));
        }
    }
}

fn told(request: &str, answer: &Answer) -> (&'static str, String) {
    match answer {
        Answer::Denied { reason, message } => {
            ("Denied", format!("PodCertificateRequest {request} was denied, reason={reason:?}, message={message:?}"))
        }
        Answer::Failed { reason, message } => {
            ("Failed", format!("PodCertificateRequest {request} failed, reason={reason:?}, message={message:?}"))
        }
        Answer::Pending | Answer::Issued { .. } => ("Issued", format!("PodCertificateRequest {request} was issued")),
    }
}

fn answer_of(request: &PodCertificateRequest) -> Answer {
    let Some(status) = &request.status else { return Answer::Pending };
    for condition in status.conditions.iter().flatten() {
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        match condition.type_.as_str() {
            "Denied" => return Answer::Denied { reason, message },
            "Failed" => return Answer::Failed { reason, message },
            "Issued" => {
                let (Some(refresh), Some(expires)) = (&status.begin_refresh_at, &status.not_after) else { continue };
                let chain = cleaned(status.certificate_chain.as_deref().unwrap_or_default());
                return Answer::Issued { chain, refresh: refresh.0, expires: expires.0 };
            }
            _ => {}
        }
    }
    Answer::Pending
}

/// The certificates alone, without what stands between them and without headers.
fn cleaned(chain: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in chain.lines().map(str::trim) {
        if line.starts_with("-----BEGIN ") {
            inside = true;
            text.push_str("-----BEGIN CERTIFICATE-----\n");
        } else if line.starts_with("-----END ") {
            inside = false;
            text.push_str("-----END CERTIFICATE-----\n");
        } else if inside && !line.is_empty() && !line.contains(':') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// A new private key as PEM, and a request without content that proves who has it.
fn key_and_stub(key_type: &str) -> Result<(String, Vec<u8>), PodCertificateError> {
    let algorithm = match key_type {
        "ED25519" => &PKCS_ED25519,
        "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
        other => return Err(PodCertificateError::KeyType(other.to_owned())),
    };
    let key = KeyPair::generate_for(algorithm)?;
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    let stub = parameters.serialize_request(&key)?.der().to_vec();
    Ok((key.serialize_pem(), stub))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(status: Value) -> PodCertificateRequest {
        let spec = json!({
            "signerName": "", "podName": "", "podUID": "", "serviceAccountName": "", "serviceAccountUID": "", "nodeName": "",
            "nodeUID": "", "stubPKCS10Request": "",
        });
        serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec, "status": status})).expect("a request")
    }

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn answers_are_read() {
        assert_eq!(answer_of(&request(json!({}))), Answer::Pending);
        let denied = answer_of(&request(json!({"conditions": [condition("Denied")]})));
        assert_eq!(denied, Answer::Denied { reason: "R".into(), message: "m".into() });
        let (reason, message) = told("n/r", &denied);
        assert_eq!(reason, "Denied");
        assert_eq!(message, r#"PodCertificateRequest n/r was denied, reason="R", message="m""#);
        let chain = "text\n-----BEGIN CERTIFICATE-----\nA: b\n\nMAA=\n-----END CERTIFICATE-----\nmore";
        let issued = request(json!({
            "conditions": [condition("Issued")], "certificateChain": chain, "beginRefreshAt": "2026-01-01T00:00:00Z",
            "notAfter": "2026-01-02T00:00:00Z", "notBefore": "2026-01-01T00:00:00Z",
        }));
        let expected = Answer::Issued {
            chain: "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".into(),
            refresh: "2026-01-01T00:00:00Z".parse().expect("a time"),
            expires: "2026-01-02T00:00:00Z".parse().expect("a time"),
        };
        assert_eq!(answer_of(&issued), expected);
    }

    #[test]
    fn keys_are_made_as_asked_or_refused() {
        for key_type in ["ED25519", "ECDSAP256", "ECDSAP384"] {
            let (key, stub) = key_and_stub(key_type).expect("a key");
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----") && !stub.is_empty(), "{key_type}");
        }
        let error = key_and_stub("RSA3072").expect_err("it cannot").to_string();
        assert_eq!(error, "knarr cannot make keys of type RSA3072; it makes ED25519, ECDSAP256 and ECDSAP384");
    }

    #[test]
    fn an_old_certificate_is_told_of_once() {
        let time = |text: &str| -> Timestamp { text.parse().expect("a time") };
        let (refresh, expires) = (time("2026-01-01T12:00:00Z"), time("2026-01-02T00:00:00Z"));
        let mut given = Given { credential: Credential::default(), refresh, expires, told: Vec::new() };
        let mut at = |text: &str| {
            let mut events = Events::new();
            tell(&mut given, time(text), &mut events);
            events.into_iter().map(|(reason, _)| reason).collect::<Vec<_>>()
        };
        assert_eq!(at("2026-01-01T12:05:00Z"), Vec::<&str>::new());
        assert_eq!(at("2026-01-01T12:11:00Z"), ["CertificateOverdueForRefresh"]);
        assert_eq!(at("2026-01-02T00:00:01Z"), ["CertificateExpired"]);
        assert_eq!(at("2026-01-03T00:00:00Z"), Vec::<&str>::new());
    }
}

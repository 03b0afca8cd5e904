//! A KMS v2 plugin for tests: real gRPC over a unix socket, real encryption of what it is given. It can be slow, down, unwell or lying, and
//! its key can be rotated. What outlives its process is kept: keys, and how often it was asked.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kms::v2::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use kms::v2::{DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse};
use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::socket::Serving;

const ANNOTATION: &str = "version.kms.example.com";

/// What the plugin does wrong when it is asked, until told otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Answers after this time.
    Slow(Duration),
    /// Says that it is not well.
    Unwell,
    /// Gives back other bytes than it was given.
    Lies,
    /// Refuses to decrypt.
    Refuses,
    /// Says by its status that it uses another key than it uses.
    OtherKey,
    /// Says that it has no key.
    NoKey,
}

#[derive(Default)]
struct State {
    fault: Mutex<Fault>,
    /// The id of the key in use, and all there ever were.
    key_id: Mutex<String>,
    keys: Mutex<HashMap<String, [u8; 32]>>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

pub struct KmsPlugin {
    state: Arc<State>,
    socket: PathBuf,
    running: Option<Serving>,
}

impl KmsPlugin {
    pub fn start(socket: &Path) -> anyhow::Result<KmsPlugin> {
        let mut plugin = KmsPlugin { state: Arc::default(), socket: socket.to_owned(), running: None };
        plugin.rotate("key-1");
        plugin.up()?;
        Ok(plugin)
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Uses another key from now on; the old ones still decrypt.
    pub fn rotate(&self, key_id: &str) {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).expect("the system has random numbers");
        self.state.keys.lock().insert(key_id.to_owned(), key);
        *self.state.key_id.lock() = key_id.to_owned();
    }

    pub fn set(&self, fault: Fault) {
        *self.state.fault.lock() = fault;
    }

    /// How often it was asked to `Status`, `Encrypt` or `Decrypt`.
    pub fn calls(&self, method: &str) -> usize {
        self.state.calls.lock().get(method).copied().unwrap_or_default()
    }

    /// Its process ends: connections break, and nobody listens any more.
    pub fn down(&mut self) {
        self.running = None;
    }

    pub fn up(&mut self) -> anyhow::Result<()> {
        self.down();
        let service = KeyManagementServiceServer::from_arc(Arc::new(Service(self.state.clone())));
        self.running = Some(Serving::start(&self.socket, Server::builder().add_service(service))?);
        Ok(())
    }
}

struct Service(Arc<State>);

impl Service {
    async fn asked(&self, method: &'static str) -> Fault {
        *self.0.calls.lock().entry(method).or_default() += 1;
        let fault = self.0.fault.lock().clone();
        if let Fault::Slow(time) = fault {
            tokio::time::sleep(time).await;
        }
        fault
    }

    fn key(&self, key_id: &str) -> Result<LessSafeKey, Status> {
        let keys = self.0.keys.lock();
        let key = keys.get(key_id).ok_or_else(|| Status::not_found(format!("no key {key_id}")))?;
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Status::internal("a key is broken"))?;
        Ok(LessSafeKey::new(key))
    }
}

#[tonic::async_trait]
impl KeyManagementService for Service {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let fault = self.asked("Status").await;
        let key_id = match fault {
            Fault::OtherKey => "another-key".to_owned(),
            Fault::NoKey => String::new(),
            _ => self.0.key_id.lock().clone(),
        };
        let healthz = if fault == Fault::Unwell { "tired" } else { "ok" };
        Ok(Response::new(StatusResponse { version: "v2".into(), healthz: healthz.into(), key_id }))
    }

    async fn encrypt(&self, request: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        self.asked("Encrypt").await;
        let key_id = self.0.key_id.lock().clone();
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| Status::internal("no random numbers"))?;
        let mut text = request.into_inner().plaintext;
        let sealed =
            self.key(&key_id)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text);
        sealed.map_err(|_| Status::internal("cannot encrypt"))?;
        let annotations = [(ANNOTATION.to_owned(), b"1".to_vec())].into();
        Ok(Response::new(EncryptResponse { ciphertext: [&nonce[..], &text].concat(), key_id, annotations }))
    }

    async fn decrypt(&self, request: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        let fault = self.asked("Decrypt").await;
        let request = request.into_inner();
        if fault == Fault::Refuses {
            return Err(Status::permission_denied("not for you"));
        }
        if request.annotations.get(ANNOTATION).map(Vec::as_slice) != Some(b"1") {
            return Err(Status::invalid_argument("the annotation is missing"));
        }
        let key = self.key(&request.key_id)?;
        let Some((nonce, text)) = request.ciphertext.split_first_chunk::<NONCE_LEN>() else {
            return Err(Status::invalid_argument("too short"));
        };
        let mut text = text.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut text);
        let mut plaintext = opened.map_err(|_| Status::invalid_argument("not of this key"))?.to_vec();
        if fault == Fault::Lies {
            plaintext.iter_mut().for_each(|byte| *byte ^= 1);
        }
        Ok(Response::new(DecryptResponse { plaintext }))
    }
}

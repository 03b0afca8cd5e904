//! A steady load of several clients whose every failed request is known, certificates to change under it, and `knarr kube-apiserver`
//! with everything that has keys: an etcd, a KMS plugin, a provider of OpenID Connect and a signer of tokens.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use testkit::client::{Client, Reply};
use testkit::{Etcd, KmsPlugin, Signer};

use crate::oidc::Provider;

pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);
/// What each client must have done before and after each change.
const ROUNDS: usize = 4;

/// Makes the client of a round: with whatever proves its identity at that moment.
pub type Identity = Arc<dyn Fn() -> BoxFuture<'static, anyhow::Result<Client>> + Send + Sync>;

/// One client of the load: it creates, reads, changes, lists and deletes an object, again and again.
pub struct Worker {
    pub name: &'static str,
    pub path: &'static str,
    pub identity: Identity,
}

pub struct Load {
    stop: Arc<AtomicBool>,
    workers: Vec<Begun>,
}

/// A worker's name, how many rounds it has done, and what failed in them.
type Begun = (&'static str, Arc<AtomicUsize>, tokio::task::JoinHandle<Vec<String>>);

impl Load {
    pub fn start(runtime: &tokio::runtime::Runtime, workers: Vec<Worker>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = |worker: Worker| {
            let (rounds, stopped) = (Arc::new(AtomicUsize::new(0)), stop.clone());
            let (name, counted) = (worker.name, rounds.clone());
            let task = runtime.spawn(async move {
                let mut failed = Vec::new();
                while !stopped.load(Ordering::Relaxed) {
                    let number = counted.load(Ordering::Relaxed);
                    if let Err(error) = round(&worker, number).await {
                        failed.push(format!("{name}, round {number}: {error:#}"));
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(BETWEEN_ROUNDS).await;
                }
                failed
            });
            (name, rounds, task)
        };
        let workers = workers.into_iter().map(begin).collect();
        Load { stop, workers }
    }

    /// Until every client has done some more rounds.
    pub fn go_on(&self) {
        let counts = || self.workers.iter().map(|(_, rounds, _)| rounds.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = counts();
        let began = Instant::now();
        while counts().iter().zip(&before).any(|(now, before)| *now < before + ROUNDS + 1) {
            assert!(began.elapsed() < PATIENCE, "the load stands still: {before:?}, {:?}", counts());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it; no request may have failed.
    pub fn end(self, runtime: &tokio::runtime::Runtime) {
        self.stop.store(true, Ordering::Relaxed);
        for (name, rounds, task) in self.workers {
            let failed = runtime.block_on(task).expect("the client does not panic");
            assert!(failed.is_empty(), "{} failed of {rounds:?} rounds:\n{}", failed.len(), failed.join("\n"));
            eprintln!("{name}: {rounds:?} rounds of five requests, none failed");
        }
    }
}

async fn round(worker: &Worker, number: usize) -> anyhow::Result<()> {
    let client = (worker.identity)().await?;
    let name = format!("load-{}-{number}", worker.name);
    let path = format!("{}/{name}", worker.path);
    let expect = |reply: Reply, code: u16| {
        anyhow::ensure!(reply.code == code, "answered {} instead of {code}: {}", reply.code, reply.text());
        Ok(reply)
    };
    expect(client.post(worker.path, &holding(worker.path, &name, "one")).await?, 201)?;
    let mut found = expect(client.get(&path).await?, 200)?.json();
    anyhow::ensure!(held(&found) == "one", "holds {found}");
    found["metadata"]["labels"] = json!({"changed": "yes"});
    expect(client.put(&path, &found).await?, 200)?;
    expect(client.get(&format!("{}?limit=5", worker.path)).await?, 200)?;
    expect(client.delete(&path).await?, 200)?;
    Ok(())
}

/// A Secret or a ConfigMap with that text in it.
pub fn holding(path: &str, name: &str, text: &str) -> Value {
    let field = if path == SECRETS { "stringData" } else { "data" };
    json!({"metadata": {"name": name}, field: {"text": text}})
}

/// What it holds.
pub fn held(object: &Value) -> String {
    use base64::Engine;
    let text = object["data"]["text"].as_str().unwrap_or_default();
    if object["kind"] == "ConfigMap" {
        return text.to_owned();
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// At once, as editors and kubelets do it: nobody reads half of it.
pub fn write(path: &Path, text: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(&part, path).unwrap();
}

/// An authority that issues certificates.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { params, key, pem }
    }

    /// Writes `<file>.crt` and `<file>.key`.
    pub fn issue(&self, folder: &Path, file: &str, organization: &str, name: &str) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        write(&folder.join(format!("{file}.crt")), &leaf.pem());
        write(&folder.join(format!("{file}.key")), &key.serialize_pem());
    }
}

pub struct Bed {
    process: Option<Child>,
    port: u16,
    pub url: String,
    pub runtime: tokio::runtime::Runtime,
    pub provider: Arc<Provider>,
    pub signer: Signer,
    pub kms: KmsPlugin,
    pub etcd: Etcd,
    pub folder: tempfile::TempDir,
}

impl Bed {
    /// Nothing runs yet but what the server needs.
    pub fn new() -> Bed {
        let Some(etcd) = Etcd::start().unwrap() else { panic!("there is an etcd: run `make tools`") };
        let folder = tempfile::Builder::new().prefix("knarr-rotation-").tempdir().unwrap();
        let port = testkit::etcd::free_port().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let bed = Bed {
            process: None,
            port,
            url: format!("https://127.0.0.1:{port}"),
            runtime,
            provider: Arc::new(Provider::start()),
            signer: Signer::start(&folder.path().join("signer.sock")).unwrap(),
            kms: KmsPlugin::start(&folder.path().join("kms.sock")).unwrap(),
            etcd,
            folder,
        };
        write(&bed.path("provider.crt"), &bed.provider.authority());
        bed
    }

    fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.path(name).display().to_string();
        vec![
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.port),
            format!("--etcd-servers={}", self.etcd.endpoint),
            "--authorization-mode=Node,RBAC".into(),
            format!("--tls-cert-file={}", file("serving.crt")),
            format!("--tls-private-key-file={}", file("serving.key")),
            format!("--client-ca-file={}", file("clients.pem")),
            format!("--requestheader-client-ca-file={}", file("proxies.pem")),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-signing-endpoint={}", file("signer.sock")),
            format!("--encryption-provider-config={}", file("encryption.yaml")),
            "--encryption-provider-config-automatic-reload=true".into(),
            format!("--oidc-issuer-url={}", self.provider.issuer()),
            "--oidc-client-id=kubernetes".into(),
            format!("--oidc-ca-file={}", file("provider.crt")),
            "--oidc-groups-claim=groups".into(),
            "--oidc-signing-algs=ES256".into(),
        ]
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it, or starts it again, and waits until it is ready.
    pub fn start(&mut self, admin: &str) {
        self.stop();
        let log = std::fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(testkit::server::binary().unwrap());
        command.arg("kube-apiserver").args(self.flags()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("the program starts"));
        let client = self.certified(admin);
        self.until("the server is ready", || {
            self.runtime.block_on(client.get("/readyz")).is_ok_and(|reply| reply.code == 200)
        });
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only where it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// With the certificate of that name.
    pub fn certified(&self, name: &str) -> Client {
        Client::with_certificate(&self.url, self.folder.path(), name).unwrap()
    }

    pub fn get(&self, client: &Client, path: &str) -> Reply {
        self.runtime.block_on(client.get(path)).unwrap()
    }

    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(25).collect();
            eprintln!("the server's last words:");
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

//! Real etcd processes on free loopback ports, in a folder of their own, ended with the test.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use store::etcd::client::{Client, Options};
use store::etcd::{Config, EtcdStore};
use tempfile::TempDir;

const START_PATIENCE: Duration = Duration::from_secs(30);

/// Whether there is an etcd to test with; says so where there is none.
pub fn installed() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: etcd is not installed");
    }
    found
}

/// Certificates for members and clients, as PEM, with the files that etcd reads.
pub struct Tls {
    pub ca: String,
    pub client_cert: String,
    pub client_key: String,
    pub server_cert: String,
    pub server_key: String,
}

pub struct Etcd {
    members: Vec<Member>,
    scheme: &'static str,
    _folder: TempDir,
}

struct Member {
    arguments: Vec<String>,
    client_port: u16,
    data: PathBuf,
    log: PathBuf,
    process: Option<Child>,
}

impl Etcd {
    pub async fn start(size: usize, tls: Option<&Tls>) -> Etcd {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ports = free_ports(size * 2);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let peers: Vec<String> = (0..size).map(|at| format!("m{at}=http://127.0.0.1:{}", ports[size + at])).collect();
        let security = tls.map_or(Vec::new(), |tls| write_certificates(folder.path(), tls));
        let members = (0..size).map(|at| {
            let client = format!("{scheme}://127.0.0.1:{}", ports[at]);
            let peer = format!("http://127.0.0.1:{}", ports[size + at]);
            let data = folder.path().join(format!("m{at}"));
            let mut arguments: Vec<String> = [
                ("--name", format!("m{at}")),
                ("--data-dir", data.display().to_string()),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", peers.join(",")),
                ("--initial-cluster-state", "new".to_owned()),
                ("--log-level", "warn".to_owned()),
                ("--logger", "zap".to_owned()),
            ]
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect();
            arguments.extend(security.iter().cloned());
            let log = folder.path().join(format!("m{at}.log"));
            Member { arguments, client_port: ports[at], data, log, process: None }
        });
        let mut etcd = Etcd { members: members.collect(), scheme, _folder: folder };
        for at in 0..size {
            etcd.run(at);
        }
        etcd
    }

    pub fn endpoints(&self) -> Vec<String> {
        let endpoint = |member: &Member| format!("{}://127.0.0.1:{}", self.scheme, member.client_port);
        self.members.iter().map(endpoint).collect()
    }

    /// Waits until the cluster serves.
    pub async fn connect(&self, config: Config) -> EtcdStore {
        let config = Config { endpoints: self.endpoints(), ..config };
        let connect = async {
            loop {
                match EtcdStore::connect(config.clone()).await {
                    Ok(store) => return store,
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        };
        tokio::time::timeout(START_PATIENCE, connect).await.unwrap_or_else(|_| {
            let logs = self.members.iter().map(|member| std::fs::read_to_string(&member.log).unwrap_or_default());
            panic!("etcd does not serve: {}", logs.collect::<String>())
        })
    }

    pub fn run(&mut self, at: usize) {
        let member = &mut self.members[at];
        let log = File::options().create(true).append(true).open(&member.log).expect("a log file");
        let process = Command::new("etcd")
            .args(&member.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd is installed");
        member.process = Some(process);
    }

    /// Ends a member at once, as a power cut does.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            process.kill().expect("it was running");
            process.wait().expect("it ends");
        }
    }

    /// Makes a member hang without closing its connections, or goes on with it.
    pub fn hang(&self, at: usize, hangs: bool) {
        let process = self.members[at].process.as_ref().expect("it runs");
        let signal = if hangs { Signal::STOP } else { Signal::CONT };
        rustix::process::kill_process(Pid::from_child(process), signal).expect("it runs");
    }

    /// Takes away all that a dead member knows.
    pub fn wipe(&self, at: usize) {
        std::fs::remove_dir_all(&self.members[at].data).expect("it has data");
    }

    /// The member that leads now.
    pub async fn leader(&self) -> usize {
        let ask = async {
            loop {
                for (at, endpoint) in self.endpoints().into_iter().enumerate() {
                    if self.members[at].process.is_some() && leads(&endpoint).await == Some(true) {
                        return at;
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(START_PATIENCE, ask).await.expect("there is a leader")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for at in 0..self.members.len() {
            self.kill(at);
        }
    }
}

async fn leads(endpoint: &str) -> Option<bool> {
    let mut client = Client::new(&[endpoint], &Options::default()).ok()?;
    let status = tokio::time::timeout(Duration::from_secs(1), client.status()).await.ok()?.ok()?;
    Some(status.header?.member_id == status.leader)
}

/// Held together until all are known, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a free port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}

fn write_certificates(folder: &Path, tls: &Tls) -> Vec<String> {
    let mut arguments = vec!["--client-cert-auth=true".to_owned()];
    for (flag, pem) in
        [("--trusted-ca-file", &tls.ca), ("--cert-file", &tls.server_cert), ("--key-file", &tls.server_key)]
    {
        let path = folder.join(format!("{}.pem", flag.trim_start_matches('-')));
        std::fs::write(&path, pem).expect("a writable folder");
        arguments.push(format!("{flag}={}", path.display()));
    }
    arguments
}

//! The cluster's DNS with up to 10,000 Services: how many questions it answers over loopback, how fast, and what that costs.

mod askers;

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;

use crate::cluster::Cluster;
use crate::process;
use crate::report::{self, Better};
use askers::{Asking, ask};

const SERVICES: [usize; 3] = [100, 1_000, 10_000];
const NAMESPACES: usize = 10;
const TIME: Duration = Duration::from_secs(5);
/// What the cluster's DNS must reach.
const WANTED: f64 = 50_000.0;
const READY_TIMEOUT: Duration = Duration::from_secs(60);

pub async fn run() -> anyhow::Result<()> {
    let (mut starts, mut answers) = (Vec::new(), Vec::new());
    for services in SERVICES {
        let (start, cost) = with(services).await?;
        starts.push((services as f64, start));
        answers.push((services as f64, cost));
    }
    report::curve("DNS: from its start until all names are known", "Services", "s", &starts);
    report::growth("DNS: processor time of 1,000,000 answers", "Services there", "s", &answers);
    Ok(())
}

/// Answers how many seconds it took until all names were known, and the processor time of a million answers.
async fn with(services: usize) -> anyhow::Result<(f64, f64)> {
    let cluster = Cluster::start().await?;
    for number in 0..NAMESPACES {
        let namespace = format!("space{number}");
        cluster.namespace(&namespace).await?;
        let services = (0..services / NAMESPACES).map(|number| {
            json!({"metadata": {"name": format!("service{number}")}, "spec": {"ports": [{"name": "http", "port": 80}]}})
        });
        cluster.create_all(&format!("/api/v1/namespaces/{namespace}/services"), services).await?;
    }
    let began = Instant::now();
    let dns = Dns::start(&cluster)?;
    let names: Vec<String> = (0..services)
        .map(|number| {
            let (service, namespace) = (number % (services / NAMESPACES), number / (services / NAMESPACES));
            format!("service{service}.space{namespace}.svc.cluster.local")
        })
        .collect();
    dns.until_known(names.last().context("a name")?)?;
    let started = began.elapsed().as_secs_f64();
    report::head(&format!("cluster DNS with {services} Services, over loopback"), "wanted");
    report::line("from its start until all names are known", started, "s");
    report::line("memory, of which most are the Services themselves", process::resident_mib(dns.pid())?, "MiB");
    let missing: Vec<String> = names.iter().map(|name| name.replace("service", "www.example.com.service")).collect();
    let mut costs = Vec::new();
    for (what, names, asking) in [
        ("addresses, 2 askers with 32 questions each on their way", &names, Asking { askers: 2, window: 32, kind: 1 }),
        ("SRV records, the same", &names, Asking { askers: 2, window: 32, kind: 33 }),
        ("names of a search path that do not exist, the same", &missing, Asking { askers: 2, window: 32, kind: 1 }),
        ("addresses, 1 asker with 1 question", &names, Asking { askers: 1, window: 1, kind: 1 }),
    ] {
        let before = process::cpu_seconds(dns.pid())?;
        let (answers, latencies) = ask(dns.address, names, asking, TIME)?;
        let rate = answers as f64 / TIME.as_secs_f64();
        let cpu = process::cpu_seconds(dns.pid())? - before;
        match asking.window {
            1 => report::line(&format!("{what}: answers"), rate, "/s"),
            _ => report::compare(&format!("{what}: answers"), rate, WANTED, "/s", Better::More),
        }
        report::line("    p50", latencies.ms(0.5), "ms");
        report::line("    p99", latencies.ms(0.99), "ms");
        report::line("    answers per second of processor time", answers as f64 / cpu.max(0.01), "");
        costs.push(cpu * 1e6 / answers.max(1) as f64);
    }
    Ok((started, costs[0]))
}

/// `knarr dns` in a process of its own.
struct Dns {
    process: Child,
    address: SocketAddr,
}

impl Dns {
    fn start(cluster: &Cluster) -> anyhow::Result<Dns> {
        // The port is free now, and hardly anybody takes it within the next moment.
        let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
        let log = std::fs::File::create(cluster.server.data_dir().join("dns-log"))?;
        let process = Command::new(testkit::server::binary()?)
            .args(["dns", "--node-name=none", "--resolv-conf=/dev/null", "--bind-address=127.0.0.1", "--port"])
            .arg(address.port().to_string())
            .arg("--kubeconfig")
            .arg(cluster.server.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start knarr dns")?;
        Ok(Dns { process, address })
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn until_known(&self, name: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while Instant::now() < deadline {
            if askers::is_known(self.address, name) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the DNS does not know {name}")
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! Checks whether this host can run a server or a node: `knarr check` prints all findings, and whoever starts a server or
//! a node is told in one sentence why it would be in vain.

mod host;
mod rules;
mod cis;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use host::{Host, Ranges};
use rules::{Finding, Starts, Verdict};

#[derive(clap::Args)]
pub struct Flags {
    /// Data directory of knarr.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Port of the Kubernetes API.
    #[arg(long, env = "KNARR_HTTPS_PORT", default_value_t = 6443)]
    https_port: u16,
    /// Check the running cluster against the CIS Kubernetes Benchmark 1.12.
    #[arg(long)]
    cis: bool,
    /// Output format of --cis.
    #[arg(long, short, requires = "cis", value_enum, default_value = "text")]
    output: cis::Output,
    /// Kubeconfig for --cis (default: <data-dir>/admin.kubeconfig).
    #[arg(long, requires = "cis")]
    kubeconfig: Option<PathBuf>,
    /// Name of the node on this machine (default: the node of the host's name, or the only node).
    #[arg(long, requires = "cis")]
    node_name: Option<String>,
}

/// Prints what it found; fails where a node could not run.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if flags.cis {
        let place = cis::Place { data_dir: flags.data_dir, kubeconfig: flags.kubeconfig, node_name: flags.node_name };
        return runtime.block_on(cis::run(&place, flags.output));
    }
    let ports = [
        host::Port::new(any(flags.https_port), "the Kubernetes API", "--https-port"),
        host::Port::new(any(10250), "the kubelet", "--kubelet-port"),
        host::Port::spare(any(80), "the ingress", "--ingress-http-port"),
        host::Port::spare(any(443), "the ingress with TLS", "--ingress-https-port"),
    ];
    let host = runtime.block_on(Host::look(&flags.data_dir, Ranges::default(), ports.into()));
    let findings = rules::all(&host);
    for finding in &findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok     ",
            Verdict::Worse => "warning",
            Verdict::Missing => "MISSING",
        };
        println!("{mark}  {:<20} {}", finding.what, finding.detail);
    }
    let missing = findings.iter().filter(|finding| finding.verdict == Verdict::Missing).count();
    anyhow::ensure!(
        missing == 0,
        "{missing} requirements of a node are missing; `knarr server --disable-agent` runs without them"
    );
    Ok(())
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
}

/// How a program ends that need not be started again before the machine is: systemd does not (`RestartPreventExitStatus`).
pub const EXIT_LASTING: u8 = 78;

/// How the program ends with this error.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let is_lasting = error.downcast_ref::<rules::Refusal>().is_some_and(|refusal| refusal.is_lasting);
    if is_lasting { EXIT_LASTING } else { 1 }
}

/// What is about to start here.
pub struct Start<'a> {
    pub data_dir: &'a Path,
    /// Where the API is to be served, if this is a server.
    pub api: Option<SocketAddr>,
    /// The flags of the node, if there is to be one.
    pub node: Option<&'a crate::node::Flags>,
    pub service_cidr: Option<ipnet::IpNet>,
}

/// Fails with a sentence that says what stands in the way and what to do about it. What only makes things worse is logged.
pub async fn before_start(start: Start<'_>) -> anyhow::Result<()> {
    let api = start.api.map(|address| host::Port::new(address, "the Kubernetes API", "--https-port"));
    let kubelet = start.node.map(|node| host::Port::new(any(node.kubelet_port), "the kubelet", "--kubelet-port"));
    let mut ranges = Ranges::default();
    if let Some(node) = start.node {
        ranges.pods = node.cluster_cidr.to_string();
    }
    if let Some(services) = start.service_cidr {
        ranges.services = services.to_string();
    }
    let host = Host::look(start.data_dir, ranges, api.into_iter().chain(kubelet).collect()).await;
    let starts = match (start.api, start.node) {
        (Some(_), Some(_)) => Starts::ServerWithNode,
        (_, None) => Starts::Server,
        (None, Some(_)) => Starts::Node,
    };
    if let Some(why) = rules::refusal(&host, starts) {
        return Err(why.into());
    }
    let findings = if start.node.is_some() { rules::node(&host) } else { rules::server(&host) };
    for Finding { what, detail, .. } in findings.iter().filter(|finding| finding.verdict == Verdict::Worse) {
        tracing::warn!("{what}: {detail}");
    }
    Ok(())
}

//! `knarr cluster`: clusters of several nodes on this machine, without anything else. Every node has network, mount and
//! process namespaces of its own; a bridge joins them.

mod state;
mod machine;
mod machines;
mod links;
mod ports;
mod up;
mod nodes;
mod load;
mod exec;
mod faults;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use component_base::shutdown::Signals;
use rustix::fs::FlockOperation;

use self::machines::Machine;
use self::ports::Port;
use self::state::{Cluster, NODES_MAX, check_name};
use crate::progress::Progress;

pub use machine::{COMMAND as MACHINE, main as become_machine};

/// The port of every server's API.
const API_PORT: u16 = 6443;
/// Held while a range is chosen and until it can be seen in the routes.
const LOCK: &str = "/run/knarr/clusters.lock";

#[derive(clap::Args)]
pub struct Flags {
    /// Directory of all clusters.
    #[arg(long, global = true, env = "KNARR_CLUSTER_DIR", default_value = "/var/lib/knarr/clusters")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a cluster and wait until its nodes are ready.
    Create(Create),
    /// List clusters.
    List,
    /// Stop all processes of a cluster, keeping its data.
    Stop {
        #[arg(value_parser = check_name)]
        name: String,
        /// Seconds that containers have to stop.
        #[arg(long, default_value_t = 5)]
        grace_period: u64,
    },
    /// Start a stopped cluster.
    Start {
        #[arg(value_parser = check_name)]
        name: String,
    },
    /// Delete a cluster with all its data.
    Delete {
        #[arg(value_parser = check_name)]
        name: String,
    },
    /// Print the admin kubeconfig of a cluster.
    Kubeconfig {
        #[arg(value_parser = check_name)]
        name: String,
        /// Server to connect to, such as node-2.
        #[arg(long, default_value = "node-1")]
        server: String,
    },
    /// Load images onto every node: from archives, this machine, docker, podman or a registry.
    Load(load::Load),
    /// Run a command inside a node, in its network, mounts and processes, with this terminal.
    Exec(exec::Exec),
    /// Add a node to a running cluster and wait until it is ready.
    AddNode(nodes::Add),
    /// Drain a node and remove it from the cluster with all its data.
    RemoveNode(nodes::Remove),
    /// Inject a fault into a node.
    #[command(subcommand)]
    Fault(faults::Fault),
}

#[derive(clap::Args)]
struct Create {
    #[arg(value_parser = check_name)]
    name: String,
    /// Number of nodes, including servers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=NODES_MAX as i64))]
    nodes: u8,
    /// Number of nodes that are servers. More than one need etcd, which must be installed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: u8,
    /// Let nodes reach other networks with the address of this machine. Enables IP forwarding on this machine.
    #[arg(long)]
    uplink: bool,
    /// Forward a port of this machine to a port of a node: HOST:NODE, such as 8080:80, for node-1; HOST:NODE@node-2 for
    /// another. It listens on loopback unless an address is given: 0.0.0.0:8080:80.
    #[arg(long = "port", value_name = "HOST:NODE", value_parser = ports::parse)]
    ports: Vec<Port>,
    /// Add an argument to every `knarr server`, such as --server-arg=--disable=ingress.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    server_arg: Vec<String>,
    /// Add an argument to every `knarr agent`.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    agent_arg: Vec<String>,
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    let dir = std::path::absolute(&flags.dir).with_context(|| format!("find {}", flags.dir.display()))?;
    if !rustix::process::geteuid().is_root() {
        bail!("only root can create nodes in namespaces: use sudo");
    }
    if let Command::Exec(flags) = flags.command {
        std::process::exit(exec::run(&dir, flags)?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(async {
        match flags.command {
            Command::Create(flags) => create(&dir, flags).await,
            Command::List => list(&dir),
            Command::Stop { name, grace_period } => stop(&dir, &name, grace_period).await,
            Command::Start { name } => start(&dir, &name).await,
            Command::Delete { name } => delete(&dir, &name).await,
            Command::Kubeconfig { name, server } => kubeconfig(&dir, &name, &server),
            Command::Load(flags) => load::run(&dir, flags).await,
            Command::Exec(_) => unreachable!("it runs before any thread is started"),
            Command::AddNode(flags) => nodes::add(&dir, flags).await,
            Command::RemoveNode(flags) => nodes::remove(&dir, flags).await,
            Command::Fault(fault) => faults::run(&dir, fault).await,
        }
    })
}

async fn create(dir: &Path, flags: Create) -> anyhow::Result<()> {
    ensure!(flags.servers <= flags.nodes, "every server is a node: --nodes must be at least {}", flags.servers);
    let lock = lock()?;
    let folder = dir.join(&flags.name);
    ensure!(
        !folder.exists(),
        "cluster {0} already exists: start it with `knarr cluster start {0}` or delete it with `knarr cluster delete {0}`",
        flags.name
    );
    let used = machines::control_group_exists(&format!("knarr-{}-node-1", flags.name));
    ensure!(!used, "a cluster {} exists in another folder: choose another name", flags.name);
    let others = Cluster::all(dir)?.into_iter().filter_map(|(_, cluster)| Some(cluster.ok()?.range.into()));
    let taken: Vec<ipnet::IpNet> = links::taken().await?.into_iter().chain(others).collect();
    let range = state::free_range(&folder, &taken)?;
    let mut cluster = Cluster::new(dir, &flags.name, flags.nodes, flags.servers, flags.uplink, range);
    (cluster.server_arguments, cluster.agent_arguments) = (flags.server_arg, flags.agent_arg);
    flags.ports.iter().try_for_each(|port| cluster.node(&port.node).map(drop))?;
    cluster.ports = flags.ports;
    cluster.save()?;
    if let Err(error) = interruptible(bring_up(&mut cluster, lock)).await {
        take_away(&cluster).await.context("delete incomplete cluster")?;
        return Err(error);
    }
    Ok(())
}

async fn start(dir: &Path, name: &str) -> anyhow::Result<()> {
    let lock = lock()?;
    let mut cluster = Cluster::load(dir, name)?;
    if running(&cluster)? == cluster.nodes.len() {
        println!("cluster {name} is already running");
        return Ok(());
    }
    // Some of its machines may be left, of a start that was killed.
    take_down(&cluster).await?;
    state::check_range(cluster.range, &links::taken().await?)?;
    if let Err(error) = interruptible(bring_up(&mut cluster, lock)).await {
        take_down(&cluster).await.context("stop partly started cluster")?;
        return Err(error);
    }
    Ok(())
}

/// Starts everything, waits until it works, and says how to use it.
async fn bring_up(cluster: &mut Cluster, lock: File) -> anyhow::Result<()> {
    let progress = Progress::new(cluster.nodes.len() * 2 + 1);
    up::up(cluster, lock, &progress).await?;
    cluster.complete = true;
    cluster.save()?;
    progress.end();
    println!(
        "cluster {} is ready after {:.1} s: {} nodes; export KUBECONFIG={}",
        cluster.name,
        progress.elapsed().as_secs_f64(),
        cluster.nodes.len(),
        cluster.kubeconfig().display()
    );
    for port in &cluster.ports {
        println!("{} forwards to port {} of {}", port.host, port.port, port.node);
    }
    Ok(())
}

/// Whoever presses Ctrl-C wants nothing left behind.
async fn interruptible(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    tokio::select! {
        done = work => done,
        () = signals.received() => bail!("interrupted"),
    }
}

fn list(dir: &Path) -> anyhow::Result<()> {
    println!("{:<20} {:<10} {:<8} {:<8} API", "NAME", "STATUS", "NODES", "SERVERS");
    for (name, cluster) in Cluster::all(dir)? {
        let Ok(cluster) = cluster else {
            println!("{name:<20} {:<10} {:<8} {:<8} -", "Damaged", "-", "-");
            continue;
        };
        let (running, all) = (running(&cluster)?, cluster.nodes.len());
        let status = match running {
            0 => "Stopped",
            running if running == all => "Running",
            _ => "Degraded",
        };
        let url = cluster.servers().next().map(|node| node.url()).unwrap_or_default();
        println!("{name:<20} {status:<10} {:<8} {:<8} {url}", format!("{running}/{all}"), cluster.servers().count());
    }
    Ok(())
}

/// On how many nodes knarr runs.
fn running(cluster: &Cluster) -> anyhow::Result<usize> {
    let mut count = 0;
    for node in &cluster.nodes {
        if let Some(machine) = Machine::find(&cluster.node_folder(node))? {
            // One that ends right now does not answer.
            count += usize::from(machine.ask("status").is_ok_and(|status| status.starts_with("running")));
        }
    }
    Ok(count)
}

async fn stop(dir: &Path, name: &str, grace_period: u64) -> anyhow::Result<()> {
    let cluster = Cluster::load(dir, name)?;
    let progress = Progress::new(cluster.nodes.len());
    let ending = cluster.nodes.iter().map(|node| {
        let (folder, name, progress) = (cluster.node_folder(node), node.name.clone(), &progress);
        async move {
            let ended = tokio::task::spawn_blocking(move || match Machine::find(&folder)? {
                Some(machine) => machine.ask(&format!("power-off {grace_period}")).map(drop),
                None => Ok(()),
            });
            if let Err(error) = ended.await? {
                eprintln!("{name} did not stop cleanly: {error:#}");
            }
            progress.step(&format!("{name} has ended"));
            anyhow::Ok(())
        }
    });
    futures::future::try_join_all(ending).await?;
    progress.end();
    take_down(&cluster).await?;
    println!("cluster {name} is stopped; start it again with `knarr cluster start {name}`");
    Ok(())
}

async fn delete(dir: &Path, name: &str) -> anyhow::Result<()> {
    let cluster = match Cluster::load(dir, name) {
        Ok(cluster) => cluster,
        Err(error) => Cluster::remains(dir, name).map_err(|_| error)?,
    };
    take_away(&cluster).await?;
    println!("cluster {name} is deleted");
    Ok(())
}

/// Ends all machines at once; with their namespaces go their links and mounts.
async fn take_down(cluster: &Cluster) -> anyhow::Result<()> {
    let folders = cluster.nodes.iter().map(|node| cluster.node_folder(node)).chain([cluster.hub_folder()]);
    let ending = folders.map(|folder| tokio::task::spawn_blocking(move || machines::end(&folder)));
    for ended in futures::future::join_all(ending).await {
        ended??;
    }
    links::disconnect_host(cluster).await?;
    for node in &cluster.nodes {
        machines::remove_control_group(&cluster.control_group(node))?;
    }
    Ok(())
}

async fn take_away(cluster: &Cluster) -> anyhow::Result<()> {
    take_down(cluster).await?;
    std::fs::remove_dir_all(&cluster.folder).with_context(|| format!("remove {}", cluster.folder.display()))
}

fn kubeconfig(dir: &Path, name: &str, server: &str) -> anyhow::Result<()> {
    let cluster = Cluster::load(dir, name)?;
    print!("{}", up::kubeconfig(&cluster, cluster.node(server)?)?);
    Ok(())
}

fn lock() -> anyhow::Result<File> {
    std::fs::create_dir_all("/run/knarr").context("create /run/knarr")?;
    let file = linux::file::create(std::path::Path::new(LOCK), 0o600).with_context(|| format!("open {LOCK}"))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).with_context(|| format!("lock {LOCK}"))?;
    Ok(file)
}

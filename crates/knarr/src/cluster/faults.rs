//! `knarr cluster fault`: what happens to real machines, on purpose.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use nlink::TcHandle;
use nlink::netlink::tc::{NetemConfig, TbfConfig};
use nlink::util::{Bytes, Percent, Rate};

use super::links::{self, NODE_DEVICE};
use super::machines::Machine;
use super::state::{Cluster, check_name};
use super::up;

#[derive(clap::Subcommand)]
pub enum Fault {
    /// Disconnect a node from the network.
    Cut(Target),
    /// Connect a node to the network again.
    Uncut(Target),
    /// Slow down a node's network link in both directions; without options, make it fast again.
    Slow {
        #[command(flatten)]
        at: Target,
        /// Limit the bandwidth, in bits per second, such as 500kbit or 10mbit.
        #[arg(long, value_parser = rate)]
        rate: Option<u64>,
        /// Delay each packet, such as by 50ms. Needs the kernel's netem.
        #[arg(long, value_parser = crate::leader::duration)]
        delay: Option<Duration>,
        /// Drop this percentage of packets. Needs the kernel's netem.
        #[arg(long, value_parser = percent)]
        loss: Option<f64>,
    },
    /// Kill knarr on a node with SIGKILL. Its containers keep running; knarr stays down until it is restarted.
    Kill(Target),
    /// Restart knarr on a node, killing it first if it is running.
    Restart(Target),
}

#[derive(clap::Args)]
pub struct Target {
    /// Name of the cluster.
    #[arg(value_parser = check_name)]
    name: String,
    /// Name of the node, such as node-2.
    node: String,
}

pub async fn run(dir: &Path, fault: Fault) -> anyhow::Result<()> {
    match fault {
        Fault::Cut(at) => {
            set_connected(dir, &at, false).await?;
            println!("disconnected {}", at.node);
        }
        Fault::Uncut(at) => {
            set_connected(dir, &at, true).await?;
            println!("connected {}", at.node);
        }
        Fault::Slow { at, rate, delay, loss } => {
            slow(dir, &at, rate, delay, loss).await?;
            let is_fast = rate.is_none() && delay.is_none() && loss.is_none();
            println!("link of {} is {}", at.node, if is_fast { "fast" } else { "slow" });
        }
        Fault::Kill(at) => {
            ask(dir, &at, "kill")?;
            println!(
                "killed knarr on {}; restart it with `knarr cluster fault restart {} {}`",
                at.node, at.name, at.node
            );
        }
        Fault::Restart(at) => {
            ask(dir, &at, "kill")?;
            ask(dir, &at, "start")?;
            println!("knarr is running on {}", at.node);
        }
    }
    Ok(())
}

fn ask(dir: &Path, at: &Target, request: &str) -> anyhow::Result<String> {
    let cluster = Cluster::load(dir, &at.name)?;
    let node = cluster.node(&at.node)?;
    machine(&cluster, &cluster.node_folder(node))?.ask(request).with_context(|| format!("{request} {}", at.node))
}

fn machine(cluster: &Cluster, folder: &Path) -> anyhow::Result<Machine> {
    let found = Machine::find(folder)?;
    found.with_context(|| up::not_running(cluster))
}

async fn set_connected(dir: &Path, at: &Target, connected: bool) -> anyhow::Result<()> {
    let cluster = Cluster::load(dir, &at.name)?;
    let port = cluster.node(&at.node)?.name.as_str();
    let hub = links::inside(machine(&cluster, &cluster.hub_folder())?)?;
    if connected {
        hub.set_link_up(port).await.context("connect veth of node")
    } else {
        hub.set_link_down(port).await.context("disconnect veth of node")
    }
}

async fn slow(
    dir: &Path,
    at: &Target,
    rate: Option<u64>,
    delay: Option<Duration>,
    loss: Option<f64>,
) -> anyhow::Result<()> {
    let cluster = Cluster::load(dir, &at.name)?;
    let node = cluster.node(&at.node)?;
    let (hub, inside) = (
        links::inside(machine(&cluster, &cluster.hub_folder())?)?,
        links::inside(machine(&cluster, &cluster.node_folder(node))?)?,
    );
    // A queue holds back what leaves a device: the hub's for one direction, the node's for the other.
    for (connection, device) in [(&hub, node.name.as_str()), (&inside, NODE_DEVICE)] {
        connection
            .del_qdisc_if_exists(device, TcHandle::ROOT)
            .await
            .context("remove queueing discipline of the link")?;
        let made = match (rate, delay, loss) {
            (None, None, None) => continue,
            // This much is in every kernel.
            (Some(rate), None, None) => connection.replace_qdisc(device, bucket(rate)).await,
            _ => {
                let mut netem = NetemConfig::new();
                if let Some(rate) = rate {
                    netem = netem.rate(Rate::bits_per_sec(rate));
                }
                if let Some(delay) = delay {
                    netem = netem.delay(delay);
                }
                if let Some(loss) = loss {
                    netem = netem.loss(Percent::new(loss));
                }
                connection.replace_qdisc(device, netem.build()).await
            }
        };
        if made.as_ref().is_err_and(|error| error.is_not_found()) {
            bail!(
                "this kernel has no netem, which --delay and --loss need: load the module sch_netem, or use only --rate"
            );
        }
        made.context("set queueing discipline of the link")?;
    }
    Ok(())
}

/// So much in a row at full speed as makes no difference, and a queue that is full after about a second.
fn bucket(rate: u64) -> TbfConfig {
    let bytes = rate / 8;
    let burst = (bytes / 50).clamp(3000, 1 << 20);
    TbfConfig::new()
        .rate(Rate::bits_per_sec(rate))
        .burst(Bytes::new(burst))
        .limit(Bytes::new(burst + bytes.clamp(20_000, 4 << 20)))
        .build()
}

/// As `tc` writes it: 800bit, 64kbit, 10mbit, 1gbit.
fn rate(text: &str) -> anyhow::Result<u64> {
    let units = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];
    let found = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let parsed = found.and_then(|(number, factor): (&str, u64)| number.parse::<u64>().ok()?.checked_mul(factor));
    parsed.filter(|rate| *rate >= 8).with_context(|| format!("{text:?} is not a rate such as 500kbit or 10mbit"))
}

fn percent(text: &str) -> anyhow::Result<f64> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| anyhow!("{text:?} is not a percentage"))?;
    check_percent(number)
}

fn check_percent(number: f64) -> anyhow::Result<f64> {
    ensure!((0.0..=100.0).contains(&number), "a percentage must be between 0 and 100");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_tc_writes_them() {
        for (text, bits) in [("800bit", 800), ("64kbit", 64_000), ("10mbit", 10_000_000), ("1gbit", 1_000_000_000)] {
            assert_eq!(rate(text).unwrap(), bits);
        }
        for bad in ["", "10", "kbit", "-1mbit", "1.5mbit", "0mbit", "99999999999999gbit"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percentages() {
        assert_eq!((percent("1.5").unwrap(), percent("100%").unwrap()), (1.5, 100.0));
        assert!(percent("101").is_err() && percent("-1").is_err() && percent("x").is_err() && percent("NaN").is_err());
    }
}

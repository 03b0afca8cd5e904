//! Wires between machines: a namespace with one bridge per link, which is also the router between them. It has no uplink,
//! so that no packet leaves; it dies with the test, like the machines.
//!
//! On link N machines have addresses of 172.29.N.0/24, and the hub the last one, to which their default route leads. The
//! hub knows no pods: seen from the nodes it is the outside world.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use crate::machine::only_child;

const SETUP: &str = r#"
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
for (( link = 0; link < LINKS; link++ )); do
  ip link add link$link type bridge
  ip address add 172.29.$link.254/24 dev link$link
  ip link set link$link up
done
echo ready
exec 3<&0
cat <&3 >/dev/null &
wait $!
"#;

pub struct Hub {
    outer: Child,
    pid: u32,
    links: u8,
}

/// Where a machine is plugged in.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub link: u8,
    /// The last part of its address: 1 to 253.
    pub host: u8,
}

impl Place {
    pub fn address(self) -> String {
        format!("172.29.{}.{}", self.link, self.host)
    }

    /// The hub, on the same link.
    pub fn router(self) -> String {
        format!("172.29.{}.254", self.link)
    }
}

impl Hub {
    /// A hub with so many links. Machines on one link see each other directly, others by way of the hub.
    pub fn start(links: u8) -> anyhow::Result<Hub> {
        let mut outer = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "bash", "-ec", SETUP])
            .env("LINKS", links.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a hub")?;
        let output = outer.stdout.take().context("the hub's output")?;
        let mut line = String::new();
        std::io::BufReader::new(output).read_line(&mut line)?;
        if line.trim() != "ready" {
            let _ = outer.kill();
            bail!("the hub did not start: these tests need root, iproute2 and util-linux");
        }
        let pid = only_child(outer.id())?;
        Ok(Hub { outer, pid, links })
    }

    /// Its network, which is outside for every node.
    pub fn network(&self) -> std::path::PathBuf {
        format!("/proc/{}/ns/net", self.pid).into()
    }

    /// Runs a program on the hub's network.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.pid.to_string(), "--"]).arg(program);
        command
    }

    /// What a shell on the hub's network prints.
    pub fn shell(&self, script: &str) -> anyhow::Result<String> {
        let output = self.command("bash").args(["-ec", script]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Joins the network of a process to a link, with a device `uplink0` that has its address and default route.
    pub(crate) fn plug(&self, pid: u32, place: Place) -> anyhow::Result<()> {
        if place.link >= self.links {
            bail!("the hub has no link {}", place.link);
        }
        let (port, Place { link, .. }) = (port(pid), place);
        self.shell(&format!(
            "ip link add {port} type veth peer name uplink0 netns {pid}
             ip link set {port} master link{link} up
             nsenter --net --target {pid} ip link set uplink0 up"
        ))?;
        self.address(pid, place)
    }

    /// The kernel takes its time with the network of a dead machine; nobody shall answer for it meanwhile.
    pub(crate) fn unplug(&self, pid: u32) {
        let _ = self.shell(&format!("ip link delete {} 2>/dev/null || true", port(pid)));
    }

    /// The machine's one address and default route, instead of those that it has.
    pub(crate) fn address(&self, pid: u32, place: Place) -> anyhow::Result<()> {
        let (address, router) = (place.address(), place.router());
        self.shell(&format!(
            "nsenter --net --target {pid} bash -ec '
             ip address flush dev uplink0
             ip address add {address}/24 dev uplink0
             ip route replace default via {router}'"
        ))?;
        Ok(())
    }

    /// Pulls the cable of a machine, or puts it back.
    pub(crate) fn set_connected(&self, pid: u32, connected: bool) -> anyhow::Result<()> {
        let state = if connected { "up" } else { "down" };
        self.shell(&format!("ip link set {} {state}", port(pid))).map(drop)
    }
}

/// The hub's end of a machine's cable.
fn port(pid: u32) -> String {
    format!("m{pid}")
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

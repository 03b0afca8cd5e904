//! A machine for a node: its own network, mounts and processes, with no uplink, so that no packet can leave and nothing
//! stays behind. Everything in it dies with it, also when the test is killed. A machine stands alone, or is connected to
//! others by a [`Hub`].

use std::fs::File;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::hub::{Hub, Place};

/// The address that a machine alone has on its one link, which leads nowhere.
pub const ADDRESS: &str = "172.29.0.1";

/// What the machine sees to at its start. bash is its first process, because it reaps what others leave behind. Its input
/// ends when the test does, however that ends, and with it ends the machine.
const SETUP: &str = r#"
# As systemd leaves it on every machine.
mount --make-rshared /
ip link set lo up
if [ -n "$ALONE" ]; then
  ip link add uplink0 type bridge
  ip address add "$ALONE/24" dev uplink0
  ip link set uplink0 up
fi
mkdir -p /run/knarr
mount -t tmpfs knarr-test /run/knarr
mkdir -p /run/cdi
mount -t tmpfs knarr-test /run/cdi
mkdir -p /var/log/pods /var/log/containers
mount -t tmpfs knarr-test /var/log/pods
mount -t tmpfs knarr-test /var/log/containers
echo ready
exec 3<&0
cat <&3 >/dev/null &
wait $!
"#;

pub struct Machine {
    /// `unshare`, whose end takes everything with it.
    outer: Child,
    /// The first process inside, as seen from outside.
    pid: u32,
    name: String,
    plug: Option<Plug>,
}

/// A machine's connection to others.
struct Plug {
    hub: Arc<Hub>,
    place: parking_lot::Mutex<Place>,
}

impl Machine {
    /// A machine alone.
    pub fn start() -> anyhow::Result<Machine> {
        Machine::spawn(ADDRESS)
    }

    /// A machine that others can reach, with the address of its place.
    pub fn start_on(hub: &Arc<Hub>, place: Place) -> anyhow::Result<Machine> {
        let mut machine = Machine::spawn("")?;
        hub.plug(machine.pid, place)?;
        machine.plug = Some(Plug { hub: hub.clone(), place: parking_lot::Mutex::new(place) });
        Ok(machine)
    }

    /// A new machine in the same place; this one must be gone by then, or be cut off.
    pub fn successor(&self) -> anyhow::Result<Machine> {
        match &self.plug {
            None => Machine::start(),
            Some(plug) => Machine::start_on(&plug.hub, *plug.place.lock()),
        }
    }

    fn spawn(alone: &str) -> anyhow::Result<Machine> {
        let mut outer = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "bash", "-ec", SETUP])
            .env("ALONE", alone)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a machine")?;
        let mut line = String::new();
        let output = outer.stdout.take().context("the machine's output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
        if line.trim() != "ready" {
            let _ = outer.kill();
            bail!("the machine did not start: these tests need root, iproute2 and util-linux");
        }
        let pid = only_child(outer.id())?;
        let name = format!("knarr-test-{}-{pid}", std::process::id());
        Ok(Machine { outer, pid, name, plug: None })
    }

    /// The address that others reach it by.
    pub fn address(&self) -> String {
        self.plug.as_ref().map_or_else(|| ADDRESS.to_owned(), |plug| plug.place.lock().address())
    }

    /// Gives it another place on its link, as a new lease would.
    pub fn readdress(&self, host: u8) -> anyhow::Result<()> {
        let plug = self.plug.as_ref().context("the machine is on no hub")?;
        let mut place = plug.place.lock();
        place.host = host;
        plug.hub.address(self.pid, *place)
    }

    /// Pulls its cable: nothing comes in or goes out until [`Machine::uncut`].
    pub fn cut(&self) -> anyhow::Result<()> {
        self.plug.as_ref().context("the machine is on no hub")?.hub.set_connected(self.pid, false)
    }

    pub fn uncut(&self) -> anyhow::Result<()> {
        self.plug.as_ref().context("the machine is on no hub")?.hub.set_connected(self.pid, true)
    }

    /// A name no other machine has; its cgroups are below the one of this name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first process of the machine, by the id it has outside.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Runs a program inside.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--mount", "--pid", "--target", &self.pid.to_string(), "--"]).arg(program);
        command
    }

    /// What a shell inside prints.
    pub fn shell(&self, script: &str) -> anyhow::Result<String> {
        let output = self.command("bash").args(["-c", script]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn network(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid).into()
    }

    /// A path of the machine, reached from outside.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        Path::new(&format!("/proc/{}/root", self.pid)).join(inside.strip_prefix("/").unwrap_or(inside))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The first process of a process namespace takes all others with it.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        if let Some(plug) = &self.plug {
            plug.hub.unplug(self.pid);
        }
        remove_cgroups(&self.name);
    }
}

/// Connects from inside a network namespace.
pub fn connect_within(network: &Path, address: &str) -> anyhow::Result<TcpStream> {
    let address = address.to_owned();
    within(network, move || TcpStream::connect(&address))
}

/// Listens inside a network namespace.
pub fn listen_within(network: &Path, address: &str) -> anyhow::Result<TcpListener> {
    let address = address.to_owned();
    within(network, move || TcpListener::bind(&address))
}

/// Takes datagrams inside a network namespace.
pub fn datagrams_within(network: &Path, address: &str) -> anyhow::Result<UdpSocket> {
    let address = address.to_owned();
    within(network, move || UdpSocket::bind(&address))
}

/// Does something on a thread of its own inside a network namespace; threads that it starts are inside, too.
pub fn within<T: Send + 'static>(
    network: &Path,
    open: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let namespace = File::open(network).with_context(|| format!("open {}", network.display()))?;
    let opening = std::thread::spawn(move || -> anyhow::Result<T> {
        // The thread ends with its only socket, so nobody else finds itself in there.
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?;
        Ok(open()?)
    });
    opening.join().map_err(|_| anyhow::anyhow!("the thread of a socket panicked"))?
}

/// A process that was started through `nsenter`, which waits for it outside.
pub struct Inside {
    outer: Child,
    pid: u32,
}

impl Inside {
    pub fn new(outer: Child) -> anyhow::Result<Inside> {
        let pid = only_child(outer.id())?;
        Ok(Inside { outer, pid })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: rustix::process::Signal) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid as i32).context("a process id")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits for its end.
    pub fn wait(&mut self, timeout: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            if let Some(status) = self.outer.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }
}

pub(crate) fn only_child(parent: u32) -> anyhow::Result<u32> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let children = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some(first) = children.split_whitespace().next() {
            return Ok(first.parse()?);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!("process {parent} has no child")
}

/// Takes the cgroups of a machine away, the deepest first. They are empty once its processes are gone, which may
/// take the kernel a moment.
fn remove_cgroups(name: &str) {
    let roots = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    for root in roots.chain([PathBuf::from("/sys/fs/cgroup")]) {
        let group = root.join(name);
        for _ in 0..100 {
            if !group.is_dir() || remove_tree(&group) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn remove_tree(group: &Path) -> bool {
    let below = std::fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).for_each(|path| _ = remove_tree(&path));
    std::fs::remove_dir(group).is_ok()
}

//! Virtual machines of Debian packages alone: a real kernel with cgroup v2 and AppArmor, systemd, a disk, and a power cord that
//! can be pulled. They have no way out: their only cable leads to another of them, or nowhere.
//!
//! The processor is emulated where the kernel's own virtualization does not work, so everything takes its time in there.

mod parts;
mod power;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tempfile::TempDir;

pub use parts::{Guard, Kernel, Parts};
pub use power::Lost;

const BOOT_TIMEOUT: Duration = Duration::from_secs(600);
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// States that somebody waits for.
const STATE_TIMEOUT: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const SOCKET_TIMEOUT: Duration = Duration::from_secs(30);
const PROCESSORS: &str = "2";

/// What a machine is to be.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    pub name: &'a str,
    /// Such as `10.77.0.1/24`; without one the machine has no address until it is given one.
    pub address: Option<&'a str>,
    pub kernel: Kernel,
    pub memory_mib: u32,
    /// What the disk was not told to keep is lost with the power.
    pub volatile_disk: bool,
}

impl Default for Config<'_> {
    fn default() -> Self {
        let address = Some("10.77.0.1/24");
        Config { name: "machine", address, kernel: Kernel::Usual, memory_mib: 1536, volatile_disk: false }
    }
}

pub struct Vm {
    parts: Parts,
    name: String,
    arguments: String,
    memory_mib: u32,
    volatile_disk: bool,
    /// Disks and the console's log.
    folder: TempDir,
    /// Sockets, whose paths must be short.
    sockets: TempDir,
    cable: (PathBuf, PathBuf),
    /// The last part of its network card's address, which no other machine of this test has.
    card: u8,
    running: Option<Running>,
    acknowledged: Arc<Mutex<Vec<String>>>,
    number: u64,
}

struct Running {
    qemu: Child,
    agent: UnixStream,
    lines: Receiver<String>,
}

impl Vm {
    /// A machine that is switched off, with `/mnt` full of these files.
    pub fn new(parts: &Parts, config: &Config<'_>, files: &[(&str, &Path)]) -> anyhow::Result<Vm> {
        let folder = tempfile::Builder::new().prefix("vm-").tempdir_in(parts.folder())?;
        let sockets = tempfile::Builder::new().prefix("knarr-vm-").tempdir()?;
        copy(&parts.root_image(), &folder.path().join("disk.img"))?;
        files_image(files, &folder.path().join("host.img"))?;
        let mut arguments = format!("console=ttyS0 panic=1 machine.name={}{}", config.name, parts.arguments());
        if let Some(address) = config.address {
            arguments += &format!(" machine.address={address}");
        }
        let cable = (sockets.path().join("cable"), sockets.path().join("nobody"));
        static CARDS: AtomicU8 = AtomicU8::new(1);
        Ok(Vm {
            parts: parts.clone(),
            name: config.name.to_owned(),
            arguments,
            memory_mib: config.memory_mib,
            volatile_disk: config.volatile_disk,
            folder,
            sockets,
            cable,
            card: CARDS.fetch_add(1, Ordering::Relaxed),
            running: None,
            acknowledged: Arc::default(),
            number: 0,
        })
    }

    /// One cable for both, from their next boot on.
    pub fn connect(one: &mut Vm, other: &mut Vm) {
        one.cable.1 = other.cable.0.clone();
        other.cable.1 = one.cable.0.clone();
    }

    /// Switches it on and waits until it runs commands.
    pub fn boot(&mut self) -> anyhow::Result<()> {
        ensure!(self.running.is_none(), "the machine runs already");
        let (disk, run) = (self.path("disk.img"), self.path("run.img"));
        if self.volatile_disk {
            copy(&disk, &run)?;
            power::new_log(&self.path("writes.log"))?;
        }
        let qemu = self.command().spawn().context("start qemu")?;
        let agent = connect(&self.sockets.path().join("agent"))?;
        let lines = read_lines(agent.try_clone()?);
        let acks = connect(&self.sockets.path().join("acks"))?;
        let acknowledged = self.acknowledged.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(acks).lines().map_while(Result::ok) {
                acknowledged.lock().push(line);
            }
        });
        self.running = Some(Running { qemu, agent, lines });
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + BOOT_TIMEOUT;
        while !self
            .line(until)
            .with_context(|| format!("boot {}:\n{}", self.name, self.console()))?
            .starts_with("ready")
        {}
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        // Whichever way the test ends, nobody stays behind.
        command.args([
            "--pdeathsig",
            "KILL",
            "qemu-system-x86_64",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
        ]);
        command.args(self.parts.accelerator()).args(["-smp", PROCESSORS, "-m", &self.memory_mib.to_string()]);
        command.arg("-kernel").arg(self.parts.kernel_file("vmlinuz"));
        command.arg("-initrd").arg(self.parts.kernel_file("initrd")).args(["-append", &self.arguments]);
        command.arg("-serial").arg(format!("file:{}", self.path("console.log").display()));
        let mut disks = vec![format!("driver=file,node-name=file,filename={}", self.disk().display())];
        // This machine does not lose its power: it need not wait for its own disk.
        disks[0] += ",cache.no-flush=on";
        if self.volatile_disk {
            let log = self.path("writes.log").display().to_string();
            disks.push(format!("driver=file,node-name=log,cache.no-flush=on,filename={log}"));
            disks.push("driver=blklogwrites,node-name=root,file=file,log=log".to_owned());
        } else {
            disks.push("driver=raw,node-name=root,file=file".to_owned());
        }
        for (name, file) in [("modules", self.parts.kernel_file("modules.img")), ("host", self.path("host.img"))] {
            disks.push(format!("driver=file,node-name={name},read-only=on,filename={}", file.display()));
        }
        disks.iter().for_each(|disk| _ = command.args(["-blockdev", disk]));
        for drive in ["root", "modules", "host"] {
            command.args(["-device", &format!("virtio-blk-pci,drive={drive},write-cache=on")]);
        }
        command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
        for name in ["agent", "acks"] {
            let socket = self.sockets.path().join(name);
            command.args(["-chardev", &format!("socket,id={name},server=on,wait=off,path={}", socket.display())]);
            command.args(["-device", &format!("virtserialport,chardev={name},name={name}")]);
        }
        let (own, peer) = (self.cable.0.display(), self.cable.1.display());
        let cable = format!("dgram,id=cable,local.type=unix,local.path={own},remote.type=unix,remote.path={peer}");
        let address = format!("virtio-net-pci,netdev=cable,mac=52:54:00:00:00:{:02x}", self.card);
        command.args(["-netdev", &cable, "-device", &address]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn disk(&self) -> PathBuf {
        self.path(if self.volatile_disk { "run.img" } else { "disk.img" })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a script prints, and its exit code.
    pub fn run(&mut self, script: &str) -> anyhow::Result<(i32, String)> {
        self.number += 1;
        let number = self.number.to_string();
        let running = self.running.as_mut().context("the machine is switched off")?;
        writeln!(running.agent, "{number} {}", STANDARD.encode(script))?;
        let until = Instant::now() + RUN_TIMEOUT;
        loop {
            let line = self.line(until).with_context(|| format!("{script}\n{}", self.console()))?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [answered, code, output] if answered == number => {
                    let output = String::from_utf8_lossy(&STANDARD.decode(output)?).into_owned();
                    return Ok((code.parse()?, output));
                }
                // Somebody gave up waiting for it.
                _ => continue,
            }
        }
    }

    /// What a script prints that must succeed.
    pub fn ok(&mut self, script: &str) -> String {
        let (code, output) = self.run(script).unwrap_or_else(|error| panic!("{error:?}"));
        if code != 0 {
            let journal = self.journal();
            panic!("{}: exit code {code} of: {script}\n{output}\n{journal}", self.name);
        }
        output
    }

    /// What the machine's services and its kernel said last.
    fn journal(&mut self) -> String {
        self.run("journalctl --no-pager -n 60; dmesg | tail -n 20").unwrap_or_default().1
    }

    /// Waits until a script succeeds.
    pub fn until(&mut self, what: &str, script: &str) -> String {
        let until = Instant::now() + STATE_TIMEOUT;
        loop {
            let (code, output) = self.run(script).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            if code == 0 {
                return output;
            }
            if Instant::now() > until {
                let journal = self.journal();
                panic!("{}: {what}: {output}\n{journal}", self.name);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// In an orderly way, as an administrator does it.
    pub fn reboot(&mut self) -> anyhow::Result<()> {
        // The agent may be gone before its answer.
        let running = self.running.as_mut().context("the machine is switched off")?;
        writeln!(running.agent, "reboot {}", STANDARD.encode("systemctl --no-block reboot"))?;
        self.wait_ready()
    }

    /// Pulls the cord: whatever the disk was not told to keep is lost. Says what that was.
    pub fn cut_power(&mut self) -> anyhow::Result<Lost> {
        let mut running = self.running.take().context("the machine is switched off")?;
        running.qemu.kill()?;
        running.qemu.wait()?;
        match self.volatile_disk {
            true => power::lose_unflushed(&self.path("disk.img"), &self.path("writes.log")),
            false => Ok(Lost::default()),
        }
    }

    /// What the machine said on its port `acks`, line by line.
    pub fn acknowledged(&self) -> Vec<String> {
        self.acknowledged.lock().clone()
    }

    pub fn console(&self) -> String {
        let log = std::fs::read(self.path("console.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn line(&mut self, until: Instant) -> anyhow::Result<String> {
        let running = self.running.as_mut().context("the machine is switched off")?;
        match running.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("the machine does not answer"),
            Err(RecvTimeoutError::Disconnected) => bail!("qemu ended"),
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It may have ended by itself.
            let _ = running.qemu.kill();
            let _ = running.qemu.wait();
        }
    }
}

/// The holes of a disk stay holes.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(to).status()?;
    ensure!(copied.success(), "copy {} to {}", from.display(), to.display());
    Ok(())
}

fn files_image(files: &[(&str, &Path)], image: &Path) -> anyhow::Result<()> {
    let tree = tempfile::tempdir_in(image.parent().context("a file is in a folder")?)?;
    let mut bytes = 64 << 20;
    for (name, file) in files {
        bytes += std::fs::metadata(file).with_context(|| format!("read {}", file.display()))?.len() * 5 / 4;
        std::fs::copy(file, tree.path().join(name))?;
    }
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-L", "host", "-d"]).arg(tree.path()).arg(image);
    let made = command.arg(format!("{}k", bytes >> 10)).status().context("run mke2fs")?;
    ensure!(made.success(), "write {}", image.display());
    Ok(())
}

fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    let until = Instant::now() + SOCKET_TIMEOUT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(error).context("reach qemu"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn read_lines(stream: UnixStream) -> Receiver<String> {
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

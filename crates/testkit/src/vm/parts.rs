//! Of what a virtual machine is made (`scripts/machine-parts`), and on which processor it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::ensure;

/// An emulated kernel says its first word after a few seconds, a real processor's at once.
const FIRST_WORD_TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The one of this Debian.
    Usual,
    /// The one of the Debian before.
    Old,
    /// The one of this Debian's backports.
    New,
}

impl Kernel {
    fn name(self) -> &'static str {
        match self {
            Kernel::Usual => "usual",
            Kernel::Old => "old",
            Kernel::New => "new",
        }
    }
}

/// Which of the kernel's guards a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    AppArmor,
    /// With Debian's policy and the types of containers, refusing nothing.
    Selinux,
}

impl Guard {
    fn root(self) -> &'static str {
        match self {
            Guard::AppArmor => "usual",
            Guard::Selinux => "selinux",
        }
    }

    /// What the kernel is told.
    pub(crate) fn arguments(self) -> &'static str {
        match self {
            Guard::AppArmor => "",
            Guard::Selinux => " security=selinux selinux=1 enforcing=0",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Parts {
    folder: PathBuf,
    kernel: Kernel,
    guard: Guard,
}

impl Parts {
    /// Takes some minutes where they were never made, and needs a mirror then. An error says what this machine lacks.
    pub fn make(kernel: Kernel) -> anyhow::Result<Parts> {
        Parts::guarded(kernel, Guard::AppArmor)
    }

    pub fn guarded(kernel: Kernel, guard: Guard) -> anyhow::Result<Parts> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let folder = checkout.join("target/machine");
        let mut command = Command::new(checkout.join("scripts/machine-parts"));
        let made = command.arg(&folder).args([kernel.name(), guard.root()]).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "{}", said.lines().last().unwrap_or("scripts/machine-parts failed"));
        Ok(Parts { folder, kernel, guard })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn root_image(&self) -> PathBuf {
        self.folder.join(match self.guard {
            Guard::AppArmor => "root.img",
            Guard::Selinux => "root-selinux.img",
        })
    }

    pub(crate) fn arguments(&self) -> &'static str {
        self.guard.arguments()
    }

    pub(crate) fn kernel_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("kernel-{}", self.kernel.name())).join(name)
    }

    /// The machine's own processor where it can be lent out. That /dev/kvm is there says little: where this machine is
    /// itself a guest, it may refuse or, worse, never run anything. So a kernel must have said a word first.
    pub(crate) fn accelerator(&self) -> [&'static str; 4] {
        static WORKS: OnceLock<bool> = OnceLock::new();
        match *WORKS.get_or_init(|| self.kvm_works()) {
            true => ["-accel", "kvm", "-cpu", "host"],
            // Newer kernels allocate memory by cmpxchg16b, which Debian 12's emulator gets wrong: they trip over their own lists.
            false => ["-accel", "tcg,thread=multi", "-cpu", "max,cx16=off"],
        }
    }

    fn kvm_works(&self) -> bool {
        if !Path::new("/dev/kvm").exists() {
            return false;
        }
        let Ok(folder) = tempfile::tempdir() else { return false };
        let console = folder.path().join("console");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(["-accel", "kvm", "-cpu", "host", "-m", "256", "-serial", &format!("file:{}", console.display())]);
        command.arg("-kernel").arg(self.kernel_file("vmlinuz")).args(["-append", "earlyprintk=ttyS0 console=ttyS0"]);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(mut qemu) = spawned else { return false };
        let until = Instant::now() + FIRST_WORD_TIMEOUT;
        let mut works = false;
        while !works && Instant::now() < until {
            works = std::fs::read(&console).is_ok_and(|said| String::from_utf8_lossy(&said).contains("Linux version"));
            std::thread::sleep(Duration::from_millis(50));
        }
        // It ends by itself, or has ended.
        let _ = qemu.kill();
        let _ = qemu.wait();
        works
    }
}

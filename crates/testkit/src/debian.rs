//! A fresh Debian on a machine of its own: the smallest base, this checkout at its usual path, and the Rust that built it.
//! What is installed there is gone with it; downloaded packages are kept for the next one.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::{Hub, Machine, Place};

/// Mounts everything below `$OWN/root`. Folders that runs on this machine share with others get something of their own.
const MOUNTS: &str = r#"
set -e
root=$OWN/root
mkdir -p "$root" "$OWN/upper" "$OWN/work" "$OWN/tmp" "$ARCHIVES"
mount -t overlay knarr-test -o "lowerdir=$LOWER,upperdir=$OWN/upper,workdir=$OWN/work" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs knarr-test "$root/run"
mount --bind "$ARCHIVES" "$root/var/cache/apt/archives"
# Containers have overlays of their own, which the kernel does not put on top of this one.
chmod 1777 "$OWN/tmp"
mount --bind "$OWN/tmp" "$root/tmp"
for folder in /var/lib/knarr /var/log/pods /var/log/containers; do
  mkdir -p "$root$folder"
  mount -t tmpfs knarr-test "$root$folder"
done
read_only() {
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
}
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Whom this machine believes: its way to the registries may be watched by an authority of its own.
mkdir -p "$root/etc/ssl/certs" "$root/usr/local/share/ca-certificates"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
cp -L /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
# Packages start no daemons, least of all on the host's network, and nobody needs them after a power cut.
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/knarr-test"
# As every installer leaves it.
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > "$root/etc/hosts"
"#;

/// The checkout itself with all that is built there, and the Rust of this machine.
const SHARED: &str = r#"
mkdir -p "$root$CHECKOUT" "$CHECKOUT/target/cluster" "$CHECKOUT/target/tools" "$OWN/tools"
# What runs these tests is built already, too. Before mounts, which may cover where it stands in a Debian whose mounts are shared.
for runner in "$(command -v cargo-nextest)" "$CHECKOUT/target/tools/bin/cargo-nextest"; do
  if [ -x "$runner" ]; then
    mkdir -p "$OWN/tools/bin"
    cp "$runner" "$OWN/tools/bin/"
    break
  fi
done
mount --bind "$CHECKOUT" "$root$CHECKOUT"
mount -t tmpfs knarr-test "$root$CHECKOUT/target/cluster"
mount --bind "$OWN/tools" "$root$CHECKOUT/target/tools"
read_only "$CARGO_HOME" "$CARGO_HOME"
read_only "$RUSTUP_HOME" "$RUSTUP_HOME"
# Where this machine is such a Debian itself, the toolchain and the packages are mounts of their own.
read_only "$SYSROOT" "$SYSROOT"
read_only "$CARGO_HOME/registry" "$CARGO_HOME/registry"
# No meter where nobody looks.
printf 'silent\nshow-error\n' > "$root/root/.curlrc"
"#;

/// What a clone has, and nothing that was built. Of Rust only the toolchain; packages that were downloaded for this machine
/// stand for the download of the same packages, and others are downloaded into a layer of its own.
const COPIED: &str = r#"
mkdir -p "$OWN/checkout" "$root$CHECKOUT" "$root$CARGO_HOME/registry" "$OWN/registry" "$OWN/registry-work"
# Without git, or in an unpacked archive: everything but what is built.
files() {
  git ls-files --cached --others --exclude-standard -z 2>/dev/null ||
    find . \( -path ./target -o -name node_modules \) -prune -o \( -type f -o -type l \) -print0
}
(cd "$CHECKOUT" && files |
  tar --create --null --files-from=- --ignore-failed-read --warning=no-failed-read --file=-) | tar --extract --directory="$OWN/checkout"
mount --bind "$OWN/checkout" "$root$CHECKOUT"
mount -t overlay knarr-test -o "lowerdir=$CARGO_HOME/registry,upperdir=$OWN/registry,workdir=$OWN/registry-work" "$root$CARGO_HOME/registry"
cp "$CARGO_HOME"/config.toml "$root$CARGO_HOME/" 2>/dev/null || true
read_only "$SYSROOT" "$SYSROOT"
"#;

/// The root of all that runs there, not that of a chroot: in one, the kernel makes no user namespaces, and who joins the mount
/// namespace stands outside. Then shared, as systemd does for the root of a machine.
const ROOT: &str = r#"
mount --make-rprivate /
mkdir -p "$root/outside"
cd "$root"
pivot_root . outside
umount --lazy /outside
rmdir /outside
mount --make-rshared /
"#;

/// A chroot is enough for commands of a user.
const SHARING: &str = r#"
mount --make-rshared "$root"
"#;

/// Of the test's environment, what decides whether something must be built again, and how Python trusts its registry.
const PASSED_ON: [&str; 5] = ["CARGO_INCREMENTAL", "CARGO_PROFILE_", "CARGO_BUILD_", "RUSTFLAGS", "PIP_CERT"];

pub struct Debian {
    machine: Machine,
    checkout: PathBuf,
    environment: Vec<(String, String)>,
    contents: Contents,
    /// All that was written there, which goes with it.
    own: TempDir,
}

/// What of this machine is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Shared,
    Copied,
}

impl Contents {
    fn mounts(self) -> &'static str {
        match self {
            Contents::Shared => SHARED,
            Contents::Copied => COPIED,
        }
    }

    fn root(self) -> &'static str {
        match self {
            Contents::Shared => SHARING,
            Contents::Copied => ROOT,
        }
    }
}

/// Where the compiler of this checkout is.
fn sysroot(checkout: &Path) -> anyhow::Result<String> {
    let asked =
        Command::new("rustc").args(["--print", "sysroot"]).current_dir(checkout).output().context("ask rustc")?;
    ensure!(asked.status.success(), "ask rustc: {}", String::from_utf8_lossy(&asked.stderr));
    Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
}

impl Debian {
    /// Takes a minute where none was made before, and needs a mirror then. Variables are those of all its terminals.
    pub fn start(hub: &Arc<Hub>, place: Place, variables: &[(&str, &str)]) -> anyhow::Result<Debian> {
        Debian::start_with(hub, place, variables, Contents::Shared)
    }

    /// The same with a copy of the checkout in which nothing is built, and with none of this machine's programs but Rust's.
    pub fn start_fresh(hub: &Arc<Hub>, place: Place, variables: &[(&str, &str)]) -> anyhow::Result<Debian> {
        Debian::start_with(hub, place, variables, Contents::Copied)
    }

    fn start_with(
        hub: &Arc<Hub>,
        place: Place,
        variables: &[(&str, &str)],
        contents: Contents,
    ) -> anyhow::Result<Debian> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let folder = checkout.join("target/readme");
        let lower = folder.join("debian");
        let made = Command::new(checkout.join("scripts/debian-root")).arg(&lower).stdin(Stdio::null()).output()?;
        ensure!(made.status.success(), "no fresh Debian: {}", String::from_utf8_lossy(&made.stderr));
        let own = tempfile::Builder::new().prefix("own-").tempdir_in(&folder)?;
        let machine = Machine::start_on(hub, place)?;
        let home = |name: &str, usual: &str| {
            let below_home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(usual);
            std::env::var_os(name).map_or_else(below_home, PathBuf::from).display().to_string()
        };
        let (cargo, rustup) = (home("CARGO_HOME", ".cargo"), home("RUSTUP_HOME", ".rustup"));
        let sysroot = sysroot(&checkout)?;
        let setup = machine
            .command("bash")
            .args(["-c", &format!("{MOUNTS}{}{}", contents.mounts(), contents.root())])
            .env("OWN", own.path())
            .env("LOWER", &lower)
            .env("CHECKOUT", &checkout)
            .env("ARCHIVES", folder.join("archives"))
            .env("CARGO_HOME", &cargo)
            .env("RUSTUP_HOME", &rustup)
            .env("SYSROOT", &sysroot)
            .stdin(Stdio::null())
            .output()?;
        ensure!(setup.status.success(), "mount the fresh Debian: {}", String::from_utf8_lossy(&setup.stderr));
        let rust = match contents {
            Contents::Shared => format!("{cargo}/bin:{sysroot}/bin"),
            Contents::Copied => format!("{sysroot}/bin"),
        };
        let path = format!("{rust}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let cgroup_root = format!("/{}", machine.name());
        let mut environment: Vec<(String, String)> = [
            ("PATH", path.as_str()),
            ("HOME", "/root"),
            ("CARGO_HOME", &cargo),
            ("RUSTUP_HOME", &rustup),
            ("KNARR_CGROUP_ROOT", &cgroup_root),
            ("KNARR_EVICTION_HARD", "memory.available<10Mi"),
        ]
        .into_iter()
        .chain(variables.iter().copied())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        if contents == Contents::Copied {
            environment.push(("CARGO_NET_OFFLINE".to_owned(), "true".to_owned()));
        }
        environment.extend(std::env::vars().filter(|(name, _)| PASSED_ON.iter().any(|start| name.starts_with(start))));
        Ok(Debian { machine, checkout, environment, contents, own })
    }

    /// A shell in the checkout, on the machine's own network, which leads nowhere.
    pub fn terminal(&self) -> anyhow::Result<Terminal> {
        self.shell(true)
    }

    /// A shell with this machine's network, to install things.
    pub fn connected_terminal(&self) -> anyhow::Result<Terminal> {
        self.shell(false)
    }

    fn shell(&self, own_network: bool) -> anyhow::Result<Terminal> {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--pid", "--target", &self.machine.pid().to_string()]);
        if own_network {
            command.arg("--net");
        }
        command.arg("--");
        if self.contents == Contents::Shared {
            command.arg("chroot").arg(self.own.path().join("root"));
        }
        command.args([
            "/bin/bash",
            "--noprofile",
            "--norc",
            "-c",
            r#"cd "$1" && exec 2>&1 && exec /bin/bash --norc"#,
            "-",
        ]);
        command.arg(&self.checkout).env_clear().envs(self.environment.iter().cloned());
        Terminal::open(command)
    }
}

/// A shell that is told one command after another.
pub struct Terminal {
    shell: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    number: usize,
}

impl Terminal {
    fn open(mut command: Command) -> anyhow::Result<Terminal> {
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("open a terminal")?;
        let (input, output) = (shell.stdin.take().context("its input")?, shell.stdout.take().context("its output")?);
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(Terminal { shell, input, lines, number: 0 })
    }

    /// What a command prints, and its exit code.
    pub fn run(&mut self, command: &str, timeout: Duration) -> anyhow::Result<(Vec<String>, i32)> {
        self.number += 1;
        let mark = format!("knarr-test-end-{}-{}", std::process::id(), self.number);
        writeln!(self.input, "{{ {command}\n}} </dev/null\nprintf '\\n{mark} %s\\n' $?")?;
        let mut printed = Vec::new();
        let until = Instant::now() + timeout;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(&mark) {
                    Some(code) => {
                        while printed.last().is_some_and(String::is_empty) {
                            printed.pop();
                        }
                        return Ok((printed, code.trim().parse()?));
                    }
                    None => printed.push(line),
                },
                Err(RecvTimeoutError::Timeout) => bail!("{command}: no end after {timeout:?}\n{}", printed.join("\n")),
                Err(RecvTimeoutError::Disconnected) => bail!("{command}: the terminal ended\n{}", printed.join("\n")),
            }
        }
    }

    /// Begins a command that goes on, and answers once what it printed is enough.
    pub fn begin(
        &mut self,
        command: &str,
        timeout: Duration,
        enough: impl Fn(&[String]) -> bool,
    ) -> anyhow::Result<Vec<String>> {
        writeln!(self.input, "exec {command} </dev/null")?;
        let (mut printed, until) = (Vec::new(), Instant::now() + timeout);
        while !enough(&printed) {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.push(line),
                Err(error) => bail!("{command}: {error}\n{}", printed.join("\n")),
            }
        }
        Ok(printed)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What runs in it ends with its machine at the latest.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

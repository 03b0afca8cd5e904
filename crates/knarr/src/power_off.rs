//! `knarr power-off`: when the machine goes down, the running node ends its pods first, in the order of their priority.
//!
//! A socket in the data folder leads to the node; only its owner can use it. One line in, one line out:
//! `power-off <seconds> <seconds for critical pods>` answers `ok`, or `late` when pods were still running at the end; `-` is
//! what the node was told at its start.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use component_base::tasks;
use kubelet::shutdown::PowerOff;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

#[derive(clap::Args)]
pub struct Flags {
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Seconds for all pods to end (default: the kubelet's configuration, or 30).
    #[arg(long)]
    grace_period: Option<u64>,
    /// Seconds of these reserved for critical pods (default: the kubelet's configuration, or 10).
    #[arg(long)]
    grace_period_critical_pods: Option<u64>,
}

fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("node.sock")
}

/// Asks the running node, and waits.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(socket(&flags.data_dir)).context("connect to the running node")?;
    let word = |seconds: Option<u64>| seconds.map_or_else(|| "-".into(), |seconds| seconds.to_string());
    writeln!(stream, "power-off {} {}", word(flags.grace_period), word(flags.grace_period_critical_pods))?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    match reply.trim() {
        "ok" => Ok(()),
        "late" => bail!("pods were still running after their grace period"),
        other => bail!("the node answered {other:?}"),
    }
}

/// How long pods have to end where nobody says otherwise: all of them, and the critical ones of that.
#[derive(Clone, Copy)]
pub struct Periods {
    pub all: Duration,
    pub critical: Duration,
}

impl Default for Periods {
    fn default() -> Periods {
        Periods { all: Duration::from_secs(30), critical: Duration::from_secs(10) }
    }
}

/// How logind is asked to wait for the pods, on a machine with systemd.
pub fn logind(periods: Periods) -> kubelet::logind::Settings {
    kubelet::logind::Settings {
        bus: "/run/dbus/system_bus_socket".into(),
        conf_dir: "/etc/systemd/logind.conf.d".into(),
        grace: periods.all,
        critical_grace: periods.critical,
    }
}

/// Answers requests until it is dropped.
pub fn listen(
    data_dir: &Path,
    power_off: Arc<PowerOff>,
    periods: Periods,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let path = socket(data_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context("remove old power-off socket"),
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let power_off = power_off.clone();
                    tasks::spawn(async move {
                        if let Err(error) = answer(stream, &power_off, periods).await {
                            tracing::warn!(%error, "power-off socket request failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connection to power-off socket");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    })
}

async fn answer(stream: tokio::net::UnixStream, power_off: &PowerOff, periods: Periods) -> std::io::Result<()> {
    const REQUEST_BYTES_MAX: u64 = 256;
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let seconds = |word: &str, told: Duration| match word {
        "-" => Some(told),
        word => word.parse().ok().map(Duration::from_secs),
    };
    let reply = match words[..] {
        ["power-off", all, critical] => match (seconds(all, periods.all), seconds(critical, periods.critical)) {
            (Some(all), Some(critical)) if power_off.ask(all, critical).await => "ok\n",
            (Some(_), Some(_)) => "late\n",
            _ => "error\n",
        },
        _ => "error\n",
    };
    write.write_all(reply.as_bytes()).await
}

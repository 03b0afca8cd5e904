//! Graceful node shutdown on machines with systemd: logind tells that the machine will go down, and waits until the kubelet lets go of
//! its lock, at most as long as `InhibitDelayMaxSec` allows. As upstream, the kubelet raises that limit where it is too low.

mod bus;
mod wire;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use reconcile::Shutdown;
use tokio::sync::oneshot;

use crate::shutdown::PowerOff;
pub use bus::BusError;
use bus::{Bus, Target};
use wire::Value;

/// After a connection that was lost, as upstream.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);
/// logind reads its settings anew a moment after it was told to.
const RELOAD_LOOKS_MAX: u32 = 10;
const RELOAD_LOOK_EVERY: Duration = Duration::from_millis(300);
/// As upstream's kubelet names it, so that the two do not both leave one.
const OVERRIDE_FILE: &str = "99-kubelet.conf";
const SIGHUP: i32 = 1;

const MANAGER: Target = Target {
    destination: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};
const PROPERTIES: Target = Target { interface: "org.freedesktop.DBus.Properties", ..MANAGER };
const SYSTEMD: Target = Target {
    destination: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const SHUTDOWN_SIGNALS: &str = "type='signal',interface='org.freedesktop.login1.Manager',member='PrepareForShutdown',path='/org/freedesktop/login1'";

#[derive(Clone, Debug)]
pub struct Settings {
    /// The socket of the system bus: `/run/dbus/system_bus_socket`.
    pub bus: PathBuf,
    /// Where settings of logind are put: `/etc/systemd/logind.conf.d`.
    pub conf_dir: PathBuf,
    pub grace: Duration,
    pub critical_grace: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("write {}: {source}", .path.display())]
    Override { path: PathBuf, source: std::io::Error },
    #[error(
        "node shutdown manager was unable to update logind InhibitDelayMaxSec to {wanted:?} (ShutdownGracePeriod), \
         current value of InhibitDelayMaxSec ({now:?}) is less than requested ShutdownGracePeriod"
    )]
    DelayTooShort { wanted: Duration, now: Duration },
}

/// Waits for the machine to go down, until told to end. A bus or a logind that is not there at the start is told once, as upstream.
pub async fn run(settings: Settings, power_off: Arc<PowerOff>, shutdown: Shutdown) {
    let mut watched = false;
    loop {
        let (ended, end) = (oneshot::channel(), Arc::new(parking_lot::Mutex::new(None::<UnixStream>)));
        let work = (settings.clone(), power_off.clone(), end.clone(), tokio::runtime::Handle::current());
        // A thread of its own, which waits in the kernel: a blocking task would keep the program from ending.
        std::thread::spawn(move || {
            let (settings, power_off, end, tokio) = work;
            let mut locked = false;
            let result = watch(&settings, &power_off, &end, &tokio, &mut locked);
            // Nobody waits any more when the kubelet ends.
            let _ = ended.0.send((result, locked));
        });
        tokio::select! {
            () = shutdown.cancelled() => {
                if let Some(socket) = end.lock().take() {
                    // It may be closed already.
                    let _ = socket.shutdown(std::net::Shutdown::Both);
                }
                return;
            }
            result = ended.1 => match result {
                Ok((Err(error), locked)) => {
                    watched |= locked;
                    tracing::error!(%error, "cannot watch the node for shutdown events");
                }
                Ok((Ok(never), _)) => match never {},
                Err(_) => return,
            },
        }
        if !watched {
            return;
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

enum Never {}

/// Holds a lock, and ends the pods when the machine goes down. Comes back with an error only.
fn watch(
    settings: &Settings,
    power_off: &PowerOff,
    end: &parking_lot::Mutex<Option<UnixStream>>,
    tokio: &tokio::runtime::Handle,
    locked: &mut bool,
) -> Result<Never, LogindError> {
    let mut bus = Bus::connect(&settings.bus)?;
    *end.lock() = Some(bus.socket()?);
    allow_delay(&mut bus, settings)?;
    bus.listen(SHUTDOWN_SIGNALS)?;
    let mut lock = Some(take_lock(&mut bus)?);
    *locked = true;
    tracing::info!(seconds = settings.grace.as_secs(), "holding logind's shutdown until pods have ended");
    loop {
        let signal = bus.next_signal()?;
        if signal.member != "PrepareForShutdown" {
            continue;
        }
        match signal.body.first() {
            Some(Value::Bool(true)) => {
                tokio.block_on(power_off.ask(settings.grace, settings.critical_grace));
                // Now the machine may go down.
                lock = None;
            }
            Some(Value::Bool(false)) if lock.is_none() => {
                tracing::info!("node shutdown was cancelled");
                power_off.take_back();
                lock = Some(take_lock(&mut bus)?);
            }
            _ => {}
        }
    }
}

fn take_lock(bus: &mut Bus) -> Result<OwnedFd, LogindError> {
    let words = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
    let body = words.map(|word| Value::Text(word.to_owned())).to_vec();
    let (_, mut fds) = bus.call(MANAGER, "Inhibit", body)?;
    Ok(fds.pop().ok_or_else(|| BusError::Strange("Inhibit".to_owned()))?)
}

fn delay(bus: &mut Bus) -> Result<Duration, LogindError> {
    let body = vec![Value::Text(MANAGER.interface.to_owned()), Value::Text("InhibitDelayMaxUSec".to_owned())];
    let (answer, _) = bus.call(PROPERTIES, "Get", body)?;
    match answer.body.first() {
        Some(Value::Property(microseconds)) => Ok(Duration::from_micros(*microseconds)),
        _ => Err(BusError::Strange("InhibitDelayMaxUSec".to_owned()).into()),
    }
}

/// logind waits no longer than its settings say: where that is too short for the pods, it is told to wait longer.
fn allow_delay(bus: &mut Bus, settings: &Settings) -> Result<(), LogindError> {
    if delay(bus)? >= settings.grace {
        return Ok(());
    }
    let path = settings.conf_dir.join(OVERRIDE_FILE);
    let text = format!(
        "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n",
        settings.grace.as_secs_f64().ceil() as u64
    );
    let written = std::fs::create_dir_all(&settings.conf_dir)
        .and_then(|()| component_base::files::write_whole(&path, text.into_bytes(), 0o644));
    written.map_err(|source| LogindError::Override { path, source })?;
    let body =
        vec![Value::Text("systemd-logind.service".to_owned()), Value::Text("all".to_owned()), Value::Int(SIGHUP)];
    bus.call(SYSTEMD, "KillUnit", body)?;
    let mut now = delay(bus)?;
    for _ in 0..RELOAD_LOOKS_MAX {
        if now >= settings.grace {
            return Ok(());
        }
        std::thread::sleep(RELOAD_LOOK_EVERY);
        now = delay(bus)?;
    }
    Err(LogindError::DelayTooShort { wanted: settings.grace, now })
}

/// Starts [`run`] beside the kubelet.
pub fn start(settings: Settings, power_off: Arc<PowerOff>, shutdown: Shutdown) {
    tasks::spawn(run(settings, power_off, shutdown));
}

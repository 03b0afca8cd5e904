//! Notifies systemd about readiness and shutdown, as sd_notify(3) does; does nothing without it.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service does what it is for.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}\n"));
}

pub fn stopping() {
    tell("STOPPING=1\n");
}

fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&path, state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// A path, or a name without a file, which begins with `@`.
fn send(path: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_by_path_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("knarr-notify-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name).unwrap();
        let listeners = [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&named).unwrap()];
        for (listener, told) in listeners.iter().zip([path.into_os_string(), format!("@{name}").into()]) {
            send(&told, "READY=1\n").unwrap();
            let mut buffer = [0; 32];
            let length = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1\n");
        }
        assert!(send(OsStr::new("/nothing/there"), "READY=1").is_err());
    }
}

//! The resolvers this machine uses: read from resolv.conf, and again whenever the file changes.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use component_base::inotify::{Watcher, What};
use reconcile::Shutdown;
use tokio::sync::watch;

/// Changes that come close together are read once.
const SETTLE: Duration = Duration::from_millis(50);
/// After the watch itself has failed.
const RETRY: Duration = Duration::from_secs(30);
/// More are not asked.
const UPSTREAMS_MAX: usize = 15;
/// No such file is larger.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The addresses of `nameserver` lines.
pub fn parse(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next()? == "nameserver").then(|| words.next()).flatten()?;
        // A scope such as %eth0 names a link; link-local resolvers are of no use through a plain socket.
        address.split('%').next()?.parse::<IpAddr>().ok()
    });
    addresses.map(|address| SocketAddr::new(address, 53)).take(UPSTREAMS_MAX).collect()
}

/// Follows the file until shutdown. Without a file there is nobody to ask.
pub async fn follow(path: PathBuf, upstreams: watch::Sender<Vec<SocketAddr>>, shutdown: Shutdown) {
    loop {
        let watched = tokio::select! {
            () = shutdown.cancelled() => return,
            watched = watch_file(&path, &upstreams) => watched,
        };
        if let Err(error) = watched {
            tracing::warn!(path = %path.display(), %error, "cannot watch resolv.conf");
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

async fn watch_file(path: &Path, upstreams: &watch::Sender<Vec<SocketAddr>>) -> std::io::Result<()> {
    loop {
        let changes = Watcher::new()?;
        // Watching comes before reading, so that no change falls between the two.
        for folder in folders(path) {
            changes.add_if_there(&folder, What::CLOSE_WRITE | What::CREATE | What::MOVED_TO | What::DELETE)?;
        }
        let read = read(path);
        upstreams.send_if_modified(|known| {
            let changed = *known != read;
            *known = read;
            changed
        });
        // A link may lead elsewhere by then, so the watch is made anew.
        changes.changed().await?;
        tokio::time::sleep(SETTLE).await;
    }
}

fn read(path: &Path) -> Vec<SocketAddr> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => parse(&text),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read resolv.conf");
            Vec::new()
        }
    }
}

/// The folder of the file, and that of what it leads to: it often is a link into /run.
fn folders(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in [Some(path.to_owned()), std::fs::canonicalize(path).ok()].into_iter().flatten() {
        let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        found.push(folder.to_owned());
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(upstreams: &[SocketAddr]) -> Vec<String> {
        upstreams.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn name_servers_are_found() {
        let text = "# nameserver 1.1.1.1\nsearch example\nnameserver 192.0.2.1\n nameserver\tfd00::1 # here\nnameserver x\nnameserver\n";
        assert_eq!(texts(&parse(text)), ["192.0.2.1:53", "[fd00::1]:53"]);
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_in_place_and_through_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, inner) = (folder.path().join("resolv.conf"), folder.path().join("run"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("stub"), "nameserver 192.0.2.1\n").unwrap();
        std::os::unix::fs::symlink(inner.join("stub"), &link).unwrap();
        let (sender, mut receiver) = watch::channel(Vec::new());
        let shutdown = Shutdown::new();
        let task = tokio::spawn(follow(link.clone(), sender, shutdown.clone()));
        let mut until = async |expected: &str| {
            let seen = receiver.wait_for(|upstreams| texts(upstreams) == [expected]);
            tokio::time::timeout(Duration::from_secs(20), seen).await.expect("it is read").expect("it is followed");
        };
        until("192.0.2.1:53").await;
        std::fs::write(inner.join("stub"), "nameserver 192.0.2.2\n").unwrap();
        until("192.0.2.2:53").await;
        std::fs::write(folder.path().join("new"), "nameserver 192.0.2.3\n").unwrap();
        std::fs::rename(folder.path().join("new"), &link).unwrap();
        until("192.0.2.3:53").await;
        shutdown.cancel();
        task.await.unwrap();
    }
}

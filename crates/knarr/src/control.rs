//! The socket in the data folder by which `knarr snapshot save` reaches the running server. Only its owner can.
//!
//! One line in, one line out: `snapshot <path>` answers `ok <revision>` or `error <why>`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use component_base::tasks;
use store::embedded::{Config, EmbeddedStore};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("control.sock")
}

/// Answers requests until it is dropped.
pub fn listen(data_dir: &Path, store: Arc<EmbeddedStore>) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let path = socket(data_dir);
    // The store's lock says that no other server runs here, so a socket that is there is a dead one's.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("remove the old control socket");
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let store = store.clone();
                    tasks::spawn(async move {
                        if let Err(error) = answer(stream, &store).await {
                            tracing::warn!(%error, "control socket request failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connection to control socket");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    })
}

async fn answer(stream: tokio::net::UnixStream, store: &EmbeddedStore) -> std::io::Result<()> {
    const REQUEST_BYTES_MAX: u64 = 8192;
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(tokio::io::AsyncReadExt::take(read, REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let reply = match line.trim_end().split_once(' ') {
        Some(("snapshot", path)) => match store.snapshot_save(Path::new(path)).await {
            Ok(revision) => format!("ok {revision}\n"),
            Err(error) => format!("error {error}\n"),
        },
        _ => "error unknown request\n".to_string(),
    };
    write.write_all(reply.as_bytes()).await
}

/// Asks the running server for a snapshot; where none runs, reads the store itself.
pub fn save_snapshot(data_dir: &Path, file: &Path) -> anyhow::Result<u64> {
    match UnixStream::connect(socket(data_dir)) {
        Ok(mut stream) => {
            writeln!(stream, "snapshot {}", file.display())?;
            let mut reply = String::new();
            BufReader::new(stream).read_line(&mut reply)?;
            match reply.trim_end().split_once(' ') {
                Some(("ok", revision)) => revision.parse().context("read response of the server"),
                Some((_, why)) => bail!("{why}"),
                None => bail!("the server stopped before it answered"),
            }
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            let dir = data_dir.join("store");
            if !dir.is_dir() {
                bail!("no store in {}", data_dir.display());
            }
            let store = EmbeddedStore::open(Config::new(dir)).context("open store")?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(store.snapshot_save(file))?.0)
        }
        Err(error) => Err(error).context("connect to the running server"),
    }
}

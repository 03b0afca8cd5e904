//! The socket in the data folder by which commands reach the running server. Only its owner can use it.
//!
//! One line in, one line out: `snapshot <path>` answers `ok <revision>`, `encryption status`, `encryption enable` and `encryption rotate`
//! answer `ok <JSON>`; whatever fails answers `error <why>`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use component_base::tasks;
use kube_apiserver::encryption::Encryption;
use store::embedded::{Config, EmbeddedStore};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("control.sock")
}

/// What commands may ask of a server.
pub struct Control {
    /// Where it has the embedded one.
    store: Option<Arc<EmbeddedStore>>,
    /// Once the API server runs.
    encryption: OnceLock<Arc<Encryption>>,
}

impl Control {
    /// Answers requests for as long as the process lives.
    pub fn listen(data_dir: &Path, store: Option<Arc<EmbeddedStore>>) -> anyhow::Result<Arc<Control>> {
        let control = Arc::new(Control { store, encryption: OnceLock::new() });
        let path = socket(data_dir);
        // The store's lock, or etcd's, says that no other server runs here, so a socket that is there is a dead one's.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context("remove the old control socket");
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        tasks::spawn(accept(listener, control.clone()));
        Ok(control)
    }

    pub fn serve_encryption(&self, encryption: Arc<Encryption>) {
        // It is set once, by the one start of the API server.
        let _ = self.encryption.set(encryption);
    }

    async fn reply(&self, line: &str) -> anyhow::Result<String> {
        match line.split_once(' ') {
            Some(("snapshot", path)) => {
                let store = self.store.as_ref().context("this server does not use the embedded store")?;
                Ok(store.snapshot_save(Path::new(path)).await?.to_string())
            }
            Some(("encryption", what)) => {
                let encryption = self.encryption.get().context("the API server is still starting: try again")?;
                match what {
                    "status" => {}
                    "enable" => encryption.enable().await?,
                    "rotate" => encryption.rotate().await?,
                    _ => bail!("unknown request"),
                }
                Ok(encryption.status().to_string())
            }
            _ => bail!("unknown request"),
        }
    }
}

async fn accept(listener: UnixListener, control: Arc<Control>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let control = control.clone();
                tasks::spawn(async move {
                    if let Err(error) = answer(stream, &control).await {
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
}

async fn answer(stream: tokio::net::UnixStream, control: &Control) -> std::io::Result<()> {
    const REQUEST_BYTES_MAX: u64 = 8192;
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(tokio::io::AsyncReadExt::take(read, REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let reply = match control.reply(line.trim_end()).await {
        Ok(answer) => format!("ok {answer}\n"),
        Err(error) => format!("error {error:#}\n"),
    };
    write.write_all(reply.as_bytes()).await
}

/// Asks the running server something, and answers what it says.
pub fn ask(data_dir: &Path, request: &str) -> anyhow::Result<String> {
    let stream = UnixStream::connect(socket(data_dir));
    let mut stream =
        stream.with_context(|| format!("connect to the running server of {}; is it running?", data_dir.display()))?;
    asked(&mut stream, request)
}

fn asked(stream: &mut UnixStream, request: &str) -> anyhow::Result<String> {
    writeln!(stream, "{request}")?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    match reply.trim_end().split_once(' ') {
        Some(("ok", answer)) => Ok(answer.to_owned()),
        Some((_, why)) => bail!("{why}"),
        None => bail!("the server stopped before it answered"),
    }
}

/// Asks the running server for a snapshot; where none runs, reads the store itself.
pub fn save_snapshot(data_dir: &Path, file: &Path) -> anyhow::Result<u64> {
    match UnixStream::connect(socket(data_dir)) {
        Ok(mut stream) => {
            let revision = asked(&mut stream, &format!("snapshot {}", file.display()))?;
            revision.parse().context("read response of the server")
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

//! A plugin behind its socket.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::v2::key_management_service_client::KeyManagementServiceClient;
use crate::{Error, v2};

/// How long a call waits before it looks again whether the plugin listens: it may be started after the server, or be restarting.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Plugin {
    channel: Channel,
    timeout: Duration,
}

impl Plugin {
    /// Connects with the first call. `socket` is a path, or `@name` in the abstract namespace of Linux.
    pub fn new(socket: &Path, timeout: Duration) -> Plugin {
        Plugin { channel: channel(socket), timeout }
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub async fn status(&self) -> Result<v2::StatusResponse, Error> {
        let call = || async { self.client().status(v2::StatusRequest {}).await };
        within(self.timeout, call).await
    }

    pub async fn encrypt(&self, plaintext: &[u8], uid: &str) -> Result<v2::EncryptResponse, Error> {
        let call = || async {
            let request = v2::EncryptRequest { plaintext: plaintext.to_vec(), uid: uid.to_owned() };
            self.client().encrypt(request).await
        };
        within(self.timeout, call).await
    }

    pub async fn decrypt(
        &self,
        ciphertext: &[u8],
        uid: &str,
        key_id: &str,
        annotations: &HashMap<String, Vec<u8>>,
    ) -> Result<Vec<u8>, Error> {
        let call = || async {
            let request = v2::DecryptRequest {
                ciphertext: ciphertext.to_vec(),
                uid: uid.to_owned(),
                key_id: key_id.to_owned(),
                annotations: annotations.clone(),
            };
            self.client().decrypt(request).await
        };
        Ok(within(self.timeout, call).await?.plaintext)
    }

    fn client(&self) -> KeyManagementServiceClient<Channel> {
        KeyManagementServiceClient::new(self.channel.clone())
    }
}

/// Connects with the first call. `socket` is a path, or `@name` in the abstract namespace of Linux.
pub fn channel(socket: &Path) -> Channel {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { connect(path).await.map(TokioIo::new) }
    });
    // The address is of no interest to the connector, but a channel needs one; plugins see it as the authority.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// The answer of a call, or that there was none in time. A call that could not be made because nobody listens is made again,
/// as upstream's client waits for a connection.
pub(crate) async fn within<T, F>(timeout: Duration, call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let mut last = None;
    let answered = async {
        loop {
            match call().await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if is_unconnected(&status) => last = Some(described(&status)),
                Err(status) => return Err(Error { code: status.code(), message: status.message().to_owned() }),
            }
            tokio::time::sleep(CONNECT_AGAIN).await;
        }
    };
    if let Ok(answer) = tokio::time::timeout(timeout, answered).await {
        return answer;
    }
    let why = last.map_or_else(String::new, |why| format!(": {why}"));
    Err(Error::deadline(format!("context deadline exceeded{why}")))
}

async fn connect(path: PathBuf) -> std::io::Result<UnixStream> {
    use std::os::linux::net::SocketAddrExt;
    let Some(name) = path.to_str().and_then(|text| text.strip_prefix('@')) else {
        return UnixStream::connect(path).await;
    };
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Whether the call did not reach the plugin. What the plugin itself answers has no source.
fn is_unconnected(status: &tonic::Status) -> bool {
    matches!(status.code(), tonic::Code::Unavailable | tonic::Code::Unknown)
        && std::error::Error::source(status).is_some()
}

/// What a transport says at first is never the reason.
fn described(status: &tonic::Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

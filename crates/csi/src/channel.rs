//! Calls over a unix socket.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{Error, Result};

/// A channel that connects with its first call. One is made for each operation, so that a driver that has been replaced meanwhile is found.
pub fn channel(socket: &Path) -> Channel {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The address is of no interest to the connector, but a channel needs one.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// The answer of a call, or that there was none in time.
pub async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = std::result::Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => Ok(answer.map_err(described)?.into_inner()),
        Err(_) => Err(Error { code: tonic::Code::DeadlineExceeded, message: "context deadline exceeded".to_owned() }),
    }
}

/// What a transport says at first is never the reason.
fn described(status: tonic::Status) -> Error {
    let mut error = Error { code: status.code(), message: status.message().to_owned() };
    let mut source = std::error::Error::source(&status);
    while let Some(cause) = source {
        error.message.push_str(&format!(": {cause}"));
        source = cause.source();
        // A call that could not be made at all is no answer of the driver.
        if error.code == tonic::Code::Unknown {
            error.code = tonic::Code::Unavailable;
        }
    }
    error
}

//! Probes that only connect.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::TcpStream;

use super::{Answer, authority};

pub(super) async fn ask(host: &str, port: u16, timeout: Duration) -> Answer {
    match connect(host, port, timeout).await {
        Ok(_) => Answer::Success,
        Err(error) => Answer::Failure(error.to_string()),
    }
}

/// Why there is no connection, worded as Go's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("dial tcp {address}: connect: {}", words(.source))]
    Connect { address: String, source: std::io::Error },
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
}

pub(super) async fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, DialError> {
    let address = authority(host, port);
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => {
            // A probe sends little and waits for the answer.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY on probe connection");
            }
            Ok(stream)
        }
        Ok(Err(source)) => Err(DialError::Connect { address, source }),
        Err(_) => Err(DialError::Timeout { address }),
    }
}

fn words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        ErrorKind::HostUnreachable => "no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

//! TLS to backends. Whoever they are, they are taken, as ingress-nginx does unless told otherwise: pods have addresses, and
//! hardly ever certificates for them.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub struct Connectors {
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Connectors {
    pub fn new() -> Result<Connectors, trust::Error> {
        let make = |protocol: &[u8]| {
            let mut config = trust::client_without_verification()?.with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok::<_, trust::Error>(TlsConnector::from(Arc::new(config)))
        };
        Ok(Connectors { http1: make(b"http/1.1")?, http2: make(b"h2")? })
    }

    pub async fn connect(&self, http2: bool, address: IpAddr, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = if http2 { &self.http2 } else { &self.http1 };
        connector.connect(ServerName::IpAddress(address.into()), stream).await
    }
}

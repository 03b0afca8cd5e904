//! Connections: accept, TLS, HTTP/1.1 (which exec and others need for their upgrade) or HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::identity::ClientAuthority;
use super::routes::{Context, serve};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECTIONS_MAX: usize = 4096;

pub async fn accept(context: Arc<Context>, listener: TcpListener, clients: Arc<ClientAuthority>) {
    let certificate = context.server.settings.serving_certificate.clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("ring has both versions of TLS")
        .with_client_cert_verifier(clients.handshake())
        .with_cert_resolver(certificate);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let mut server = Builder::new(TokioExecutor::new());
    // A client that closes its side has gone: a log that it followed must not be followed on.
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(false);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let server = Arc::new(server);
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    let shutdown = context.server.shutdown.clone();
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: give others time to end, do not spin.
                    tracing::warn!(%error, "cannot accept connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("too many connections; closing the newest");
            continue;
        };
        let (context, acceptor, clients, server) = (context.clone(), acceptor.clone(), clients.clone(), server.clone());
        let shutdown = shutdown.clone();
        tasks::spawn(async move {
            let _place = place;
            let Some(stream) = handshake(stream, &acceptor).await else { return };
            let user = clients
                .identify(stream.get_ref().1.peer_certificates().unwrap_or(&[]), context.server.settings.clock.now());
            let user = user.map(Arc::new);
            let service = service_fn(move |request| {
                let (context, user) = (context.clone(), user.clone());
                async move { Ok::<_, Infallible>(serve(context, user, request).await) }
            });
            let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
            tokio::select! {
                () = shutdown.cancelled() => {}
                served = connection => {
                    if let Err(error) = served {
                        tracing::debug!(%error, "connection ended");
                    }
                }
            }
        });
    }
}

async fn handshake(stream: TcpStream, acceptor: &TlsAcceptor) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    stream.set_nodelay(true).ok()?;
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

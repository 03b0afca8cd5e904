//! Connections whose steps are timed, for `-v=9`: looking up the name, dialing, the TLS handshake.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::trace;

/// What the newest connection took, and how many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Steps {
    pub lookup: Duration,
    pub dial: Duration,
    pub handshake: Duration,
    pub connections: usize,
}

/// The steps, shared by the connector that takes them and the trace that tells of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Arc<Mutex<Steps>>);

impl Clock {
    pub(crate) fn steps(&self) -> Steps {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Steps)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

type Connecting<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Connects to a server, and times the lookup and the dialing.
#[derive(Clone)]
pub(crate) struct Dialer(pub(crate) Clock);

impl Dialer {
    async fn connect(self, target: http::Uri) -> std::io::Result<TokioIo<TcpStream>> {
        let host = target.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
        let usual = if target.scheme_str() == Some("http") { 80 } else { 443 };
        let port = target.port_u16().unwrap_or(usual);
        let started = Instant::now();
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => {
                let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), port)).await?.collect();
                trace::looked_up(&host, &found);
                found
            }
        };
        let looked_up = Instant::now();
        let mut last = std::io::Error::other(format!("no address of {host}"));
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    trace::dialed(&address, None);
                    self.0.change(|steps| {
                        steps.lookup = looked_up - started;
                        steps.dial = looked_up.elapsed();
                        steps.connections += 1;
                    });
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => {
                    trace::dialed(&address, Some(&error));
                    last = error;
                }
            }
        }
        Err(last)
    }
}

impl tower::Service<http::Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Connecting<TokioIo<TcpStream>, std::io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect(target))
    }
}

/// Whatever a connector does besides looking up and dialing is the handshake.
#[derive(Clone)]
pub(crate) struct Handshake<S> {
    pub(crate) inner: S,
    pub(crate) clock: Clock,
}

impl<S> tower::Service<http::Uri> for Handshake<S>
where
    S: tower::Service<http::Uri>,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Connecting<S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, target: http::Uri) -> Self::Future {
        let (connecting, clock, started) = (self.inner.call(target), self.clock.clone(), Instant::now());
        Box::pin(async move {
            let connected = connecting.await?;
            clock.change(|steps| {
                steps.handshake = started.elapsed().saturating_sub(steps.lookup + steps.dial);
            });
            Ok(connected)
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_timed_and_counted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let clock = Clock::default();
        let connector = Handshake { inner: Dialer(clock.clone()), clock: clock.clone() };
        let target = format!("http://{}/", listener.local_addr().unwrap());
        connector.clone().oneshot(target.parse().unwrap()).await.unwrap();
        assert_eq!((clock.steps().connections, clock.steps().lookup.as_secs()), (1, 0));
        drop(listener);
        let refused = connector.oneshot(target.parse().unwrap()).await;
        assert!(refused.is_err());
        assert_eq!(clock.steps().connections, 1);
    }
}

//! The server without a socket: how components of the same process reach it.
//!
//! A caller has a fixed identity, which needs no proof here, and then takes every other step like everyone else:
//! authorization, admission, limits, metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;

use crate::app::App;
use crate::authn::{self, ALL_AUTHENTICATED, User};
use crate::body::Sent;
use crate::respond::Reply;
use crate::serve::{Peer, serve};

/// One identity's way to the server; hand it to `kube::Client::new`.
#[derive(Clone)]
pub struct Loopback {
    app: Arc<App>,
    peer: Peer,
    /// The program's name, which becomes the manager in managedFields.
    agent: HeaderValue,
}

impl Loopback {
    /// A component under its own user name, such as `system:kube-scheduler`.
    pub fn component(app: Arc<App>, user: &str, agent: &'static str) -> Loopback {
        Loopback::new(app, user.to_string(), Vec::new(), agent)
    }

    /// A service account, such as a controller's in `kube-system`.
    pub fn service_account(app: Arc<App>, namespace: &str, name: &str, agent: &'static str) -> Loopback {
        Loopback::new(app, authn::user_name(namespace, name), authn::groups(namespace), agent)
    }

    /// The kubelet of a node.
    pub fn node(app: Arc<App>, node: &str, agent: &'static str) -> Loopback {
        Loopback::new(app, format!("system:node:{node}"), vec!["system:nodes".into()], agent)
    }

    /// Someone who may do everything.
    pub fn administrator(app: Arc<App>, agent: &'static str) -> Loopback {
        Loopback::new(app, "kubernetes-admin".into(), vec!["system:masters".into()], agent)
    }

    /// A user who has proven to a part of this process who they are, from that address.
    pub fn user(app: Arc<App>, user: User, address: Option<SocketAddr>, agent: &'static str) -> Loopback {
        let peer = Peer { address, certificate: None, identity: Some(Arc::new(user)) };
        Loopback { app, peer, agent: HeaderValue::from_static(agent) }
    }

    fn new(app: Arc<App>, name: String, mut groups: Vec<String>, agent: &'static str) -> Loopback {
        groups.push(ALL_AUTHENTICATED.into());
        let user = User { name, groups, ..User::default() };
        let peer = Peer { address: None, certificate: None, identity: Some(Arc::new(user)) };
        Loopback { app, peer, agent: HeaderValue::from_static(agent) }
    }
}

impl<B> tower::Service<Request<B>> for Loopback
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (app, peer, agent) = (self.app.clone(), self.peer.clone(), self.agent.clone());
        let answer = async move {
            let (mut parts, body) = request.into_parts();
            parts.headers.entry(USER_AGENT).or_insert(agent);
            let body = match body.collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) => {
                    // A body in memory cannot fail; should one do, the server's checks refuse what is left of it.
                    tracing::error!(%error, "cannot read body of in-process request");
                    Bytes::new()
                }
            };
            Ok(serve(app, peer, Request::from_parts(parts, Sent::Whole(body))).await)
        };
        answer.boxed()
    }
}

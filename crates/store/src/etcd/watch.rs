//! Following every change of the whole key space. Reconnects by itself and goes on behind the last revision seen.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::timeout;
use tonic::Streaming;

use super::client::event::EventType;
use super::client::{WatchCreateRequest, WatchResponse};
use super::cluster::{Cluster, Member};
use super::failure::Failure;
use super::{READ_PATIENCE, compact, count_request, newest_revision, number, revision, text};
use crate::{Event, Revision, StoreError};

/// How long a member may take to begin.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
const REOPEN_WAIT_MIN: Duration = Duration::from_millis(20);
const REOPEN_WAIT_MAX: Duration = Duration::from_secs(1);

pub(super) fn follow(cluster: Arc<Cluster>, after: Revision) -> BoxStream<'static, Result<Vec<Event>, StoreError>> {
    let follower = Follower { cluster, seen: after, open: None, wait: REOPEN_WAIT_MIN, ended: false };
    futures::stream::unfold(follower, |mut follower| async move {
        let batch = follower.next().await?;
        Some((batch, follower))
    })
    .boxed()
}

struct Follower {
    cluster: Arc<Cluster>,
    /// Everything up to here was handed on.
    seen: Revision,
    open: Option<(Member, Streaming<WatchResponse>)>,
    wait: Duration,
    ended: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Vec<Event>, StoreError>> {
        while !self.ended {
            match self.receive().await {
                Ok(response) if response.compact_revision > 0 => {
                    self.ended = true;
                    let oldest = revision(response.compact_revision);
                    return Some(Err(StoreError::Compacted { wanted: self.seen, oldest }));
                }
                Ok(response) if response.canceled => {
                    self.reopen(Failure::NotDone(response.cancel_reason)).await;
                }
                Ok(response) => {
                    self.wait = REOPEN_WAIT_MIN;
                    let events = self.events(response);
                    if !events.is_empty() {
                        return Some(Ok(events));
                    }
                }
                Err(Failure::Compacted) => {
                    self.ended = true;
                    return Some(Err(compact::compacted(&self.cluster, self.seen).await));
                }
                Err(Failure::Future) => {
                    self.ended = true;
                    let newest = newest_revision(&self.cluster).await.unwrap_or_default();
                    return Some(Err(StoreError::Future { wanted: self.seen, newest }));
                }
                Err(failure) => self.reopen(failure).await,
            }
        }
        None
    }

    async fn receive(&mut self) -> Result<WatchResponse, Failure> {
        if self.open.is_none() {
            self.check_revision().await?;
            self.open = Some(self.begin().await?);
        }
        let Some((member, stream)) = &mut self.open else { unreachable!("it was opened above") };
        // A member that hangs is found out by calls sooner than by the silence of its watch.
        let message = tokio::select! {
            message = stream.message() => message,
            () = self.cluster.turned_from(member) => {
                return Err(Failure::NotDone("switched to another etcd endpoint".to_owned()));
            }
        };
        match message {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(Failure::Unknown("the watch ended".to_owned())),
            Err(error) => Err(Failure::of(error, &member.endpoint)),
        }
    }

    /// Etcd itself would let a watch begin where its history does not reach any more, as long as the first event is
    /// left; and where its history does not reach yet, as after a backup was put back, and then stay silent.
    async fn check_revision(&self) -> Result<(), Failure> {
        let request = count_request(number(self.seen).max(1));
        let call = |mut member: Member| {
            let request = request.clone();
            async move { member.client.range(request).await }
        };
        self.cluster.read(READ_PATIENCE, call).await.map(drop)
    }

    async fn begin(&self) -> Result<(Member, Streaming<WatchResponse>), Failure> {
        let mut member = self.cluster.member();
        let request = WatchCreateRequest {
            // All keys.
            key: vec![0],
            range_end: vec![0],
            start_revision: number(self.seen).saturating_add(1),
            prev_kv: true,
            progress_notify: true,
        };
        let stream = match timeout(OPEN_TIMEOUT, member.client.watch(request)).await {
            Ok(stream) => stream.map_err(|error| Failure::of(error, &member.endpoint)),
            Err(_) => Err(Failure::Unknown("did not begin to watch".to_owned())),
        };
        stream.map(|stream| (member.clone(), stream)).inspect_err(|failure| self.cluster.failed(&member, failure))
    }

    async fn reopen(&mut self, failure: Failure) {
        tracing::info!(seen = %self.seen, error = ?failure, "watch of etcd ended; resuming on another endpoint");
        if let Some((member, _)) = self.open.take() {
            self.cluster.failed(&member, &failure);
        }
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(REOPEN_WAIT_MAX);
    }

    /// Etcd never splits the changes of one revision over two responses, unless it is asked to.
    fn events(&mut self, response: WatchResponse) -> Vec<Event> {
        let mut events = Vec::with_capacity(response.events.len());
        for event in response.events {
            let kind = event.r#type();
            let Some(kv) = event.kv else { continue };
            let modified = revision(kv.mod_revision);
            if modified <= self.seen {
                continue;
            }
            let value = match kind {
                EventType::Put => Some(Bytes::from(kv.value)),
                EventType::Delete => None,
            };
            let previous = event.prev_kv.map(|kv| (Bytes::from(kv.value), revision(kv.mod_revision)));
            events.push(Event { key: text(&kv.key), revision: modified, value, previous });
        }
        if let Some(last) = events.last() {
            self.seen = last.revision;
        }
        events
    }
}

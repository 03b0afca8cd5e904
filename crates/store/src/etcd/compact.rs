//! Forgetting old history on a schedule. Several API servers agree through one key, as upstream does: who first
//! raises its version in a round compacts, to the revision that was newest a round ago.

use std::sync::Arc;
use std::time::Duration;

use super::client::{Compare, RangeRequest, RequestOp, TxnRequest};
use super::cluster::{Cluster, Member};
use super::failure::Failure;
use super::{READ_PATIENCE, WRITE_PATIENCE, compact_at, header_revision};
use crate::{Revision, StoreError};

/// Upstream's key; it lies outside `/registry/`.
pub(super) const KEY: &str = "compact_rev_key";

pub(super) async fn run(cluster: Arc<Cluster>, interval: Duration) {
    let mut round = Round::default();
    loop {
        tokio::time::sleep(interval).await;
        match take_part(&cluster, round).await {
            Ok(next) => round = next,
            Err(failure) => tracing::warn!(error = ?failure, "cannot compact etcd; retrying in the next round"),
        }
    }
}

/// Who says that a revision is gone does not always say which is the oldest; our own compactions are on record.
pub(super) async fn compacted(cluster: &Cluster, wanted: Revision) -> StoreError {
    let read = |mut member: Member| async move { member.client.range(RangeRequest::one(KEY)).await };
    let recorded = cluster.read(READ_PATIENCE, read).await.ok().and_then(|found| {
        let value = std::str::from_utf8(&found.kvs.first()?.value).ok()?;
        value.parse().ok()
    });
    let oldest = Revision(recorded.unwrap_or_default()).max(Revision(wanted.0 + 1));
    StoreError::Compacted { wanted, oldest }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// The key's version when we last looked.
    version: i64,
    /// The newest revision when we last looked.
    newest: Revision,
}

async fn take_part(cluster: &Cluster, round: Round) -> Result<Round, Failure> {
    let txn = TxnRequest {
        compare: vec![Compare::version(KEY, round.version)],
        success: vec![RequestOp::put(KEY, round.newest.to_string(), 0)],
        failure: vec![RequestOp::get(KEY)],
    };
    let call = |mut member: Member| {
        let txn = txn.clone();
        async move { member.client.txn(txn).await }
    };
    let response = cluster.write(WRITE_PATIENCE, true, call).await?.answer;
    let newest = header_revision(response.header.as_ref())?;
    if !response.succeeded {
        // Another server has this round.
        let version = response.into_found().first().map(|kv| kv.version);
        return Ok(Round { version: version.unwrap_or_default(), newest });
    }
    // In the first round nothing is known to be old enough.
    if round.newest > Revision(0) {
        compact_at(cluster, round.newest).await.map_err(|error| Failure::Unknown(error.to_string()))?;
        tracing::info!(before = %round.newest, "compacted etcd");
    }
    Ok(Round { version: round.version + 1, newest })
}

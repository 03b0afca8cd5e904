//! Chooses the etcd endpoint: the nearest while it serves. One that is silent, because its machine or the way to it is gone, is
//! found out here within seconds; a call alone would wait for much longer, and a write cannot be sent elsewhere.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;

use super::cluster::{Cluster, Member};
use super::count_request;

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A member that serves answers in a few milliseconds; one on a busy machine may take a while.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// So much sooner than the others the one that is asked may answer.
const HEAD_START: Duration = Duration::from_millis(700);
/// Between two looks for which there is a reason.
const PAUSE: Duration = Duration::from_millis(100);
/// How often in a row the nearest must have served before it is asked again.
const GOOD_ANSWERS: usize = 3;

pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut good_answers = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = cluster.suspected() => tokio::time::sleep(PAUSE).await,
        }
        let (members, asked) = (cluster.members(), cluster.member());
        let Some(nearest) = members.first().filter(|_| members.len() > 1) else { continue };
        if !serves(asked.clone(), HEAD_START).await {
            cluster.set_served(false);
            // Where nobody serves there is nobody to turn to, and nothing to be written.
            let mut is_served = false;
            let mut trying: FuturesUnordered<_> = members
                .iter()
                .map(|member| async move { serves(member.clone(), ANSWER_TIMEOUT).await.then_some(member) })
                .collect();
            while let Some(tried) = trying.next().await {
                if let Some(next) = tried {
                    cluster.turn_to(next, &asked, true);
                    is_served = true;
                    break;
                }
            }
            if !is_served {
                cluster.suspect();
                continue;
            }
        }
        cluster.set_served(true);
        let is_back = nearest.endpoint != asked.endpoint && serves(nearest.clone(), ANSWER_TIMEOUT).await;
        good_answers = if is_back { good_answers + 1 } else { 0 };
        if good_answers >= GOOD_ANSWERS {
            cluster.turn_to(nearest, &asked, false);
            good_answers = 0;
        }
    }
}

/// Whether it answers what only a member in touch with the majority can answer.
async fn serves(mut member: Member, patience: Duration) -> bool {
    matches!(timeout(patience, member.client.range(count_request(0))).await, Ok(Ok(_)))
}

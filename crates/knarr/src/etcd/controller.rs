//! Members follow Nodes: whose Node is deleted has its member removed first, as k3s does. It is the server whose etcd leads
//! that sees to it, so that two never work on it at once.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use reconcile::events::{EventType, Recorder, reference};
use reconcile::{Cache, Shutdown};
use serde_json::json;

use super::removal::{self, Stalled, View};
use super::{Config, certificates, follow};

/// Keeps a deleted Node until its member is gone.
pub const FINALIZER: &str = "knarr.dev/etcd-member";
/// Changes of Nodes are seen at once; members are looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// What could not be done is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// As long as k3s waits for a learner.
const LEARNER_PATIENCE: Duration = Duration::from_secs(5 * 60);

pub struct Controller {
    pub config: Config,
    pub nodes: Arc<Cache<Node>>,
    pub client: kube::Client,
}

/// What is to be done about a Node.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Guard,
    Release,
    Remove(u64),
}

fn step(node: &Node, members: &[View]) -> Step {
    let member = members.iter().find(|member| member.name == node.name_any());
    let guarded = node.finalizers().iter().any(|one| one == FINALIZER);
    match (node.metadata.deletion_timestamp.is_some(), guarded, member) {
        (false, false, Some(_)) => Step::Guard,
        (_, true, None) => Step::Release,
        (true, true, Some(member)) => Step::Remove(member.id),
        _ => Step::Nothing,
    }
}

impl Controller {
    pub async fn run(self, shutdown: Shutdown) {
        let recorder = Recorder::new(self.client.clone(), "etcd", &self.config.name);
        let mut changes = self.nodes.changes();
        let mut stalled = Stalled::default();
        let mut next = tokio::time::Instant::now();
        let mut waits_for_nodes = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                changed = changes.changed(), if waits_for_nodes => {
                    waits_for_nodes = changed.is_ok();
                    if !self.concerns_us() {
                        continue;
                    }
                }
                () = shutdown.cancelled() => return,
            }
            let wait = match self.round(&recorder, &mut stalled).await {
                Ok(true) => LOOK_AGAIN,
                Ok(false) => TRY_AGAIN,
                Err(error) => {
                    tracing::debug!(error = format!("{error:#}"), "cannot reconcile etcd members");
                    LOOK_AGAIN
                }
            };
            // What could not be done is not tried again with every change of a Node.
            waits_for_nodes = wait > TRY_AGAIN;
            next = tokio::time::Instant::now() + wait;
        }
    }

    /// Nodes change every few seconds; few of these changes have to do with members.
    fn concerns_us(&self) -> bool {
        self.nodes.list().iter().any(|node| {
            node.metadata.deletion_timestamp.is_some() && node.finalizers().iter().any(|one| one == FINALIZER)
        })
    }

    /// Whether nothing is left to do.
    async fn round(&self, recorder: &Recorder, stalled: &mut Stalled) -> anyhow::Result<bool> {
        let files = certificates::kept(&self.config.data_dir)?;
        let mut endpoints = vec![self.config.client_url()];
        endpoints.extend(follow::kept(&self.config.data_dir));
        let members = removal::look(&endpoints, &files).await?;
        if !members.iter().any(|member| member.leads && member.name == self.config.name) {
            *stalled = Stalled::default();
            return Ok(true);
        }
        for id in stalled.overdue(&members, tokio::time::Instant::now(), LEARNER_PATIENCE) {
            removal::remove(&members, id, &files).await?;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut done = true;
        for node in self.nodes.list() {
            match step(&node, &members) {
                Step::Nothing => {}
                Step::Guard => set_finalizer(&nodes, &node, true).await?,
                Step::Release => set_finalizer(&nodes, &node, false).await?,
                // Two at once could be one too many: the next round sees what this one did.
                Step::Remove(id) => {
                    done = false;
                    let about = reference(&*node);
                    match removal::remove(&members, id, &files).await {
                        Ok(()) => {
                            let text = "The etcd member of this server was removed";
                            recorder.event(&about, EventType::Normal, "EtcdMemberRemoved", text);
                        }
                        Err(error) => {
                            let text = format!(
                                "The server's Node is kept, because its etcd member was not removed: {error:#}"
                            );
                            recorder.event(&about, EventType::Warning, "EtcdMemberNotRemoved", text);
                        }
                    }
                    break;
                }
            }
        }
        Ok(done)
    }
}

async fn set_finalizer(nodes: &Api<Node>, node: &Node, wanted: bool) -> anyhow::Result<()> {
    let mut finalizers: Vec<&str> =
        node.finalizers().iter().map(String::as_str).filter(|one| *one != FINALIZER).collect();
    if wanted {
        finalizers.push(FINALIZER);
    }
    // What others have changed meanwhile is not overwritten.
    let version = &node.metadata.resource_version;
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
    match nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    #[test]
    fn a_node_goes_after_its_member() {
        let members = [View { id: 7, name: "a".into(), ..View::default() }];
        let node = |name: &str, guarded: bool, deleted: bool| Node {
            metadata: ObjectMeta {
                name: Some(name.into()),
                finalizers: guarded.then(|| vec![FINALIZER.to_owned()]),
                deletion_timestamp: deleted.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        for (name, guarded, deleted, expected) in [
            ("a", false, false, Step::Guard),
            ("a", true, false, Step::Nothing),
            ("a", true, true, Step::Remove(7)),
            // Deleted before it was guarded: there is no time to ask.
            ("a", false, true, Step::Nothing),
            ("agent", false, false, Step::Nothing),
            ("gone", true, true, Step::Release),
            ("gone", true, false, Step::Release),
        ] {
            assert_eq!(step(&node(name, guarded, deleted), &members), expected, "{name} {guarded} {deleted}");
        }
    }
}

//! Events of a remote runtime: its own stream where it has one, otherwise what two lists a second apart say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use component_base::tasks;
use futures::stream::{BoxStream, StreamExt, unfold};
use tokio::sync::mpsc;

use super::Remote;
use crate::v1::{ContainerEventResponse, ContainerEventType, ContainerState, PodSandboxState};
use crate::{Code, Error, Result, Runtime, v1};

/// How often upstream's kubelet lists for the same purpose.
const RELIST: Duration = Duration::from_secs(1);
/// A runtime without the call says so at once. One that has it may send nothing, not even headers, before the first event.
const REFUSAL: Duration = Duration::from_millis(300);
const WAITING_MAX: usize = 1000;

type Sender = mpsc::Sender<ContainerEventResponse>;

pub(super) async fn events(remote: Remote) -> Result<BoxStream<'static, ContainerEventResponse>> {
    let (tx, rx) = mpsc::channel(WAITING_MAX);
    let mut client = remote.runtime();
    let mut opened =
        Box::pin(async move { client.get_container_events(v1::GetEventsRequest {}).await.map_err(Error::from) });
    match tokio::time::timeout(REFUSAL, &mut opened).await {
        Ok(Err(error)) if matches!(error.code, Code::Unavailable | Code::DeadlineExceeded) => return Err(error),
        Ok(Err(error)) => {
            // Not implemented, or switched off.
            tracing::info!(%error, "CRI runtime has no event stream; polling its lists every second");
            // Taken before this returns: from now on nothing is missed.
            let before = look(&remote).await?;
            tasks::spawn(relist(remote, before, tx));
        }
        Ok(Ok(stream)) => drop(tasks::spawn(forward(stream.into_inner(), tx))),
        Err(_) => drop(tasks::spawn(async move {
            tokio::select! {
                () = tx.closed() => {}
                stream = opened => match stream {
                    Ok(stream) => forward(stream.into_inner(), tx.clone()).await,
                    Err(error) => tracing::info!(%error, "CRI event stream ended"),
                },
            }
        })),
    }
    Ok(unfold(rx, |mut rx| async { rx.recv().await.map(|event| (event, rx)) }).boxed())
}

async fn forward(mut stream: tonic::Streaming<ContainerEventResponse>, tx: Sender) {
    loop {
        let message = tokio::select! {
            () = tx.closed() => return,
            message = stream.message() => message,
        };
        match message {
            Ok(Some(event)) => {
                if tx.send(event).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::info!(%error, "CRI event stream ended");
                return;
            }
        }
    }
}

/// What one look at the runtime shows, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    things: BTreeMap<String, Thing>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    sandbox: String,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Created,
    Running,
    Ended,
}

async fn look(remote: &Remote) -> Result<Seen> {
    let (sandboxes, containers) = tokio::try_join!(remote.list_pod_sandboxes(None), remote.list_containers(None))?;
    let mut things = BTreeMap::new();
    for sandbox in sandboxes {
        let ready = sandbox.state == PodSandboxState::SandboxReady as i32;
        let stage = if ready { Stage::Running } else { Stage::Ended };
        things.insert(sandbox.id.clone(), Thing { sandbox: sandbox.id, stage });
    }
    for container in containers {
        let stage = match ContainerState::try_from(container.state) {
            Ok(ContainerState::ContainerCreated) => Stage::Created,
            Ok(ContainerState::ContainerRunning) => Stage::Running,
            // A state nobody knows is looked at again by whoever hears of it.
            Ok(ContainerState::ContainerExited | ContainerState::ContainerUnknown) | Err(_) => Stage::Ended,
        };
        things.insert(container.id, Thing { sandbox: container.pod_sandbox_id, stage });
    }
    Ok(Seen { things })
}

/// What happened between two looks: who, in which sandbox, and what, in the order in which it must have happened.
fn changes(before: &Seen, after: &Seen) -> Vec<(String, String, ContainerEventType)> {
    use ContainerEventType::{
        ContainerCreatedEvent, ContainerDeletedEvent, ContainerStartedEvent, ContainerStoppedEvent,
    };
    let mut changes = Vec::new();
    let ids: BTreeSet<&String> = before.things.keys().chain(after.things.keys()).collect();
    for id in ids {
        let (old, new) = (before.things.get(id), after.things.get(id));
        let happened: &[ContainerEventType] = match (old.map(|thing| thing.stage), new.map(|thing| thing.stage)) {
            (old, new) if old == new => &[],
            (None, Some(Stage::Created)) => &[ContainerCreatedEvent],
            (None, Some(Stage::Running)) => &[ContainerCreatedEvent, ContainerStartedEvent],
            (None, Some(Stage::Ended)) => &[ContainerCreatedEvent, ContainerStartedEvent, ContainerStoppedEvent],
            (Some(_), Some(Stage::Created)) => &[ContainerCreatedEvent],
            (Some(_), Some(Stage::Running)) => &[ContainerStartedEvent],
            (Some(_), Some(Stage::Ended)) => &[ContainerStoppedEvent],
            (Some(Stage::Running), None) => &[ContainerStoppedEvent, ContainerDeletedEvent],
            (Some(Stage::Created | Stage::Ended), None) => &[ContainerDeletedEvent],
            // Equal, and taken above.
            (None, None) => &[],
        };
        let sandbox = new.or(old).map(|thing| thing.sandbox.clone()).unwrap_or_default();
        changes.extend(happened.iter().map(|event| (id.clone(), sandbox.clone(), *event)));
    }
    changes
}

async fn relist(remote: Remote, mut before: Seen, tx: Sender) {
    let mut interval = tokio::time::interval(RELIST);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval.tick().await;
    loop {
        tokio::select! {
            () = tx.closed() => return,
            _ = interval.tick() => {}
        }
        let after = match look(&remote).await {
            Ok(after) => after,
            Err(error) => {
                tracing::info!(%error, "cannot list sandboxes and containers of the CRI runtime");
                return;
            }
        };
        let mut statuses = BTreeMap::new();
        for (id, sandbox, kind) in changes(&before, &after) {
            if !statuses.contains_key(&sandbox) {
                let found = statuses_of(&remote, &sandbox, &after).await;
                statuses.insert(sandbox.clone(), found);
            }
            let (pod_sandbox_status, containers_statuses) = statuses[&sandbox].clone();
            let event = ContainerEventResponse {
                container_id: id,
                container_event_type: kind as i32,
                created_at: now(),
                pod_sandbox_status,
                containers_statuses,
            };
            if tx.send(event).await.is_err() {
                return;
            }
        }
        before = after;
    }
}

/// What may be gone since the look is left out.
async fn statuses_of(
    remote: &Remote,
    sandbox: &str,
    seen: &Seen,
) -> (Option<v1::PodSandboxStatus>, Vec<v1::ContainerStatus>) {
    let mut containers = Vec::new();
    for (id, _) in seen.things.iter().filter(|(id, thing)| thing.sandbox == sandbox && *id != sandbox) {
        containers.extend(remote.container_status(id).await.ok());
    }
    (remote.pod_sandbox_status(sandbox).await.ok(), containers)
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_tell_what_happened() {
        let seen = |things: &[(&str, Stage)]| Seen {
            things: things
                .iter()
                .map(|(id, stage)| ((*id).to_owned(), Thing { sandbox: "s".to_owned(), stage: *stage }))
                .collect(),
        };
        let check = |before: &[(&str, Stage)], after: &[(&str, Stage)], expected: &[(&str, i32)]| {
            let found = changes(&seen(before), &seen(after));
            let found: Vec<(&str, i32)> = found.iter().map(|(id, _, kind)| (id.as_str(), *kind as i32)).collect();
            assert_eq!(found, expected);
        };
        use Stage::{Created, Ended, Running};
        check(&[("a", Running)], &[("a", Running)], &[]);
        check(&[], &[("a", Created), ("b", Ended)], &[("a", 0), ("b", 0), ("b", 1), ("b", 2)]);
        check(&[("a", Created), ("b", Running)], &[("a", Running), ("b", Ended)], &[("a", 1), ("b", 2)]);
        check(&[("a", Running), ("b", Ended)], &[], &[("a", 2), ("a", 3), ("b", 3)]);
    }
}

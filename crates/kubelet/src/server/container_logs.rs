//! `/containerLogs/{namespace}/{pod}/{container}`: which container is meant, and what its log holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri::v1::{ContainerEventType, ContainerState};
use cri::{Code, Runtime};
use futures::StreamExt;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use super::answers::{self, Answer, text};
use super::logs::{self, Options};
use super::routes::Context;
use crate::pods::PodState;

/// How often a runtime that sends no events is asked whether a container still runs.
const ASK_AGAIN: Duration = Duration::from_secs(5);

pub async fn answer(context: &Arc<Context>, namespace: &str, pod: &str, container: &str, query: &str) -> Answer {
    let (options, previous) = match parse(query, context.server.settings.clock.now()) {
        Ok(parsed) => parsed,
        Err((status, message)) => return text(status, message),
    };
    let server = &context.server;
    let Some(state) = server.pods.by_name(namespace, pod) else {
        return text(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist\n"));
    };
    if !has_container(&state.pod, container) {
        return text(StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {pod:?}\n"));
    }
    let id = match choose(&state.status, pod, container, previous) {
        Ok(id) => id,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let path = match log_path(server.runtime.as_ref(), &state, &id).await {
        Ok(path) => path,
        Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    if let Err(error) = tokio::fs::metadata(&path).await {
        let message = format!("failed to try resolving symlinks in path {:?}: {error}", path.display().to_string());
        return text(StatusCode::BAD_REQUEST, message);
    }
    let ended: Option<logs::Ended> =
        if options.follow { Some(Box::pin(has_ended(server.runtime.clone(), id))) } else { None };
    answers::pieces("text/plain", logs::read(path, options, ended))
}

type Refused = (StatusCode, &'static str);

/// The options of the query, and whether the container before the present one is meant.
fn parse(query: &str, now: Timestamp) -> Result<(Options, bool), Refused> {
    const UNREADABLE: Refused = (StatusCode::BAD_REQUEST, "{\"message\": \"Unable to decode query.\"}");
    const INVALID: Refused = (StatusCode::UNPROCESSABLE_ENTITY, "{\"message\": \"Invalid request.\"}");
    let mut options = Options::default();
    let mut previous = false;
    let (mut seconds, mut time) = (None, None);
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let number = || value.parse::<i64>().map_err(|_| UNREADABLE);
        let flag = !matches!(&*value, "false" | "0" | "False" | "FALSE");
        match &*key {
            "follow" => options.follow = flag,
            "previous" => previous = flag,
            "timestamps" => options.timestamps = flag,
            // Upstream shows everything for `tailLines=all`, and for no value at all.
            "tailLines" | "tail" if value.is_empty() || value == "all" => {}
            "tailLines" | "tail" => options.tail_lines = Some(u64::try_from(number()?).map_err(|_| INVALID)?),
            "limitBytes" => {
                options.limit_bytes = Some(u64::try_from(number()?).ok().filter(|bytes| *bytes > 0).ok_or(INVALID)?)
            }
            "sinceSeconds" => seconds = Some(Some(number()?).filter(|seconds| *seconds > 0).ok_or(INVALID)?),
            "sinceTime" => time = Some(value.parse::<Timestamp>().map_err(|_| UNREADABLE)?),
            "stream" => {
                options.stream = match &*value {
                    "Stdout" => Some("stdout"),
                    "Stderr" => Some("stderr"),
                    "All" | "" => None,
                    _ => return Err(INVALID),
                }
            }
            _ => {}
        }
    }
    options.since = match (seconds, time) {
        (Some(_), Some(_)) => return Err(INVALID),
        (Some(seconds), None) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
        (None, time) => time,
    };
    Ok((options, previous))
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(|container| container.name == name)
        || spec.ephemeral_containers.iter().flatten().any(|container| container.name == name)
}

/// Why a container has no log to show; users read it.
#[derive(Debug, thiserror::Error)]
enum NoLog {
    #[error("container {container:?} in pod {pod:?} is not available")]
    NotAvailable { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is terminated")]
    Terminated { container: String, pod: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start{why}")]
    Waiting { container: String, pod: String, why: String },
    #[error("failed to get container status {id:?}: {source}")]
    Status { id: String, source: cri::Error },
}

/// The container whose log is meant, or why there is none.
fn choose(status: &PodStatus, pod: &str, container: &str, previous: bool) -> Result<String, NoLog> {
    let (named, of_pod) = (|| container.to_owned(), || pod.to_owned());
    let all = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found = all.into_iter().flatten().flatten().find(|status| status.name == container);
    let Some(found) = found else {
        return Err(NoLog::NotAvailable { container: named(), pod: of_pod() });
    };
    let ContainerStatus { state, last_state, container_id, .. } = found;
    let last = last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last_id = last.and_then(|last| last.container_id.clone()).filter(|id| !id.is_empty());
    let is_terminated = || NoLog::Terminated { container: named(), pod: of_pod() };
    if previous {
        return last_id.ok_or_else(|| NoLog::NoPrevious { container: named(), pod: of_pod() });
    }
    let state = state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Ok(container_id.clone().unwrap_or_default());
    }
    if let Some(terminated) = state.terminated {
        // When the next one could not be started, the one before it is the last that has a log.
        return terminated.container_id.filter(|id| !id.is_empty()).or(last_id).ok_or_else(is_terminated);
    }
    if last.is_some() {
        return last_id.ok_or_else(is_terminated);
    }
    let why = match state.waiting.map(|waiting| waiting.reason.unwrap_or_default()) {
        Some(reason) if reason == "ErrImagePull" => ": image can't be pulled".to_owned(),
        Some(reason) if reason == "ImagePullBackOff" => ": trying and failing to pull image".to_owned(),
        Some(reason) => format!(": {reason}"),
        None => " - no logs yet".to_owned(),
    };
    Err(NoLog::Waiting { container: named(), pod: of_pod(), why })
}

/// Ids stand in statuses as `containerd://<id>`.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}

async fn log_path(runtime: &dyn Runtime, state: &PodState, id: &str) -> Result<PathBuf, NoLog> {
    let known = state.containers.iter().find(|container| container.id == bare(id));
    if let Some(known) = known.filter(|container| !container.log_path.is_empty()) {
        return Ok(known.log_path.clone().into());
    }
    match runtime.container_status(bare(id)).await {
        Ok(status) => Ok(status.log_path.into()),
        Err(source) => Err(NoLog::Status { id: id.to_owned(), source }),
    }
}

/// Comes true when the container has ended, as the runtime's events tell.
async fn has_ended(runtime: Arc<dyn Runtime>, id: String) {
    let id = bare(&id).to_string();
    loop {
        // Events first, then the question: what happens in between is then not missed.
        let events = runtime.events().await;
        match runtime.container_status(&id).await {
            Ok(status) if status.state == ContainerState::ContainerRunning as i32 => {}
            Ok(status) if status.state == ContainerState::ContainerCreated as i32 => {}
            Err(error) if error.code != Code::NotFound => {}
            _ => return,
        }
        if let Ok(mut events) = events {
            while let Some(event) = events.next().await {
                let ends = [
                    ContainerEventType::ContainerStoppedEvent as i32,
                    ContainerEventType::ContainerDeletedEvent as i32,
                ];
                if event.container_id == id && ends.contains(&event.container_event_type) {
                    return;
                }
            }
        }
        // The runtime sends no events, or went away: it is asked again, but not all the time.
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_are_read_from_the_query() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let (options, previous) = parse(
            "follow=true&tailLines=5&sinceSeconds=60&timestamps=true&previous=true&limitBytes=9&stream=Stderr",
            now,
        )
        .unwrap();
        let expected = Options {
            follow: true,
            timestamps: true,
            tail_lines: Some(5),
            since: Some("2026-01-02T03:03:05Z".parse().unwrap()),
            limit_bytes: Some(9),
            stream: Some("stderr"),
        };
        assert_eq!((options, previous), (expected, true));
        let refused = |query: &str| parse(query, now).unwrap_err().0.as_u16();
        assert_eq!(refused("tailLines=x"), 400);
        assert_eq!(refused("tailLines=-1"), 422);
        assert_eq!(refused("limitBytes=0"), 422);
        assert_eq!(refused("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z"), 422);
        assert_eq!(refused("stream=both"), 422);
    }

    #[test]
    fn the_container_is_chosen_or_refused_in_words() {
        let check = |state: serde_json::Value, previous: bool, expected: Result<&str, &str>| {
            let mut entry = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0});
            entry.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
            let status: PodStatus = serde_json::from_value(json!({"containerStatuses": [entry]})).unwrap();
            let found = choose(&status, "p", "c", previous).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        };
        let running = json!({"containerID": "x://2", "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "x://1"}}});
        check(running.clone(), false, Ok("x://2"));
        check(running, true, Ok("x://1"));
        let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
        check(
            waiting("ContainerCreating"),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
        );
        check(
            waiting("ImagePullBackOff"),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image"),
        );
        check(waiting("x"), true, Err("previous terminated container \"c\" in pod \"p\" not found"));
        let crashed = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "x://1"}}});
        check(crashed, false, Ok("x://1"));
        check(json!({"state": {"terminated": {"exitCode": 0, "containerID": "x://3"}}}), false, Ok("x://3"));
        check(json!({}), false, Err("container \"c\" in pod \"p\" is waiting to start - no logs yet"));
        assert_eq!(
            choose(&PodStatus::default(), "p", "c", false).unwrap_err().to_string(),
            "container \"c\" in pod \"p\" is not available"
        );
    }
}

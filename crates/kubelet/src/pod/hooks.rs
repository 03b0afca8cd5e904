//! postStart and preStop.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::probe;

/// Hooks have no limit of their own; the caller gives one where the pod's end does not wait.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(60 * 60 * 24);

/// Why a hook failed; the message of FailedPostStartHook or FailedPreStopHook.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error(
        "Exec lifecycle hook ([{command}]) for Container \"{container}\" failed - error: command '{command}' exited with {code}: {output}, message: \"{}\"",
        .output.escape_default()
    )]
    Exited { command: String, container: String, code: i32, output: String },
    #[error("Exec lifecycle hook ([{command}]) for Container \"{container}\" failed - error: {source}")]
    Exec { command: String, container: String, source: cri::Error },
    #[error("couldn't find port in container")]
    NoPort,
    #[error("HTTP lifecycle hook ({path}) for Container \"{container}\" failed - HTTP status {status}")]
    Status { path: String, container: String, status: u16 },
    #[error("HTTP lifecycle hook ({path}) for Container \"{container}\" failed - error: {source}")]
    Http { path: String, container: String, source: probe::GetError },
    #[error("invalid handler: no action")]
    NoAction,
}

/// Runs a hook.
pub async fn run(
    runtime: &dyn cri::Runtime,
    id: &str,
    container: &Container,
    pod_ip: &str,
    hook: &LifecycleHandler,
) -> Result<(), HookError> {
    let name = || container.name.clone();
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        return match probe::run_exec(runtime, id, &command, NO_LIMIT).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => {
                Err(HookError::Exited { command: command.join(" "), container: name(), code, output })
            }
            Err(source) => Err(HookError::Exec { command: command.join(" "), container: name(), source }),
        };
    }
    if let Some(action) = &hook.http_get {
        let Some(port) = probe::port_of(&action.port, container) else {
            return Err(HookError::NoPort);
        };
        let get = probe::request(action, port, pod_ip, Some("*/*"));
        // Only whether an answer comes counts, as upstream: a hook's failure is a failed request.
        return match probe::get(&get, NO_LIMIT).await {
            Ok((status, _)) if status < 400 => Ok(()),
            Ok((status, _)) => Err(HookError::Status { path: get.path, container: name(), status }),
            Err(source) => Err(HookError::Http { path: get.path, container: name(), source }),
        };
    }
    if let Some(action) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(action.seconds.try_into().unwrap_or(0))).await;
        return Ok(());
    }
    // tcpSocket is accepted by the API for old objects and does nothing, as upstream.
    if hook.tcp_socket.is_some() {
        return Ok(());
    }
    Err(HookError::NoAction)
}

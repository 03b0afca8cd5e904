//! postStart and preStop.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::probe;

/// Hooks have no limit of their own; the caller gives one where the pod's end does not wait.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(60 * 60 * 24);

/// Runs a hook; the error is the message of FailedPostStartHook or FailedPreStopHook.
pub async fn run(
    runtime: &dyn cri::Runtime,
    id: &str,
    container: &Container,
    pod_ip: &str,
    hook: &LifecycleHandler,
) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        return match probe::run_exec(runtime, id, &command, NO_LIMIT).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => Err(format!(
                "Exec lifecycle hook ([{}]) for Container \"{}\" failed - error: command '{}' exited with {code}: {output}, message: \"{}\"",
                command.join(" "),
                container.name,
                command.join(" "),
                output.escape_default()
            )),
            Err(error) => Err(format!(
                "Exec lifecycle hook ([{}]) for Container \"{}\" failed - error: {error}",
                command.join(" "),
                container.name
            )),
        };
    }
    if let Some(action) = &hook.http_get {
        let Some(port) = probe::port_of(&action.port, container) else {
            return Err("couldn't find port in container".to_owned());
        };
        let get = probe::request(action, port, pod_ip, Some("*/*"));
        // Only whether an answer comes counts, as upstream: a hook's failure is a failed request.
        return match probe::get(&get, NO_LIMIT).await {
            Ok((status, _)) if status < 400 => Ok(()),
            Ok((status, _)) => Err(format!(
                "HTTP lifecycle hook ({}) for Container \"{}\" failed - HTTP status {status}",
                get.path, container.name
            )),
            Err(error) => Err(format!(
                "HTTP lifecycle hook ({}) for Container \"{}\" failed - error: {error}",
                get.path, container.name
            )),
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
    Err("invalid handler: no action".to_owned())
}

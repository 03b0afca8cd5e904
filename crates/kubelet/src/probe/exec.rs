//! Probes and hooks that run a command in the container.

use std::time::Duration;

use cri::{Code, Runtime};

use super::Answer;

/// More output than this is not shown.
const OUTPUT_MAX: usize = 10 * 1024;

pub(super) async fn ask(runtime: &dyn Runtime, container: &str, command: &[String], timeout: Duration) -> Answer {
    match run(runtime, container, command, timeout).await {
        Ok((0, _)) => Answer::Success,
        Ok((_, output)) => Answer::Failure(output),
        Err(error) if error.code == Code::DeadlineExceeded => {
            let seconds = timeout.as_secs();
            Answer::Failure(format!("command timed out: \"{}\" timed out after {seconds}s", command.join(" ")))
        }
        Err(error) => Answer::Error(error.message),
    }
}

/// The exit code, and what was written to both outputs.
pub(crate) async fn run(
    runtime: &dyn Runtime,
    container: &str,
    command: &[String],
    timeout: Duration,
) -> cri::Result<(i32, String)> {
    let done = runtime.exec_sync(container, command, timeout.as_secs().min(i64::MAX as u64) as i64).await?;
    let mut output = done.stdout;
    output.extend_from_slice(&done.stderr);
    output.truncate(OUTPUT_MAX);
    Ok((done.exit_code, String::from_utf8_lossy(&output).into_owned()))
}

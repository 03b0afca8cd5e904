//! Containers that a program of the host runs: runc, crun, or another with their command line. The shim mounts the root, holds the
//! pod's namespaces, reads the output and reaps; the program makes the container, runs commands in it, signals and forgets it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linux::process::Fork;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};

use super::errors::{self, Reports};
use super::protocol::{CONFIG, Exec, Process, Start};
use super::start::{CreateError, Streams, mount_root, null, step};

/// Where the program keeps what it knows of the container, in the container's folder.
const ROOT: &str = "oci";
/// What a program may have written about a failure.
const LOG_BYTES_MAX: u64 = 1 << 20;
const PID_BYTES_MAX: u64 = 64;

/// Why a program of the host did not do as told.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("run {}: {source}", .program.display())]
    Run { program: PathBuf, source: io::Error },
    /// Its own words.
    #[error("{0}")]
    Failed(String),
    #[error("{} wrote no process number", .0.display())]
    NoPid(PathBuf),
    #[error("{what}: {source}")]
    Step { what: &'static str, source: io::Error },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ProgramError {
    move |source| ProgramError::Step { what, source }
}

/// The program and the container that it is asked about.
struct Call<'a> {
    program: &'a Path,
    container: &'a str,
    folder: &'a Path,
    /// What its files are named after.
    name: String,
    /// Where the program says what went wrong.
    log: PathBuf,
}

impl<'a> Call<'a> {
    fn new(program: &'a Path, start: &'a Start, name: String) -> Call<'a> {
        let log = start.folder.join(format!("{name}.log"));
        Call { program, container: &start.container, folder: &start.folder, name, log }
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", self.name))
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--root").arg(self.folder.join(ROOT)).arg("--log").arg(&self.log);
        command.args(["--log-format", "json", verb]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs it to its end; the container's process goes on and becomes the shim's child.
    fn run(&self, mut command: Command) -> Result<(), ProgramError> {
        let run = |source| ProgramError::Run { program: self.program.to_owned(), source };
        let status = command.status().map_err(run)?;
        if status.success() {
            return Ok(());
        }
        let log = linux::file::read_regular(&self.log, LOG_BYTES_MAX).unwrap_or_default();
        let said = reason(&String::from_utf8_lossy(&log));
        Err(ProgramError::Failed(said.unwrap_or_else(|| format!("{} failed: {status}", self.program.display()))))
    }

    fn pid(&self) -> Result<i32, ProgramError> {
        let text = linux::file::read_regular(&self.file("pid"), PID_BYTES_MAX).unwrap_or_default();
        let pid = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
        pid.ok_or_else(|| ProgramError::NoPid(self.program.to_owned()))
    }
}

/// The last error in a log of JSON lines, without what the caller says anyway.
fn reason(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines.filter(|line| line["level"] == "error");
    let said = errors.next_back()?["msg"].as_str()?.to_owned();
    let mut said = said.as_str();
    for prefix in ["runc create failed: ", "exec failed: ", "unable to start container process: "] {
        said = said.strip_prefix(prefix).unwrap_or(said);
    }
    Some(said.to_owned())
}

/// A socket that the program sends the terminal's master to. Its path goes through this process, because paths of sockets are short.
struct Console {
    listener: UnixListener,
    path: String,
    _folder: File,
}

impl Console {
    fn open(folder: &Path, name: &str) -> io::Result<Console> {
        let held = File::open(folder)?;
        let path = format!("/proc/{}/fd/{}/{name}.sock", std::process::id(), held.as_raw_fd());
        // One of an earlier attempt that was killed.
        let _ = std::fs::remove_file(&path);
        Ok(Console { listener: UnixListener::bind(&path)?, path, _folder: held })
    }

    /// Hands the master on to whoever shows the terminal.
    fn pass(self, to: impl AsFd) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let (socket, _) = self.listener.accept()?;
        let received = linux::fd_passing::receive(&socket)?;
        let master = received.and_then(|(_, mut fds)| fds.pop());
        let master = master.ok_or_else(|| io::Error::other("the runtime sent no terminal"))?;
        // It goes with the container's folder otherwise.
        let _ = std::fs::remove_file(&self.path);
        linux::fd_passing::send(to, b"terminal", &[master.as_fd()])
    }
}

/// Makes and starts the container. Runs in a child of the shim, which ends after it.
pub(super) fn create(
    program: &Path,
    request: &Start,
    process: &Process,
    streams: Streams,
    report: &OwnedFd,
) -> Result<(), CreateError> {
    linux::process::reset_signals();
    mount_root(request, &process.cwd, None)?;
    let call = Call::new(program, request, "init".to_owned());
    let mut command = call.command("create");
    command.arg("--bundle").arg(&request.folder).arg("--pid-file").arg(call.file("pid"));
    let console = match &streams.console {
        Some(_) => Some(Console::open(&request.folder, "init").map_err(step("open terminal"))?),
        None => {
            command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
            None
        }
    };
    if let Some(console) = &console {
        command.arg("--console-socket").arg(&console.path);
    }
    command.arg(&request.container);
    call.run(command)?;
    errors::report(report, &Reports::Pid(call.pid()?));
    if let (Some(console), Some(to)) = (console, &streams.console) {
        console.pass(to).map_err(step("open terminal"))?;
    }
    let mut start = call.command("start");
    start.arg(&request.container);
    Ok(call.run(start)?)
}

/// Runs a command beside the container's own. Like [`super::start::start`], what comes of it is read from the pipe.
pub(super) fn exec(program: &Path, start: &Start, request: &Exec, fds: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    let (reports, report) = pipe_with(PipeFlags::CLOEXEC)?;
    match linux::process::fork()? {
        Fork::Parent(_) => Ok(reports),
        Fork::Child => {
            drop(reports);
            linux::process::reset_signals();
            let name = format!("exec-{:016x}", request.exec);
            let call = Call::new(program, start, name);
            let code = match run_command(&call, request, fds) {
                Ok(pid) => {
                    errors::report(&report, &Reports::Pid(pid));
                    0
                }
                Err(error) => {
                    errors::report(&report, &Reports::Failed(error.to_string()));
                    1
                }
            };
            for kind in ["json", "log", "pid"] {
                // What is left goes with the container's folder.
                let _ = std::fs::remove_file(call.file(kind));
            }
            linux::process::exit_now(code)
        }
    }
}

fn run_command(call: &Call, request: &Exec, fds: Vec<OwnedFd>) -> Result<i32, ProgramError> {
    let config: Value = super::read_json(&call.folder.join(CONFIG)).map_err(failed("read specification"))?;
    let process = of_command(&config["process"], request);
    super::write_json(&call.file("json"), &process).map_err(failed("write process"))?;
    let mut command = call.command("exec");
    command.arg("--detach").arg("--process").arg(call.file("json")).arg("--pid-file").arg(call.file("pid"));
    let mut fds = fds.into_iter();
    let mut console = None;
    if request.tty {
        let opened = Console::open(call.folder, &call.name).map_err(failed("open terminal"))?;
        command.arg("--console-socket").arg(&opened.path);
        console = fds.next().map(|to| (opened, to));
    } else {
        let mut next = |wanted: bool| -> Result<OwnedFd, ProgramError> {
            let given = if wanted { fds.next() } else { None };
            given.map_or_else(|| null().map_err(failed("set up streams")), Ok)
        };
        let (stdin, stdout, stderr) = (next(request.stdin)?, next(request.stdout)?, next(request.stderr)?);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
    }
    command.arg(call.container);
    call.run(command)?;
    if let Some((console, to)) = console {
        console.pass(to).map_err(failed("open terminal"))?;
    }
    call.pid()
}

/// The process of a command: the container's own, with other arguments.
fn of_command(own: &Value, request: &Exec) -> Value {
    let mut process = own.clone();
    process["args"] = json!(request.args);
    process["terminal"] = json!(request.tty);
    let variables = process["env"].as_array().cloned().unwrap_or_default();
    let has_term = variables.iter().any(|entry| entry.as_str().is_some_and(|entry| entry.starts_with("TERM=")));
    if request.tty && !has_term {
        process["env"] = variables.into_iter().chain([json!("TERM=xterm")]).collect();
    }
    process
}

/// Sends a signal to the first process of a container, as the program understands it. Nobody waits for it.
pub(super) fn signal(program: &Path, start: &Start, pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    beside(program, start, "kill", &[&signal.to_string()], || {
        // A program that cannot must not leave a container that does not hear.
        let _ = linux::process::kill_pidfd(pidfd.as_fd(), signal);
    })
}

/// Lets the program forget a container that has ended. Nobody waits for it.
pub(super) fn delete(program: &Path, start: &Start) -> io::Result<()> {
    beside(program, start, "delete", &[], || {})
}

fn beside(program: &Path, start: &Start, verb: &str, after: &[&str], or: impl FnOnce()) -> io::Result<()> {
    if let Fork::Child = linux::process::fork()? {
        linux::process::reset_signals();
        // The folder may be on its way out: nothing new is put there.
        let call = Call { log: "/dev/null".into(), ..Call::new(program, start, verb.to_owned()) };
        let mut command = call.command(verb);
        if verb == "delete" {
            command.arg("--force");
        }
        command.arg(call.container).args(after.iter().map(OsStr::new));
        if call.run(command).is_err() {
            or();
        }
        linux::process::exit_now(0)
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_error_of_the_log() {
        let log = r#"{"level":"warning","msg":"slow"}
{"level":"error","msg":"runc create failed: unable to start container process: exec: \"nope\": executable file not found in $PATH"}
"#;
        assert_eq!(reason(log).unwrap(), "exec: \"nope\": executable file not found in $PATH");
        assert_eq!(reason("no json\n"), None);
        assert_eq!(reason(""), None);
    }

    #[test]
    fn a_command_is_like_the_containers_own_process() {
        let own = json!({"args": ["sh"], "cwd": "/work", "env": ["A=1"], "terminal": false, "noNewPrivileges": true});
        let request = Exec {
            exec: 1,
            container: "c".into(),
            args: vec!["ls".into(), "-l".into()],
            tty: true,
            stdin: false,
            stdout: false,
            stderr: false,
        };
        let made = of_command(&own, &request);
        let expected = json!({
            "args": ["ls", "-l"], "cwd": "/work", "env": ["A=1", "TERM=xterm"], "terminal": true, "noNewPrivileges": true,
        });
        assert_eq!(made, expected);
    }
}

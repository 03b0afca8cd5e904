//! `kubectl cp`: files through tar, which the container must have.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use kube::api::AttachedProcess;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::pods;
use super::stream::{self, Streams};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "cp",
    group: super::TROUBLE,
    short: "Copy files and directories to and from containers.",
    examples: "kubectl cp /tmp/foo web:/tmp/bar\nkubectl cp namespace/web:/tmp/foo /tmp/bar",
    usage: "<file-spec-src> <file-spec-dest> [options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("container", "", "The container.").short('c'),
    Flag::switch("no-preserve", "Do not keep owners and permissions."),
    Flag::integer("retries", "0", "How often a copy from a container is tried again."),
];

#[derive(Debug, PartialEq)]
struct Place {
    /// None for a file of ours.
    pod: Option<(Option<String>, String)>,
    path: String,
}

const FORMAT: &str = "filespec must match the canonical format: [[namespace/]pod:]file/path";

/// `path`, `pod:path`, `namespace/pod:path`.
fn place(text: &str) -> Result<Place> {
    let Some((pod, path)) = text.split_once(':') else {
        return Ok(Place { pod: None, path: text.into() });
    };
    // Upstream knows no path of ours with a colon in it.
    let pod = match pod.split('/').collect::<Vec<_>>()[..] {
        [""] => return Err(Failure::message(FORMAT)),
        [pod] => (None, pod.to_string()),
        [namespace, pod] => (Some(namespace.to_string()), pod.to_string()),
        _ => return Err(Failure::message(FORMAT)),
    };
    Ok(Place { pod: Some(pod), path: path.into() })
}

async fn run(session: &Session) -> Result<()> {
    let [source, target] = session.arguments() else {
        return Err(Failure::message("source and destination are required"));
    };
    let (source, target) = (place(source)?, place(target)?);
    if source.path.is_empty() || target.path.is_empty() {
        return Err(Failure::message("filepath can not be empty"));
    }
    match (&source.pod, &target.pod) {
        (Some(_), Some(_)) => Err(Failure::message("one of src or dest must be a local file specification")),
        (None, None) => Err(Failure::message("one of src or dest must be a remote file specification")),
        (None, Some(pod)) => to_pod(session, Path::new(&source.path), pod, &target.path).await,
        (Some(pod), None) => from_pod(session, pod, &source.path, Path::new(&target.path)).await,
    }
}

async fn start(
    session: &Session,
    pod: &(Option<String>, String),
    stdin: bool,
    command: &[&str],
) -> Result<AttachedProcess> {
    let namespace = match &pod.0 {
        Some(namespace) => namespace.clone(),
        None => session.namespace()?.to_string(),
    };
    let pod =
        session.send(&crate::session::Call::get(format!("/api/v1/namespaces/{namespace}/pods/{}", pod.1))).await?;
    let container = pods::container(&pod, session.flags.text("container"), false)?;
    let command: Vec<String> = command.iter().map(|word| word.to_string()).collect();
    stream::exec(session, &pod, &container, &Streams { stdin, tty: false, detach: None }, &command).await
}

async fn to_pod(session: &Session, source: &Path, pod: &(Option<String>, String), target: &str) -> Result<()> {
    if !source.exists() {
        return Err(Failure::message(format!("{} doesn't exist in local filesystem", source.display())));
    }
    // Into a folder that is there, the source keeps its name; otherwise it gets the target's.
    let mut target = target.to_string();
    let name = source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut probe = start(session, pod, false, &["test", "-d", &target]).await?;
    let status = match probe.take_status() {
        Some(status) => status.await,
        None => None,
    };
    if status.is_some_and(|status| status.status.as_deref() == Some("Success")) {
        target = format!("{}/{name}", target.trim_end_matches('/'));
    }
    let (folder, last) = match target.trim_end_matches('/').rsplit_once('/') {
        Some(("", last)) => ("/".to_string(), last.to_string()),
        Some((folder, last)) => (folder.to_string(), last.to_string()),
        None => (".".to_string(), target.clone()),
    };
    let mut command = vec!["tar", "-xmf", "-", "-C", folder.as_str()];
    if session.flags.on("no-preserve") {
        command = vec!["tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-", "-C", folder.as_str()];
    }
    let mut process = start(session, pod, true, &command).await?;
    let Some(mut input) = process.stdin() else {
        return Err(Failure::message("cannot open the input of tar in the container"));
    };
    let (writer, mut packed) = pipe();
    let source = source.to_path_buf();
    let packing = tokio::task::spawn_blocking(move || {
        let mut builder = tar::Builder::new(writer);
        builder.follow_symlinks(false);
        if source.is_dir() {
            builder.append_dir_all(&last, &source)
        } else {
            builder.append_path_with_name(&source, &last)
        }?;
        builder.into_inner().map(drop)
    });
    while let Some(bytes) = packed.recv().await {
        if input.write_all(&bytes).await.is_err() {
            break;
        }
    }
    drop(packed);
    let _ = input.shutdown().await;
    drop(input);
    packing.await.map_err(Failure::of)??;
    finish(process).await
}

/// Waits for the end and shows what the other side complained of.
async fn finish(mut process: AttachedProcess) -> Result<()> {
    let status = process.take_status();
    let mut errors = Vec::new();
    if let Some(mut stream) = process.stderr() {
        let _ = stream.read_to_end(&mut errors).await;
    }
    terminal::err(&String::from_utf8_lossy(&errors));
    match status {
        Some(status) => match status.await {
            Some(status) => stream::outcome(&serde_json::to_value(status).unwrap_or_default()),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

async fn from_pod(session: &Session, pod: &(Option<String>, String), source: &str, target: &Path) -> Result<()> {
    let mut process = start(session, pod, false, &["tar", "cf", "-", source]).await?;
    let Some(mut output) = process.stdout() else {
        return Err(Failure::message("cannot open the output of tar in the container"));
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(CHUNKS_MAX);
    let target = if target.is_dir() {
        target.join(Path::new(source).file_name().unwrap_or_default())
    } else {
        target.to_path_buf()
    };
    let prefix = source.trim_start_matches('/').trim_end_matches('/').to_string();
    let namespace = pod.0.clone().unwrap_or_default();
    let instead = format!("kubectl exec -n {namespace:?} {:?} -- tar cf - {source:?} | tar xf -", pod.1);
    let unpacking =
        tokio::task::spawn_blocking(move || unpack(Unpiped { receiver, rest: Vec::new() }, &prefix, &target, &instead));
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = output.read(&mut buffer).await {
        if count == 0 || sender.send(buffer[..count].to_vec()).await.is_err() {
            break;
        }
    }
    drop(sender);
    let unpacked = unpacking.await.map_err(Failure::of)?;
    finish(process).await?;
    unpacked
}

/// How many pieces may wait between the network and the disk.
const CHUNKS_MAX: usize = 16;

/// The blocking end of a pipe into the program.
struct Piped(tokio::sync::mpsc::Sender<Vec<u8>>);

fn pipe() -> (Piped, tokio::sync::mpsc::Receiver<Vec<u8>>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(CHUNKS_MAX);
    (Piped(sender), receiver)
}

impl std::io::Write for Piped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.blocking_send(bytes.to_vec());
        sent.map(|()| bytes.len()).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The blocking end of a pipe out of the program.
struct Unpiped {
    receiver: tokio::sync::mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Unpiped {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.receiver.blocking_recv().unwrap_or_default();
        }
        let count = buffer.len().min(self.rest.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

/// Puts the files where they belong, and nowhere else: what a container sends is not to be believed.
/// `instead` is how links are copied, which here are left out.
fn unpack(stream: impl Read, prefix: &str, target: &Path, instead: &str) -> Result<()> {
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_path_buf();
        let inner = path.strip_prefix(prefix).unwrap_or(&path).to_path_buf();
        if inner.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            terminal::errln(&format!(
                "warning: file {:?} is outside target destination, skipping",
                path.display().to_string()
            ));
            continue;
        }
        let place: PathBuf = if inner.as_os_str().is_empty() { target.to_path_buf() } else { target.join(inner) };
        match entry.header().entry_type() {
            tar::EntryType::Directory => std::fs::create_dir_all(&place)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                if let Some(folder) = place.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    std::fs::create_dir_all(folder)?;
                }
                let mut file = std::fs::File::create(&place)?;
                std::io::copy(&mut entry, &mut file)?;
                use std::os::unix::fs::PermissionsExt;
                let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
                std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode))?;
            }
            tar::EntryType::Symlink => {
                terminal::errln(&format!(
                    "warning: skipping symlink: {:?} -> {:?} (consider using \"{instead}\")",
                    place.display().to_string(),
                    entry.link_name()?.map(|link| link.display().to_string()).unwrap_or_default()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ours_or_a_pods() {
        let pod = |namespace: Option<&str>, name: &str, path: &str| Place {
            pod: Some((namespace.map(str::to_string), name.into())),
            path: path.into(),
        };
        let check = |text: &str, expected: Place| {
            assert_eq!(place(text).unwrap_or_else(|failure| panic!("{}", failure.text())), expected, "{text}")
        };
        check("/tmp/x", Place { pod: None, path: "/tmp/x".into() });
        check("a/b", Place { pod: None, path: "a/b".into() });
        check("web:/tmp/x", pod(None, "web", "/tmp/x"));
        check("team/web:x", pod(Some("team"), "web", "x"));
        check("web:", pod(None, "web", ""));
        check("web:a:b", pod(None, "web", "a:b"));
        check("./a:b", pod(Some("."), "a", "b"));
        for bad in ["a/b/c:x", ":x", "/tmp/a:b"] {
            assert_eq!(place(bad).unwrap_err().text(), FORMAT, "{bad}");
        }
    }

    #[test]
    fn nothing_is_written_outside() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        for name in ["tmp/tree/good", "tmp/tree/../../../evil"] {
            // The library itself refuses such a name, so it is written as bytes.
            let bytes = &mut header.as_old_mut().name;
            bytes.fill(0);
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, &b"hi"[..]).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let target = folder.path().join("back");
        unpack(&archive[..], "tmp/tree", &target, "").unwrap_or_else(|failure| panic!("{}", failure.text()));
        assert_eq!(std::fs::read_to_string(target.join("good")).unwrap(), "hi");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

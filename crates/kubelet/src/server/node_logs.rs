//! Logs of the node itself: the folder `/var/log`, and services by name (`query`).

use std::path::{Path, PathBuf};

use bytes::Bytes;
use component_base::tasks;
use http::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::answers::{self, Answer, text};

const PIECE_BYTES: usize = 32 * 1024;

pub async fn answer(root: &Path, path: &str, rest: &[&str], query: &str) -> Answer {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let queries: Vec<&str> = pairs.iter().filter(|(key, _)| key == "query").map(|(_, value)| value.as_str()).collect();
    if !queries.is_empty() {
        return by_query(root, &queries, &pairs).await;
    }
    let wanted = rest.iter().fold(root.to_path_buf(), |folder, part| folder.join(part));
    let Some(wanted) = inside(root, &wanted).await else { return answers::not_found() };
    match tokio::fs::metadata(&wanted).await {
        Ok(metadata) if metadata.is_dir() && !path.ends_with('/') => {
            let mut answer = text(StatusCode::MOVED_PERMANENTLY, "");
            let location = format!("{}/", path.rsplit('/').next().unwrap_or(""));
            if let Ok(value) = location.parse() {
                answer.headers_mut().insert(http::header::LOCATION, value);
            }
            answer
        }
        Ok(metadata) if metadata.is_dir() => listing(&wanted).await,
        Ok(metadata) if metadata.is_file() => file(root, wanted).await,
        _ => answers::not_found(),
    }
}

/// The place with all links followed, unless it leads out of the folder.
async fn inside(root: &Path, wanted: &Path) -> Option<PathBuf> {
    if wanted.components().any(|part| matches!(part, std::path::Component::ParentDir)) {
        return None;
    }
    let root = tokio::fs::canonicalize(root).await.ok()?;
    let wanted = tokio::fs::canonicalize(wanted).await.ok()?;
    wanted.starts_with(&root).then_some(wanted)
}

async fn listing(folder: &Path) -> Answer {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return answers::not_found() };
    let mut names = Vec::new();
    while let Ok(Some(entry)) = entries.next_entry().await {
        let is_folder = entry.file_type().await.is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().to_string_lossy().into_owned();
        names.push(if is_folder { format!("{name}/") } else { name });
    }
    names.sort();
    let escape =
        |name: &str| name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
    let lines: String = names.iter().map(|name| format!("<a href=\"{0}\">{0}</a>\n", escape(name))).collect();
    let page =
        format!("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{lines}</pre>\n");
    answers::answer(StatusCode::OK, "text/html; charset=utf-8", page)
}

/// More of one file is not held in memory.
const QUERY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Logs are files; pipes and devices among them are not touched.
///
/// The path has no links any more, and none is followed: whoever may write to a folder of logs cannot put one in between.
async fn opened(root: &Path, path: PathBuf) -> Option<tokio::fs::File> {
    let root = tokio::fs::canonicalize(root).await.ok()?;
    let below = path.strip_prefix(&root).ok()?.to_owned();
    let opened = tokio::task::spawn_blocking(move || linux::path::open_regular_plain(&root, &below)).await;
    opened.ok()?.ok().map(tokio::fs::File::from_std)
}

async fn file(root: &Path, path: PathBuf) -> Answer {
    let Some(mut file) = opened(root, path).await else { return answers::not_found() };
    let (sender, pieces) = mpsc::channel::<std::io::Result<Bytes>>(4);
    tasks::spawn(async move {
        loop {
            let mut buffer = vec![0; PIECE_BYTES];
            let piece = match file.read(&mut buffer).await {
                Ok(0) => return,
                Ok(read) => {
                    buffer.truncate(read);
                    Ok(buffer.into())
                }
                Err(error) => Err(error),
            };
            if sender.send(piece).await.is_err() {
                return;
            }
        }
    });
    answers::pieces("text/plain; charset=utf-8", pieces)
}

/// A file named like the service, in the places where services put such files; or one named by its path.
async fn by_query(root: &Path, queries: &[&str], pairs: &[(String, String)]) -> Answer {
    let tail: Option<usize> =
        pairs.iter().find(|(key, _)| key == "tailLines").and_then(|(_, value)| value.parse().ok());
    let mut out = Vec::new();
    for query in queries {
        let bare = query.trim_start_matches('/');
        let places = [root.join(bare), root.join(format!("{bare}.log")), root.join(bare).join(format!("{bare}.log"))];
        for place in places {
            let Some(place) = inside(root, &place).await else { continue };
            let Some(file) = opened(root, place).await else { continue };
            let mut bytes = Vec::new();
            if file.take(QUERY_BYTES_MAX).read_to_end(&mut bytes).await.is_err() {
                continue;
            }
            let from = tail.map_or(0, |lines| begin_of_tail(&bytes, lines));
            out.extend_from_slice(&bytes[from..]);
            break;
        }
    }
    if out.is_empty() {
        text(StatusCode::BAD_REQUEST, format!("failed to get logs for services: {queries:?}\n"))
    } else {
        answers::answer(StatusCode::OK, "text/plain; charset=utf-8", out)
    }
}

fn begin_of_tail(bytes: &[u8], lines: usize) -> usize {
    let ends = bytes.iter().enumerate().rev().filter(|(place, byte)| **byte == b'\n' && place + 1 < bytes.len());
    match lines {
        0 => bytes.len(),
        _ => ends.map(|(place, _)| place + 1).nth(lines - 1).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn shown(root: &Path, path: &str, query: &str) -> (u16, String) {
        let rest: Vec<&str> = path.trim_start_matches("/logs").split('/').filter(|part| !part.is_empty()).collect();
        let answer = answer(root, path, &rest, query).await;
        let status = answer.status().as_u16();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn only_what_is_below_the_folder_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("log");
        std::fs::create_dir_all(root.join("pods")).unwrap();
        std::fs::write(root.join("syslog"), "one\ntwo\n").unwrap();
        std::fs::write(root.join("kubelet.log"), "a\nb\nc\n").unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), root.join("link")).unwrap();
        assert_eq!(shown(&root, "/logs/syslog", "").await, (200, "one\ntwo\n".into()));
        assert!(shown(&root, "/logs/", "").await.1.contains("<a href=\"pods/\">pods/</a>"));
        assert_eq!(shown(&root, "/logs/../secret", "").await.0, 404);
        assert_eq!(shown(&root, "/logs/link", "").await.0, 404);
        assert_eq!(shown(&root, "/logs/", "query=kubelet&tailLines=2").await, (200, "b\nc\n".into()));
        assert_eq!(shown(&root, "/logs/", "query=../secret").await.0, 400);
    }
}

//! Logs from real files: whole, from the end, from a time, over rotated files, and while they grow.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::*;

fn entry(second: u32, stream: &str, tag: &str, content: &str) -> String {
    format!("2026-01-02T03:{:02}:{:02}.000000001Z {stream} {tag} {content}\n", second / 60, second % 60)
}

fn entries(seconds: std::ops::Range<u32>) -> String {
    seconds.map(|second| entry(second, "stdout", "F", &format!("line {second}"))).collect()
}

fn lines(seconds: std::ops::Range<u32>) -> String {
    seconds.map(|second| format!("line {second}\n")).collect()
}

async fn all(path: &Path, options: Options) -> String {
    let mut pieces = read(path.to_path_buf(), options, None);
    let mut text = Vec::new();
    while let Some(piece) = pieces.recv().await {
        text.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

fn log(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[tokio::test]
async fn partial_lines_are_joined_and_streams_chosen() {
    let text = [
        entry(1, "stdout", "P", "one "),
        entry(2, "stdout", "F", "line"),
        entry(3, "stderr", "F", "bad"),
        "rubbish\n".into(),
        entry(4, "stdout", "F", ""),
    ];
    let (_folder, path) = log(&text.concat());
    assert_eq!(all(&path, Options::default()).await, "one line\nbad\n\n");
    let stamped = all(&path, Options { timestamps: true, stream: Some("stdout"), ..Options::default() }).await;
    assert_eq!(stamped, "2026-01-02T03:00:01.000000001Z one line\n2026-01-02T03:00:04.000000001Z \n");
    assert_eq!(all(&path, Options { limit_bytes: Some(6), ..Options::default() }).await, "one li");
    assert_eq!(all(&path, Options { limit_bytes: Some(9), ..Options::default() }).await, "one line\n");
}

#[tokio::test]
async fn the_tail_goes_back_into_rotated_files_as_far_as_needed() {
    let (folder, path) = log(&entries(20..25));
    fs::write(folder.path().join("0.log.20260102-030300"), entries(10..20)).unwrap();
    let packed = fs::File::create(folder.path().join("0.log.20260102-030100.gz")).unwrap();
    let mut packer = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packer.write_all(entries(0..10).as_bytes()).unwrap();
    packer.finish().unwrap();
    // Both are remains of packing that is not finished, or was not cleaned up.
    fs::write(folder.path().join("0.log.20260102-030100"), entries(0..10)).unwrap();
    fs::write(folder.path().join("0.log.20260102-030300.tmp"), "x").unwrap();
    let tail = |tail| all(&path, Options { tail_lines: Some(tail), ..Options::default() });
    assert_eq!(tail(0).await, "");
    assert_eq!(tail(2).await, lines(23..25));
    assert_eq!(tail(5).await, lines(20..25));
    assert_eq!(tail(8).await, lines(17..25));
    assert_eq!(tail(15).await, lines(10..25));
    assert_eq!(tail(22).await, lines(3..25));
    assert_eq!(tail(100).await, lines(0..25));
    assert_eq!(all(&path, Options::default()).await, lines(0..25));
}

#[tokio::test]
async fn a_time_is_found_in_a_long_file() {
    let (_folder, path) = log(&entries(0..3600).replace("line", &format!("{}line", "x".repeat(100))));
    for second in [0u32, 1, 1799, 3000, 3599] {
        let since = format!("2026-01-02T03:{:02}:{:02}Z", second / 60, second % 60).parse().unwrap();
        let shown = all(&path, Options { since: Some(since), ..Options::default() }).await;
        assert_eq!(shown.lines().count() as u32, 3600 - second, "since second {second}");
        let both = all(&path, Options { since: Some(since), tail_lines: Some(10), ..Options::default() }).await;
        assert_eq!(both.lines().count() as u32, (3600 - second).min(10));
    }
    let after = "2026-01-02T05:00:00Z".parse().unwrap();
    assert_eq!(all(&path, Options { since: Some(after), ..Options::default() }).await, "");
}

#[tokio::test]
async fn a_log_is_followed_over_a_rotation_to_the_end_of_the_container() {
    let (folder, path) = log(&entries(0..3));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let ended: Ended = Box::pin(async move {
        let _ = ended.await;
    });
    let options = Options { follow: true, tail_lines: Some(1), ..Options::default() };
    let mut pieces = read(path.clone(), options, Some(ended));
    let mut next = async || {
        let piece = tokio::time::timeout(Duration::from_secs(10), pieces.recv()).await.expect("something in time");
        piece.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
    };
    assert_eq!(next().await, Some(lines(2..3)));
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    // An entry written in two steps is shown once, when it is whole.
    let text = entries(3..4);
    file.write_all(&text.as_bytes()[..30]).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    file.write_all(&text.as_bytes()[30..]).unwrap();
    assert_eq!(next().await, Some(lines(3..4)));
    fs::rename(&path, folder.path().join("0.log.20260102-030405")).unwrap();
    file.write_all(entries(4..5).as_bytes()).unwrap();
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(entries(5..6).as_bytes()).unwrap();
    let mut seen = String::new();
    while seen != lines(4..6) {
        seen += &next().await.expect("the log goes on");
        assert!(lines(4..6).starts_with(&seen), "{seen:?}");
    }
    file.write_all(entries(6..7).as_bytes()).unwrap();
    end.send(()).unwrap();
    assert_eq!(next().await, Some(lines(6..7)));
    assert_eq!(next().await, None);
}

#[tokio::test]
async fn following_ends_when_nobody_listens() {
    let (_folder, path) = log(&entries(0..1));
    let options = Options { follow: true, ..Options::default() };
    let (held, dropped) = tokio::sync::oneshot::channel::<()>();
    let ended: Ended = Box::pin(async move {
        let _held = held;
        std::future::pending().await
    });
    let mut pieces = read(path, options, Some(ended));
    assert!(pieces.recv().await.is_some());
    drop(pieces);
    // The follower lets go of everything it holds.
    assert!(tokio::time::timeout(Duration::from_secs(10), dropped).await.expect("it ends").is_err());
}

//! What passes the guard, and what it refuses.

use tokio::io::AsyncReadExt;

use super::*;

/// What the parser gets of a connection whose bytes arrive in pieces of this size.
async fn seen(sent: &[u8], piece: usize) -> Vec<u8> {
    let pieces: Vec<&[u8]> = sent.chunks(piece).collect();
    let mut script = Script(pieces.into_iter().map(<[u8]>::to_vec).collect());
    let mut guard = Guard::http1(&mut script, Arc::default(), Duration::from_secs(1));
    let mut all = Vec::new();
    guard.read_to_end(&mut all).await.expect("reading does not fail");
    all
}

struct Script(std::collections::VecDeque<Vec<u8>>);

impl AsyncRead for Script {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let script = self.get_mut();
        if let Some(mut piece) = script.0.pop_front() {
            let here = piece.len().min(buffer.remaining());
            let rest = piece.split_off(here);
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                script.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn right_requests_pass_however_they_arrive() {
    let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello\
        \r\nPUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\n\
        X-Sum: 1\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\n\r\n";
    for piece in [1, 2, 3, 7, 64, 10_000] {
        let seen = seen(requests, piece).await;
        assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(requests), "in pieces of {piece}");
    }
}

#[tokio::test]
async fn what_follows_something_wrong_is_never_seen() {
    let good = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let wrong = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\ncontent-length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n\tContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET /\r\n\r\n",
    ];
    for request in wrong {
        for piece in [1, 16, 10_000] {
            let sent = format!("{good}{request}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n");
            let seen = String::from_utf8(seen(sent.as_bytes(), piece).await).expect("text");
            assert_eq!(seen, format!("{good} \r\n\r\n"), "{request:?} in pieces of {piece}");
        }
    }
}

#[test]
fn whatever_comes_has_one_reading() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let examples = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello".to_vec(),
        b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
    ];
    let words: [&[u8]; 14] = [
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"Content-Length: 5",
        b"Transfer-Encoding: chunked",
        b"0\r\n\r\n",
        b"5\r\n",
        b": ",
        b" ",
        b"\t",
        b"\0",
        b"HTTP/1.0",
        b"Host: b\r\n",
    ];
    fuzz::bytes("http-guard", &examples, &words, |input| {
        let whole = runtime.block_on(seen(input, input.len().max(1)));
        for piece in [1, 7] {
            assert_eq!(runtime.block_on(seen(input, piece)), whole, "in pieces of {piece}");
        }
        // What passes was sent, up to the place of what is refused.
        let passed = whole.strip_suffix(WRONG).unwrap_or(&whole);
        assert!(input.starts_with(passed), "{:?}", String::from_utf8_lossy(&whole));
    });
}

#[tokio::test]
async fn chunks_have_one_form() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n",
        "\r\nhello\r\n",
        "fffffffffffffffff\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "0\r\nX: y\nZ: z\r\n\r\n",
        "0\r\n\n",
    ] {
        let seen = seen(format!("{head}{body}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 10_000).await;
        let seen = String::from_utf8(seen).expect("text");
        assert!(seen.ends_with(" \r\n\r\n") && !seen.contains("hidden"), "{body:?}: {seen:?}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_handed_on_when_it_is_too_long() {
    let sent = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(HEAD_BYTES_MAX * 2));
    let seen = seen(sent.as_bytes(), 4096).await;
    assert!(seen.len() >= HEAD_BYTES_MAX && seen.len() < HEAD_BYTES_MAX + 2 * 4096, "{}", seen.len());
}

#[tokio::test]
async fn after_an_upgrade_everything_passes() {
    let upgraded = Arc::new(AtomicBool::new(false));
    let mut script = Script([b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n".to_vec(), b"\x81\n\n".to_vec()].into());
    let mut guard = Guard::http1(&mut script, upgraded.clone(), Duration::from_secs(1));
    let mut buffer = [0; 1024];
    let head = guard.read(&mut buffer).await.expect("the head");
    assert!(buffer[..head].ends_with(b"\r\n\r\n"));
    upgraded.store(true, Ordering::Release);
    let rest = guard.read(&mut buffer).await.expect("the rest");
    assert_eq!(&buffer[..rest], b"\x81\n\n");
}

//! Registries that lie, hang, hang up, ask for tokens or say that they are busy.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::Credentials;
use super::super::manifest::digest_of;
use super::{Fixture, Packing, Tar, TestImage, pack};

/// What the server does with one request.
enum Act {
    /// Status line, headers, body.
    Answer(&'static str, Vec<(String, String)>, Vec<u8>),
    /// Announces this many bytes, sends these, and hangs up.
    Cut(&'static str, Vec<(String, String)>, u64, Vec<u8>),
    /// Sends these bytes of a body without end.
    Endless(Vec<u8>),
    /// Announces this many bytes, sends these, and says nothing more.
    Stall(u64, Vec<u8>),
    Silence,
}

#[derive(Clone, Debug)]
struct Request {
    method: String,
    path: String,
    range: Option<u64>,
    authorization: String,
    body: String,
}

type Acting = dyn Fn(&Request) -> Option<Act> + Send + Sync;

/// Serves an image, except where the test acts otherwise.
struct Liar {
    address: String,
    seen: Arc<Mutex<Vec<Request>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Liar {
    async fn start(image: &TestImage, acting: impl Fn(&Request) -> Option<Act> + Send + Sync + 'static) -> Liar {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (image, acting, all): (_, Arc<Acting>, _) = (image.clone(), Arc::new(acting), seen.clone());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (image, acting, all) = (image.clone(), acting.clone(), all.clone());
                tokio::spawn(async move { drop(serve(stream, &image, &*acting, &all).await) });
            }
        });
        Liar { address, seen, task }
    }

    fn name(&self) -> String {
        format!("{}/app:v1", self.address)
    }

    fn requests(&self, part: &str) -> Vec<Request> {
        self.seen.lock().iter().filter(|request| request.path.contains(part)).cloned().collect()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: tokio::net::TcpStream,
    image: &TestImage,
    acting: &Acting,
    seen: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut first = head.split(' ');
    let request = Request {
        method: first.next().unwrap_or_default().to_owned(),
        path: first.next().unwrap_or_default().to_owned(),
        range: header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()),
        authorization: header("authorization").unwrap_or_default(),
        body: String::new(),
    };
    let mut body = vec![0; header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let request = Request { body: String::from_utf8_lossy(&body).into_owned(), ..request };
    seen.lock().push(request.clone());
    let act = acting(&request).unwrap_or_else(|| honest(image, &request));
    let text = |status: &str, headers: &[(String, String)]| {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n").into_bytes()
    };
    let length = |bytes: u64| ("Content-Length".to_owned(), bytes.to_string());
    match act {
        Act::Answer(status, mut headers, body) => {
            headers.push(length(body.len() as u64));
            stream.write_all(&text(status, &headers)).await?;
            if request.method != "HEAD" {
                stream.write_all(&body).await?;
            }
        }
        Act::Cut(status, mut headers, announced, body) => {
            headers.push(length(announced));
            stream.write_all(&text(status, &headers)).await?;
            stream.write_all(&body).await?;
        }
        Act::Endless(body) => {
            stream.write_all(&text("200 OK", &[])).await?;
            loop {
                stream.write_all(&body).await?;
            }
        }
        Act::Stall(announced, body) => {
            stream.write_all(&text("200 OK", &[length(announced)])).await?;
            stream.write_all(&body).await?;
            std::future::pending::<()>().await;
        }
        Act::Silence => std::future::pending::<()>().await,
    }
    stream.shutdown().await
}

fn honest(image: &TestImage, request: &Request) -> Act {
    let path = request.path.split('?').next().unwrap_or_default();
    if path.starts_with("/v2/app/manifests/") {
        let headers = vec![
            ("Docker-Content-Digest".to_owned(), image.digest()),
            ("Content-Type".to_owned(), image.media_type.to_owned()),
        ];
        return Act::Answer("200 OK", headers, image.manifest.clone());
    }
    match image.blobs().into_iter().find(|blob| path == format!("/v2/app/blobs/{}", digest_of(blob))) {
        Some(blob) => Act::Answer("200 OK", Vec::new(), blob),
        None => Act::Answer("404 Not Found", Vec::new(), Vec::new()),
    }
}

fn image() -> TestImage {
    let noise: Vec<u8> = (0..300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    TestImage::new(&[(Tar::new().file("noise", &noise).finish(), Packing::None)])
}

/// The one layer of the image.
fn is_layer(image: &TestImage) -> impl Fn(&Request) -> bool + Send + Sync + 'static {
    let path = format!("/v2/app/blobs/{}", digest_of(&image.layers[0].0));
    move |request| request.path == path
}

#[tokio::test]
async fn a_lost_connection_is_picked_up_where_it_was() {
    let image = image();
    let (layer, blob) = (is_layer(&image), image.layers[0].0.clone());
    let liar = Liar::start(&image, move |request| {
        let total = blob.len() as u64;
        let from = request.range.unwrap_or(0);
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let range = ("Content-Range".to_owned(), format!("bytes {from}-{}/{total}", total - 1));
        let end = (from as usize + 100_000).min(blob.len());
        layer(request).then(|| Act::Cut(status, vec![range], total - from, blob[from as usize..end].to_vec()))
    })
    .await;
    let fixture = Fixture::new().await;
    assert_eq!(fixture.images.pull(&liar.name(), None).await.unwrap(), image.id());
    let ranges: Vec<Option<u64>> =
        liar.requests(&digest_of(&image.layers[0].0)).iter().map(|request| request.range).collect();
    assert!(
        ranges.len() >= 3 && ranges[0].is_none() && ranges[1..].iter().all(|range| range.is_some_and(|from| from > 0)),
        "{ranges:?}"
    );
}

#[tokio::test]
async fn a_registry_without_ranges_is_asked_for_all_again() {
    let image = image();
    let (layer, blob) = (is_layer(&image), image.layers[0].0.clone());
    let liar = Liar::start(&image, move |request| {
        let first = layer(request) && request.range.is_none();
        first.then(|| Act::Cut("200 OK", Vec::new(), blob.len() as u64, blob[..1000].to_vec()))
    })
    .await;
    let fixture = Fixture::new().await;
    assert_eq!(fixture.images.pull(&liar.name(), None).await.unwrap(), image.id());
}

#[tokio::test]
async fn lies_are_found_out_and_leave_nothing() {
    let image = image();
    let blob = image.layers[0].0.clone();
    let mut changed = blob.clone();
    changed[5000] ^= 1;
    let longer = [blob.clone(), b"more".to_vec()].concat();
    type Lie = Box<dyn Fn() -> Act + Send + Sync>;
    let lies: Vec<(Lie, &str)> = vec![
        (Box::new(move || Act::Answer("200 OK", Vec::new(), changed.clone())), "failed size or digest validation"),
        (Box::new(move || Act::Answer("200 OK", Vec::new(), longer.clone())), "registry announces"),
        (Box::new(|| Act::Answer("200 OK", Vec::new(), b"short".to_vec())), "registry announces 5 bytes"),
        (Box::new(|| Act::Endless(vec![7; 65536])), "registry sends more than that"),
        (Box::new(|| Act::Answer("404 Not Found", Vec::new(), Vec::new())), "not found"),
        (Box::new(|| Act::Answer("403 Forbidden", Vec::new(), Vec::new())), "403 Forbidden"),
        (Box::new(|| Act::Cut("200 OK", Vec::new(), 301_568, Vec::new())), "failed to copy"),
    ];
    for (lie, expected) in lies {
        let layer = is_layer(&image);
        let liar = Liar::start(&image, move |request| layer(request).then(&lie)).await;
        let fixture = Fixture::new().await;
        let error = fixture.images.pull(&liar.name(), None).await.unwrap_err().message;
        let start = format!("failed to pull and unpack image \"{}\": failed to copy", liar.name());
        assert!(error.starts_with(&start) && error.contains(expected), "{expected}: {error}");
        fixture.assert_empty();
    }
}

#[tokio::test]
async fn manifests_and_configurations_are_checked_too() {
    let image = image();
    let config = format!("/blobs/{}", image.id());
    type Lied = Box<dyn Fn(&Request) -> bool + Send + Sync>;
    let cases: [(Lied, &str); 2] = [
        (Box::new(|request| request.method == "GET" && request.path.contains("/manifests/")), "unexpected digest"),
        (Box::new(move |request| request.path.ends_with(&config)), "failed size validation"),
    ];
    for (lied, expected) in cases {
        let liar = Liar::start(&image, move |request| {
            lied(request).then(|| Act::Answer("200 OK", Vec::new(), b"{}".to_vec()))
        })
        .await;
        let fixture = Fixture::new().await;
        let error = fixture.images.pull(&liar.name(), None).await.unwrap_err().message;
        assert!(error.contains(expected), "{error}");
        fixture.assert_empty();
    }
    let liar = Liar::start(&image, |request| {
        (request.method == "GET" && request.path.contains("/manifests/")).then(|| Act::Endless(vec![b' '; 65536]))
    })
    .await;
    let fixture = Fixture::new().await;
    let error = fixture.images.pull(&liar.name(), None).await.unwrap_err().message;
    assert!(error.contains("answer is longer than"), "{error}");
}

#[tokio::test]
async fn silence_ends() {
    let image = image();
    let cases: [Box<Acting>; 3] = [
        Box::new(|_| Some(Act::Silence)),
        Box::new({
            let layer = is_layer(&image);
            move |request| layer(request).then_some(Act::Silence)
        }),
        Box::new({
            let (layer, blob) = (is_layer(&image), image.layers[0].0.clone());
            move |request| layer(request).then(|| Act::Stall(blob.len() as u64, blob[..1000].to_vec()))
        }),
    ];
    for (number, act) in cases.into_iter().enumerate() {
        let liar = Liar::start(&image, act).await;
        let fixture = Fixture::with("", |tuning| tuning.silence_max = Duration::from_millis(400)).await;
        let pulled = tokio::time::timeout(Duration::from_secs(30), fixture.images.pull(&liar.name(), None)).await;
        let error = pulled.expect("the pull ends by itself").unwrap_err();
        assert_eq!(error.code, cri::Code::DeadlineExceeded, "{number}: {error}");
        assert!(error.message.contains("no progress for 0.4 seconds"), "{error}");
        fixture.assert_empty();
    }
}

#[tokio::test]
async fn a_layer_that_is_a_bomb_leaves_nothing() {
    let bomb = Tar::new().file("zeros", &vec![0; 8 << 20]).finish();
    let image = TestImage::new(&[(Tar::new().file("good", b"1").finish(), Packing::Gzip), (bomb, Packing::Gzip)]);
    let liar = Liar::start(&image, |_| None).await;
    let tune = |tuning: &mut super::Tuning| {
        tuning.layers.ratio_max = 50;
        tuning.layers.ratio_free_bytes = 1 << 20;
    };
    let fixture = Fixture::with("", tune).await;
    let error = fixture.images.pull(&liar.name(), None).await.unwrap_err();
    assert_eq!(error.code, cri::Code::ResourceExhausted);
    assert!(error.message.contains("failed to extract layer sha256:"), "{error}");
    fixture.assert_empty();
    assert!(pack(&[0; 100], Packing::Gzip).len() < 100);
}

#[tokio::test]
async fn tokens_are_fetched_and_used() {
    let image = image();
    let realm = Arc::new(Mutex::new(String::new()));
    let told = realm.clone();
    let liar = Liar::start(&image, move |request| {
        if request.path.starts_with("/token") {
            if request.method == "POST" && request.body.contains("grant_type=refresh_token") {
                let is_good = request.body.ends_with("refresh_token=identity%2B")
                    && request.body.contains("scope=repository%3Aapp%3Apull");
                return Some(if is_good {
                    Act::Answer("200 OK", Vec::new(), br#"{"access_token":"good"}"#.to_vec())
                } else {
                    Act::Answer("401 Unauthorized", Vec::new(), Vec::new())
                });
            }
            let answer = match request.authorization.as_str() {
                // user:secret
                "Basic dXNlcjpzZWNyZXQ=" => Act::Answer("200 OK", Vec::new(), br#"{"token":"good"}"#.to_vec()),
                _ => Act::Answer("401 Unauthorized", Vec::new(), Vec::new()),
            };
            return Some(answer);
        }
        if request.authorization == "Bearer good" || request.authorization == "Bearer given" {
            return None;
        }
        let challenge = format!("Bearer realm=\"{}\",service=\"test\",scope=\"repository:app:pull\"", told.lock());
        Some(Act::Answer("401 Unauthorized", vec![("WWW-Authenticate".to_owned(), challenge)], Vec::new()))
    })
    .await;
    *realm.lock() = format!("http://{}/token", liar.address);
    let fixture = Fixture::new().await;
    let error = fixture.images.pull(&liar.name(), None).await.unwrap_err().message;
    let expected = format!(
        "failed to resolve reference \"{}\": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to http://{}/token?service=test&scope=repository%3Aapp%3Apull: 401 Unauthorized",
        liar.name(),
        liar.address
    );
    assert!(error.ends_with(&expected), "{error}");
    let user = Credentials { username: "user".to_owned(), password: "secret".to_owned(), ..Default::default() };
    assert_eq!(fixture.images.pull(&liar.name(), Some(user)).await.unwrap(), image.id());
    let identity = Credentials { password: "identity+".to_owned(), ..Default::default() };
    assert_eq!(fixture.images.pull(&liar.name(), Some(identity)).await.unwrap(), image.id());
    assert_eq!(liar.requests("/token").last().unwrap().method, "POST");
    let token = Credentials { registry_token: "given".to_owned(), ..Default::default() };
    assert_eq!(fixture.images.pull(&liar.name(), Some(token)).await.unwrap(), image.id());
}

#[tokio::test]
async fn a_busy_registry_is_asked_again() {
    let image = image();
    let count = Mutex::new(0);
    let liar = Liar::start(&image, move |_| {
        *count.lock() += 1;
        let again = vec![("Retry-After".to_owned(), "0".to_owned())];
        (*count.lock() % 2 == 1).then(|| Act::Answer("429 Too Many Requests", again, Vec::new()))
    })
    .await;
    let fixture = Fixture::new().await;
    assert_eq!(fixture.images.pull(&liar.name(), None).await.unwrap(), image.id());
    let liar = Liar::start(&image, |_| {
        let again = vec![("Retry-After".to_owned(), "0".to_owned())];
        Some(Act::Answer("429 Too Many Requests", again, Vec::new()))
    })
    .await;
    let error = fixture.images.pull(&liar.name(), None).await.unwrap_err().message;
    assert!(error.ends_with(": 429 Too Many Requests"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_at_the_same_time_ask_once() {
    let image = image();
    let liar = Liar::start(&image, |_| None).await;
    let fixture = Fixture::new().await;
    let name = liar.name();
    let pulls = (0..20).map(|_| fixture.images.pull(&name, None));
    for result in futures::future::join_all(pulls).await {
        assert_eq!(result.unwrap(), image.id());
    }
    assert_eq!(liar.requests(&digest_of(&image.layers[0].0)).len(), 1);
    assert!(fixture.images.progress(&name).is_none());
    assert_eq!(liar.requests("/manifests/v1").len(), 1);
}

#[tokio::test]
async fn what_a_mirror_lacks_comes_from_the_registry() {
    let image = image();
    let layer = is_layer(&image);
    let mirror = Liar::start(&image, move |request| {
        let mut path = request.clone();
        path.path = path.path.split('?').next().unwrap_or_default().to_owned();
        layer(&path).then(|| Act::Answer("404 Not Found", Vec::new(), Vec::new()))
    })
    .await;
    let origin = Liar::start(&image, |_| None).await;
    let yaml = format!("mirrors:\n  \"{}\":\n    endpoint: [\"http://{}\"]\n", origin.address, mirror.address);
    let fixture = Fixture::with(&yaml, |_| {}).await;
    let secret = Credentials { registry_token: "for the registry alone".to_owned(), ..Default::default() };
    assert_eq!(fixture.images.pull(&origin.name(), Some(secret)).await.unwrap(), image.id());
    let asked = mirror.requests("");
    assert!(asked.iter().all(|request| request.path.ends_with(&format!("?ns={}", origin.address))), "{asked:?}");
    assert!(asked.iter().all(|request| request.authorization.is_empty()), "{asked:?}");
    let asked = origin.requests("");
    assert!(
        asked.len() == 1 && asked[0].authorization.ends_with("alone") && asked[0].path.contains("/blobs/"),
        "{asked:?}"
    );
}

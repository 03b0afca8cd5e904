//! A foreign API server behind an APIService, as users meet it: reached by real kubectl, told who asks, found by discovery,
//! and missed when it ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use testkit::{Kubectl, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const LATER: Duration = Duration::from_secs(90);
const GROUP: &str = "wardle.example.com";

/// The foreign server; it ends with this.
struct Foreign {
    runtime: Option<tokio::runtime::Runtime>,
    port: u16,
    /// The authority of its certificate.
    bundle: String,
    asked: Arc<AtomicUsize>,
}

impl Foreign {
    /// Takes only those who show a certificate of the front proxy's authority.
    fn start(server: &Server, port: u16) -> Foreign {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["foreign.default.svc".to_string()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::from_params(&authority, &authority_key)).unwrap();

        let proxies = std::fs::read(server.data_dir().join("tls/front-proxy-ca.crt")).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&proxies) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = tls.with_client_cert_verifier(clients).with_single_cert(vec![leaf.der().clone()], key).unwrap();

        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port))).unwrap();
        let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), asked.clone()));
        Foreign { runtime: Some(runtime), port, bundle: root.pem(), asked }
    }

    fn end(&mut self) {
        self.runtime.take().expect("it runs").shutdown_timeout(Duration::from_secs(5));
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, asked: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, asked) = (tls.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            // The common name stands in the certificate as it is.
            let is_proxy = shown[0].windows(18).any(|window| window == b"front-proxy-client");
            let service = hyper::service::service_fn(move |request| {
                let asked = asked.clone();
                async move {
                    asked.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Infallible>(if is_proxy { answer(request) } else { text(403, "who is that?") })
                }
            });
            let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = served.with_upgrades().await;
        });
    }
}

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn text(code: u16, text: impl Into<String>) -> Reply {
    let body = Full::new(Bytes::from(text.into())).boxed_unsync();
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

/// An object that says who asked for it.
fn flunder(name: &str, headers: &HeaderMap) -> Value {
    let all = |name: &str| {
        let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
        values.collect::<Vec<_>>().join(",")
    };
    let told = json!({"user": all("x-remote-user"), "groups": all("x-remote-group"), "token": all("authorization")});
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Flunder",
        "metadata": {"name": name, "namespace": "default", "annotations": told}})
}

fn answer(mut request: Request<Incoming>) -> Reply {
    let (path, query) = (request.uri().path().to_string(), request.uri().query().unwrap_or("").to_string());
    let headers = request.headers().clone();
    let collection = format!("/apis/{GROUP}/v1/namespaces/default/flunders");
    if path == format!("/apis/{GROUP}/v1") {
        let resource = json!({"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
            "shortNames": ["fl"], "verbs": ["create", "get", "list", "watch"]});
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"), "resources": [resource]});
        return text(200, list.to_string());
    }
    if path == format!("{collection}/elsewhere") {
        let mut reply = text(307, "");
        reply.headers_mut().insert("location", "https://elsewhere.example.com/".parse().unwrap());
        return reply;
    }
    if path == format!("{collection}/stream/connect") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(stream) = upgrade.await else { return };
            let mut stream = TokioIo::new(stream);
            let mut word = [0; 5];
            if stream.read_exact(&mut word).await.is_ok() {
                word.reverse();
                let _ = stream.write_all(&word).await;
            }
        });
        let reply = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "test");
        return reply.body(Full::new(Bytes::new()).boxed_unsync()).unwrap();
    }
    if path == collection && query.contains("watch=") {
        // The second event comes only when the first has long been sent.
        let events = futures::stream::unfold(0, move |count| {
            let object = flunder(&format!("f{count}"), &headers);
            async move {
                if count > 0 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let event = json!({"type": "ADDED", "object": object}).to_string() + "\n";
                (count < 2).then(|| (Ok(Frame::data(Bytes::from(event))), count + 1))
            }
        });
        let body = BodyExt::boxed_unsync(StreamBody::new(events));
        return Response::builder().header("content-type", "application/json").body(body).unwrap();
    }
    if path == collection {
        let list = json!({"kind": "FlunderList", "apiVersion": format!("{GROUP}/v1"), "metadata": {}, "items": [flunder("one", &headers)]});
        return text(200, list.to_string());
    }
    match path.strip_prefix(&format!("{collection}/")) {
        Some(name) => text(200, flunder(name, &headers).to_string()),
        None => text(
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"})
                .to_string(),
        ),
    }
}

fn until(what: &str, mut reached: impl FnMut() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(seen) = reached() {
        assert!(began.elapsed() < LATER, "{what}: not within {LATER:?}: {seen}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn shows(kubectl: &Kubectl, arguments: &[&str], wanted: &str) -> Result<(), String> {
    let output = kubectl.run(arguments).map_err(|error| error.to_string())?;
    let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if all.contains(wanted) { Ok(()) } else { Err(all) }
}

fn api_service(port: u16, bundle: &str) -> Value {
    let bundle = String::from_utf8(base64(bundle.as_bytes())).unwrap();
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {"group": GROUP, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10, "caBundle": bundle,
            "service": {"namespace": "default", "name": "foreign", "port": port}}})
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sign = SIGNS[(number >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= chunk.len() { sign } else { b'=' });
        }
    }
    out
}

#[test]
fn a_foreign_api_server_is_served_and_missed() {
    let server = Server::start_api(&[]).expect("starts");
    let kubectl = server.kubectl();
    let name = format!("v1.{GROUP}");
    let get = ["get", "apiservice", &name];
    let mut foreign = Foreign::start(&server, 0);

    // Groups of this server have APIServices of their own.
    until("v1.apps", || shows(&kubectl, &["get", "apiservice", "v1.apps"], "Local     True"));
    kubectl.ok_with(&["apply", "-f", "-"], &api_service(foreign.port, &foreign.bundle).to_string());
    until("no Service", || shows(&kubectl, &get, "default/foreign   False (ServiceNotFound)"));
    let said = kubectl.fails(&["get", "--raw", &format!("/apis/{GROUP}/v1/flunders")]);
    assert!(said.contains("the server is currently unable to handle the request"), "{said}");
    kubectl.ok(&["create", "service", "externalname", "foreign", "--external-name=localhost"]);
    until("it is found", || shows(&kubectl, &get, "default/foreign   True"));
    let status: Value = serde_json::from_str(&kubectl.ok(&["get", "apiservice", &name, "-o", "json"])).unwrap();
    assert_eq!(status["status"]["conditions"][0]["reason"], "Passed");

    // Discovery knows its resources, short names too, and it learns who asks.
    let listed = kubectl.ok(&["api-resources", &format!("--api-group={GROUP}"), "--no-headers"]);
    assert_eq!(
        listed.split_whitespace().collect::<Vec<_>>(),
        ["flunders", "fl", &format!("{GROUP}/v1"), "true", "Flunder"]
    );
    let groups = kubectl.ok(&["get", "--raw", "/apis"]);
    assert!(groups.contains(&format!("{GROUP}/v1")), "{groups}");
    let list: Value = serde_json::from_str(&kubectl.ok(&["get", "fl", "-o", "json"])).unwrap();
    let told = &list["items"][0]["metadata"]["annotations"];
    assert_eq!(told["user"], "system:admin");
    assert!(told["groups"].as_str().unwrap().split(',').any(|group| group == "system:authenticated"), "{told}");

    // What this server forbids never gets there.
    let before = foreign.asked.load(Ordering::SeqCst);
    let as_ann =
        ["--as=ann", "--as-group=dev", "get", "--raw", &format!("/apis/{GROUP}/v1/namespaces/default/flunders/x")];
    let said = kubectl.fails(&as_ann);
    assert!(said.contains("cannot get resource \"flunders\" in API group \"wardle.example.com\""), "{said}");
    assert_eq!(foreign.asked.load(Ordering::SeqCst), before);
    kubectl.ok(&["create", "clusterrole", "fl", "--verb=get", &format!("--resource=flunders.{GROUP}")]);
    kubectl.ok(&["create", "clusterrolebinding", "fl", "--clusterrole=fl", "--user=ann"]);
    let seen: Value = serde_json::from_str(&kubectl.ok(&as_ann)).unwrap();
    assert_eq!(seen["metadata"]["annotations"]["user"], "ann");
    assert_eq!(seen["metadata"]["annotations"]["groups"], "dev,system:authenticated");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(streams(&server));
    // It must not send clients elsewhere: they would go there with their credentials (CVE-2022-3172).
    let path = format!("/apis/{GROUP}/v1/namespaces/default/flunders/elsewhere");
    let reply = runtime.block_on(async { server.client().unwrap().get(&path).await.unwrap() });
    let refused = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!((reply.code, reply.text().as_str()), (502, refused));

    // Its end.
    foreign.end();
    let said = kubectl.fails(&["get", "--raw", &format!("/apis/{GROUP}/v1/namespaces/default/flunders")]);
    assert!(said.contains("unable to handle the request") || said.contains("error trying to reach service"), "{said}");
    until("its end is noticed", || shows(&kubectl, &get, "default/foreign   False (FailedDiscoveryCheck)"));
    let reply =
        runtime.block_on(async { server.client().unwrap().get(&format!("/apis/{GROUP}/v1/flunders")).await.unwrap() });
    assert_eq!((reply.code, reply.text().as_str()), (503, "service unavailable\n"));
    kubectl.ok(&["create", "namespace", "doomed"]);
    kubectl.ok(&["delete", "namespace", "doomed", "--wait=false"]);
    let condition = ["get", "namespace", "doomed", "-o", "jsonpath={.status.conditions}"];
    until("the namespace says why", || {
        shows(&kubectl, &condition, "stale GroupVersion discovery: wardle.example.com/v1")
    });
    kubectl.ok(&["wait", "--for=delete", "namespace/doomed", "--timeout=80s"]);

    // And its return, with another certificate.
    let again = Foreign::start(&server, foreign.port);
    kubectl.ok_with(&["apply", "-f", "-"], &api_service(again.port, &again.bundle).to_string());
    until("it is back", || shows(&kubectl, &get, "default/foreign   True"));
    kubectl.ok(&["get", "flunders"]);
    kubectl.ok(&["delete", "apiservice", &name]);
    until("it is forgotten", || {
        shows(&kubectl, &["get", "--raw", &format!("/apis/{GROUP}/v1/flunders")], "(NotFound)")
    });
}

/// A watch comes piece by piece, and an upgraded connection goes both ways.
async fn streams(server: &Server) {
    let client = server.client().unwrap();
    let collection = format!("/apis/{GROUP}/v1/namespaces/default/flunders");
    let send = async |request: String| {
        let mut connection = client.connect().await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        connection
    };
    let read_until = async |connection: &mut (dyn tokio::io::AsyncRead + Unpin + Send), wanted: &str| {
        let mut seen = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&seen).contains(wanted) {
                let mut piece = [0; 4096];
                let count = connection.read(&mut piece).await.unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
                seen.extend_from_slice(&piece[..count]);
            }
        };
        tokio::time::timeout(LATER, read).await.expect("it comes in time");
        String::from_utf8_lossy(&seen).into_owned()
    };
    let mut watch = send(format!("GET {collection}?watch=true HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    let first = read_until(&mut watch, "\"f0\"").await;
    assert!(!first.contains("\"f1\""), "{first}");
    read_until(&mut watch, "\"f1\"").await;

    let head = "host: x\r\nconnection: Upgrade\r\nupgrade: test\r\n\r\n";
    let mut stream = send(format!("GET {collection}/stream/connect HTTP/1.1\r\n{head}")).await;
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream.write_all(b"hello").await.unwrap();
    read_until(&mut stream, "olleh").await;
}

//! The dashboard's server side on a real control plane: who gets in, what they see, why things are as they are, and everything
//! that must not work.

#[path = "support/dashboard.rs"]
mod dashboard;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use dashboard::{COOKIE, Live, Page, until};
use futures::SinkExt;
use serde_json::{Value, json};
use testkit::{Client, Server};
use tokio_tungstenite::tungstenite::Message;

const POD: &str = "/api/v1/namespaces/default/pods";

/// A token of a new service account.
fn account(server: &Server, name: &str) -> String {
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "serviceaccount", name]);
    kubectl.ok(&["create", "token", name]).trim().to_string()
}

async fn administrator(server: &Server) -> Page {
    Page::sign_in(&server.client().unwrap(), &json!({"clientCertificate": true})).await
}

fn pod(name: &str, labels: Value, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "registry.example/shop:1"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let reply = client.post(path, object).await.unwrap();
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": {"cpu": cpu, "memory": "4Gi", "pods": "20"}, "allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "y"}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_and_out() {
    let server = Server::start_api(&[]).unwrap();
    server.default_account("default").unwrap();
    let token = account(&server, "jane");
    let anonymous = server.anonymous().unwrap();

    // The page itself needs no session, and says what browsers must not do with it.
    let index = anonymous.get("/dashboard/pods/default").await.unwrap();
    assert_eq!(index.code, 200, "{}", index.text());
    let policy = index.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("frame-ancestors 'none'") && policy.contains("script-src 'self'") && !policy.contains("unsafe")
    );
    for (name, value) in
        [("x-frame-options", "DENY"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
    {
        assert_eq!(index.headers[name], value);
    }
    assert_eq!(anonymous.get("/dashboard").await.unwrap().code, 307);
    assert_eq!(anonymous.get("/dashboards").await.unwrap().code, 403, "that is the API's, not ours");

    // Without a session there is nothing else.
    for path in ["api/session", "api/resources", "api/search?q=x", "api/why?resource=pods&name=x", "k8s/api/v1/pods"] {
        let reply = anonymous.get(&format!("/dashboard/{path}")).await.unwrap();
        assert_eq!((reply.code, reply.json()["kind"].clone()), (401, json!("Status")), "{path}");
        assert_eq!(reply.headers["cache-control"], "no-store");
    }

    // With a token.
    let page = Page::sign_in(&anonymous, &json!({"token": token})).await;
    assert_eq!(page.session["user"], "system:serviceaccount:default:jane");
    let reply = anonymous.post("/dashboard/api/session", &json!({"token": token})).await.unwrap();
    let cookie = reply.headers["set-cookie"].to_str().unwrap();
    for attribute in ["; HttpOnly", "; Secure", "; SameSite=Strict", "; Path=/", "Max-Age="] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(cookie.starts_with(COOKIE) && !cookie.contains(&token) && !cookie.contains("Domain"));
    assert_eq!(page.ok("api/session").await["user"], "system:serviceaccount:default:jane");
    // A token that is none, several ways at once, and no JSON.
    for (body, code) in [
        (json!({"token": "no.such.token"}), 401),
        (json!({"token": "a\r\nb"}), 401),
        (json!({"code": "guess"}), 401),
        (json!({"clientCertificate": true}), 401),
        (json!({"token": token, "code": "x"}), 400),
        (json!({}), 400),
        (json!({"user": "system:admin"}), 400),
    ] {
        assert_eq!(anonymous.post("/dashboard/api/session", &body).await.unwrap().code, code, "{body}");
    }
    let form = anonymous.send("POST", "/dashboard/api/session", "text/plain", json!({"token": token}).to_string());
    assert_eq!(form.await.unwrap().code, 415);

    // A certificate, and a code that is good once.
    let admin = administrator(&server).await;
    assert_eq!(admin.session["user"], "system:admin");
    let program = testkit::server::binary().unwrap();
    let data = server.data_dir().to_str().unwrap();
    let opened = server
        .beside(program.to_str().unwrap())
        .args(["dashboard", "open", "--print", "--data-dir", data])
        .output()
        .unwrap();
    let address = String::from_utf8_lossy(&opened.stdout).trim().to_string();
    let code = address.split_once("/dashboard/signin#code=").unwrap_or_else(|| panic!("{opened:?}")).1;
    let once = Page::sign_in(&anonymous, &json!({"code": code})).await;
    assert_eq!(once.session["user"], "system:admin");
    assert_eq!(anonymous.post("/dashboard/api/session", &json!({"code": code})).await.unwrap().code, 401);

    // Signed out, a copy of the cookie is good for nothing.
    let out = once.client.with_header("x-knarr-csrf", &once.csrf).delete("/dashboard/api/session").await.unwrap();
    assert_eq!(out.code, 204);
    assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(once.get("api/session").await.code, 401);
    // An account that is gone takes its sessions with it.
    server.kubectl().ok(&["delete", "serviceaccount", "jane"]);
    until("the session ends with its account", async || match page.get("api/session").await.code {
        401 => Ok(()),
        code => Err(code.to_string()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_guesses_waits() {
    let server = Server::start_api(&[]).unwrap();
    let anonymous = server.anonymous().unwrap();
    let mut codes = Vec::new();
    for number in 0..12 {
        let guess = json!({"code": format!("guess-{number}")});
        codes.push(anonymous.post("/dashboard/api/session", &guess).await.unwrap().code);
    }
    assert_eq!((codes[0], codes[11]), (401, 429), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_pages_and_changed_cookies_are_refused() {
    let server = Server::start_api(&["--tls-san=knarr.example"]).unwrap();
    let admin = administrator(&server).await;
    let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    let path = "/dashboard/k8s/api/v1/namespaces/default/configmaps";
    // A cookie alone changes nothing; with the mark of its own session it does.
    assert_eq!(admin.client.post(path, &made).await.unwrap().code, 403);
    assert_eq!(admin.post("k8s/api/v1/namespaces/default/configmaps", &made).await.code, 201);
    let other = administrator(&server).await;
    let foreign = admin.client.with_header("x-knarr-csrf", &other.csrf);
    assert_eq!(foreign.post(path, &made).await.unwrap().code, 403, "the mark of another session");
    let marked = admin.client.with_header("x-knarr-csrf", &admin.csrf);
    let own = format!("https://{}", admin.client.address());
    // A page that came in clear is not ours, even from this very host.
    let clear = own.replace("https://", "http://");
    for origin in ["https://evil.example", "null", "https://127.0.0.1", &clear] {
        assert_eq!(marked.with_header("origin", origin).post(path, &made).await.unwrap().code, 403, "{origin}");
    }
    assert_eq!(marked.with_header("origin", &own).post(path, &made).await.unwrap().code, 201);
    assert_eq!(marked.with_header("sec-fetch-site", "cross-site").post(path, &made).await.unwrap().code, 403);

    // WebSockets are not asked for by browsers: only their origin says whose page it is.
    for origin in ["", "https://evil.example", "null", &clear] {
        assert_eq!(Live::open(&admin.client, origin, "/dashboard/api/live").await.err(), Some(403), "{origin}");
    }
    let anonymous = server.anonymous().unwrap();
    assert_eq!(Live::open(&anonymous, &own, "/dashboard/api/live").await.err(), Some(401));

    // A name that points here but is not ours.
    let host = async |name: &str| {
        let mut stream = anonymous.connect().await.unwrap();
        let head = format!("GET /dashboard/ HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
        String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_string()
    };
    assert_eq!(host("evil.example").await, "421");
    assert_eq!(host("evil.example:6443").await, "421");
    assert_eq!(host("knarr.example:6443").await, "200");
    assert_eq!(host("localhost:1").await, "200");
    assert_eq!(host("a\r\nHost: b").await, "400");

    // A changed cookie, and one of another cluster.
    let (name, value) = admin.cookie.split_once('=').unwrap();
    for changed in
        [format!("{value}A"), value[1..].to_string(), value.chars().rev().collect(), "AAAA".into(), String::new()]
    {
        let client = anonymous.with_header("cookie", &format!("{name}={changed}"));
        assert_eq!(client.get("/dashboard/api/session").await.unwrap().code, 401, "{changed}");
    }
    let elsewhere = Server::start_api(&[]).unwrap();
    let client = elsewhere.anonymous().unwrap().with_header("cookie", &admin.cookie);
    assert_eq!(client.get("/dashboard/api/session").await.unwrap().code, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_outlive_a_restart_and_disabled_means_gone() {
    let mut server = Server::start_api(&[]).unwrap();
    let admin = administrator(&server).await;
    let gone = administrator(&server).await;
    let out = gone.client.with_header("x-knarr-csrf", &gone.csrf).delete("/dashboard/api/session").await.unwrap();
    assert_eq!(out.code, 204);
    server.kill().unwrap();
    server.restart().unwrap();
    let client = server.anonymous().unwrap().with_header("cookie", &admin.cookie);
    let reply = client.get("/dashboard/api/session").await.unwrap();
    assert_eq!((reply.code, reply.json()["csrf"].clone()), (200, json!(admin.csrf)));
    // Signed out is signed out, whatever was forgotten: all servers read it off the store that they share.
    let copied = server.anonymous().unwrap().with_header("cookie", &gone.cookie);
    assert_eq!(copied.get("/dashboard/api/session").await.unwrap().code, 401);
    drop(server);
    let server = Server::start_api(&["--disable=dashboard"]).unwrap();
    assert_eq!(server.client().unwrap().get("/dashboard/").await.unwrap().code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_can_be_framed_or_kept() {
    let server = Server::start_api(&[]).unwrap();
    let admin = administrator(&server).await;
    for path in [
        "",
        "no/such/page",
        "no.such.file",
        "api/session",
        "api/no-such",
        "k8s/api/v1/nodes",
        "k8s/no/such",
        "k8s/healthz",
    ] {
        let reply = admin.get(path).await;
        let policy = reply.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{path}: {policy}");
        assert_eq!(reply.headers["x-frame-options"], "DENY", "{path}");
        assert_eq!(reply.headers["cross-origin-resource-policy"], "same-origin", "{path}");
        assert!(reply.headers["cache-control"].to_str().unwrap().contains("no-"), "{path}");
        assert!(!reply.headers.contains_key("access-control-allow-origin"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_the_machine_gets_nothing() {
    let server = Server::start_api(&[]).unwrap();
    let mut alone = Alone::start(&server);
    // Everybody here can connect, and see what runs with which words; the code is in neither.
    let words = std::fs::read(format!("/proc/{}/cmdline", alone.child.id())).unwrap();
    assert!(!String::from_utf8_lossy(&words).contains(&alone.code));
    for path in ["api/session", "api/resources", "k8s/api/v1/secrets", "api/search?q=x"] {
        assert_eq!(alone.ask("GET", path, "", "").0, 401, "{path}");
    }
    assert_eq!(alone.ask("POST", "api/codes", "", "{}").0, 401, "who the process is does not count for who connects");
    assert_eq!(alone.ask("POST", "api/session", "", r#"{"code":"guess"}"#).0, 401);
    assert_eq!(alone.ask("POST", "api/session", "", r#"{"clientCertificate":true}"#).0, 401);
    // The code is good once: whoever comes second is not signed in, and it shows.
    let code = json!({"code": alone.code}).to_string();
    let (signed_in, cookie) = alone.ask("POST", "api/session", "", &code);
    assert_eq!(signed_in, 201);
    assert_eq!(alone.ask("POST", "api/session", "", &code).0, 401);
    assert_eq!(alone.ask("GET", "api/session", &cookie, "").0, 200);
    // Whoever takes the port over is given a cookie that means nothing, there or anywhere.
    let port = alone.port;
    alone.stop();
    let next = Alone::start(&server);
    assert_eq!(next.ask("GET", "api/session", &cookie, "").0, 401, "port {port}");
    let client = server.anonymous().unwrap().with_header("cookie", &cookie);
    assert_eq!(client.get("/dashboard/api/session").await.unwrap().code, 401);
    // What a server keeps is its own user's alone.
    for name in ["tls/sa.key", "admin.kubeconfig"] {
        let path = server.data_dir().join(name);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    let world = Command::new(testkit::server::binary().unwrap())
        .args(["dashboard", "--address=0.0.0.0:0", "--kubeconfig"])
        .arg(server.kubeconfig())
        .output()
        .unwrap();
    assert!(!world.status.success() && String::from_utf8_lossy(&world.stderr).contains("must listen on loopback"));
}

/// `knarr dashboard`, beside a cluster that is asked with its administrator's kubeconfig. Ended when dropped.
struct Alone {
    child: Child,
    port: u16,
    code: String,
}

impl Alone {
    fn start(server: &Server) -> Alone {
        let mut command = Command::new(testkit::server::binary().unwrap());
        command.args(["dashboard", "--address=127.0.0.1:0", "--kubeconfig"]).arg(server.kubeconfig());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit("http://").next().unwrap();
        let (address, code) = address.split_once("/dashboard/signin#code=").unwrap_or_else(|| panic!("{line}"));
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        Alone { child, port, code: code.to_string() }
    }

    /// As any program of this machine: the code of the answer, and its cookie.
    fn ask(&self, method: &str, path: &str, cookie: &str, body: &str) -> (u16, String) {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "{method} /dashboard/{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nCookie: {cookie}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
        let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_default();
        (code, set.split(';').next().unwrap_or_default().to_string())
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_passed_on_with_the_users_own_rights() {
    let server = Server::start_api(&[]).unwrap();
    server.default_account("default").unwrap();
    let (kubectl, anonymous) = (server.kubectl(), server.anonymous().unwrap());
    let token = account(&server, "reader");
    kubectl.ok(&["create", "role", "reader", "--verb=get,list,watch", "--resource=pods,configmaps"]);
    kubectl.ok(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"]);
    let reader = Page::sign_in(&anonymous, &json!({"token": token})).await;
    assert_eq!(reader.get(&format!("k8s{POD}")).await.code, 200);
    assert_eq!(reader.get("k8s/api/v1/namespaces/kube-system/secrets").await.code, 403);
    assert_eq!(reader.get("k8s/api/v1/nodes").await.code, 403);
    let refused = reader.post(&format!("k8s{POD}"), &pod("p", json!({}), json!({}))).await;
    assert_eq!(refused.code, 403);
    assert!(refused.json()["message"].as_str().unwrap().contains("default:reader"), "{}", refused.text());

    // Whatever else is sent along, nobody becomes somebody else.
    let secrets = "/dashboard/k8s/api/v1/namespaces/kube-system/secrets";
    for (name, value) in [
        ("impersonate-user", "kubernetes-admin"),
        ("impersonate-group", "system:masters"),
        ("x-remote-user", "kubernetes-admin"),
        ("x-remote-group", "system:masters"),
        ("authorization", "Bearer x"),
        ("connection", "impersonate-user"),
    ] {
        assert_eq!(reader.client.with_header(name, value).get(secrets).await.unwrap().code, 403, "{name}");
    }
    // Nor does a certificate on the connection count for a session of somebody else's.
    let both = server.client().unwrap().with_header("cookie", &reader.cookie);
    assert_eq!(both.get(secrets).await.unwrap().code, 403);

    // Paths that are none of the API, and workloads' own pages.
    for (path, code) in [
        ("k8s/../api/session", 400),
        ("k8s/api/../../dashboard/api/session", 400),
        ("k8s/api/%2e%2e/version", 400),
        ("k8s//api/v1/pods", 400),
        ("k8s/dashboard/k8s/api/v1/pods", 404),
        ("k8s/api/v1/namespaces/default/pods/p/proxy/", 403),
        ("k8s/api/v1/namespaces/default/services/p:80/%70roxy/x", 403),
        ("assets/../../Cargo.toml", 404),
        ("assets/%2e%2e/%2e%2e/etc/passwd", 404),
        ("..%2f..%2fetc%2fpasswd.txt", 404),
    ] {
        let reply = reader.get(path).await;
        assert_eq!(reply.code, code, "{path}: {}", reply.text());
    }
    let version = reader.get("k8s/version").await;
    assert_eq!((version.code, version.headers["content-type"].clone()), (200, "application/json".parse().unwrap()));
    assert_eq!(version.headers["cache-control"], "no-store");
    let html = reader.client.with_header("accept", "text/html").get("/dashboard/k8s/metrics").await.unwrap();
    assert!(!html.headers["content-type"].to_str().unwrap().contains("html"));
    let large = admin_post_large(&server).await;
    assert_eq!(large, 413);

    // What may be done is said, in the order it was asked.
    let check = |verb: &str, resource: &str| json!({"verb": verb, "resource": resource, "namespace": "default"});
    let may = reader
        .post("api/may", &json!({"checks": [check("list", "pods"), check("create", "pods"), check("get", "secrets")]}))
        .await;
    assert_eq!(may.json(), json!({"allowed": [true, false, false]}));
    let many: Vec<Value> = (0..65).map(|_| check("get", "pods")).collect();
    assert_eq!(reader.post("api/may", &json!({"checks": many})).await.code, 400);
    let kinds = reader.ok("api/resources").await;
    let deployments = kinds.as_array().unwrap().iter().find(|one| one["resource"] == "deployments").unwrap();
    assert_eq!((deployments["kind"].clone(), deployments["namespaced"].clone()), (json!("Deployment"), json!(true)));

    // A write that would be refused says by whom.
    let asked = json!({"method": "POST", "path": POD, "body": pod("p", json!({}), json!({}))});
    let why = reader.post("api/why/write", &asked).await.json();
    assert_eq!((why["allowed"].clone(), why["by"].clone()), (json!(false), json!("rbac")), "{why}");
    assert!(why["rules"].to_string().contains("you may get, list, watch pods"), "{why}");
    let admin = administrator(&server).await;
    let asked = json!({"method": "POST", "path": POD, "body": pod("NOT_A_NAME", json!({}), json!({}))});
    assert_eq!(admin.post("api/why/write", &asked).await.json()["by"], "validation");
    let asked = json!({"method": "POST", "path": POD, "body": pod("p", json!({}), json!({}))});
    assert_eq!(admin.post("api/why/write", &asked).await.json()["allowed"], true);
    assert_eq!(admin.get(&format!("k8s{POD}/p")).await.code, 404, "it was only asked about");
}

async fn admin_post_large(server: &Server) -> u16 {
    let admin = administrator(server).await;
    let large =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"x": "y".repeat(4 << 20)}});
    // Who still writes when the answer comes may find the connection closed before reading it; that is no answer, so ask again.
    for _ in 0..20 {
        let client = admin.client.with_header("x-knarr-csrf", &admin.csrf);
        if let Ok(reply) = client.post("/dashboard/k8s/api/v1/namespaces/default/configmaps", &large).await {
            return reply.code;
        }
    }
    panic!("no answer to a large body");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_objects_and_searches_are_live() {
    let server = Server::start_api(&[]).unwrap();
    server.default_account("default").unwrap();
    let (client, admin) = (server.client().unwrap(), administrator(&server).await);
    let mut connection = client.connection().await.unwrap();
    for number in 0..120 {
        let object =
            pod(&format!("web-{number}"), json!({"app": if number % 2 == 0 { "even" } else { "odd" }}), json!({}));
        let reply = connection.send("POST", POD, "application/json", object.to_string()).await.unwrap();
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
    let mut live = admin.live().await;
    let pods = json!({"group": "", "version": "v1", "resource": "pods"});
    let list = |more: Value| {
        let mut list = json!({"id": 7, "op": "list", "resource": pods, "namespace": "default", "count": 20, "from": 0});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        list
    };
    live.say(list(json!({}))).await;
    let frame = live.until(7, "the first window", |frame| frame["total"] == 120).await;
    assert_eq!((frame["rows"].as_array().unwrap().len(), frame["matching"].clone()), (20, json!(120)));
    assert_eq!(frame["columns"][0]["name"], "Name", "the server's own columns: {}", frame["columns"]);
    assert_eq!(frame["rows"][0]["cells"][0], frame["rows"][0]["name"]);
    live.say(list(
        json!({"labels": "app=odd", "text": "web-1", "sort": {"column": "Name", "descending": true}, "count": 2}),
    ))
    .await;
    let frame = live.until(7, "a filtered window", |frame| frame["matching"] == 16).await;
    assert_eq!(
        (frame["rows"][0]["name"].clone(), frame["rows"][1]["name"].clone()),
        (json!("web-119"), json!("web-117"))
    );
    live.say(list(json!({"from": 100, "count": 500}))).await;
    let frame = live.until(7, "the end", |frame| frame["matching"] == 120).await;
    assert!(frame["rows"].as_array().unwrap().len() <= 200);
    // A change is told by itself.
    create(&client, POD, &pod("zz-new", json!({}), json!({}))).await;
    live.say(list(json!({"text": "zz-new"}))).await;
    live.until(7, "a new pod is there", |frame| frame["matching"] == 1 && frame["total"] == 121).await;
    client.delete(&format!("{POD}/zz-new?gracePeriodSeconds=0")).await.unwrap();
    live.until(7, "and gone", |frame| frame["matching"] == 0).await;

    // One object, its end, and what nobody may have.
    live.say(json!({"id": 8, "op": "object", "resource": pods, "namespace": "default", "name": "web-1"})).await;
    live.until(8, "the object", |frame| frame["object"]["metadata"]["name"] == "web-1").await;
    server.kubectl().ok(&["label", "pod", "web-1", "marked=yes"]);
    let frame = live.until(8, "its change", |frame| frame["object"]["metadata"]["labels"]["marked"] == "yes").await;
    assert_eq!((frame["type"].clone(), frame["object"]["kind"].clone()), (json!("MODIFIED"), json!("Pod")));
    client.delete(&format!("{POD}/web-1?gracePeriodSeconds=0")).await.unwrap();
    live.until(8, "its end", |frame| frame["object"].is_null() && frame["type"] == "DELETED").await;
    live.say(json!({"id": 9, "op": "list", "resource": {"group": "no.such", "version": "v1", "resource": "things"}, "count": 5})).await;
    let frame = live.until(9, "no such kind", |frame| frame["error"].is_object()).await;
    assert_eq!(frame["error"]["code"], 404, "{frame}");
    live.say(json!({"id": 10, "op": "overview"})).await;
    let frame = live.until(10, "the overview", |frame| frame["counts"]["pods"] == 119).await;
    assert!(!frame["certificates"].as_array().unwrap().is_empty(), "{frame}");
    live.say(json!({"id": 11, "op": "map", "namespace": "default"})).await;
    live.until(11, "the map", |frame| frame["nodes"].as_array().is_some_and(|nodes| nodes.len() >= 119)).await;
    live.say(json!({"id": 12, "op": "dance"})).await;
    live.until(12, "no such operation", |frame| frame["error"]["code"] == 400).await;

    // Search finds names, labels, images; the second time from memory.
    let found = admin.ok("api/search?q=registry.example/shop&limit=5").await;
    assert_eq!((found["total"].clone(), found["results"][0]["field"].clone()), (json!(119), json!("image")), "{found}");
    let found = admin.ok("api/search?q=WEB-42").await;
    assert_eq!(
        (found["results"][0]["name"].clone(), found["results"][0]["kind"].clone()),
        (json!("web-42"), json!("Pod"))
    );
    assert!(found["took_ms"].as_u64().unwrap() < 1000, "{found}");
    // A message larger than any page sends ends the connection.
    let _ = live.0.send(Message::text("x".repeat(100_000))).await;
    let ended = async { while let Some(Ok(_)) = futures::StreamExt::next(&mut live.0).await {} };
    tokio::time::timeout(dashboard::LONG, ended).await.expect("the connection ends");

    // Who may see one namespace finds what is in it, and nothing else.
    let token = account(&server, "reader");
    server.kubectl().ok(&["create", "role", "reader", "--verb=get,list,watch", "--resource=pods"]);
    server.kubectl().ok(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader"]);
    let reader = Page::sign_in(&server.anonymous().unwrap(), &json!({"token": token})).await;
    let found = reader.ok("api/search?q=web-4").await;
    assert!(found["total"].as_u64().unwrap() >= 11 && found["results"].to_string().contains("web-4"), "{found}");
    assert_eq!(reader.ok("api/search?q=kube-root-ca").await["total"], 0);
    let mut live = reader.live().await;
    live.say(json!({"id": 1, "op": "list", "resource": {"version": "v1", "resource": "secrets"}, "count": 5})).await;
    let frame = live.until(1, "a refusal", |frame| frame["error"].is_object()).await;
    assert_eq!(frame["error"]["code"], 403, "{frame}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_why_a_pod_waits_and_who_may_talk_to_whom() {
    let server = Server::start().unwrap();
    server.default_account("default").unwrap();
    let (client, admin) = (server.client().unwrap(), administrator(&server).await);
    for (name, cpu) in [("small", "1"), ("tainted", "8")] {
        create(&client, "/api/v1/nodes", &node(name, cpu)).await;
    }
    server.kubectl().ok(&["taint", "node", "tainted", "for=others:NoSchedule"]);
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]});
    create(&client, POD, &pod("waits", json!({}), spec)).await;
    let why = until("the plugins refuse both nodes", async || {
        let why = admin.ok("api/why?version=v1&resource=pods&namespace=default&name=waits").await;
        let rows = &why["tables"][0]["rows"];
        match rows[0][1] == "NodeResourcesFit" && rows[1][1] == "TaintToleration" {
            true => Ok(why),
            false => Err(why.to_string()),
        }
    })
    .await;
    assert_eq!(why["verdict"], "None of 2 nodes can take the pod");
    assert_eq!(why["tables"][0]["rows"][0][2], "Insufficient cpu");
    assert!(why["tables"][0]["rows"][1][2].as_str().unwrap().contains("taint"), "{why}");

    // A Service that selects nobody.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"selector": {"app": "shop"}, "ports": [{"port": 80}]}});
    create(&client, "/api/v1/namespaces/default/services", &service).await;
    let why = admin.ok("api/why?version=v1&resource=services&namespace=default&name=shop").await;
    assert_eq!(why["verdict"], "No pod has the labels that the Service selects: app=shop");

    // Two pods with addresses, and policies between them.
    for (name, address) in [("front", "10.9.0.2"), ("back", "10.9.0.3")] {
        create(&client, POD, &pod(name, json!({"app": name}), json!({"nodeName": "small"}))).await;
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}).to_string();
        let patched = client
            .send("PATCH", &format!("{POD}/{name}/status"), "application/merge-patch+json", status)
            .await
            .unwrap();
        assert_eq!(patched.code, 200, "{}", patched.text());
    }
    let policy = |name: &str, spec: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec});
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let ask = |port: u16| format!("api/why/traffic?from=default/front&to=default/back&port={port}&protocol=TCP");
    let open = admin.ok(&ask(80)).await;
    assert_eq!((open["allowed"].clone(), open["ingress"]["allowed"].clone()), (json!(true), json!(true)));
    create(&client, policies, &policy("closed", json!({"podSelector": {}, "policyTypes": ["Ingress"]}))).await;
    let closed = admin.ok(&ask(80)).await;
    assert_eq!(
        (closed["allowed"].clone(), closed["egress"]["allowed"].clone()),
        (json!(false), json!(true)),
        "{closed}"
    );
    assert!(closed["ingress"]["sentence"].as_str().unwrap().contains("default/closed"), "{closed}");
    let rule = json!([{"from": [{"podSelector": {"matchLabels": {"app": "front"}}}], "ports": [{"port": 80}]}]);
    create(
        &client,
        policies,
        &policy("front", json!({"podSelector": {"matchLabels": {"app": "back"}}, "ingress": rule})),
    )
    .await;
    let allowed = admin.ok(&ask(80)).await;
    assert_eq!(
        (allowed["allowed"].clone(), allowed["ingress"]["by"].clone()),
        (json!(true), json!([{"policy": "default/front", "rule": 0}]))
    );
    assert_eq!(admin.ok(&ask(81)).await["allowed"], false);
    assert_eq!(admin.get("api/why/traffic?from=x&to=default/back&port=80").await.code, 400);

    // Earlier revisions, for whoever may get the object.
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": "red"}});
    create(&client, "/api/v1/namespaces/default/configmaps", &map).await;
    for color in ["green", "blue"] {
        server.kubectl().ok(&[
            "patch",
            "configmap",
            "settings",
            "--type=merge",
            "-p",
            &json!({"data": {"color": color}}).to_string(),
        ]);
    }
    let revisions = admin.ok("api/revisions?version=v1&resource=configmaps&namespace=default&name=settings").await;
    let colors: Vec<&str> = revisions["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["object"]["data"]["color"].as_str().unwrap())
        .collect();
    assert_eq!((colors, revisions["complete"].clone()), (vec!["blue", "green", "red"], json!(true)), "{revisions}");
    let token = account(&server, "nobody");
    let nobody = Page::sign_in(&server.anonymous().unwrap(), &json!({"token": token})).await;
    assert_eq!(
        nobody.get("api/revisions?version=v1&resource=configmaps&namespace=default&name=settings").await.code,
        403
    );
    assert_eq!(nobody.get("api/history?kind=node&name=small").await.code, 403);
    assert_eq!(nobody.get("api/why?version=v1&resource=pods&namespace=default&name=waits").await.code, 403);
    let empty = admin.ok("api/history?kind=node&name=small&hours=1").await;
    assert_eq!((empty["step_seconds"].clone(), empty["series"]["cpu"].as_array().unwrap().len()), (json!(60), 61));
    assert_eq!(admin.get("api/history?kind=moon&name=x").await.code, 400);
}

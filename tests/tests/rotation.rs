//! Every key that can be changed while an API server runs is changed under load, one after the other: no request fails, what was
//! written before is read with the new keys, and the old ones are of no use any more.

#[path = "support/oidc.rs"]
#[allow(dead_code, reason = "the other suite needs the rest")]
mod oidc;
#[path = "support/rotation.rs"]
mod support;
#[path = "support/webhook.rs"]
#[allow(dead_code, reason = "it is only the server of the provider here")]
mod webhook;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use oidc::{Algorithm, Provider};
use serde_json::{Value, json};
use store::Store;
use support::*;
use testkit::Server;
use testkit::client::{Client, Connection};

const KEY_1: &str = "{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
const KEY_2: &str = "{name: key2, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const BEFORE: usize = 10;

/// Secrets with keys of the file, ConfigMaps with those of the plugin.
fn encryption(bed: &Bed, keys: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [secrets]\n  providers: [{{aesgcm: {{keys: [{keys}]}}}}]\n\
         - resources: [configmaps]\n  providers: [{{kms: {{apiVersion: v2, name: plugin, endpoint: '{}', timeout: 3s}}}}]\n",
        bed.kms.endpoint()
    )
}

/// Which certificates the load uses, and who issues them.
struct Issuers {
    serving: Authority,
    clients: [Authority; 2],
    proxies: [Authority; 2],
    /// The number of the certificate in use.
    client: Arc<AtomicUsize>,
    proxy: Arc<AtomicUsize>,
}

impl Issuers {
    /// Everything is of the first authority; the certificates of the second are there.
    fn new(bed: &Bed) -> Issuers {
        let two = |name: &str| [1, 2].map(|number| Authority::new(&format!("{name}-{number}")));
        let issuers = Issuers {
            serving: Authority::new("serving"),
            clients: two("clients"),
            proxies: two("proxies"),
            client: Arc::new(AtomicUsize::new(1)),
            proxy: Arc::new(AtomicUsize::new(1)),
        };
        let folder = bed.folder.path();
        write(&bed.path("ca.crt"), &issuers.serving.pem);
        issuers.serving.issue(folder, "serving", "knarr", "kube-apiserver");
        for number in [1, 2] {
            issuers.clients[number - 1].issue(folder, &format!("admin-{number}"), "system:masters", "admin");
            issuers.proxies[number - 1].issue(folder, &format!("proxy-{number}"), "knarr", "proxy");
        }
        write(&bed.path("clients.pem"), &issuers.clients[0].pem);
        write(&bed.path("proxies.pem"), &issuers.proxies[0].pem);
        issuers
    }
}

/// A client with a certificate, one with a token of an account, one who signed in, and one behind a proxy.
fn workers(bed: &Bed, issuers: &Issuers) -> Vec<Worker> {
    let (url, folder) = (bed.url.clone(), bed.folder.path().to_owned());
    let certified = move |name: String| Client::with_certificate(&url, &folder, &name);
    let (number, with) = (issuers.client.clone(), certified.clone());
    let admin = move || with(format!("admin-{}", number.load(Ordering::SeqCst)));
    let by_admin = admin.clone();
    let certificate: Identity = Arc::new(move || futures::future::ready(by_admin()).boxed());
    let anonymous = Client::without_certificate(&bed.url, bed.folder.path()).unwrap();
    let nobody = anonymous.clone();
    let account: Identity = Arc::new(move || {
        let (admin, nobody) = (admin(), nobody.clone());
        async move { Ok(bearing(&nobody, &token(&admin?).await?)) }.boxed()
    });
    let provider = bed.provider.clone();
    let person: Identity = Arc::new(move || futures::future::ready(Ok(bearing(&anonymous, &ada(&provider)))).boxed());
    let number = issuers.proxy.clone();
    let proxy: Identity = Arc::new(move || {
        let client = certified(format!("proxy-{}", number.load(Ordering::SeqCst)));
        let told = |client: Client| client.with_header("x-remote-user", "eve").with_header("x-remote-group", "writers");
        futures::future::ready(client.map(told)).boxed()
    });
    vec![
        Worker { name: "certificate", path: SECRETS, identity: certificate },
        Worker { name: "account", path: SECRETS, identity: account },
        Worker { name: "person", path: MAPS, identity: person },
        Worker { name: "proxy", path: MAPS, identity: proxy },
    ]
}

fn bearing(client: &Client, token: &str) -> Client {
    client.with_header("authorization", &format!("Bearer {token}"))
}

fn ada(provider: &Provider) -> String {
    provider.token(json!({"sub": "ada", "groups": ["writers"]}))
}

async fn token(admin: &Client) -> anyhow::Result<String> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = admin.post(TOKENS, &request).await?;
    anyhow::ensure!(issued.code == 201, "no token: {} {}", issued.code, issued.text());
    Ok(issued.json()["status"]["token"].as_str().unwrap_or_default().to_owned())
}

/// The rights of the load, and what is written before any key changes.
fn prepare(bed: &Bed) {
    let admin = bed.certified("admin-1");
    let create = |path: &str, object: &Value| {
        let reply = bed.runtime.block_on(admin.post(path, object)).unwrap();
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
    };
    create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "robot"}}));
    let group = "rbac.authorization.k8s.io";
    create(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        &json!({
            "metadata": {"name": "writers"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [
                {"apiGroup": group, "kind": "Group", "name": "writers"},
                {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
            ],
        }),
    );
    for path in [SECRETS, MAPS] {
        for number in 0..BEFORE {
            create(path, &holding(path, &format!("before-{number}"), &format!("text-{number}")));
        }
    }
}

/// What was written before is there as it was.
fn assert_readable(bed: &Bed) {
    let admin = bed.certified("admin-2");
    for path in [SECRETS, MAPS] {
        for number in 0..BEFORE {
            let found = bed.get(&admin, &format!("{path}/before-{number}"));
            assert_eq!((found.code, held(&found.json())), (200, format!("text-{number}")), "{}", found.text());
        }
        assert_eq!(bed.get(&admin, path).code, 200);
    }
}

/// As the documentation of upstream has it: everything is written as it is.
fn write_all(bed: &Bed, path: &str) {
    let admin = bed.certified("admin-1");
    for number in 0..BEFORE {
        let path = format!("{path}/before-{number}");
        let found = bed.get(&admin, &path);
        let replaced = bed.runtime.block_on(admin.put(&path, &found.json())).unwrap();
        assert_eq!(replaced.code, 200, "{}", replaced.text());
    }
}

/// Whether all values below that key that were written before hold these bytes.
fn all_stored_hold(bed: &Bed, prefix: &str, bytes: &[u8]) -> bool {
    let config = store::etcd::Config { endpoints: vec![bed.etcd.endpoint.clone()], ..Default::default() };
    let range = bed.runtime.block_on(async {
        let store = store::etcd::EtcdStore::connect(config).await.unwrap();
        store.range(store::RangeRequest { prefix: format!("{prefix}/before-"), ..Default::default() }).await.unwrap()
    });
    assert_eq!(range.entries.len(), BEFORE);
    range.entries.iter().all(|entry| entry.value.windows(bytes.len()).any(|window| window == bytes))
}

fn rotate_encryption(bed: &Bed, load: &Load) {
    let admin = bed.certified("admin-1");
    let reloads = |count: usize| {
        let line = "apiserver_encryption_config_controller_automatic_reloads_total";
        bed.until("the file is reloaded", || {
            let text = bed.get(&admin, "/metrics").text();
            let found = text.lines().find(|found| found.starts_with(line) && found.contains("success"));
            found.is_some_and(|found| found.ends_with(&format!(" {count}")))
        });
        load.go_on();
    };
    for (number, keys) in [format!("{KEY_1}, {KEY_2}"), format!("{KEY_2}, {KEY_1}")].iter().enumerate() {
        write(&bed.path("encryption.yaml"), &encryption(bed, keys));
        reloads(number + 1);
    }
    write_all(bed, SECRETS);
    assert!(all_stored_hold(bed, "/registry/secrets/default", b"k8s:enc:aesgcm:v1:key2:"));
    write(&bed.path("encryption.yaml"), &encryption(bed, KEY_2));
    reloads(3);
}

fn rotate_kms(bed: &Bed, load: &Load) {
    let admin = bed.certified("admin-1");
    let before = bed.kms.calls("Encrypt");
    bed.kms.rotate("kms-key-2");
    bed.until("the plugin's new key is in use", || {
        assert_eq!(bed.get(&admin, "/healthz/kms-providers").code, 200);
        bed.kms.calls("Encrypt") > before
    });
    load.go_on();
    write_all(bed, MAPS);
    assert!(all_stored_hold(bed, "/registry/configmaps/default", b"kms-key-2"));
}

fn rotate_serving(bed: &Bed, issuers: &Issuers, load: &Load) {
    let admin = bed.certified("admin-1");
    let shown = || {
        let stream = bed.runtime.block_on(admin.connect()).unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let old = shown();
    issuers.serving.issue(bed.folder.path(), "serving", "knarr", "kube-apiserver");
    bed.until("the new certificate is shown", || shown() != old);
    load.go_on();
}

/// A connection that stays open through the change.
fn kept(bed: &Bed, name: &str) -> impl FnMut() -> u16 {
    let client = bed.certified(name).with_header("x-remote-user", "eve").with_header("x-remote-group", "writers");
    let mut connection: Connection = bed.runtime.block_on(client.connection()).unwrap();
    let runtime = bed.runtime.handle().clone();
    move || runtime.block_on(connection.send("GET", &format!("{MAPS}/before-0"), "", "")).unwrap().code
}

/// The second authority is believed besides, then certificates of it are used, then it alone is believed.
fn rotate_authority(bed: &Bed, load: &Load, file: &str, names: [&str; 2], pems: [&str; 2], current: &AtomicUsize) {
    let (mut old, mut new) = (kept(bed, names[0]), kept(bed, names[1]));
    assert_eq!((old(), new()), (200, 401));
    write(&bed.path(file), &pems.concat());
    let began = std::time::Instant::now();
    while new() != 200 {
        assert!(began.elapsed() < PATIENCE, "the new authority is believed on an open connection");
        assert_eq!(old(), 200);
    }
    load.go_on();
    current.store(2, Ordering::SeqCst);
    load.go_on();
    write(&bed.path(file), pems[1]);
    while old() != 401 {
        assert!(began.elapsed() < PATIENCE, "the old authority is not believed on an open connection");
        assert_eq!(new(), 200);
    }
    load.go_on();
    let published = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = bed.get(&bed.certified(&format!("admin-{}", if file == "clients.pem" { 2 } else { 1 })), published);
    let field = if file == "clients.pem" { "client-ca-file" } else { "requestheader-client-ca-file" };
    assert!(map.json()["data"][field].as_str().unwrap().contains(pems[1].trim()), "{}", map.text());
}

fn rotate_tokens(bed: &Bed, load: &Load) {
    let anonymous = Client::without_certificate(&bed.url, bed.folder.path()).unwrap();
    let code = |token: &str| bed.get(&bearing(&anonymous, token), &format!("{SECRETS}/before-0")).code;
    let admin = bed.certified("admin-2");
    let old = [ada(&bed.provider), bed.runtime.block_on(token(&admin)).unwrap()];
    bed.provider.add_key(Algorithm::Es256);
    bed.signer.add_key("key-2");
    load.go_on();
    let new = [ada(&bed.provider), bed.runtime.block_on(token(&admin)).unwrap()];
    for token in old.iter().chain(&new) {
        assert_eq!(code(token), 200, "both keys are good");
    }
    bed.provider.forget_old_keys();
    bed.signer.forget_old_keys();
    bed.until("the old key of accounts is of no use", || code(&old[1]) == 401);
    load.go_on();
    assert_eq!(new.each_ref().map(|token| code(token)), [200, 200]);
}

#[test]
fn every_key_is_rotated_under_load_and_no_request_fails() {
    let mut bed = Bed::new();
    let issuers = Issuers::new(&bed);
    write(&bed.path("encryption.yaml"), &encryption(&bed, KEY_1));
    bed.start("admin-1");
    prepare(&bed);
    let anonymous = Client::without_certificate(&bed.url, bed.folder.path()).unwrap();
    bed.until("the provider is known", || bed.get(&bearing(&anonymous, &ada(&bed.provider)), MAPS).code == 200);

    let load = Load::start(&bed.runtime, workers(&bed, &issuers));
    load.go_on();
    rotate_encryption(&bed, &load);
    rotate_kms(&bed, &load);
    rotate_serving(&bed, &issuers, &load);
    let pems = |pair: &[Authority; 2]| [pair[0].pem.clone(), pair[1].pem.clone()];
    let [one, two] = pems(&issuers.proxies);
    rotate_authority(&bed, &load, "proxies.pem", ["proxy-1", "proxy-2"], [&one, &two], &issuers.proxy);
    let [one, two] = pems(&issuers.clients);
    rotate_authority(&bed, &load, "clients.pem", ["admin-1", "admin-2"], [&one, &two], &issuers.client);
    rotate_tokens(&bed, &load);
    load.end(&bed.runtime);

    assert_readable(&bed);
    // Nothing needs what was in memory of the old keys.
    bed.start("admin-2");
    assert_readable(&bed);
    assert_eq!(bed.get(&bed.certified("admin-1"), SECRETS).code, 401);
}

#[test]
fn one_command_changes_the_key_of_secrets_under_load() {
    let server = Server::start_api(&[]).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let admin = server.client().unwrap();
    for number in 0..BEFORE {
        let made = holding(SECRETS, &format!("before-{number}"), &format!("text-{number}"));
        assert_eq!(runtime.block_on(admin.post(SECRETS, &made)).unwrap().code, 201);
    }
    let workers = ["one", "two", "three"].map(|name| {
        let client = admin.clone();
        let identity: Identity = Arc::new(move || futures::future::ready(Ok(client.clone())).boxed());
        Worker { name, path: SECRETS, identity }
    });
    let load = Load::start(&runtime, workers.into());
    for what in ["enable", "rotate", "rotate"] {
        load.go_on();
        let mut command = Command::new(testkit::server::binary().unwrap());
        let output = command.args(["secrets-encrypt", what, "--data-dir"]).arg(server.data_dir()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("no older value is left on disk"), "{said}");
    }
    load.go_on();
    load.end(&runtime);
    for number in 0..BEFORE {
        let found = runtime.block_on(admin.get(&format!("{SECRETS}/before-{number}"))).unwrap();
        assert_eq!(held(&found.json()), format!("text-{number}"));
    }
}

//! A server with an EncryptionConfiguration, and a look at what it stores.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::Store;
use testkit::client::Reply;
use testkit::kms::KmsPlugin;
use testkit::{Client, Server};

pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Stands in every object, and must stand in no file.
pub const MARKER: &str = "this-stands-in-clear";
pub const KEY_1: &str = "{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
pub const KEY_2: &str = "{name: key2, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}";

pub struct Bed {
    pub server: Server,
    pub runtime: tokio::runtime::Runtime,
    pub folder: tempfile::TempDir,
}

impl Bed {
    /// A server with these flags; `CONFIG` stands for the file, which has that text.
    pub fn start(text: &str, flags: &[&str]) -> Bed {
        let folder = tempfile::Builder::new().prefix("knarr-encryption-").tempdir().unwrap();
        write(&folder.path().join("config.yaml"), text);
        let flags: Vec<String> = flags.iter().map(|flag| flag.replace("CONFIG", &config_in(folder.path()))).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::start_api(&flags).expect("starts");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Bed { server, runtime, folder }
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config.yaml")
    }

    pub fn client(&self) -> Client {
        self.server.client().unwrap()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.runtime.block_on(self.client().get(path)).unwrap()
    }

    pub fn create(&self, path: &str, object: &Value) -> Reply {
        self.runtime.block_on(self.client().post(path, object)).unwrap()
    }

    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.server.data_dir().join("log")).unwrap_or_default()
    }

    /// The value of the first sample of that name with those labels.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let text = self.get("/metrics").text();
        let found = text.lines().find(|line| line.starts_with(name) && line.contains(labels));
        found.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }

    /// What a snapshot of the running server holds below a prefix, byte for byte.
    pub fn stored(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        let file = folder.path().join("snapshot");
        let output = self.knarr(&["snapshot", "save", &file.display().to_string()]);
        assert!(output.status.success(), "{output:?}");
        assert_clear_of(folder.path(), MARKER);
        let dir = folder.path().join("store");
        store::embedded::snapshot::restore(&file, &dir).unwrap();
        let opened = store::embedded::EmbeddedStore::open(store::embedded::Config::new(dir)).unwrap();
        let request = store::RangeRequest { prefix: prefix.into(), ..Default::default() };
        let range = self.runtime.block_on(opened.range(request)).unwrap();
        range.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value.to_vec())).collect()
    }

    pub fn knarr(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(testkit::server::binary().unwrap());
        command.args(arguments).arg("--data-dir").arg(self.server.data_dir()).output().unwrap()
    }

    pub fn encrypt(&self, arguments: &[&str]) -> String {
        let output = self.knarr(&[&["secrets-encrypt"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

pub fn config_in(folder: &Path) -> String {
    folder.join("config.yaml").display().to_string()
}

/// At once, as editors and kubelets do it: nobody reads half of it.
pub fn write(path: &Path, text: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(&part, path).unwrap();
}

pub fn configuration(rules: &[(&str, &str)]) -> String {
    let rule =
        |(resources, providers): &(&str, &str)| format!("- resources: [{resources}]\n  providers: [{providers}]\n");
    let rules: String = rules.iter().map(rule).collect();
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{rules}")
}

pub fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"marker": MARKER}}, "stringData": {"password": name}})
}

pub fn plugin_of(plugin: &KmsPlugin) -> String {
    format!("{{kms: {{apiVersion: v2, name: plugin, endpoint: '{}', timeout: 1s}}}}", plugin.endpoint())
}

/// No file below a folder holds that text. The log of the server is one of them.
pub fn assert_clear_of(folder: &Path, text: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_clear_of(&path, text);
        } else if path.is_file() {
            // A file of the store may be replaced while it is looked for.
            let content = std::fs::read(&path).unwrap_or_default();
            let found = content.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!found, "{} holds {text}", path.display());
        }
    }
}

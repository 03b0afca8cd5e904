//! Pulls from a real registry, plain, encrypted and with passwords.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::Credentials;
use super::super::manifest::{DOCKER_LIST, OCI_INDEX, OCI_MANIFEST, digest_of};
use super::{Fixture, Packing, Tar, TestImage};

const PROGRAM: &str = "docker-registry";
/// `bcrypt` of `secret`, for the user `user`.
const PASSWORDS: &str = "user:$2b$05$XRxRNqJ7bA7o4gEHVMxaL.cPaM8typGZxXLsQkGN4EBv4eILMlfbG\n";

/// A registry that ends with the test.
struct Registry {
    process: Child,
    address: String,
    client: reqwest::Client,
    scheme: &'static str,
    folder: tempfile::TempDir,
}

impl Registry {
    async fn plain() -> Registry {
        Registry::start("", None).await
    }

    async fn with_passwords() -> Registry {
        Registry::start("auth:\n  htpasswd:\n    realm: test\n    path: {folder}/passwords\n", None).await
    }

    async fn start(more: &str, authority: Option<&str>) -> Registry {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        std::fs::write(folder.path().join("passwords"), PASSWORDS).unwrap();
        let path = folder.path().to_str().unwrap();
        if let Some(name) = authority {
            certificates(folder.path(), name);
        }
        let tls = match authority {
            Some(_) => "  tls:\n    certificate: {folder}/server.pem\n    key: {folder}/server.key\n",
            None => "",
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {{folder}}/data\nhttp:\n  addr: {address}\n{tls}{more}"
        );
        let config = config.replace("{folder}", path);
        let config_path = folder.path().join("config.yml");
        std::fs::write(&config_path, config).unwrap();
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(&config_path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the registry's package is installed");
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap();
        let scheme = if authority.is_some() { "https" } else { "http" };
        let registry = Registry { process, address, client, scheme, folder };
        let started = Instant::now();
        while registry.client.get(format!("{}://{}/v2/", registry.scheme, registry.address)).send().await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "the registry does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        registry
    }

    async fn put(&self, url: &str, media_type: &str, body: Vec<u8>) {
        let request =
            self.client.put(url).basic_auth("user", Some("secret")).header("content-type", media_type).body(body);
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{url}: {} {}", response.status(), response.text().await.unwrap());
    }

    async fn push(&self, image: &TestImage, repository: &str, reference: &str) {
        let base = format!("{}://{}/v2/{repository}", self.scheme, self.address);
        for blob in image.blobs() {
            let upload = self
                .client
                .post(format!("{base}/blobs/uploads/"))
                .basic_auth("user", Some("secret"))
                .send()
                .await
                .unwrap();
            let location = upload.headers()["location"].to_str().unwrap().to_owned();
            let digest = digest_of(&blob);
            self.put(&format!("{location}&digest={digest}"), "application/octet-stream", blob).await;
        }
        self.put(&format!("{base}/manifests/{reference}"), image.media_type, image.manifest.clone()).await;
    }

    fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn certificates(folder: &Path, name: &str) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("ca.pem"), authority_certificate.pem()).unwrap();
    std::fs::write(folder.join("server.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("server.key"), key.serialize_pem()).unwrap();
}

fn layer(name: &str) -> Vec<u8> {
    Tar::new().file(name, name.as_bytes()).finish()
}

fn user(password: &str) -> Option<Credentials> {
    Some(Credentials { username: "user".to_owned(), password: password.to_owned(), ..Default::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_tag_by_digest_and_again() {
    let registry = Registry::plain().await;
    let image =
        TestImage::new(&[(layer("a"), Packing::Gzip), (layer("b"), Packing::Zstd), (layer("c"), Packing::None)]);
    registry.push(&image, "team/app", "v1").await;
    let fixture = Fixture::new().await;
    let name = registry.name("team/app:v1");
    // Together they are one pull.
    let (one, two) = tokio::join!(fixture.images.pull(&name, None), fixture.images.pull(&name, None));
    assert_eq!((one.unwrap(), two.unwrap()), (image.id(), image.id()));
    let found = fixture.images.get(&name).unwrap();
    assert_eq!(found.repo_tags, [name.as_str()]);
    assert_eq!(found.repo_digests, [registry.name(&format!("team/app@{}", image.digest()))]);
    assert_eq!(found.config.entrypoint, ["/bin/x"]);
    assert_eq!((fixture.count("layers"), fixture.count("work"), fixture.count("configs")), (3, 0, 1));
    let snapshot = fixture.images.prepare(&image.id(), "c").await.unwrap();
    assert_eq!(std::fs::read(snapshot.lower[0].join("c")).unwrap(), b"c");
    let by_digest = registry.name(&format!("team/app@{}", image.digest()));
    assert_eq!(fixture.images.pull(&by_digest, None).await.unwrap(), image.id());
    // Another image under the tag takes it over.
    let next = TestImage::docker(&[(layer("a"), Packing::Gzip), (layer("d"), Packing::Gzip)]);
    registry.push(&next, "team/app", "v1").await;
    assert_eq!(fixture.images.pull(&name, None).await.unwrap(), next.id());
    assert_eq!(fixture.images.get(&name).unwrap().id, next.id());
    assert_eq!(fixture.images.get(&by_digest).unwrap().id, image.id());
    assert_eq!(fixture.count("layers"), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_image_of_an_index() {
    let registry = Registry::plain().await;
    let ours = TestImage::new(&[(layer("ours"), Packing::Gzip)]);
    let theirs = TestImage::of(&[(layer("theirs"), Packing::Gzip)], "s390x", OCI_MANIFEST);
    for image in [&ours, &theirs] {
        registry.push(image, "multi", &image.digest()).await;
    }
    let descriptor = |image: &TestImage, architecture: &str| {
        serde_json::json!({
            "mediaType": image.media_type, "digest": image.digest(), "size": image.manifest.len(),
            "platform": { "os": "linux", "architecture": architecture },
        })
    };
    let push = async |tag: &str, media_type: &str, manifests: Vec<serde_json::Value>| {
        let index = serde_json::json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests });
        let url = format!("http://{}/v2/multi/manifests/{tag}", registry.address);
        registry.put(&url, media_type, serde_json::to_vec(&index).unwrap()).await;
    };
    push("oci", OCI_INDEX, vec![descriptor(&theirs, "s390x"), descriptor(&ours, "amd64")]).await;
    push("docker", DOCKER_LIST, vec![descriptor(&ours, "amd64"), descriptor(&theirs, "s390x")]).await;
    push("foreign", OCI_INDEX, vec![descriptor(&theirs, "s390x")]).await;
    let fixture = Fixture::new().await;
    for tag in ["oci", "docker"] {
        assert_eq!(fixture.images.pull(&registry.name(&format!("multi:{tag}")), None).await.unwrap(), ours.id());
    }
    assert_eq!(fixture.images.list().len(), 1);
    let error = fixture.images.pull(&registry.name("multi:foreign"), None).await.unwrap_err();
    assert_eq!(error.code, cri::Code::NotFound);
    assert!(error.message.contains("no match for platform in manifest sha256:"), "{error}");
    assert_eq!(fixture.count("layers"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said_as_containerd_says_it() {
    let registry = Registry::plain().await;
    let fixture = Fixture::new().await;
    let name = registry.name("no/such:v1");
    let error = fixture.images.pull(&name, None).await.unwrap_err();
    let expected = format!(
        "failed to pull and unpack image \"{name}\": failed to resolve reference \"{name}\": {name}: not found"
    );
    assert_eq!((error.code, error.message), (cri::Code::NotFound, expected));
    let error = fixture.images.pull("Bad:Name", None).await.unwrap_err();
    assert_eq!(error.code, cri::Code::InvalidArgument);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = fixture.images.pull(&format!("{closed}/x"), None).await.unwrap_err().message;
    let expected = format!(
        "failed to resolve reference \"{closed}/x:latest\": failed to do request: Head \"http://{closed}/v2/x/manifests/latest\": dial tcp {closed}: connect: connection refused"
    );
    assert!(error.ends_with(&expected), "{error}");
    let error = fixture.images.pull("registry.invalid/x", None).await.unwrap_err().message;
    assert!(error.ends_with("dial tcp: lookup registry.invalid: no such host"), "{error}");
    fixture.assert_empty();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_asked_for_and_checked() {
    let registry = Registry::with_passwords().await;
    let image = TestImage::small("secret");
    registry.push(&image, "private", "v1").await;
    let fixture = Fixture::new().await;
    let name = registry.name("private:v1");
    let error = fixture.images.pull(&name, None).await.unwrap_err().message;
    assert!(error.ends_with("authorization failed: no basic auth credentials"), "{error}");
    let error = fixture.images.pull(&name, user("wrong")).await.unwrap_err().message;
    assert!(
        error.contains("unexpected status from HEAD request to http://") && error.contains("401 Unauthorized"),
        "{error}"
    );
    assert_eq!(fixture.images.pull(&name, user("secret")).await.unwrap(), image.id());
    // The file has them too.
    let yaml =
        format!("configs:\n  \"{}\":\n    auth:\n      username: user\n      password: secret\n", registry.address);
    let fixture = Fixture::with(&yaml, |_| {}).await;
    assert_eq!(fixture.images.pull(&name, None).await.unwrap(), image.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_authorities_and_mirrors() {
    let registry = Registry::start("", Some("localhost")).await;
    let image = TestImage::small("mirrored");
    registry.push(&image, "mirror/library/app", "v1").await;
    let port = registry.address.rsplit(':').next().unwrap();
    let authority = registry.folder.path().join("ca.pem");
    let yaml = |tls: &str| {
        format!(
            "mirrors:\n  docker.io:\n    endpoint: [\"http://127.0.0.1:1\", \"https://localhost:{port}\"]\n    rewrite:\n      \"^(.*)$\": \"mirror/$1\"\nconfigs:\n  \"localhost:{port}\":\n    tls: {{{tls}}}\n"
        )
    };
    for tls in [format!("ca_file: {}", authority.display()), "insecure_skip_verify: true".to_owned()] {
        let fixture = Fixture::with(&yaml(&tls), |_| {}).await;
        assert_eq!(fixture.images.pull("app:v1", None).await.unwrap(), image.id(), "{tls}");
        assert_eq!(fixture.images.get("app:v1").unwrap().repo_tags, ["docker.io/library/app:v1"]);
    }
    // Nobody vouches for the certificate; the other one speaks no TLS at all.
    let plain = Registry::plain().await;
    let plain_port = plain.address.rsplit(':').next().unwrap();
    let yaml = format!(
        "mirrors:\n  one.invalid:\n    endpoint: [\"https://localhost:{port}\"]\n  two.invalid:\n    endpoint: [\"https://127.0.0.1:{plain_port}\"]\n  \"*\":\n    endpoint: [\"http://127.0.0.1:{plain_port}\"]\n"
    );
    let fixture = Fixture::with(&yaml, |_| {}).await;
    let error = fixture.images.pull("one.invalid/mirror/library/app:v1", None).await.unwrap_err().message;
    assert!(
        error.ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{error}"
    );
    let error = fixture.images.pull("two.invalid/any/app", None).await.unwrap_err().message;
    assert!(error.ends_with("http: server gave HTTP response to HTTPS client"), "{error}");
    fixture.assert_empty();
    plain.push(&image, "any/app", "latest").await;
    assert_eq!(fixture.images.pull("three.invalid/any/app", None).await.unwrap(), image.id());
}

//! Images of real pods from a real registry: by tag, digest and architecture, with passwords and certificates, by every
//! policy, also when the registry is away; and those that try to write where they must not.

#[path = "support/on_node.rs"]
mod on_node;
#[path = "support/registry.rs"]
mod registry;

use std::path::Path;

use on_node::{Node, one, status, with};
use registry::{Image, Layer, Registry};
use serde_json::{Value, json};

const ADDRESS: &str = "127.0.0.1:5000";

fn plain(node: &Node) -> Registry {
    Registry::start(node.server.machine(), &node.server.data_dir().join("registry"), ADDRESS, "")
}

/// A container of busybox that says the image's word.
fn says(image: &str, policy: &str) -> Value {
    one(json!({"image": image, "imagePullPolicy": policy, "command": ["/bin/busybox", "cat", "/word"]}))
}

/// The word of the pod's image, once the pod has run.
fn word(node: &Node, name: &str, spec: Value) -> String {
    node.output(name, spec).trim_end().to_owned()
}

fn waits_for(node: &Node, name: &str, reason: &str) -> String {
    let pod = node.until(name, reason, |pod| status(pod, "main")["state"]["waiting"]["reason"] == reason);
    assert_eq!(pod["status"]["phase"], "Pending");
    status(&pod, "main")["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
}

/// Neither images beside the built-in one nor anything half-done, nor layers that no image needs.
fn left_behind(node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    let images = node.server.data_dir().join("runtime/images");
    for name in ["layers", "configs", "work"] {
        for entry in std::fs::read_dir(images.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")) {
            found.push(format!("{name}/{}", entry.unwrap().file_name().to_string_lossy()));
        }
    }
    found.sort();
    found
}

#[test]
fn images_come_by_tag_digest_and_architecture() {
    let node = Node::start(&[]);
    let registry = plain(&node);
    let first = Image::saying("first");
    let digest = registry.put("team/app", "v1", &first);
    let tag = registry.name("team/app:v1");
    assert_eq!(word(&node, "by-tag", says(&tag, "IfNotPresent")), "first");
    node.until_event("by-tag", &format!("Normal Pulling Pulling image {tag:?}"));
    node.until_event("by-tag", &format!("Normal Pulled Successfully pulled image {tag:?} in "));
    let pod = node.get("by-tag");
    assert_eq!(status(&pod, "main")["image"], tag.as_str());
    assert_eq!(status(&pod, "main")["imageID"], registry.name(&format!("team/app@{digest}")));

    // The tag goes on; the digest stays what it was.
    let second = registry.put("team/app", "v1", &Image::saying("second"));
    assert_ne!(digest, second);
    for (name, digest, expected) in [("by-old-digest", &digest, "first"), ("by-new-digest", &second, "second")] {
        let image = registry.name(&format!("team/app@{digest}"));
        assert_eq!(word(&node, name, says(&image, "IfNotPresent")), expected);
        assert!(status(&node.get(name), "main")["imageID"].as_str().unwrap().ends_with(digest.as_str()));
    }
    let unknown = registry.name(&format!("team/app@sha256:{}", "0".repeat(64)));
    node.pod("by-no-digest", says(&unknown, "IfNotPresent"));
    let message = waits_for(&node, "by-no-digest", "ErrImagePull");
    assert!(message.contains("not found"), "{message}");

    // One name, several architectures: this machine's is taken.
    let foreign = Image::of("s390x", vec![Layer::default().file("word", b"foreign").finish()]);
    let index = registry.put_index("multi", "v1", &[(&foreign, "s390x"), (&Image::saying("ours"), "amd64")]);
    assert_eq!(word(&node, "multi", says(&registry.name("multi:v1"), "Always")), "ours");
    assert_eq!(word(&node, "multi-digest", says(&registry.name(&format!("multi@{index}")), "Always")), "ours");
    registry.put_index("foreign", "v1", &[(&foreign, "s390x")]);
    node.pod("foreign", says(&registry.name("foreign:v1"), "Always"));
    let message = waits_for(&node, "foreign", "ImagePullBackOff");
    assert!(message.contains("no match for platform in manifest"), "{message}");
}

#[test]
fn policies_hold_with_and_without_the_registry() {
    let node = Node::start(&[]);
    let mut registry = plain(&node);
    registry.put("app", "v1", &Image::saying("old"));
    let app = registry.name("app:v1");
    let other = registry.name("other:v1");

    // Not here yet: who never pulls waits; the registry was not asked.
    node.pod("never-absent", says(&app, "Never"));
    let expected = format!("Container image {app:?} is not present with pull policy of Never");
    assert_eq!(waits_for(&node, "never-absent", "ErrImageNeverPull"), expected);
    node.until_event("never-absent", &format!("Warning ErrImageNeverPull {expected}"));
    node.until_event("never-absent", "Warning Failed Error: ErrImageNeverPull");
    assert!(!node.events("never-absent").iter().any(|event| event.contains("Pulling")));
    assert_eq!(word(&node, "if-absent", says(&app, "IfNotPresent")), "old");
    // It is here now, and the one that waited starts.
    node.until_phase("never-absent", "Succeeded");

    // Another image under the same tag is seen only by who always asks.
    registry.put("app", "v1", &Image::saying("new"));
    assert_eq!(word(&node, "if-old", says(&app, "IfNotPresent")), "old");
    let present = format!("Normal Pulled Container image {app:?} already present on machine");
    node.until_event("if-old", &present);
    assert!(!node.events("if-old").iter().any(|event| event.contains("Pulling")));
    assert_eq!(word(&node, "never-old", says(&app, "Never")), "old");
    assert_eq!(word(&node, "always-new", says(&app, "Always")), "new");

    // The registry is away.
    registry.close();
    assert_eq!(word(&node, "if-away", says(&app, "IfNotPresent")), "new");
    assert_eq!(word(&node, "never-away", says(&app, "Never")), "new");
    node.pod("always-away", says(&app, "Always"));
    node.pod("if-absent-away", says(&other, "IfNotPresent"));
    for (name, image) in [("always-away", &app), ("if-absent-away", &other)] {
        let message = waits_for(&node, name, "ImagePullBackOff");
        let start =
            format!("Back-off pulling image {image:?}: ErrImagePull: failed to pull and unpack image {image:?}: ");
        assert!(message.starts_with(&start) && message.ends_with("connect: connection refused"), "{message}");
        node.until_event(name, &format!("Normal Pulling Pulling image {image:?}"));
        node.until_event(name, &format!("Warning Failed Failed to pull image {image:?}: failed to pull and unpack"));
        node.until_event(name, "Warning Failed Error: ErrImagePull");
        node.until_event(name, &format!("Normal BackOff Back-off pulling image {image:?}"));
        node.until_event(name, "Warning Failed Error: ImagePullBackOff");
    }
    // It comes back, and with it the pods.
    registry.put("other", "v1", &Image::saying("other"));
    registry.open();
    for name in ["always-away", "if-absent-away"] {
        node.until_phase(name, "Succeeded");
    }
    assert_eq!(node.until_log("if-absent-away", "main", "other"), "other");
}

#[test]
fn passwords_come_from_the_pods_secrets() {
    let node = Node::start(&[]);
    let auth = "auth:\n  htpasswd:\n    realm: test\n    path: {folder}/passwords\n";
    let folder = node.server.data_dir().join("registry");
    let registry = Registry::start(node.server.machine(), &folder, ADDRESS, auth);
    registry.put("private", "v1", &Image::saying("private"));
    let image = registry.name("private:v1");
    for (name, password) in [("good", "secret"), ("bad", "wrong")] {
        let server = format!("--docker-server={ADDRESS}");
        let password = format!("--docker-password={password}");
        let make = ["create", "secret", "docker-registry", name, &server, "--docker-username=user", &password];
        node.server.kubectl().ok(&make);
    }
    let with_secrets = |names: &[&str]| {
        let secrets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        with(says(&image, "Always"), json!({"imagePullSecrets": secrets}))
    };
    node.pod("no-secret", says(&image, "Always"));
    node.pod("bad-secret", with_secrets(&["bad"]));
    node.pod("lost-secret", with_secrets(&["nobody"]));
    for name in ["no-secret", "bad-secret", "lost-secret"] {
        let message = waits_for(&node, name, "ImagePullBackOff");
        assert!(message.contains("401 Unauthorized") || message.contains("no basic auth credentials"), "{message}");
    }
    assert_eq!(word(&node, "good-secret", with_secrets(&["good"])), "private");
    assert_eq!(word(&node, "either-secret", with_secrets(&["bad", "good"])), "private");
    // It is here now, and still only for those whose secrets open it.
    node.pod("no-secret-present", says(&image, "IfNotPresent"));
    let message = waits_for(&node, "no-secret-present", "ImagePullBackOff");
    assert!(message.contains("401 Unauthorized") || message.contains("no basic auth credentials"), "{message}");
    node.pod("no-secret-never", says(&image, "Never"));
    let message = waits_for(&node, "no-secret-never", "ErrImageNeverPull");
    assert_eq!(message, format!("Container image {image:?} is not present with pull policy of Never"));
    let never = with(says(&image, "Never"), json!({"imagePullSecrets": [{"name": "good"}]}));
    assert_eq!(word(&node, "good-secret-never", never), "private");
    node.until_event(
        "good-secret-never",
        &format!("Normal Pulled Container image {image:?} already present on machine"),
    );
    // The account's secrets are the pod's.
    let secrets = json!({"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "good"}]});
    node.create("serviceaccounts", secrets);
    assert_eq!(
        word(&node, "of-account", with(says(&image, "Always"), json!({"serviceAccountName": "puller"}))),
        "private"
    );
}

#[test]
fn private_authorities_mirrors_and_client_certificates_are_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    registry::certificates(folder.path(), testkit::machine::ADDRESS);
    let host = format!("{}:5443", testkit::machine::ADDRESS);
    let closed = format!("{}:5444", testkit::machine::ADDRESS);
    let client = format!("cert_file: {path}/client.pem, key_file: {path}/client.key");
    let yaml = format!(
        "mirrors:\n  shop.example:\n    endpoint: [\"https://{host}\"]\n    rewrite:\n      \"^(.*)$\": \"mirror/$1\"\n\
         configs:\n  \"{host}\":\n    tls: {{ca_file: {path}/ca.pem, {client}}}\n  \"{closed}\":\n    tls: {{ca_file: {path}/ca.pem}}\n"
    );
    std::fs::write(folder.path().join("registries.yaml"), yaml).unwrap();
    let file = folder.path().join("registries.yaml");
    let node = Node::start(&["--private-registry", file.to_str().unwrap()]);
    // Both let in only those who show a certificate; of the second one's wish the file says nothing.
    let tls = format!(
        "  tls:\n    certificate: {path}/server.pem\n    key: {path}/server.key\n    clientcas: [{path}/ca.pem]\n"
    );
    let start = |name: &str, address: &str| {
        let registry = Registry::start(node.server.machine(), &folder.path().join(name), address, &tls);
        registry.put("app", "v1", &Image::saying("direct"));
        registry.put("mirror/app", "v1", &Image::saying("mirrored"));
        registry
    };
    let (_open, _closed) = (start("open", &host), start("closed", &closed));
    assert_eq!(word(&node, "direct", says(&format!("{host}/app:v1"), "Always")), "direct");
    assert_eq!(word(&node, "mirrored", says("shop.example/app:v1", "Always")), "mirrored");
    assert_eq!(status(&node.get("mirrored"), "main")["image"], "shop.example/app:v1");
    node.pod("nameless", says(&format!("{closed}/app:v1"), "Always"));
    let message = waits_for(&node, "nameless", "ImagePullBackOff");
    // Whether the alert or the end of the connection is seen first is up to the moment.
    assert!(message.contains(&format!("Head \"https://{closed}/v2/app/manifests/v1\": ")), "{message}");
}

#[test]
fn layers_that_reach_out_are_refused_or_kept_inside() {
    let node = Node::start(&[]);
    let registry = plain(&node);
    let outside = node.server.data_dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let out = outside.to_str().unwrap();
    let before = left_behind(&node);
    let climbing = format!("../../../../../../../../../..{out}/planted");
    let hostile = [
        ("climbs", Layer::default().file(&climbing, b"x"), "climbs out of the image"),
        ("climbs-within", Layer::default().file("a/../../../planted", b"x"), "climbs out of the image"),
        ("links-up", Layer::default().hardlink("word", &format!("../../../..{out}/secret")), "climbs out of the image"),
        ("links-out", Layer::default().hardlink("word", &format!("{out}/secret")), "o such file"),
        ("links-through", Layer::default().symlink("way", out).hardlink("word", "way/secret"), "o such file"),
    ];
    for (name, layer, why) in hostile {
        let image = Image::with(layer);
        registry.put(name, "v1", &image);
        let tag = registry.name(&format!("{name}:v1"));
        node.pod(name, says(&tag, "IfNotPresent"));
        let message = waits_for(&node, name, "ErrImagePull");
        assert!(message.contains(why), "{name}: {message}");
        node.until_event(name, &format!("Warning Failed Failed to pull image {tag:?}: "));
        node.until_event(name, "Warning Failed Error: ErrImagePull");
        node.delete(name, Some(0));
        node.until_gone(name);
        let archive = outside.with_file_name(format!("{name}.tar"));
        std::fs::write(&archive, image.archive(&format!("local/{name}:1"))).unwrap();
        let refused = knarr_image(&node, &["import", archive.to_str().unwrap()]).unwrap_err();
        assert!(refused.contains(why), "{name}: {refused}");
        assert_eq!(left_behind(&node), before, "{name} left something behind");
    }
    // Absolute links are usual in images; what is put behind them stays in the image.
    let absolute = Layer::default()
        .file(&format!("{out}/there"), b"x")
        .symlink("way", out)
        .file("way/planted", b"x")
        .file("word", b"kept inside");
    registry.put("absolute", "v1", &Image::with(absolute));
    assert_eq!(word(&node, "absolute", says(&registry.name("absolute:v1"), "Always")), "kept inside");
    let kept: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(kept, ["secret"]);
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(outside.join("secret")).unwrap()), 1);
    assert!(!Path::new("/planted").exists());
}

/// What `knarr image` says on the node's machine, good or bad.
fn knarr_image(node: &Node, arguments: &[&str]) -> Result<String, String> {
    let mut command = node.server.machine().command(testkit::server::binary().unwrap());
    let output = command.arg("image").args(arguments).arg("--data-dir").arg(node.server.data_dir()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn archives_are_imported_while_the_node_runs_and_before() {
    let node = Node::start(&[]);
    let archive = node.server.data_dir().join("app.tar");
    std::fs::write(&archive, Image::saying("imported").archive("shop.example/app:1")).unwrap();
    assert_eq!(knarr_image(&node, &["import", archive.to_str().unwrap()]), Ok("shop.example/app:1\n".into()));
    assert_eq!(word(&node, "imported", says("shop.example/app:1", "Never")), "imported");
    let listed = knarr_image(&node, &["list"]).unwrap();
    assert!(listed.lines().any(|line| line.starts_with("shop.example/app") && line.contains(" 1 ")), "{listed}");
    assert_eq!(knarr_image(&node, &["rm", "shop.example/app:1"]), Ok("Deleted: shop.example/app:1\n".into()));
    node.pod("removed", says("shop.example/app:1", "Never"));
    waits_for(&node, "removed", "ErrImageNeverPull");
    for broken in ["cut", "empty"] {
        let bytes = std::fs::read(&archive).unwrap();
        let path = archive.with_file_name(broken);
        std::fs::write(&path, if broken == "cut" { &bytes[..bytes.len() / 2] } else { &[] }).unwrap();
        let refused = knarr_image(&node, &["import", path.to_str().unwrap()]).unwrap_err();
        assert!(refused.contains("Error: failed to import"), "{refused}");
    }
}

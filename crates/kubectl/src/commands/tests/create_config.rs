//! `kubectl create configmap` and `create secret`: literals, files and folders become keys.

use base64::Engine;

use super::*;

/// A folder of files that a line can name as `DIR`.
fn with_files(files: &[(&str, &str)], line: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    Fake::new().run(&line.replace("DIR", &folder.path().display().to_string()))
}

#[test]
fn literals_become_keys() {
    makes(
        "create configmap settings --from-literal=a=b --from-literal=url=http://x?y=z",
        "
apiVersion: v1
data:
  a: b
  url: http://x?y=z
kind: ConfigMap
metadata:
  name: settings
",
    );
    makes(
        "create secret generic settings --from-literal=a=b --type=example.com/own",
        "
apiVersion: v1
data:
  a: Yg==
kind: Secret
metadata:
  name: settings
type: example.com/own
",
    );
}

#[test]
fn literals_that_are_none_are_refused() {
    refuses("create configmap c --from-literal=a", "invalid literal source a, expected key=value");
    refuses("create configmap c --from-literal==a", "invalid literal source =a, expected key=value");
    let twice = "cannot add key \"a\", another key by that name already exists in Data for ConfigMap \"c\"";
    refuses("create configmap c --from-literal=a=1 --from-literal=a=2", twice);
    refuses(
        "create configmap c --from-literal=a/b=1",
        "\"a/b\" is not a valid key name for a ConfigMap: a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
    );
    refuses(
        "create configmap c --from-literal=a=b --from-env-file=x",
        "from-env-file cannot be combined with from-file or from-literal",
    );
    let twice = "cannot add key a, another key by that name already exists";
    refuses("create secret generic s --from-literal=a=1 --from-literal=a=2", twice);
    misused("create configmap", "create configmap", "exactly one NAME is required, got 0");
}

#[test]
fn files_are_keys_by_their_names() {
    let files = [("app.conf", "x=1\n"), ("logo.bin", "plain"), (".hidden", "h"), ("inner/deep", "not read")];
    let ran = with_files(&files, "create configmap c --from-file=DIR --dry-run=client -o yaml");
    let expected = "apiVersion: v1\ndata:\n  .hidden: h\n  app.conf: |\n    x=1\n  logo.bin: plain\nkind: ConfigMap\nmetadata:\n  name: c\n";
    ended_well(&ran, expected);
    let ran = with_files(
        &files,
        "create configmap c --from-file=DIR/app.conf --from-file=other=DIR/logo.bin --dry-run=client -o yaml",
    );
    let expected =
        "apiVersion: v1\ndata:\n  app.conf: |\n    x=1\n  other: plain\nkind: ConfigMap\nmetadata:\n  name: c\n";
    ended_well(&ran, expected);
    let ran = with_files(&files, "create configmap c --from-file=a=DIR");
    assert_eq!(ran.err, "error: cannot give a key name for a directory path\n");
    let ran = with_files(&files, "create configmap c --from-file=/no/such");
    assert_eq!(ran.err, "error: error reading /no/such: no such file or directory\n");
}

#[test]
fn bytes_that_are_no_text_become_binary_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("blob");
    std::fs::write(&path, [0xff, 0xfe, 0]).expect("a file");
    let ran = Fake::new().run(&format!("create configmap c --from-file={} --dry-run=client -o yaml", path.display()));
    ended_well(&ran, "apiVersion: v1\nbinaryData:\n  blob: //4A\nkind: ConfigMap\nmetadata:\n  name: c\n");
}

#[test]
fn lines_of_an_environment_file_are_keys() {
    let file = [("env", "# a comment\nA=1\n\n  B=two words  \nC=x=y\n")];
    let ran = with_files(&file, "create configmap c --from-env-file=DIR/env --dry-run=client -o yaml");
    let expected =
        "apiVersion: v1\ndata:\n  A: \"1\"\n  B: 'two words  '\n  C: x=y\nkind: ConfigMap\nmetadata:\n  name: c\n";
    ended_well(&ran, expected);
    let ran = with_files(&[("env", "1 A=b\n")], "create configmap c --from-env-file=DIR/env --dry-run=client");
    assert!(ran.err.contains("\"1 A\" is not a valid key name: "), "{}", ran.err);
}

#[test]
fn registries_get_one_entry_with_credentials() {
    let line = "create secret docker-registry pull --docker-server=r.example --docker-username=ann --docker-password=p --docker-email=a@b --dry-run=client -o json";
    let ran = Fake::new().run(line);
    let object: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(object["type"], "kubernetes.io/dockerconfigjson");
    let packed = object["data"][".dockerconfigjson"].as_str().expect("data");
    let text = base64::engine::general_purpose::STANDARD.decode(packed).expect("base64");
    let expected = r#"{"auths":{"r.example":{"username":"ann","password":"p","email":"a@b","auth":"YW5uOnA="}}}"#;
    assert_eq!(String::from_utf8_lossy(&text), expected);
    refuses(
        "create secret docker-registry pull",
        "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required",
    );
}

#[test]
fn a_certificate_must_belong_to_its_key() {
    refuses("create secret tls t", "key and cert must be specified");
    let files = [("tls.crt", "no certificate"), ("tls.key", "no key")];
    let ran = with_files(&files, "create secret tls t --cert=DIR/tls.crt --key=DIR/tls.key --dry-run=client");
    assert_eq!(ran.err, "error: tls: failed to find any PEM data in certificate input\n");
}

#[test]
fn a_hash_of_the_content_can_follow_the_name() {
    let named = |line: &str| Fake::new().run(&format!("{line} --append-hash --dry-run=client -o name")).out;
    let (one, other) = (named("create configmap c --from-literal=a=b"), named("create configmap c --from-literal=a=c"));
    assert!(one.starts_with("configmap/c-") && one.trim_end().len() == "configmap/c-".len() + 10, "{one}");
    assert_ne!(one, other, "another content has another hash");
    assert_eq!(one, named("create configmap c --from-literal=a=b"));
}

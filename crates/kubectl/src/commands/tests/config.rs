//! `kubectl config`: what lines do to a file.

use super::*;

/// A kubeconfig of a test.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> File {
        let folder = tempfile::tempdir().expect("a folder");
        if !text.is_empty() {
            std::fs::write(folder.path().join("c1"), text).expect("a file");
        }
        File { folder }
    }

    fn path(&self) -> String {
        self.folder.path().join("c1").display().to_string()
    }

    fn run(&self, line: &str) -> Ran {
        Fake::new().run(&format!("config --kubeconfig={} {line}", self.path()))
    }

    fn says(&self, line: &str, out: &str) {
        ended_well(&self.run(line), out);
    }

    fn refuses(&self, line: &str, err: &str) {
        ended_badly(&self.run(line), &format!("error: {}\n", err.replace("FILE", &self.path())));
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).expect("the file")
    }
}

const TWO: &str = "\
apiVersion: v1
kind: Config
current-context: x
clusters:
- name: a
  cluster: {server: 'https://one:6443'}
contexts:
- name: x
  context: {cluster: a, user: u, namespace: m}
- name: z
  context: {cluster: a, user: u}
users:
- name: u
  user: {token: secret}
";

#[test]
fn a_file_is_made_from_nothing() {
    let file = File::new("");
    file.says("set-cluster a --server=https://one:6443", "Cluster \"a\" set.\n");
    file.says("set-credentials u --token=secret", "User \"u\" set.\n");
    file.says("set-context x --cluster=a --user=u --namespace=n", "Context \"x\" created.\n");
    file.says("set-context x --namespace=m", "Context \"x\" modified.\n");
    file.says("use-context x", "Switched to context \"x\".\n");
    let expected = "\
apiVersion: v1
clusters:
- cluster:
    server: https://one:6443
  name: a
contexts:
- context:
    cluster: a
    namespace: m
    user: u
  name: x
current-context: x
kind: Config
users:
- name: u
  user:
    token: secret
";
    assert_eq!(file.text(), expected);
    file.says("current-context", "x\n");
}

#[test]
fn contexts_are_a_table() {
    let file = File::new(TWO);
    let table = "\
CURRENT   NAME   CLUSTER   AUTHINFO   NAMESPACE
*         x      a         u          m
          z      a         u          
";
    file.says("get-contexts", table);
    file.says("get-contexts -o name", "x\nz\n");
    file.says("get-contexts --no-headers", "*     x     a     u     m\n      z     a     u     \n");
    file.says("get-clusters", "NAME\na\n");
    file.says("get-users", "NAME\nu\n");
    let ran = file.run("get-contexts x missing");
    assert_eq!(ran.err, "error: context missing not found\n");
    assert!(ran.out.ends_with("*         x      a         u          m\n"), "{}", ran.out);
}

#[test]
fn contexts_are_chosen_renamed_and_deleted() {
    let file = File::new(TWO);
    file.says("use z", "Switched to context \"z\".\n");
    file.refuses("use-context missing", "no context exists with the name: \"missing\"");
    file.says("rename-context z w", "Context \"z\" renamed to \"w\".\n");
    file.says("current-context", "w\n");
    file.refuses("rename-context missing q", "cannot rename the context \"missing\", it's not in FILE");
    file.refuses("rename-context w x", "cannot rename the context \"w\", the context \"x\" already exists in FILE");
    file.says("delete-context x", &format!("deleted context x from {}\n", file.path()));
    file.refuses("delete-context x", "cannot delete context x, not in FILE");
    let active = file.run("delete-context w");
    let warning =
        "warning: this removed your active context, use \"kubectl config use-context\" to select a different one\n";
    assert_eq!((active.err.as_str(), active.code), (warning, 0));
    file.says("delete-cluster a", &format!("deleted cluster a from {}\n", file.path()));
    file.refuses("delete-cluster a", "cannot delete cluster a, not in FILE");
    file.says("delete-user u", &format!("deleted user u from {}\n", file.path()));
    file.refuses("delete-user u", "cannot delete user u, not in FILE");
}

#[test]
fn properties_are_named_by_paths() {
    let file = File::new(TWO);
    file.says("set clusters.a.server https://three", "Property \"clusters.a.server\" set.\n");
    file.says("set contexts.z.namespace other", "Property \"contexts.z.namespace\" set.\n");
    file.says(
        "set clusters.a.insecure-skip-tls-verify true",
        "Property \"clusters.a.insecure-skip-tls-verify\" set.\n",
    );
    let text = file.text();
    for line in ["    server: https://three\n", "    namespace: other\n", "    insecure-skip-tls-verify: true\n"] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let refused = "strconv.ParseBool: parsing \"maybe\": invalid syntax";
    file.refuses("set clusters.a.insecure-skip-tls-verify maybe", refused);
    file.refuses("set nothing.a b", "unable to parse nothing.a after [] at api.Config");
    file.says("unset users.u.token", "Property \"users.u.token\" unset.\n");
    assert!(!file.text().contains("secret"));
    file.says("unset users.u", "Property \"users.u\" unset.\n");
    file.says("unset current-context", "Property \"current-context\" unset.\n");
    file.refuses("current-context", "current-context is not set");
    file.refuses("unset nothing", "unable to parse nothing after [] at api.Config");
}

#[test]
fn secrets_are_shown_only_when_asked_for() {
    let file = File::new(TWO);
    let hidden = file.run("view");
    assert!(hidden.out.contains("    token: REDACTED\n") && !hidden.out.contains("secret"), "{}", hidden.out);
    assert!(file.run("view --raw").out.contains("    token: secret\n"));
    file.says("view -o jsonpath='{.users[?(@.name==\"u\")].user.token}' --raw", "secret");
    file.says("view -o go-template='{{range .contexts}}{{.name}} {{end}}'", "x z ");
    let only = file.run("view --minify --context=z").out;
    assert!(only.contains("name: z\n") && !only.contains("name: x\n"), "{only}");
    file.refuses("view --minify --context=missing", "cannot locate context missing");
}

#[test]
fn entries_that_contradict_themselves_are_refused() {
    let file = File::new(TWO);
    file.refuses("set-cluster b --embed-certs", "you must specify a --certificate-authority to embed");
    file.refuses(
        "set-cluster b --certificate-authority=ca.pem --insecure-skip-tls-verify",
        "you cannot specify a certificate authority and insecure mode at the same time",
    );
    file.refuses(
        "set-credentials v --username=me --token=t",
        "you cannot specify more than one authentication method at the same time: --token, --username/--password",
    );
    file.refuses("set-context", "you must specify a non-empty context name or --current");
    file.refuses("set-context z --current", "you cannot specify both a context name and --current");
    file.says("set-context --current --namespace=q", "Context \"x\" modified.\n");
    assert!(file.text().contains("namespace: q\n"));
}

#[test]
fn plugins_of_credentials_are_written_field_by_field() {
    let file = File::new(TWO);
    let line = "set-credentials e --exec-command=run --exec-api-version=client.authentication.k8s.io/v1 --exec-arg=a --exec-arg=b --exec-env=K=V --exec-interactive-mode=Never";
    file.says(line, "User \"e\" set.\n");
    let value = |path: &str| file.run(&format!("view -o jsonpath='{{.users[?(@.name==\"e\")].user.exec.{path}}}'")).out;
    assert_eq!(
        (value("command"), value("args"), value("env[0].value")),
        ("run".into(), "[\"a\",\"b\"]".into(), "V".into())
    );
    file.says("set-credentials e --exec-env=K-", "User \"e\" set.\n");
    assert_eq!((value("env"), value("command")), ("[]".into(), "run".into()));
}

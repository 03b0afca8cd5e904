//! npm's oidc-provider as a process of its own, with an authority of its own (`tests/oidc/provider.mjs`), and somebody who
//! signs in there.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/oidc");

pub struct Provider {
    process: Child,
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
    folder: tempfile::TempDir,
    pub issuer: String,
}

/// Why there can be no provider, if so.
pub fn missing() -> Option<String> {
    if !Path::new(FOLDER).join("node_modules/oidc-provider").exists() {
        return Some("npm's oidc-provider is not installed: run `make tools`".into());
    }
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    node.err().map(|error| format!("node cannot be started: {error}"))
}

impl Provider {
    pub fn start() -> Provider {
        let folder = tempfile::tempdir().unwrap();
        write_certificates(folder.path());
        let mut command = Command::new("node");
        command.current_dir(FOLDER).arg("provider.mjs");
        command.arg("--key").arg(folder.path().join("key.pem"));
        command.arg("--certificate").arg(folder.path().join("certificate.pem"));
        let errors = std::fs::File::create(folder.path().join("errors")).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = command.spawn().unwrap();
        let pipes = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut provider = Provider { process, pipes: RefCell::new(pipes), folder, issuer: String::new() };
        provider.issuer = provider.line();
        provider
    }

    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// What the provider is told to change; answers with the name of the key that it signs with.
    pub fn order(&self, line: &str) -> String {
        writeln!(self.pipes.borrow_mut().0, "{line}").unwrap();
        self.line()
    }

    fn line(&self) -> String {
        let mut line = String::new();
        self.pipes.borrow_mut().1.read_line(&mut line).unwrap();
        let errors = || std::fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
        assert!(line.ends_with('\n'), "the provider has ended: {}", errors());
        line.trim().to_owned()
    }

    /// Goes through the pages of the provider from this one on.
    pub fn sign_in(&self, page: &str, login: &str) {
        let mut command = Command::new("node");
        command.current_dir(FOLDER).args(["sign-in.mjs", "--login", login, "--authority"]).arg(self.authority());
        let output = command.arg(page).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{} {}", said(&output.stdout), said(&output.stderr));
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_certificates(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // With one name for both, the provider's certificate would look like its own authority.
    authority.distinguished_name.push(DnType::CommonName, "authority of a provider");
    let authority_key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::from_params(&authority, &authority_key)).unwrap();
    std::fs::write(folder.join("authority.pem"), root.pem()).unwrap();
    std::fs::write(folder.join("certificate.pem"), leaf.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

/// The key that a token says it is signed with.
pub fn key_of(token: &str) -> String {
    let head = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    serde_json::from_slice::<Value>(&head).unwrap()["kid"].as_str().unwrap().to_owned()
}

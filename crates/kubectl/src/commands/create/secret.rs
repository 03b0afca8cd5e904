//! Secrets: generic, for registries, for TLS.

use base64::Engine;
use serde_json::json;

use super::config::{content, encoded};
use super::{DRY_RUN, GENERATED, VALIDATE, generated, name};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;

pub(crate) static COMMAND: Command = Command {
    name: "secret",
    short: "Create a secret using a specified subcommand.",
    usage: "(docker-registry | generic | tls)",
    subcommands: &[&REGISTRY, &GENERIC, &TLS],
    ..Command::EMPTY
};

static GENERIC: Command = Command {
    name: "generic",
    short: "Create a secret from files, folders or literal values.",
    usage: "NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [options]",
    flags: &[CONTENT, TYPE, HASH, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(generic(session))),
    ..Command::EMPTY
};

static REGISTRY: Command = Command {
    name: "docker-registry",
    short: "Create a secret for use with a container registry.",
    usage: "NAME --docker-username=user --docker-password=password [--docker-server=string] [options]",
    flags: &[DOCKER, HASH, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(registry(session))),
    ..Command::EMPTY
};

static TLS: Command = Command {
    name: "tls",
    short: "Create a TLS secret from a certificate and its key.",
    usage: "NAME --cert=path/to/cert/file --key=path/to/key/file [options]",
    flags: &[PAIR, HASH, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(tls(session))),
    ..Command::EMPTY
};

const CONTENT: &[Flag] = &[
    Flag::array("from-file", "A file, a folder, or key=file."),
    Flag::array("from-literal", "key=value."),
    Flag::array("from-env-file", "A file of key=value lines."),
];
const TYPE: &[Flag] = &[Flag::text("type", "", "The type of the secret.")];
const HASH: &[Flag] = &[Flag::switch("append-hash", "Append a hash of the content to the name.")];
const DOCKER: &[Flag] = &[
    Flag::text("docker-server", "https://index.docker.io/v1/", "The registry."),
    Flag::text("docker-username", "", "Who pulls."),
    Flag::text("docker-password", "", "The password."),
    Flag::text("docker-email", "", "A mail address."),
    Flag::array("from-file", "A file with credentials, as .dockerconfigjson=file."),
];
const PAIR: &[Flag] = &[
    Flag::text("cert", "", "The file with the certificate."),
    Flag::text("key", "", "The file with its private key."),
];

async fn finish(session: &Session, kind: &str, content: Vec<(String, Vec<u8>)>) -> Result<()> {
    let mut name = name(session)?;
    let mut object = json!({"apiVersion": "v1", "kind": "Secret"});
    if !kind.is_empty() {
        object["type"] = kind.into();
    }
    if !content.is_empty() {
        object["data"] = encoded(content);
    }
    if session.flags.on("append-hash") {
        name = format!("{name}-{}", crate::kustomize::hash::secret(&object, &name));
    }
    object["metadata"] = super::metadata(&name);
    generated(session, object, "failed to create secret ").await
}

async fn generic(session: &Session) -> Result<()> {
    let name = name(session)?;
    finish(session, session.flags.text("type"), content(session, "Secret", &name)?).await
}

async fn registry(session: &Session) -> Result<()> {
    let flags = &session.flags;
    name(session)?;
    if flags.given("from-file") {
        let mut content = Vec::new();
        for source in flags.list("from-file") {
            // The one key that such a secret has need not be named.
            let source = if source.contains('=') { source } else { format!(".dockerconfigjson={source}") };
            content.extend(super::config::from_file(&source)?);
        }
        return finish(session, "kubernetes.io/dockerconfigjson", content).await;
    }
    if flags.text("docker-username").is_empty() || flags.text("docker-password").is_empty() {
        return Err(Failure::message(
            "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required",
        ));
    }
    let (user, password) = (flags.text("docker-username"), flags.text("docker-password"));
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    // In the order of Go's fields.
    let quoted = |text: &str| output::json::compact(&json!(text));
    let mut entry = format!("{{\"username\":{},\"password\":{}", quoted(user), quoted(password));
    if !flags.text("docker-email").is_empty() {
        entry += &format!(",\"email\":{}", json!(flags.text("docker-email")));
    }
    entry += &format!(",\"auth\":{}}}", json!(auth));
    let text = format!("{{\"auths\":{{{}:{entry}}}}}", json!(flags.text("docker-server")));
    finish(session, "kubernetes.io/dockerconfigjson", vec![(".dockerconfigjson".into(), text.into_bytes())]).await
}

async fn tls(session: &Session) -> Result<()> {
    name(session)?;
    if session.flags.text("cert").is_empty() || session.flags.text("key").is_empty() {
        return Err(Failure::message("key and cert must be specified"));
    }
    let read = |flag: &str| {
        let path = session.flags.text(flag);
        std::fs::read(path).map_err(|error| {
            let error = crate::failure::go_io_error(&error);
            Failure::message(format!("Cannot read file {path}, open {path}: {error}"))
        })
    };
    let (certificate, key) = (read("cert")?, read("key")?);
    for (what, bytes) in [("certificate", &certificate), ("key", &key)] {
        if !String::from_utf8_lossy(bytes).contains("-----BEGIN ") {
            return Err(Failure::message(format!("tls: failed to find any PEM data in {what} input")));
        }
    }
    finish(session, "kubernetes.io/tls", vec![("tls.crt".into(), certificate), ("tls.key".into(), key)]).await
}

//! Kubeconfig files: which are read, how several become one, and what a context with the command line's overrides means.
//! They are kept as plain values, so that writing one back keeps what we do not know.

use std::path::{Path, PathBuf};

use base64::Engine;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::flags::Parsed;

/// Where requests go and who makes them.
pub(crate) struct Settings {
    pub server: String,
    pub namespace: String,
    /// Whether the namespace was asked for on the command line.
    pub namespace_given: bool,
    pub client: kube::Config,
}

/// The files that are read, the first being the one that new things are written to.
pub(crate) fn files(flags: &Parsed) -> Vec<PathBuf> {
    let explicit = flags.text("kubeconfig");
    if !explicit.is_empty() {
        return vec![explicit.into()];
    }
    if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        return std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect();
    }
    vec![home().join(".kube/config")]
}

pub(crate) fn home() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| "/".into())
}

/// One file; an absent one is empty unless it was named on the command line.
pub(crate) fn read(path: &Path) -> Result<Value> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let value = machinery::codec::decode_yaml(&bytes)
                .map_err(|error| {
                    Failure::message(format!("error loading config file {:?}: {error}", path.display().to_string()))
                })?
                .value;
            match value {
                Value::Object(_) => Ok(value),
                Value::Null => Ok(json!({})),
                _ => Err(Failure::message(format!(
                    "error loading config file {:?}: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    path.display().to_string()
                ))),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(json!({})),
        Err(error) => Err(Failure::message(format!(
            "error loading config file {:?}: open {}: {}",
            path.display().to_string(),
            path.display(),
            crate::failure::go_io_error(&error)
        ))),
    }
}

/// All files as one: the first to name a thing wins. Paths inside are made absolute.
pub(crate) fn merged(flags: &Parsed) -> Result<Value> {
    let explicit = flags.text("kubeconfig");
    if !explicit.is_empty() && !Path::new(explicit).exists() {
        return Err(Failure::message(format!("stat {explicit}: no such file or directory")));
    }
    let mut all = json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [],
        "users": [], "current-context": ""});
    for path in files(flags) {
        let mut one = read(&path)?;
        if path.exists() {
            let level = if flags.has("v") { flags.integer("v") } else { 0 };
            crate::trace::config_loaded(level, &path);
        }
        absolute(&mut one, path.parent().unwrap_or(Path::new(".")));
        for list in ["clusters", "contexts", "users"] {
            for entry in one[list].as_array().cloned().unwrap_or_default() {
                let known =
                    all[list].as_array().is_some_and(|list| list.iter().any(|old| old["name"] == entry["name"]));
                if let (false, Some(list)) = (known, all[list].as_array_mut()) {
                    list.push(entry);
                }
            }
        }
        let current = one["current-context"].as_str().unwrap_or_default();
        if all["current-context"] == "" && !current.is_empty() {
            all["current-context"] = current.into();
        }
    }
    Ok(all)
}

const PATHS: &[(&str, &str, &str)] = &[
    ("clusters", "cluster", "certificate-authority"),
    ("users", "user", "client-certificate"),
    ("users", "user", "client-key"),
    ("users", "user", "tokenFile"),
];

fn absolute(config: &mut Value, folder: &Path) {
    for (list, inner, key) in PATHS {
        for entry in config.get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(Value::String(path)) = entry.get_mut(*inner).and_then(|inner| inner.get_mut(*key)) else {
                continue;
            };
            if !path.is_empty() && !path.starts_with('/') {
                *path = folder.join(&*path).display().to_string();
            }
        }
    }
    for entry in config.get_mut("users").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(Value::String(program)) = entry.pointer_mut("/user/exec/command") else { continue };
        // A program with a slash is found from the file; one without is looked for on the PATH.
        if program.contains('/') && !program.starts_with('/') {
            *program = folder.join(&*program).display().to_string();
        }
    }
}

pub(crate) fn named<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    config[list].as_array()?.iter().find(|entry| entry["name"] == name)
}

/// What the files and the command line together say.
pub(crate) fn settings(flags: &Parsed) -> Result<Settings> {
    let config = merged(flags)?;
    let given = |flag: &str| flags.global(flag).map(str::to_string);
    let context = context(&config, given("context"))?;
    let field = |value: &Value, key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_string);
    let cluster_name = given("cluster").or_else(|| field(&context, "cluster"));
    let user_name = given("user").or_else(|| field(&context, "user"));
    let cluster = entry(&config, "clusters", "cluster", cluster_name.as_deref());
    if let (None, Some(name)) = (&cluster, given("cluster")) {
        return Err(Failure::message(format!("no server found for cluster {name:?}")));
    }
    let user = entry(&config, "users", "user", user_name.as_deref());
    if let (None, Some(name)) = (&user, given("user")) {
        return Err(Failure::message(format!("auth info {name:?} does not exist")));
    }
    let cluster = with_cluster_flags(cluster.unwrap_or_else(|| json!({})), flags);
    let user = with_user_flags(user.unwrap_or_else(|| json!({})), flags);
    let namespace_given = given("namespace").is_some();
    let server = match field(&cluster, "server").map_or_else(in_cluster_or_local, Server::Named) {
        Server::Named(server) => server,
        Server::InCluster { server, client } => {
            let namespace = given("namespace").unwrap_or_else(|| client.default_namespace.clone());
            return Ok(Settings { server, namespace, namespace_given, client: *client });
        }
    };
    check_user(&user_name.unwrap_or_default(), &user, flags)?;
    let namespace = given("namespace").or_else(|| field(&context, "namespace")).unwrap_or_else(|| "default".into());
    let client = client_config(&server, &cluster_name.unwrap_or_default(), &cluster, user, flags)?;
    Ok(Settings { server, namespace, namespace_given, client })
}

/// The context that is named on the command line or is the current one; null where there is none.
fn context(config: &Value, given: Option<String>) -> Result<Value> {
    let current = config["current-context"].as_str().unwrap_or_default();
    let name = given.as_deref().unwrap_or(current);
    match named(config, "contexts", name) {
        Some(entry) => Ok(entry["context"].clone()),
        None if name.is_empty() => Ok(Value::Null),
        None => {
            let text = format!("context was not found for specified context: {name}");
            Err(if given.is_some() {
                Failure::Plain(format!("Error in configuration: {text}"))
            } else {
                Failure::message(text)
            })
        }
    }
}

/// What a list has under a name.
fn entry(config: &Value, list: &str, inner: &str, name: Option<&str>) -> Option<Value> {
    let value = &named(config, list, name?)?[inner];
    Some(if value.is_object() { value.clone() } else { json!({}) })
}

fn with_cluster_flags(mut cluster: Value, flags: &Parsed) -> Value {
    if let Some(server) = flags.global("server") {
        cluster["server"] = if server.contains("://") { server.into() } else { format!("http://{server}").into() };
    }
    if flags.on("insecure-skip-tls-verify") {
        cluster["insecure-skip-tls-verify"] = true.into();
        for key in ["certificate-authority", "certificate-authority-data"] {
            cluster.as_object_mut().map(|cluster| cluster.remove(key));
        }
    }
    override_with(&mut cluster, flags, &["certificate-authority", "tls-server-name"]);
    if flags.global("certificate-authority").is_some() {
        cluster.as_object_mut().map(|cluster| cluster.remove("certificate-authority-data"));
    }
    cluster
}

fn with_user_flags(mut value: Value, flags: &Parsed) -> Value {
    const KEYS: &[&str] = &["client-certificate", "client-key", "token", "username", "password", "as", "as-uid"];
    override_with(&mut value, flags, KEYS);
    let Some(user) = value.as_object_mut() else { return value };
    if flags.global("token").is_some() {
        user.remove("tokenFile");
        user.remove("exec");
    }
    if flags.given("as-group") {
        user.insert("as-groups".into(), flags.list("as-group").into());
    }
    // A file with a token may end with a line's end.
    let token = user.get("tokenFile").and_then(Value::as_str).and_then(|file| std::fs::read_to_string(file).ok());
    if let Some(token) = token {
        user.remove("tokenFile");
        user.insert("token".into(), token.trim().into());
    }
    // An authentication provider that the file still names has no code any more, here or upstream.
    user.remove("auth-provider");
    value
}

/// What upstream finds wrong with a user before anything is asked.
fn check_user(name: &str, user: &Value, flags: &Parsed) -> Result<()> {
    let text = |key: &str| user[key].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    let (certificate, key) = (text("client-certificate"), text("client-key"));
    // What the command line names takes the place of what the file holds.
    let of_file = |flag: &str| flags.global(flag).is_none();
    if !certificate.is_empty() && !text("client-certificate-data").is_empty() && of_file("client-certificate") {
        problems.push(format!(
            "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
        ));
    }
    if !key.is_empty() && !text("client-key-data").is_empty() && of_file("client-key") {
        problems.push(format!(
            "client-key-data and client-key are both specified for {name}; client-key-data will override"
        ));
    }
    for (short, path) in [("client-cert", certificate), ("client-key", key)] {
        if let Err(error) = std::fs::metadata(path)
            && !path.is_empty()
        {
            let error = crate::failure::go_io_error(&error);
            problems.push(format!("unable to read {short} {path} for {name} due to open {path}: {error}"));
        }
    }
    let mut methods = Vec::new();
    if flags.global("token").is_some() || (!text("token").is_empty() && flags.global("username").is_some()) {
        methods.push("token");
    }
    if flags.global("username").is_some() || (!text("username").is_empty() && flags.global("token").is_some()) {
        methods.push("basicAuth");
    }
    if methods.len() > 1 {
        problems.push(format!(
            "more than one authentication method found for {name}; found [{}], only one is allowed",
            methods.join(" ")
        ));
    }
    if user["exec"].is_object() && user["exec"]["interactiveMode"].as_str().is_none_or(str::is_empty) {
        let version = user["exec"]["apiVersion"].as_str().unwrap_or_default();
        if version == "client.authentication.k8s.io/v1" {
            problems.push(format!("interactiveMode must be specified for {name} to use exec authentication plugin"));
        }
    }
    let impersonates = ["as-uid", "as-groups", "as-user-extra"].iter().any(|key| !user[*key].is_null());
    if text("as").is_empty() && impersonates {
        problems.push(format!("requesting uid, groups or user-extra for {name} without impersonating a user"));
    }
    match &problems[..] {
        [] => Ok(()),
        [one] => Err(Failure::message(one.clone())),
        many => {
            let lines: String = many.iter().map(|problem| format!("\n* {problem}")).collect();
            Err(Failure::Plain(format!("Error in configuration: {lines}")))
        }
    }
}

enum Server {
    Named(String),
    /// That of the cluster that this program runs in as a pod.
    InCluster {
        server: String,
        client: Box<kube::Config>,
    },
}

fn in_cluster_or_local() -> Server {
    match kube::Config::incluster() {
        Ok(client) => {
            let server = client.cluster_url.to_string().trim_end_matches('/').to_string();
            Server::InCluster { server, client: Box::new(client) }
        }
        Err(_) => Server::Named("http://localhost:8080".into()),
    }
}

fn override_with(value: &mut Value, flags: &Parsed, keys: &[&str]) {
    for key in keys {
        if flags.given(key) {
            value[*key] = flags.text(key).into();
        }
    }
}

fn client_config(server: &str, name: &str, cluster: &Value, user: Value, flags: &Parsed) -> Result<kube::Config> {
    let url: http::Uri = server
        .trim_end_matches('/')
        .parse()
        .map_err(|error| Failure::message(format!("parse \"{server}\": {error}")))?;
    let mut config = kube::Config::new(url);
    // A busy server is asked again by the person, as upstream's client does for requests that change things.
    config.default_retry = false;
    config.connect_timeout = Some(std::time::Duration::from_secs(30));
    config.write_timeout = None;
    config.accept_invalid_certs = cluster["insecure-skip-tls-verify"].as_bool().unwrap_or(false);
    config.tls_server_name = cluster["tls-server-name"].as_str().filter(|name| !name.is_empty()).map(str::to_string);
    let proxy = cluster["proxy-url"].as_str().filter(|proxy| !proxy.is_empty()).map(str::to_string);
    if let Some(proxy) = proxy.or_else(|| crate::proxy::of_environment(server)) {
        config.proxy_url = Some(proxy.parse().map_err(|error| Failure::message(format!("proxy-url: {error}")))?);
    }
    config.root_cert = authorities(name, cluster)?;
    // The CAs of the machine are loaded only where they are asked: a machine may have none.
    if config.accept_invalid_certs || config.cluster_url.scheme_str() != Some("https") {
        config.root_cert.get_or_insert_default();
    }
    config.auth_info = serde_json::from_value(user)
        .map_err(|error| Failure::message(format!("cannot decode the user of the kubeconfig: {error}")))?;
    if flags.given("as-user-extra") {
        let mut extra: std::collections::HashMap<String, Vec<String>> = Default::default();
        for entry in flags.list("as-user-extra") {
            let (key, value) = entry.split_once('=').unwrap_or((&entry, ""));
            extra.entry(key.to_string()).or_default().push(value.to_string());
        }
        config.auth_info.impersonate_user_extra = Some(extra);
    }
    Ok(config)
}

/// The certificates that the server's own must come from.
fn authorities(name: &str, cluster: &Value) -> Result<Option<Vec<Vec<u8>>>> {
    use rustls::pki_types::pem::PemObject;
    let pem = match (cluster["certificate-authority-data"].as_str(), cluster["certificate-authority"].as_str()) {
        (Some(data), _) if !data.is_empty() => decode("certificate-authority-data", data)?,
        (_, Some(path)) if !path.is_empty() => std::fs::read(path).map_err(|error| {
            Failure::message(format!(
                "unable to read certificate-authority {path} for {name} due to open {path}: {}",
                crate::failure::go_io_error(&error)
            ))
        })?,
        _ => return Ok(None),
    };
    let certificates = rustls::pki_types::CertificateDer::pem_slice_iter(&pem);
    let certificates: std::result::Result<Vec<Vec<u8>>, _> =
        certificates.map(|certificate| certificate.map(|certificate| certificate.to_vec())).collect();
    certificates.map(Some).map_err(|error| Failure::message(format!("unable to load root certificates: {error}")))
}

fn decode(what: &str, text: &str) -> Result<Vec<u8>> {
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| Failure::message(format!("{what}: illegal base64 data: {error}")))
}

/// Writes a file as upstream does: private, keys sorted, what must be there is there.
pub(crate) fn write(path: &Path, config: &Value) -> Result<()> {
    let mut config = config.clone();
    for (key, default) in [
        ("apiVersion", json!("v1")),
        ("kind", json!("Config")),
        ("clusters", Value::Null),
        ("contexts", Value::Null),
        ("users", Value::Null),
        ("current-context", json!("")),
    ] {
        let empty = config[key].is_null() || (default.is_null() && config[key].as_array().is_some_and(Vec::is_empty));
        if empty {
            config[key] = default;
        }
    }
    // Preferences are those of kuberc now, and an empty place for them is left out.
    if config["preferences"].as_object().is_none_or(serde_json::Map::is_empty) {
        config.as_object_mut().map(|config| config.remove("preferences"));
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    component_base::files::write_whole(path, crate::output::yaml::text(&config), 0o600)?;
    Ok(())
}

#[cfg(test)]
mod tests;

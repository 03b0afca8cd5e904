//! ConfigMaps from literals, files and environment files.

use base64::Engine;
use serde_json::{Map, Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, generated, name};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;

pub(crate) static COMMAND: Command = Command {
    name: "configmap",
    aliases: &["cm"],
    short: "Create a config map from files, folders or literal values.",
    usage: "NAME [--from-file=[key=]source] [--from-literal=key1=value1] [options]",
    flags: &[FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("append-hash", "Append a hash of the content to the name."),
    Flag::array("from-file", "A file, a folder, or key=file."),
    Flag::array("from-literal", "key=value."),
    Flag::array("from-env-file", "A file of key=value lines."),
];

async fn run(session: &Session) -> Result<()> {
    let mut name = name(session)?;
    let content = content(session, "ConfigMap", &name)?;
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (key, bytes) in content {
        match String::from_utf8(bytes) {
            Ok(text) => _ = data.insert(key, text.into()),
            Err(raw) => {
                let text = base64::engine::general_purpose::STANDARD.encode(raw.as_bytes());
                binary.insert(key, text.into());
            }
        }
    }
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    if !data.is_empty() {
        object["data"] = data.into();
    }
    if !binary.is_empty() {
        object["binaryData"] = binary.into();
    }
    if session.flags.on("append-hash") {
        name = format!("{name}-{}", crate::kustomize::hash::config_map(&object, &name));
    }
    object["metadata"] = super::metadata(&name);
    generated(session, object, "failed to create configmap: ").await
}

/// Keys and their bytes, from all flags together.
pub(crate) fn content(session: &Session, kind: &str, name: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let flags = &session.flags;
    if flags.given("from-env-file") && (flags.given("from-file") || flags.given("from-literal")) {
        return Err(Failure::message("from-env-file cannot be combined with from-file or from-literal"));
    }
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |key: String, bytes: Vec<u8>| {
        if let Some(problem) = machinery::names::config_map_key(&key).first() {
            return Err(Failure::message(format!("{key:?} is not a valid key name for a {kind}: {problem}")));
        }
        if found.iter().any(|(known, _)| *known == key) {
            return Err(Failure::message(match kind {
                "ConfigMap" => format!(
                    "cannot add key {key:?}, another key by that name already exists in Data for ConfigMap {name:?}"
                ),
                _ => format!("cannot add key {key}, another key by that name already exists"),
            }));
        }
        found.push((key, bytes));
        Ok(())
    };
    for source in session.flags.list("from-file") {
        for (key, bytes) in from_file(&source)? {
            add(key, bytes)?;
        }
    }
    for literal in session.flags.list("from-literal") {
        let Some((key, value)) = literal.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::message(format!("invalid literal source {literal}, expected key=value")));
        };
        add(key.to_string(), value.as_bytes().to_vec())?;
    }
    for file in session.flags.list("from-env-file") {
        let text = std::fs::read_to_string(&file).map_err(|error| open(&file, &error))?;
        for (key, value) in environment(&text)? {
            add(key, value.into_bytes())?;
        }
    }
    Ok(found)
}

fn open(path: &str, error: &std::io::Error) -> Failure {
    Failure::message(format!("error reading {path}: {}", crate::failure::go_io_error(error)))
}

/// `[key=]path`; a folder gives all its plain files.
pub(crate) fn from_file(source: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let (key, path) = match source.split_once('=') {
        Some((_, path)) if path.contains('=') => {
            return Err(Failure::message("key names or file paths cannot contain '='"));
        }
        Some(("", path)) => return Err(Failure::message(format!("key name for file path {path} missing"))),
        Some((key, "")) => return Err(Failure::message(format!("file path for key name {key} missing"))),
        Some((key, path)) => (Some(key.to_string()), path),
        None => (None, source),
    };
    if std::fs::metadata(path).map_err(|error| open(path, &error))?.is_dir() {
        if key.is_some() {
            return Err(Failure::message("cannot give a key name for a directory path"));
        }
        let mut files: Vec<std::path::PathBuf> =
            std::fs::read_dir(path)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.is_file());
        files.sort();
        let mut found = Vec::new();
        for file in files {
            let key = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            found.push((key, std::fs::read(&file)?));
        }
        return Ok(found);
    }
    let base = path.rsplit('/').next().unwrap_or(path).to_string();
    Ok(vec![(key.unwrap_or(base), std::fs::read(path).map_err(|error| open(path, &error))?)])
}

/// Lines of `KEY=value`; a key alone takes its value from the environment.
pub(crate) fn environment(text: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key, value.to_string()),
            None => (line, std::env::var(line).unwrap_or_default()),
        };
        if let Some(problem) = machinery::names::env_var_name(key).first() {
            return Err(Failure::message(format!("{key:?} is not a valid key name: {problem}")));
        }
        found.push((key.to_string(), value));
    }
    Ok(found)
}

/// The same content as a secret holds it.
pub(crate) fn encoded(content: Vec<(String, Vec<u8>)>) -> Value {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    Value::Object(content.into_iter().map(|(key, bytes)| (key, encode(&bytes).into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file_are_variables() {
        let found = environment("\u{feff}# comment\nA=1\n  B=x=y\n\nC=\n").unwrap();
        let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
        assert_eq!(found, [pair("A", "1"), pair("B", "x=y"), pair("C", "")]);
        assert!(environment("a/b=1").unwrap_err().text().starts_with("\"a/b\" is not a valid key name: "));
    }

    #[test]
    fn files_have_a_key_or_their_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.txt"), "two").unwrap();
        std::fs::write(folder.path().join("a.txt"), "one").unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        let path = folder.path().display().to_string();
        let names =
            |source: &str| -> Vec<String> { from_file(source).unwrap().into_iter().map(|(name, _)| name).collect() };
        assert_eq!(names(&path), ["a.txt", "b.txt"]);
        assert_eq!(names(&format!("{path}/a.txt")), ["a.txt"]);
        assert_eq!(names(&format!("key={path}/a.txt")), ["key"]);
        let refused = from_file(&format!("key={path}")).unwrap_err().text();
        assert_eq!(refused, "cannot give a key name for a directory path");
        assert_eq!(from_file("/no/such").unwrap_err().text(), "error reading /no/such: no such file or directory");
    }
}

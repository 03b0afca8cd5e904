//! Runtime handlers: our own runtime under the names "" and "knarr", and OCI runtimes of the host (runc, crun) under the names
//! that the configuration gives them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cri::v1;
use serde_json::Value;

use crate::Config;

/// The name of our own runtime, for a RuntimeClass that wants to say so.
const OWN: &str = "knarr";
/// A program that does not say what it can do within this time can do nothing special.
const FEATURES_WITHIN: Duration = Duration::from_secs(5);

/// What runs the containers of a pod with this handler: a program of the host, or nothing for our own runtime.
pub(crate) fn program(config: &Config, handler: &str) -> cri::Result<Option<PathBuf>> {
    match config.handlers.get(handler) {
        Some(program) => Ok(Some(program.clone())),
        None if handler.is_empty() || handler == OWN => Ok(None),
        None => {
            Err(cri::Error::unknown(format!("failed to get sandbox runtime: no runtime for {handler:?} is configured")))
        }
    }
}

/// Every handler with what it can do, by name.
pub(crate) async fn describe(config: &Config) -> Vec<v1::RuntimeHandler> {
    let own = v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true };
    let handler = |name: &str, features| v1::RuntimeHandler { name: name.to_owned(), features: Some(features) };
    let mut all = vec![handler("", own), handler(OWN, own)];
    for (name, program) in &config.handlers {
        all.retain(|known| known.name != *name);
        all.push(handler(name, features(program).await));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// What a program says of itself. Pods with users of their own need mounts that only our own runtime makes.
async fn features(program: &Path) -> v1::RuntimeHandlerFeatures {
    let asked = tokio::process::Command::new(program)
        .arg("features")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let said = match tokio::time::timeout(FEATURES_WITHIN, asked).await {
        Ok(Ok(output)) if output.status.success() => serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        // An older program does not know the question.
        _ => Value::Null,
    };
    v1::RuntimeHandlerFeatures { recursive_read_only_mounts: mounts_recursively(&said), user_namespaces: false }
}

fn mounts_recursively(features: &Value) -> bool {
    features["mountOptions"].as_array().is_some_and(|options| options.iter().any(|option| option == "rro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_whether_it_mounts_recursively() {
        let features = serde_json::json!({"ociVersionMin": "1.0.0", "mountOptions": ["ro", "rro"]});
        assert!(mounts_recursively(&features));
        assert!(!mounts_recursively(&serde_json::json!({"mountOptions": ["ro"]})));
        assert!(!mounts_recursively(&Value::Null));
    }

    #[tokio::test]
    async fn a_program_that_says_nothing_can_do_nothing_special() {
        for program in ["/bin/false", "/bin/echo", "/nonexistent"] {
            assert_eq!(features(Path::new(program)).await, v1::RuntimeHandlerFeatures::default(), "{program}");
        }
    }
}

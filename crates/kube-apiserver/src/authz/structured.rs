//! An AuthorizationConfiguration: who decides, in which order. Reading it checks it, with upstream's messages.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use machinery::cel::{Env, Program};
use machinery::duration;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::Value;

use super::Mode;
use super::webhook::{Conditions, FailurePolicy, Settings, Version};
use crate::configuration::{Document, Error, Shape};

const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const CONDITIONS_MAX: usize = 64;
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];

const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("authorizers", Shape::List(&Shape::Object(&[("type", Shape::Text), ("name", Shape::Text), ("webhook", WEBHOOK)]))),
]);

const WEBHOOK: Shape = Shape::Object(&[
    ("authorizedTTL", Shape::Text),
    ("cacheAuthorizedRequests", Shape::Flag),
    ("unauthorizedTTL", Shape::Text),
    ("cacheUnauthorizedRequests", Shape::Flag),
    ("timeout", Shape::Text),
    ("subjectAccessReviewVersion", Shape::Text),
    ("matchConditionSubjectAccessReviewVersion", Shape::Text),
    ("failurePolicy", Shape::Text),
    ("connectionInfo", Shape::Object(&[("type", Shape::Text), ("kubeConfigFile", Shape::Text)])),
    ("matchConditions", Shape::List(&Shape::Object(&[("expression", Shape::Text)]))),
]);

/// One authorizer.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    Mode(Mode),
    Webhook(Box<Hook>),
}

#[derive(Debug)]
pub struct Hook {
    pub settings: Settings,
    pub kubeconfig: PathBuf,
    pub conditions: Conditions,
}

pub fn parse(text: &str) -> Result<Vec<Entry>, Error> {
    let document = Document::parse(text, "AuthorizationConfiguration", &SHAPE)?;
    let root = Node::root(&document.value);
    let mut errors = Errors::default();
    let entries = authorizers(&root.at("authorizers"), &mut errors);
    document.refuse(&errors)?;
    Ok(entries)
}

fn authorizers(list: &Node, errors: &mut Errors) -> Vec<Entry> {
    if list.is_empty() {
        errors.required(list, "at least one authorization mode must be defined");
    }
    let (mut types, mut names, mut entries) = (HashSet::new(), HashSet::new(), Vec::new());
    for one in list.items() {
        let (at, name) = (one.at("type"), one.at("name"));
        match at.str() {
            "" => errors.required(&at, ""),
            kind if !TYPES.contains(&kind) => errors.not_supported(&at, &TYPES),
            kind if !types.insert(kind.to_owned()) && kind != "Webhook" => errors.duplicate(&at),
            kind => {
                check_name(&name, kind, &mut names, errors);
                entries.extend(entry(kind, &one, errors));
            }
        }
    }
    entries
}

fn check_name(at: &Node, kind: &str, names: &mut HashSet<String>, errors: &mut Errors) {
    let name = at.str();
    let problems = machinery::names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(at, "");
    } else if names.contains(name) {
        errors.duplicate(at);
    } else if !problems.is_empty() {
        errors.invalid(at, format!("authorizer name is invalid: {}", problems.join(", ")));
    } else if kind != "Webhook" && name != kind.to_lowercase() {
        errors.invalid(at, format!("expected name {} for authorizer {kind} instead of {name}", kind.to_lowercase()));
    }
    names.insert(name.to_owned());
}

fn entry(kind: &str, one: &Node, errors: &mut Errors) -> Option<Entry> {
    let (name, webhook) = (one.text("name").to_owned(), one.at("webhook"));
    if kind != "Webhook" {
        if webhook.exists() {
            let detail = "may only be specified when type=Webhook";
            errors.push(FieldError::new(Problem::Invalid, &webhook.path, "\"non-null\"", detail));
        }
        let mode = kind.parse().ok()?;
        return Some(Entry { name, kind: Kind::Mode(mode) });
    }
    if !webhook.exists() {
        errors.required(&webhook, "required when type=Webhook");
        return None;
    }
    let hook = hook(&name, &webhook, one, errors)?;
    Some(Entry { name, kind: Kind::Webhook(Box::new(hook)) })
}

/// Upstream names the fields of a webhook as if they were the authorizer's, so `around` is that.
fn hook(name: &str, webhook: &Node, around: &Node, errors: &mut Errors) -> Option<Hook> {
    let field = |name: &'static str| Node::new(webhook.at(name).value, around.path.child(name));
    let timeout = time(&field("timeout"), None, Some(TIMEOUT_MAX), errors);
    let authorized_ttl = time(&field("authorizedTTL"), Some(Duration::from_secs(300)), None, errors);
    let unauthorized_ttl = time(&field("unauthorizedTTL"), Some(Duration::from_secs(30)), None, errors);
    let version = match field("subjectAccessReviewVersion") {
        at if at.str().is_empty() => {
            errors.required(&at, "");
            None
        }
        at => match at.str() {
            "v1" => Some(Version::V1),
            "v1beta1" => Some(Version::V1beta1),
            _ => {
                errors.not_supported(&at, &["v1", "v1beta1"]);
                None
            }
        },
    };
    let conditions_at = field("matchConditions");
    let at = field("matchConditionSubjectAccessReviewVersion");
    match at.str() {
        "" if conditions_at.is_empty() => {}
        "" => errors.required(&at, "required if match conditions are specified"),
        "v1" => {}
        _ => errors.not_supported(&at, &["v1"]),
    }
    let failure_policy = failure_policy(&field("failurePolicy"), errors);
    let kubeconfig = kubeconfig(&field("connectionInfo"), errors);
    let conditions = conditions(&conditions_at, errors);
    let remembers = |flag: &str| webhook.key(flag).bool().unwrap_or(true);
    let kept = |flag: &str, ttl: Option<Duration>| if remembers(flag) { ttl } else { ttl.map(|_| Duration::ZERO) };
    let settings = Settings {
        name: name.to_owned(),
        version: version?,
        timeout: timeout?,
        authorized_ttl: kept("cacheAuthorizedRequests", authorized_ttl)?,
        unauthorized_ttl: kept("cacheUnauthorizedRequests", unauthorized_ttl)?,
        failure_policy: failure_policy?,
    };
    Some(Hook { settings, kubeconfig: kubeconfig?, conditions: conditions? })
}

fn failure_policy(at: &Node, errors: &mut Errors) -> Option<FailurePolicy> {
    match at.str() {
        "NoOpinion" => return Some(FailurePolicy::NoOpinion),
        "Deny" => return Some(FailurePolicy::Deny),
        "" => errors.required(at, ""),
        _ => errors.not_supported(at, &["NoOpinion", "Deny"]),
    }
    None
}

fn time(at: &Node, default: Option<Duration>, most: Option<Duration>, errors: &mut Errors) -> Option<Duration> {
    let text = at.str();
    let found = match (text, default) {
        ("", Some(default)) => Some(default),
        ("", None) => Some(Duration::ZERO),
        (text, _) => duration::parse_positive(text).ok(),
    };
    let bound = match most {
        Some(most) => format!("must be > 0s and <= {}", duration::written_positive(most)),
        None => "must be > 0s".to_owned(),
    };
    match found {
        Some(Duration::ZERO) => errors.required(at, ""),
        Some(time) if most.is_some_and(|most| time > most) => {
            errors.invalid_value(&at.path, &Value::from(duration::written_positive(time)), bound);
        }
        Some(time) => return Some(time),
        None => errors.invalid(at, bound),
    }
    None
}

fn kubeconfig(info: &Node, errors: &mut Errors) -> Option<PathBuf> {
    let (kind, file) = (info.at("type"), info.at("kubeConfigFile"));
    match kind.str() {
        "" => errors.required(&kind, ""),
        "InClusterConfig" => errors.invalid(&kind, "knarr's API server does not run in a pod: use KubeConfigFile"),
        "KubeConfigFile" => {
            let path = Path::new(file.str());
            match std::fs::metadata(path) {
                _ if file.str().is_empty() => errors.required(&file, ""),
                _ if !path.is_absolute() => errors.invalid(&file, "must be an absolute path"),
                Err(error) => errors.invalid(&file, format!("error loading file: {error}")),
                Ok(found) if !found.is_file() => errors.invalid(&file, "must be a regular file"),
                Ok(_) => return Some(path.to_owned()),
            }
        }
        _ => errors.not_supported(&kind, &["InClusterConfig", "KubeConfigFile"]),
    }
    None
}

fn conditions(list: &Node, errors: &mut Errors) -> Option<Conditions> {
    if list.len() > CONDITIONS_MAX {
        errors.too_many(list, list.len(), CONDITIONS_MAX);
        return None;
    }
    let (env, before) = (Env::of_authorization(), errors.0.len());
    let (mut seen, mut programs) = (HashSet::new(), Vec::new());
    for condition in list.items() {
        let at = condition.at("expression");
        let text = at.str();
        if text.trim().is_empty() {
            errors.required(&at, "");
        } else if !seen.insert(text) {
            errors.duplicate(&at);
        } else {
            match Program::check(text, &env) {
                Err(why) => errors.invalid(&at, format!("compilation failed: {why}")),
                Ok(found) if found.is_bool() => {
                    programs.extend(Program::parse(text).map(|one| (text.to_owned(), one)));
                }
                Ok(found) => errors.invalid(&at, format!("must evaluate to bool but got {}", found.answered())),
            }
        }
    }
    (errors.0.len() == before).then(|| Conditions::new(programs))
}

#[cfg(test)]
mod tests;

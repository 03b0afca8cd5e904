//! An EncryptionConfiguration: which resources are encrypted, and by what. Reading it checks it, with upstream's messages.
//! Secrets of keys stand in no message.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::duration;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;

use crate::configuration::{Document, Error, Header, Shape};

const HEADER: Header = Header { kind: "EncryptionConfiguration", group: "apiserver.config.k8s.io", versions: &["v1"] };
const PROVIDERS: [&str; 5] = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
const AES_KEY_BYTES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_BYTES: &[usize] = &[32];
const KMS_TIMEOUT: Duration = Duration::from_secs(3);
/// What has no API of its own.
const WITHOUT_API: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

const KEYS: Shape =
    Shape::Object(&[("keys", Shape::List(&Shape::Object(&[("name", Shape::Text), ("secret", Shape::Text)])))]);
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "resources",
        Shape::List(&Shape::Object(&[
            ("resources", Shape::List(&Shape::Text)),
            (
                "providers",
                Shape::List(&Shape::Object(&[
                    ("aesgcm", KEYS),
                    ("aescbc", KEYS),
                    ("secretbox", KEYS),
                    ("identity", Shape::Object(&[])),
                    (
                        "kms",
                        Shape::Object(&[
                            ("apiVersion", Shape::Text),
                            ("name", Shape::Text),
                            ("cachesize", Shape::Number),
                            ("endpoint", Shape::Text),
                            ("timeout", Shape::Text),
                        ]),
                    ),
                ])),
            ),
        ])),
    ),
]);

/// What a file says. The rules stand in the order of the file; the first provider of a rule writes.
#[derive(Debug)]
pub struct Configuration {
    pub rules: Vec<Rule>,
}

#[derive(Debug)]
pub struct Rule {
    pub resources: Vec<Named>,
    pub providers: Vec<Provider>,
}

/// `secrets`, `deployments.apps`, `*.apps`, `*.` or `*.*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    pub resource: String,
    pub group: String,
}

#[derive(Debug)]
pub enum Provider {
    Keys { kind: KeyKind, keys: Vec<Key> },
    Identity,
    Kms { name: String, socket: PathBuf, timeout: Duration },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    AesGcm,
    AesCbc,
    Secretbox,
}

pub struct Key {
    pub name: String,
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Named {
    pub fn parse(text: &str) -> Named {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Named { resource: resource.to_owned(), group: group.to_owned() }
    }

    pub fn is_everything(&self) -> bool {
        self.resource == "*" && self.group == "*"
    }

    /// As a file has it.
    pub fn written(&self) -> String {
        if self.group.is_empty() && self.resource != "*" {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

pub fn parse(text: &str) -> Result<Configuration, Error> {
    let document = Document::decode(text)?;
    HEADER.check(&document.value)?;
    document.check(&SHAPE, &document.value, "")?;
    let root = Node::root(&document.value);
    let mut errors = Errors::default();
    let rules = rules(&root.at("resources"), &mut errors);
    document.refuse(&errors)?;
    masked(&rules, &mut errors);
    document.refuse(&errors)?;
    Ok(Configuration { rules })
}

fn rules(list: &Node, errors: &mut Errors) -> Vec<Rule> {
    if list.is_empty() {
        errors.required(list, "at least one resources is required");
    }
    let mut plugins = HashSet::new();
    let mut rules = Vec::new();
    for one in list.items() {
        let (resources, providers) = (one.at("resources"), one.at("providers"));
        if resources.is_empty() {
            errors.required(&resources, format!("at least one {} is required", resources.path));
        }
        let names: Vec<Named> = resources.items().map(|name| Named::parse(name.str())).collect();
        check_overlap(&resources, &names, errors);
        resources.items().for_each(|name| check_name(&name, errors));
        if providers.is_empty() {
            errors.required(&providers, format!("at least one {} is required", providers.path));
        }
        let providers = providers.items().filter_map(|one| provider(&one, &mut plugins, errors)).collect();
        rules.push(Rule { resources: names, providers });
    }
    rules
}

fn check_overlap(at: &Node, names: &[Named], errors: &mut Errors) {
    let (mut repeats, mut overlaps) = (false, false);
    for (index, one) in names.iter().enumerate() {
        for other in names.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, name)| name) {
            if one == other && !repeats {
                repeats = true;
            } else {
                let star = one.resource == "*" || other.resource == "*";
                overlaps |= one.is_everything() || (one.group == other.group && star);
            }
        }
    }
    if repeats {
        errors.invalid(at, "the same resource cannot be specified multiple times");
    }
    if overlaps {
        let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as \
                      they will be masked";
        errors.invalid(at, detail);
    }
}

fn check_name(at: &Node, errors: &mut Errors) {
    let text = at.str();
    let name = Named::parse(text);
    let detail = if text.to_lowercase() != text {
        "resource name should not contain capital letters"
    } else if text == "*" {
        "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    } else if WITHOUT_API.contains(&text) {
        "resources which do not have REST API/s cannot be encrypted"
    } else if name.group == "events.k8s.io" {
        "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
    } else if name.group == "extensions" {
        "'extensions' group has been removed and cannot be used for encryption"
    } else if name.group == "*" && name.resource != "*" {
        "encrypting the same resource across groups is not supported"
    } else {
        return;
    };
    errors.invalid(at, detail);
}

fn provider(at: &Node, plugins: &mut HashSet<String>, errors: &mut Errors) -> Option<Provider> {
    let mut found = PROVIDERS.iter().filter(|name| at.at(name).exists());
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        let detail = "more than one provider specified in a single element, should split into different list elements";
        // Upstream shows the whole element, keys and all.
        errors.push(FieldError::new(Problem::Invalid, &at.path, "\"REDACTED\"", detail));
    }
    match first.copied() {
        Some("kms") => plugin(&at.at("kms"), plugins, errors),
        Some("aesgcm") => keys(&at.at("aesgcm"), KeyKind::AesGcm, AES_KEY_BYTES, errors),
        Some("aescbc") => keys(&at.at("aescbc"), KeyKind::AesCbc, AES_KEY_BYTES, errors),
        Some("secretbox") => keys(&at.at("secretbox"), KeyKind::Secretbox, SECRETBOX_KEY_BYTES, errors),
        Some(_) => Some(Provider::Identity),
        None => {
            let detail =
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
            errors.push(FieldError::new(Problem::Invalid, &at.path, "{}", detail));
            None
        }
    }
}

fn keys(at: &Node, kind: KeyKind, lengths: &[usize], errors: &mut Errors) -> Option<Provider> {
    let list = at.at("keys");
    if list.is_empty() {
        errors.required(&list, "at least one keys is required");
        return None;
    }
    let keys = list.items().filter_map(|one| key(&one, lengths, errors)).collect();
    Some(Provider::Keys { kind, keys })
}

fn key(at: &Node, lengths: &[usize], errors: &mut Errors) -> Option<Key> {
    let (name, secret) = (at.at("name"), at.at("secret"));
    if name.str().is_empty() {
        errors.required(&name, "name is a mandatory field for a key");
    }
    if secret.str().is_empty() {
        errors.required(&secret, "secret is a mandatory field for a key");
        return None;
    }
    let mut redacted =
        |detail: String| errors.push(FieldError::new(Problem::Invalid, &secret.path, "\"REDACTED\"", detail));
    // As Go reads it: line breaks do not count.
    let text: String = secret.str().chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
    let Ok(bytes) = STANDARD.decode(text) else {
        redacted("secrets must be base64 encoded".to_owned());
        return None;
    };
    if !lengths.contains(&bytes.len()) {
        let expected: Vec<String> = lengths.iter().map(usize::to_string).collect();
        let detail = format!(
            "secret is not of the expected length, got {}, expected one of [{}]",
            bytes.len(),
            expected.join(" ")
        );
        redacted(detail);
        return None;
    }
    Some(Key { name: name.str().to_owned(), secret: bytes })
}

fn plugin(at: &Node, plugins: &mut HashSet<String>, errors: &mut Errors) -> Option<Provider> {
    let before = errors.0.len();
    let (name, version) = (at.at("name"), at.at("apiVersion"));
    if name.str().is_empty() {
        errors.required(&name, "name is a mandatory field for a provider");
    }
    if name.str().contains(':') {
        errors.invalid(&name, format!("invalid KMS provider name {}, must not contain ':'", name.str()));
    }
    if !plugins.insert(name.str().to_owned()) {
        errors.invalid(&name, format!("duplicate KMS provider name {}, names must be unique", name.str()));
    }
    let timeout = timeout(&at.at("timeout"), errors);
    let socket = socket(&at.at("endpoint"), errors);
    match version.str() {
        "v2" => {
            if at.at("cachesize").exists() {
                errors.invalid(&at.at("cachesize"), "cachesize is not supported in v2");
            }
        }
        // What is not said is v1, which upstream has switched off.
        "" | "v1" => {
            let detail = "KMSv1 is deprecated and is not supported by knarr. Use KMSv2 instead: apiVersion: v2";
            errors.push(FieldError::new(Problem::Invalid, &version.path, "\"v1\"", detail));
        }
        _ => {
            errors.invalid(&version, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported")
        }
    }
    if errors.0.len() > before {
        return None;
    }
    Some(Provider::Kms { name: name.str().to_owned(), socket: socket?, timeout: timeout? })
}

fn timeout(at: &Node, errors: &mut Errors) -> Option<Duration> {
    if !at.exists() {
        return Some(KMS_TIMEOUT);
    }
    match duration::parse(at.str()) {
        Ok(time) if time.is_positive() => Duration::try_from(time).ok(),
        Ok(_) => {
            errors.invalid(at, "timeout should be a positive value");
            None
        }
        Err(error) => {
            errors.invalid(at, error.to_string());
            None
        }
    }
}

/// `unix:///path`, or `unix:///@name` for a socket without a file.
fn socket(at: &Node, errors: &mut Errors) -> Option<PathBuf> {
    let text = at.str();
    if text.is_empty() {
        let detail = "endpoint is a mandatory field for a kms";
        errors.push(FieldError::new(Problem::Invalid, &at.path, "\"\"", detail));
        return None;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        errors.invalid(at, "unsupported scheme \"\" for KMS provider, only unix is supported");
        return None;
    };
    if scheme != "unix" {
        errors.invalid(at, format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported"));
        return None;
    }
    // What stands where a host would is none of a socket's business, as upstream.
    let path = rest.strip_prefix("//").map_or(rest, |rest| rest.find('/').map_or("", |start| &rest[start..]));
    if path.is_empty() {
        errors.invalid(at, "invalid endpoint for kms provider, error: no path");
        return None;
    }
    Some(path.strip_prefix("/@").map_or_else(|| PathBuf::from(path), |name| PathBuf::from(format!("@{name}"))))
}

/// A rule that an earlier one hides would never be used.
fn masked(rules: &[Rule], errors: &mut Errors) {
    let mut seen: HashSet<&Named> = HashSet::new();
    for (number, rule) in rules.iter().enumerate() {
        for (index, name) in rule.resources.iter().enumerate() {
            let group = Named { resource: "*".into(), group: name.group.clone() };
            let all = Named { resource: "*".into(), group: "*".into() };
            if let Some(earlier) = [group, all].into_iter().find(|wider| seen.contains(wider)) {
                let field = format!("resources[{number}].resources[{index}]");
                let detail = format!("resource {:?} is masked by earlier rule {:?}", name.written(), earlier.written());
                errors.push(FieldError::new(Problem::Forbidden, field, "", detail));
            }
            seen.insert(name);
        }
    }
}

#[cfg(test)]
mod tests;

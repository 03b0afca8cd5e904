//! An AuthenticationConfiguration, or the `--oidc-*` flags that say a part of it: which issuers are believed, and who may be
//! nobody. `validate.rs` has upstream's rules and messages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Value, json};

use super::super::anonymous::Anonymous;
use super::claims::Mapping;
use super::keys::Algorithm;
use super::validate;
use crate::audit::kubeconfig::KubeconfigError;
use crate::configuration::{self, Document, Shape};

const TEXT: Shape = Shape::Text;
const PREFIXED: Shape = Shape::Object(&[("claim", TEXT), ("prefix", TEXT), ("expression", TEXT)]);

const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", TEXT),
    ("kind", TEXT),
    ("jwt", Shape::List(&JWT)),
    (
        "anonymous",
        Shape::Object(&[("enabled", Shape::Flag), ("conditions", Shape::List(&Shape::Object(&[("path", TEXT)])))]),
    ),
]);

const JWT: Shape = Shape::Object(&[
    (
        "issuer",
        Shape::Object(&[
            ("url", TEXT),
            ("discoveryURL", TEXT),
            ("certificateAuthority", TEXT),
            ("audiences", Shape::List(&TEXT)),
            ("audienceMatchPolicy", TEXT),
            ("egressSelectorType", TEXT),
        ]),
    ),
    (
        "claimValidationRules",
        Shape::List(&Shape::Object(&[
            ("claim", TEXT),
            ("requiredValue", TEXT),
            ("expression", TEXT),
            ("message", TEXT),
        ])),
    ),
    (
        "claimMappings",
        Shape::Object(&[
            ("username", PREFIXED),
            ("groups", PREFIXED),
            ("uid", Shape::Object(&[("claim", TEXT), ("expression", TEXT)])),
            ("extra", Shape::List(&Shape::Object(&[("key", TEXT), ("valueExpression", TEXT)]))),
        ]),
    ),
    ("userValidationRules", Shape::List(&Shape::Object(&[("expression", TEXT), ("message", TEXT)]))),
]);

/// One issuer as it was configured.
#[derive(Debug)]
pub struct Issuer {
    pub url: String,
    pub discovery_url: String,
    /// PEM; empty for the authorities that the system trusts.
    pub authority: String,
    pub audiences: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    pub mapping: Mapping,
    /// As it was written, to tell whether it changed.
    pub written: Value,
}

#[derive(Debug, Default)]
pub struct Configuration {
    pub issuers: Vec<Issuer>,
    /// None where the file does not say.
    pub anonymous: Option<Anonymous>,
}

/// What the `--oidc-*` flags say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    pub issuer_url: String,
    pub client_id: String,
    pub ca_file: Option<PathBuf>,
    pub username_claim: String,
    /// `-` for none; empty for the issuer, unless the claim is `email`.
    pub username_prefix: String,
    pub groups_claim: String,
    pub groups_prefix: String,
    pub algorithms: Vec<Algorithm>,
    pub required_claims: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to load authentication configuration from file {path:?}: {why}")]
    File { path: PathBuf, why: configuration::Error },
    #[error("invalid --oidc-* flags: {0}")]
    Flags(String),
    #[error("read --oidc-ca-file {path:?}: {why}")]
    Authority { path: PathBuf, why: std::io::Error },
    #[error("anonymous: Forbidden: changed from initial configuration file")]
    AnonymousChanged,
    #[error(
        "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in \
         authentication configuration file"
    )]
    AnonymousTwice,
    #[error("set TLS up for issuer {issuer:?}: {why}")]
    Tls { issuer: String, why: trust::Error },
    #[error("read kubeconfig {path} of the authentication webhook: {why}")]
    Kubeconfig { path: PathBuf, why: KubeconfigError },
}

/// From the text of a file. `own_issuers` are those of service accounts, which nobody else may be.
pub fn parse(text: &str, own_issuers: &[String]) -> Result<Configuration, configuration::Error> {
    let document = Document::parse(text, "AuthenticationConfiguration", &SHAPE)?;
    let root = Node::root(&document.value);
    let mut errors = Errors::default();
    let issuers = validate::issuers(&root.at("jwt"), own_issuers, &Algorithm::ALL, &mut errors);
    let anonymous = validate::anonymous(&root.at("anonymous"), &mut errors);
    document.refuse(&errors)?;
    Ok(Configuration { issuers, anonymous })
}

impl Flags {
    /// The issuer as a file would say it.
    pub fn issuer(&self, own_issuers: &[String]) -> Result<Issuer, Error> {
        let prefix = match (self.username_prefix.as_str(), self.username_claim.as_str()) {
            ("-", _) | ("", "email") => String::new(),
            ("", _) => format!("{}#", self.issuer_url),
            (prefix, _) => prefix.to_owned(),
        };
        let mut written = json!({
            "issuer": {"url": self.issuer_url, "audiences": [self.client_id]},
            "claimMappings": {"username": {"claim": self.username_claim, "prefix": prefix}},
        });
        if !self.groups_claim.is_empty() {
            written["claimMappings"]["groups"] = json!({"claim": self.groups_claim, "prefix": self.groups_prefix});
        }
        if let Some(path) = &self.ca_file {
            let read = std::fs::read_to_string(path);
            let pem = read.map_err(|why| Error::Authority { path: path.clone(), why })?;
            written["issuer"]["certificateAuthority"] = pem.into();
        }
        let required = self.required_claims.iter();
        let rules: Vec<Value> =
            required.map(|(claim, value)| json!({"claim": claim, "requiredValue": value})).collect();
        written["claimValidationRules"] = rules.into();
        let algorithms = if self.algorithms.is_empty() { &[Algorithm::Rs256][..] } else { &self.algorithms };
        let list = json!({"jwt": [written]});
        let mut errors = Errors::default();
        let mut found = validate::issuers(&Node::root(&list).at("jwt"), own_issuers, algorithms, &mut errors);
        match found.pop() {
            Some(issuer) if errors.is_empty() => Ok(issuer),
            _ => Err(Error::Flags(errors.summary())),
        }
    }
}

//! What an administrator says about credential providers, and what of it cannot be. Messages are upstream's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the programs are.
    pub bin_dir: PathBuf,
    pub providers: Vec<Provider>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The program's name.
    pub name: String,
    pub match_images: Vec<String>,
    pub default_cache_duration: Duration,
    /// In which the program is asked and answers.
    pub api_version: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub token: Option<TokenAttributes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAttributes {
    pub audience: String,
    pub cache_type: CacheType,
    pub require_service_account: bool,
    pub required_annotations: Vec<String>,
    pub optional_annotations: Vec<String>,
}

/// Who shares an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    ServiceAccount,
    Token,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Invalid {
    #[error("providers: Required value: at least 1 item in plugins is required")]
    None,
    #[error("duplicate provider name {0:?} found in configuration file(s)")]
    Twice(String),
    #[error("providers.name: Invalid value: {0:?}: provider name {1}")]
    Name(String, &'static str),
    #[error("providers.apiVersion: Unsupported value: {0:?}: supported values: {list}", list = VERSIONS.join(", "))]
    Version(String),
    #[error("providers.matchImages: Required value: at least 1 item in matchImages is required")]
    NoImages,
    #[error("providers.tokenAttributes: {0}")]
    Token(&'static str),
}

pub(super) const V1: &str = "credentialprovider.kubelet.k8s.io/v1";
const VERSIONS: [&str; 3] =
    [V1, "credentialprovider.kubelet.k8s.io/v1alpha1", "credentialprovider.kubelet.k8s.io/v1beta1"];

impl Settings {
    pub fn check(&self) -> Result<(), Invalid> {
        if self.providers.is_empty() {
            return Err(Invalid::None);
        }
        let mut names = BTreeSet::new();
        for provider in &self.providers {
            if !names.insert(&provider.name) {
                return Err(Invalid::Twice(provider.name.clone()));
            }
            provider.check()?;
        }
        Ok(())
    }
}

impl Provider {
    fn check(&self) -> Result<(), Invalid> {
        let wrong = match self.name.as_str() {
            name if name.contains('/') => Some("cannot contain '/'"),
            name if name.contains(' ') => Some("cannot contain spaces"),
            "." => Some("cannot be '.'"),
            ".." => Some("cannot be '..'"),
            "" => Some("cannot be empty"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(Invalid::Name(self.name.clone(), wrong));
        }
        if !VERSIONS.contains(&self.api_version.as_str()) {
            return Err(Invalid::Version(self.api_version.clone()));
        }
        if self.match_images.is_empty() {
            return Err(Invalid::NoImages);
        }
        let Some(token) = &self.token else { return Ok(()) };
        let both = token.required_annotations.iter().any(|key| token.optional_annotations.contains(key));
        let wrong = [
            (token.audience.is_empty(), "serviceAccountTokenAudience is required"),
            (
                self.api_version != V1,
                "tokenAttributes is only supported for credentialprovider.kubelet.k8s.io/v1 API version",
            ),
            (
                !token.require_service_account && !token.required_annotations.is_empty(),
                "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
            ),
            (both, "annotation keys cannot be both required and optional"),
        ];
        match wrong.into_iter().find(|(is, _)| *is) {
            Some((_, why)) => Err(Invalid::Token(why)),
            None => Ok(()),
        }
    }
}

impl TokenAttributes {
    /// The annotations that the program is told; nothing where a required one is missing.
    pub(super) fn annotations(&self, all: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
        let pair = |key: &String| all.get(key).map(|value| (key.clone(), value.clone()));
        let required: Option<BTreeMap<String, String>> = self.required_annotations.iter().map(pair).collect();
        let mut told = required?;
        told.extend(self.optional_annotations.iter().filter_map(pair));
        Some(told)
    }
}

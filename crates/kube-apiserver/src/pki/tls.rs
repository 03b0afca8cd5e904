//! What an operator may say about TLS: the oldest version, the cipher suites of TLS 1.2, and certificates by name.

use std::str::FromStr;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{SupportedProtocolVersion, version};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Error, Pair};

/// The defaults are all that the library takes for safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    pub min_version: MinVersion,
    /// Cipher suites of TLS 1.2 by Go's names; all where it is empty. Those of TLS 1.3 cannot be chosen, as in Go.
    suites: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    #[default]
    Tls12,
    Tls13,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsSettingError {
    #[error("unknown tls version {0:?}")]
    Version(String),
    #[error("knarr does not speak TLS before 1.2: {0}")]
    OldVersion(String),
    #[error("Cipher suite {0} not supported or doesn't exist")]
    Suite(String),
}

impl FromStr for MinVersion {
    type Err = TlsSettingError;

    fn from_str(text: &str) -> Result<MinVersion, TlsSettingError> {
        match text {
            "" | "VersionTLS12" => Ok(MinVersion::Tls12),
            "VersionTLS13" => Ok(MinVersion::Tls13),
            "VersionTLS10" | "VersionTLS11" => Err(TlsSettingError::OldVersion(text.to_owned())),
            _ => Err(TlsSettingError::Version(text.to_owned())),
        }
    }
}

impl TlsSettings {
    pub fn new(min_version: MinVersion, suites: &[String]) -> Result<TlsSettings, TlsSettingError> {
        let known = suite_names();
        let unknown = suites.iter().find(|suite| !known.contains(&go_name(suite)));
        match unknown {
            Some(suite) => Err(TlsSettingError::Suite(suite.clone())),
            None => Ok(TlsSettings { min_version, suites: suites.iter().map(|suite| go_name(suite)).collect() }),
        }
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self.min_version {
            MinVersion::Tls12 => &NEWEST_FIRST,
            MinVersion::Tls13 => &NEWEST_FIRST[..1],
        }
    }

    pub(super) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                let name = suite.suite().as_str().unwrap_or_default();
                suite.tls13().is_some() || self.suites.iter().any(|wanted| wanted == name)
            });
        }
        provider
    }

    pub(crate) fn version_name(&self) -> &'static str {
        match self.min_version {
            MinVersion::Tls12 => "VersionTLS12",
            MinVersion::Tls13 => "VersionTLS13",
        }
    }

    /// What is spoken, by Go's names.
    pub(crate) fn spoken(&self) -> Vec<String> {
        let provider = self.provider();
        let oldest_is_new = self.min_version == MinVersion::Tls13;
        let suites = provider.cipher_suites.iter().filter(|suite| !oldest_is_new || suite.tls13().is_some());
        suites.filter_map(|suite| suite.suite().as_str().map(|name| name.replace("TLS13_", "TLS_"))).collect()
    }
}

/// Go has an older name for two of them.
fn go_name(suite: &str) -> String {
    if suite.ends_with("CHACHA20_POLY1305") { format!("{suite}_SHA256") } else { suite.to_owned() }
}

fn suite_names() -> Vec<String> {
    let suites = ring::default_provider().cipher_suites;
    suites.iter().filter_map(|suite| suite.suite().as_str().map(|name| name.replace("TLS13_", "TLS_"))).collect()
}

/// A certificate for clients that ask for certain names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPair {
    pub pair: Pair,
    /// Such as `a.example` and `*.example`; those of the certificate where it is empty.
    pub names: Vec<String>,
}

impl NamedPair {
    pub(super) fn all_names(&self) -> Result<Vec<String>, Error> {
        if !self.names.is_empty() {
            return Ok(self.names.iter().map(|name| name.to_lowercase()).collect());
        }
        let unusable = |why: &str| Error::Tls(format!("read names of the certificate: {why}"));
        let (_, pem) = x509_parser::pem::parse_x509_pem(self.pair.certificate_pem.as_bytes())
            .map_err(|error| unusable(&error.to_string()))?;
        let (_, certificate) =
            X509Certificate::from_der(&pem.contents).map_err(|error| unusable(&error.to_string()))?;
        let alternative = certificate.subject_alternative_name().ok().flatten();
        let names = alternative.into_iter().flat_map(|names| &names.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_lowercase()),
            _ => None,
        });
        Ok(names.collect())
    }
}

/// Whether a name of a certificate is for a host: the same, or with a star for its first label.
pub(super) fn is_for(pattern: &str, host: &str) -> bool {
    let parent = |name: &str| name.split_once('.').map(|(_, parent)| parent.to_owned());
    match pattern.strip_prefix("*.") {
        Some(rest) => parent(host).as_deref() == Some(rest),
        None => pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_suites_by_gos_names() {
        assert_eq!("VersionTLS13".parse(), Ok(MinVersion::Tls13));
        assert_eq!("VersionTLS11".parse::<MinVersion>(), Err(TlsSettingError::OldVersion("VersionTLS11".into())));
        assert_eq!("13".parse::<MinVersion>(), Err(TlsSettingError::Version("13".into())));
        let new = |names: &[&str]| {
            TlsSettings::new(MinVersion::Tls12, &names.iter().map(|name| name.to_string()).collect::<Vec<_>>())
        };
        let settings = new(&["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]).unwrap();
        let old: Vec<String> = settings.spoken().into_iter().filter(|name| name.contains("ECDHE")).collect();
        assert_eq!(old, ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]);
        assert_eq!(settings.spoken().len(), 5, "those of TLS 1.3 stay");
        let refused = new(&["TLS_RSA_WITH_AES_128_CBC_SHA"]).unwrap_err().to_string();
        assert_eq!(refused, "Cipher suite TLS_RSA_WITH_AES_128_CBC_SHA not supported or doesn't exist");
        let newest = TlsSettings { min_version: MinVersion::Tls13, ..TlsSettings::default() };
        assert!(newest.spoken().iter().all(|name| !name.contains("ECDHE")));
    }

    #[test]
    fn a_star_is_one_label() {
        for (pattern, host, expected) in [
            ("a.example", "a.example", true),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", false),
            ("*.example", "example", false),
            ("a.example", "b.example", false),
        ] {
            assert_eq!(is_for(pattern, host), expected, "{pattern} {host}");
        }
    }
}

//! Flags about TLS that the components with a secure port share.

use std::path::PathBuf;

use anyhow::Context;
use kube_apiserver::pki::{MinVersion, NamedPair, TlsSettings};

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Oldest version of TLS that is spoken: VersionTLS12 or VersionTLS13.
    #[arg(long, env = "KNARR_TLS_MIN_VERSION", default_value = "VersionTLS12")]
    tls_min_version: String,
    /// Cipher suites of TLS 1.2 that are spoken, by Go's names (default: all that are safe). Those of TLS 1.3 cannot be chosen.
    #[arg(long, env = "KNARR_TLS_CIPHER_SUITES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
}

impl Flags {
    pub fn settings(&self) -> anyhow::Result<TlsSettings> {
        let version: MinVersion = self.tls_min_version.parse().context("--tls-min-version")?;
        TlsSettings::new(version, &self.tls_cipher_suites).context("--tls-cipher-suites")
    }
}

/// Certificates by name: `certificate,key` or `certificate,key:name,*.name`.
pub fn named_pair(text: &str) -> anyhow::Result<NamedPair> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) =
        files.split_once(',').context("expected comma separated certificate and key file paths")?;
    anyhow::ensure!(!key.contains(','), "expected comma separated certificate and key file paths");
    let pair = crate::secure::read_pair(certificate.trim().as_ref(), key.trim().as_ref())?;
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Ok(NamedPair { pair, names })
}

/// The files that such a text names.
pub fn files(text: &str) -> impl Iterator<Item = PathBuf> {
    let files = text.split_once(':').map_or(text, |(files, _)| files);
    files.split(',').map(|file| file.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn settings(line: &str) -> Result<TlsSettings, String> {
        let words = std::iter::once("knarr").chain(line.split_whitespace());
        let flags = <Line as clap::Parser>::try_parse_from(words).expect("clap takes any text").flags;
        flags.settings().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn versions_and_suites() {
        assert_eq!(settings(""), Ok(TlsSettings::default()));
        assert_eq!(
            settings("--tls-min-version=VersionTLS13").map(|settings| settings.min_version),
            Ok(MinVersion::Tls13)
        );
        let refused = settings("--tls-min-version=VersionTLS10").unwrap_err();
        assert_eq!(refused, "--tls-min-version: knarr does not speak TLS before 1.2: VersionTLS10");
        let refused = settings("--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA").unwrap_err();
        assert_eq!(
            refused,
            "--tls-cipher-suites: Cipher suite TLS_RSA_WITH_RC4_128_SHA not supported or doesn't exist"
        );
    }

    #[test]
    fn certificates_by_name_come_from_two_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = crate::secure::self_signed(&[]).expect("a certificate");
        pair.write(folder.path(), "a").expect("it is written");
        let files = format!("{0}/a.crt,{0}/a.key", folder.path().display());
        assert_eq!(named_pair(&files).expect("good").names, Vec::<String>::new());
        assert_eq!(
            named_pair(&format!("{files}:x.example,*.y.example")).expect("good").names,
            ["x.example", "*.y.example"]
        );
        for wrong in ["a.crt", "a.crt,b.key,c", "/nothing,/there"] {
            assert!(named_pair(wrong).is_err(), "{wrong}");
        }
    }
}

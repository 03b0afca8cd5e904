//! Versions of the interface that a driver speaks.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(Vec<u64>);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

/// A driver that speaks no version that the kubelet speaks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VersionError {
    #[error(
        "kubernetes.io/csi: ValidatePlugin for CSI driver {driver:?} failed. Plugin returned an empty list for supported versions"
    )]
    Empty { driver: String },
    #[error(
        "kubernetes.io/csi: ValidatePlugin for CSI driver {driver:?} failed. None of the versions specified {versions:?} are supported. err=highest version must be v1.x"
    )]
    Unsupported { driver: String, versions: Vec<String> },
}

/// The highest of those that begin with 1: earlier ones are no longer spoken, later ones not yet.
pub(super) fn highest_supported(driver: &str, versions: &[String]) -> Result<Version, VersionError> {
    if versions.is_empty() {
        return Err(VersionError::Empty { driver: driver.to_owned() });
    }
    let spoken = versions.iter().filter_map(|version| parse(version)).filter(|version| version.0.first() == Some(&1));
    let unsupported = || VersionError::Unsupported { driver: driver.to_owned(), versions: versions.to_vec() };
    spoken.max().ok_or_else(unsupported)
}

/// Two numbers at least, with or without a `v`; what stands after them is of no interest.
fn parse(text: &str) -> Option<Version> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbers = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
    let parts: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
    parts.filter(|parts| parts.len() >= 2).map(Version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_version_one() {
        let check = |versions: &[&str], expected: Option<&str>| {
            let versions: Vec<String> = versions.iter().map(|version| version.to_string()).collect();
            let found = highest_supported("d", &versions).ok().map(|version| version.to_string());
            assert_eq!(found.as_deref(), expected, "{versions:?}");
        };
        check(&["1.0.0"], Some("1.0.0"));
        check(&["v1.2.0", "1.10.0", "2.0.0", "0.3.0"], Some("1.10.0"));
        check(&["1.5.0-rc1"], Some("1.5.0"));
        check(&["2.0.0"], None);
        check(&["0.3.0", "x", "", "1"], None);
        check(&[], None);
    }
}

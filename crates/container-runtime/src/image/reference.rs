//! Names of images, read exactly as Docker and containerd read them.
//!
//! `nginx` is `docker.io/library/nginx:latest`; a name with a tag and a digest keeps the digest alone, for the digest is what
//! decides.

use std::fmt;

const NAME_LENGTH_MAX: usize = 255;
const TAG_LENGTH_MAX: usize = 128;
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";

/// A whole name: registry, repository, and a tag or a digest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// With its port, `docker.io` where none was given.
    pub registry: String,
    /// Without the registry: `library/nginx`.
    pub repository: String,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    Tag(String),
    /// `sha256:...`
    Digest(String),
}

/// What is wrong with a name, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("repository name must have at least one component")]
    Empty,
    #[error("invalid reference format")]
    Format,
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    #[error("repository name must not be more than {NAME_LENGTH_MAX} characters")]
    TooLong,
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Hexadecimal(String),
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    #[error("invalid checksum digest length")]
    DigestLength,
}

impl Reference {
    pub fn parse(text: &str) -> Result<Reference, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Format);
        }
        if is_hexadecimal_id(text) {
            return Err(ReferenceError::Hexadecimal(text.to_owned()));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = split_tag(name);
        let (registry, repository) = split_registry(name);
        if repository.is_empty() {
            return Err(ReferenceError::Format);
        }
        if repository.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(ReferenceError::Uppercase(repository.to_owned()));
        }
        let repository = match registry {
            DEFAULT_REGISTRY if !repository.contains('/') => format!("{DEFAULT_NAMESPACE}/{repository}"),
            _ => repository.to_owned(),
        };
        if !is_registry(registry) || !repository.split('/').all(is_path_component) {
            return Err(ReferenceError::Format);
        }
        if registry.len() + 1 + repository.len() > NAME_LENGTH_MAX {
            return Err(ReferenceError::TooLong);
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Format);
        }
        let version = match digest {
            Some(digest) => {
                check_digest(digest)?;
                Version::Digest(digest.to_owned())
            }
            None => Version::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
        Ok(Reference { registry: registry.to_owned(), repository, version })
    }

    /// Without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The same repository at a digest.
    pub(crate) fn with_digest(&self, digest: &str) -> Reference {
        Reference { version: Version::Digest(digest.to_owned()), ..self.clone() }
    }

    /// What stands behind `/manifests/` in a request.
    pub fn manifest(&self) -> &str {
        match &self.version {
            Version::Tag(version) | Version::Digest(version) => version,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}/{}:{tag}", self.registry, self.repository),
            Version::Digest(digest) => write!(f, "{}/{}@{digest}", self.registry, self.repository),
        }
    }
}

/// Whether the text is `sha256:` and 64 lower case hexadecimal digits.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(is_hexadecimal_id)
}

fn is_hexadecimal_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A colon behind the last slash begins a tag; one before it belongs to a port.
fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => (before, Some(tag)),
        _ => (name, None),
    }
}

/// The first component is a registry if it could not be a name on Docker Hub.
fn split_registry(name: &str) -> (&str, &str) {
    let Some((first, rest)) = name.split_once('/') else { return (DEFAULT_REGISTRY, name) };
    let is_host = first.contains(['.', ':']) || first == "localhost" || first.chars().any(|c| c.is_ascii_uppercase());
    match first {
        "index.docker.io" => (DEFAULT_REGISTRY, rest),
        _ if is_host => (first, rest),
        _ => (DEFAULT_REGISTRY, name),
    }
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            match port.strip_prefix(':') {
                None if !port.is_empty() => return false,
                port => (None, port),
            }
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), None),
        },
    };
    let host_is_good = host.is_none_or(|host| host.split('.').all(is_domain_component));
    host_is_good && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_domain_component(part: &str) -> bool {
    let is_edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    is_edge(part.bytes().next())
        && is_edge(part.bytes().last())
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Lower case letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_path_component(part: &str) -> bool {
    let bytes = part.as_bytes();
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if !bytes.first().is_some_and(|b| is_word(*b)) || !bytes.last().is_some_and(|b| is_word(*b)) {
        return false;
    }
    part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= TAG_LENGTH_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

fn check_digest(digest: &str) -> Result<(), ReferenceError> {
    let Some((algorithm, hexadecimal)) = digest.split_once(':') else { return Err(ReferenceError::Format) };
    if algorithm.is_empty() || hexadecimal.len() < 32 || !hexadecimal.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ReferenceError::Format);
    }
    match algorithm {
        "sha256" if is_hexadecimal_id(hexadecimal) => Ok(()),
        "sha256" => Err(ReferenceError::DigestLength),
        _ => Err(ReferenceError::DigestAlgorithm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(Reference::parse(text).unwrap().to_string(), expected);
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        assert_eq!(Reference::parse(text).unwrap_err().to_string(), expected, "{text}");
    }

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn short_names_become_whole() {
        check("nginx", "docker.io/library/nginx:latest");
        check("nginx:1.27", "docker.io/library/nginx:1.27");
        check("docker.io/nginx", "docker.io/library/nginx:latest");
        check("index.docker.io/nginx", "docker.io/library/nginx:latest");
        check("rancher/pause:3.6", "docker.io/rancher/pause:3.6");
        check("localhost/app", "localhost/app:latest");
        check("localhost:5000/app", "localhost:5000/app:latest");
        check("[::1]:5000/app:v1", "[::1]:5000/app:v1");
        check("127.0.0.1:5000/a/b-c__d.e:V1_2", "127.0.0.1:5000/a/b-c__d.e:V1_2");
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10");
        check("Host/app", "Host/app:latest");
    }

    #[test]
    fn a_digest_is_stronger_than_a_tag() {
        check(&format!("nginx@{DIGEST}"), &format!("docker.io/library/nginx@{DIGEST}"));
        check(&format!("nginx:1.27@{DIGEST}"), &format!("docker.io/library/nginx@{DIGEST}"));
    }

    #[test]
    fn bad_names_are_refused_in_upstreams_words() {
        refused("", "invalid reference format");
        refused(":latest", "invalid reference format");
        refused("nginx:", "invalid reference format");
        refused("Nginx", "invalid reference format: repository name (Nginx) must be lowercase");
        refused("busybox:a b", "invalid reference format");
        refused("a//b", "invalid reference format");
        refused("a/../b", "invalid reference format");
        refused("-a", "invalid reference format");
        refused("a___b", "invalid reference format");
        refused("example.com:port/a", "invalid reference format");
        refused("nginx@sha256:abc", "invalid reference format");
        refused(&format!("nginx@sha256:{}", "a".repeat(63)), "invalid checksum digest length");
        refused(&format!("nginx@sha999:{}", "a".repeat(64)), "unsupported digest algorithm");
        refused(&"a".repeat(300), "repository name must not be more than 255 characters");
        refused(
            &"a".repeat(64),
            &format!("invalid repository name ({}), cannot specify 64-byte hexadecimal strings", "a".repeat(64)),
        );
    }
}

//! Which images a provider is for. Pure.

use super::Provider;

impl Provider {
    pub(super) fn is_for(&self, image: &str) -> bool {
        self.match_images.iter().any(|pattern| matches(pattern, image))
    }
}

/// Parts of the host name by themselves, where `*` and `?` stand for what they do in file names; the port as it is; the path as a prefix.
fn matches(pattern: &str, image: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let (host, port) = host.rsplit_once(':').unwrap_or((host, ""));
        (host.to_owned(), port.to_owned(), path.to_owned())
    };
    let (pattern_host, pattern_port, pattern_path) = split(pattern);
    let (host, port, path) = split(image);
    let patterns: Vec<&str> = pattern_host.split('.').collect();
    let parts: Vec<&str> = host.split('.').collect();
    pattern_port == port
        && patterns.len() == parts.len()
        && path.starts_with(&pattern_path)
        && patterns.iter().zip(&parts).all(|(pattern, part)| glob(pattern.as_bytes(), part.as_bytes()))
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => glob(&pattern[1..], text) || (!text.is_empty() && glob(pattern, &text[1..])),
        (Some(b'?'), Some(_)) => glob(&pattern[1..], &text[1..]),
        (Some(one), Some(other)) => one == other && glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of upstream's documentation and tests.
    #[test]
    fn hosts_by_parts_and_paths_by_prefix() {
        for (pattern, image, expected) in [
            ("123456789.dkr.ecr.us-east-1.amazonaws.com", "123456789.dkr.ecr.us-east-1.amazonaws.com/app", true),
            ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-1.amazonaws.com/app", true),
            ("*.azurecr.io", "a.b.azurecr.io/app", false),
            ("*.azurecr.io", "a.azurecr.io/app", true),
            ("gcr.io", "gcr.io/google/app", true),
            ("*.*.registry.io", "a.b.registry.io/app", true),
            ("foo.registry.io:8080/path", "foo.registry.io:8080/path/app", true),
            ("foo.registry.io:8080/path", "foo.registry.io:8080/other", false),
            ("foo.registry.io:8080/path", "foo.registry.io/path", false),
            ("prefix.*.io", "prefix.registry.io/a", true),
            ("app*.k8s.io", "app-1.k8s.io/a", true),
            ("a?.k8s.io", "ab.k8s.io/a", true),
            ("a?.k8s.io", "a.k8s.io/a", false),
        ] {
            assert_eq!(matches(pattern, image), expected, "{pattern} {image}");
        }
    }
}

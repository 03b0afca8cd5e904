//! Proxies that ask in the name of others: they show a certificate of their own authority, and say in headers who it is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use kube_apiserver::authn::FrontProxy;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// CA of authenticating proxies (default: the cluster's).
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of authenticating proxies (default: every certificate of their CA).
    #[arg(long, value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Request headers with the user name.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user")]
    requestheader_username_headers: Vec<String>,
    /// Request headers with the user's uid.
    #[arg(long, value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Request headers with the user's groups.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group")]
    requestheader_group_headers: Vec<String>,
    /// Prefix of request headers with extra user information.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-")]
    requestheader_extra_headers_prefix: Vec<String>,
}

/// Which proxies are believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxies {
    /// Their authorities, as PEM.
    pub authority: String,
    pub rules: FrontProxy,
}

impl Flags {
    /// Nothing where the flags leave it to the cluster.
    pub fn read(&self) -> anyhow::Result<Option<Proxies>> {
        let Some(file) = &self.requestheader_client_ca_file else { return Ok(None) };
        let authority = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let rules = FrontProxy {
            allowed_names: self.requestheader_allowed_names.clone(),
            user_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        };
        Ok(Some(Proxies { authority, rules }))
    }
}

impl Proxies {
    /// As `kube-system/extension-apiserver-authentication` tells everyone who has to know.
    pub fn of_cluster(data: &BTreeMap<String, String>) -> Option<Proxies> {
        let list = |name: &str| -> Vec<String> {
            data.get(name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        let authority = data.get("requestheader-client-ca-file").filter(|text| !text.is_empty())?.clone();
        let rules = FrontProxy {
            allowed_names: list("requestheader-allowed-names"),
            user_headers: list("requestheader-username-headers"),
            uid_headers: list("requestheader-uid-headers"),
            group_headers: list("requestheader-group-headers"),
            extra_prefixes: list("requestheader-extra-headers-prefix"),
        };
        Some(Proxies { authority, rules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_tells_whom_to_believe() {
        let mut data = BTreeMap::from([
            ("requestheader-allowed-names".to_owned(), r#"["front-proxy-client"]"#.to_owned()),
            ("requestheader-username-headers".to_owned(), r#"["X-Remote-User"]"#.to_owned()),
        ]);
        assert_eq!(Proxies::of_cluster(&data), None);
        data.insert("requestheader-client-ca-file".into(), "pem".into());
        let proxies = Proxies::of_cluster(&data).unwrap();
        assert_eq!((proxies.authority.as_str(), proxies.rules.allowed_names.len()), ("pem", 1));
        assert_eq!(proxies.rules.user_headers, ["X-Remote-User"]);
        assert!(proxies.rules.group_headers.is_empty());
    }
}

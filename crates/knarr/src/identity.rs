//! Flags of the API server that say who is believed and what is allowed, under upstream's names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::ArgAction::Set;
use kube_apiserver::authn::{self, oidc, webhook};
use kube_apiserver::authz::{self, Mode, ReviewVersion};
use kube_apiserver::options::Options;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Allow anonymous requests. An AuthenticationConfiguration can set this instead.
    #[arg(long, env = "KNARR_ANONYMOUS_AUTH", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = Set)]
    anonymous_auth: Option<bool>,
    /// AuthenticationConfiguration file: OIDC issuers and anonymous access. Reloaded when it changes.
    #[arg(long, env = "KNARR_AUTHENTICATION_CONFIG")]
    authentication_config: Option<PathBuf>,
    /// Kubeconfig of the token authentication webhook.
    #[arg(long, env = "KNARR_AUTHENTICATION_TOKEN_WEBHOOK_CONFIG_FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Time to cache responses of the token authentication webhook.
    #[arg(long, env = "KNARR_AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL", default_value = "2m", value_parser = crate::leader::duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// Version of the TokenReviews to send.
    #[arg(long, env = "KNARR_AUTHENTICATION_TOKEN_WEBHOOK_VERSION", default_value = "v1beta1", value_parser = ["v1", "v1beta1"])]
    authentication_token_webhook_version: String,
    /// AuthorizationConfiguration file: authorizers and their order. Reloaded when it changes.
    #[arg(long, env = "KNARR_AUTHORIZATION_CONFIG")]
    authorization_config: Option<PathBuf>,
    /// Authorizers in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny.
    #[arg(long, env = "KNARR_AUTHORIZATION_MODE", value_delimiter = ',')]
    authorization_mode: Vec<Mode>,
    /// ABAC policy file, one policy per line.
    #[arg(long, env = "KNARR_AUTHORIZATION_POLICY_FILE")]
    authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the authorization webhook (mode Webhook).
    #[arg(long, env = "KNARR_AUTHORIZATION_WEBHOOK_CONFIG_FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Time to cache allowing responses of the authorization webhook (default: 5m).
    #[arg(long, env = "KNARR_AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL", value_parser = crate::leader::duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// Time to cache denying responses of the authorization webhook (default: 30s).
    #[arg(long, env = "KNARR_AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL", value_parser = crate::leader::duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// Version of the SubjectAccessReviews to send: v1 or v1beta1, upstream's default.
    #[arg(long, env = "KNARR_AUTHORIZATION_WEBHOOK_VERSION", value_parser = ["v1", "v1beta1"])]
    authorization_webhook_version: Option<String>,
    #[command(flatten)]
    oidc: Oidc,
    /// Issuer of service account tokens; tokens of repeated issuers are accepted too.
    #[arg(long, env = "KNARR_SERVICE_ACCOUNT_ISSUER")]
    service_account_issuer: Vec<String>,
    /// Audiences of accepted tokens (default: the issuers).
    #[arg(long, env = "KNARR_API_AUDIENCES", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// URI of the JSON Web Key Set of service account tokens (default: this server).
    #[arg(long, env = "KNARR_SERVICE_ACCOUNT_JWKS_URI")]
    service_account_jwks_uri: Option<String>,
    /// Maximum lifetime of service account tokens (default: no limit).
    #[arg(long, env = "KNARR_SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION", value_parser = crate::leader::duration)]
    service_account_max_token_expiration: Option<Duration>,
    /// Extend tokens mounted into pods to one year, for clients that never reload them.
    #[arg(long, env = "KNARR_SERVICE_ACCOUNT_EXTEND_TOKEN_EXPIRATION", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = Set)]
    service_account_extend_token_expiration: Option<bool>,
    /// Host name of this server in generated URLs (default: its address).
    #[arg(long, env = "KNARR_EXTERNAL_HOSTNAME")]
    external_hostname: Option<String>,
}

#[derive(clap::Args, Clone)]
#[group(skip)]
struct Oidc {
    /// URL of the OIDC issuer whose tokens are accepted (https).
    #[arg(long, env = "KNARR_OIDC_ISSUER_URL")]
    oidc_issuer_url: Option<String>,
    /// Client id (audience) that OIDC tokens must have.
    #[arg(long, env = "KNARR_OIDC_CLIENT_ID")]
    oidc_client_id: Option<String>,
    /// CA of the OIDC issuer (default: the system's CAs).
    #[arg(long, env = "KNARR_OIDC_CA_FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// OIDC claim with the user name (default: sub).
    #[arg(long, env = "KNARR_OIDC_USERNAME_CLAIM")]
    oidc_username_claim: Option<String>,
    /// Prefix of OIDC user names (default: the issuer and #, none for the claim email); - for none.
    #[arg(long, env = "KNARR_OIDC_USERNAME_PREFIX", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// OIDC claim with the groups.
    #[arg(long, env = "KNARR_OIDC_GROUPS_CLAIM")]
    oidc_groups_claim: Option<String>,
    /// Prefix of OIDC groups.
    #[arg(long, env = "KNARR_OIDC_GROUPS_PREFIX")]
    oidc_groups_prefix: Option<String>,
    /// Accepted signature algorithms of OIDC tokens (default: RS256).
    #[arg(long, env = "KNARR_OIDC_SIGNING_ALGS", value_delimiter = ',')]
    oidc_signing_algs: Vec<oidc::Algorithm>,
    /// Require this claim=value in OIDC tokens; repeatable.
    #[arg(long, env = "KNARR_OIDC_REQUIRED_CLAIM")]
    oidc_required_claim: Vec<String>,
}

/// What differs between an API server alone and one of our own cluster, where nothing is said.
#[derive(Clone, Copy)]
pub struct Defaults<'a> {
    pub modes: &'a [Mode],
}

impl Flags {
    /// `base` with what was said; checks what upstream checks.
    pub fn options(&self, defaults: Defaults, base: Options) -> anyhow::Result<Options> {
        let authorization = self.authorization(defaults)?;
        let allows_all = authorization.modes.contains(&Mode::AlwaysAllow);
        if allows_all {
            tracing::warn!(
                "authorization mode AlwaysAllow allows every request; set --authorization-mode=Node,RBAC unless this is intended"
            );
        }
        self.check_issuers()?;
        let jwks_uri = self.service_account_jwks_uri.clone();
        if let Some(uri) = jwks_uri.as_ref().filter(|uri| !uri.starts_with("https://")) {
            bail!("service-account-jwks-uri requires https scheme, parsed as: {uri}");
        }
        Ok(Options {
            issuers: self.service_account_issuer.clone(),
            audiences: self.api_audiences.clone(),
            // As upstream: where everything is allowed, at least somebody must be there.
            anonymous: self.anonymous_auth.unwrap_or(true) && !allows_all,
            authentication: self.authentication()?,
            authorization,
            jwks_uri,
            external_hostname: self.external_hostname.clone(),
            token_expiration_max: self.service_account_max_token_expiration,
            extend_tokens: self.service_account_extend_token_expiration.unwrap_or(true),
            ..base
        })
    }

    pub fn names_issuer(&self) -> bool {
        !self.service_account_issuer.is_empty()
    }

    fn check_issuers(&self) -> anyhow::Result<()> {
        for (index, issuer) in self.service_account_issuer.iter().enumerate() {
            ensure!(!issuer.is_empty(), "service-account-issuer should not be an empty string");
            let earlier = &self.service_account_issuer[..index];
            ensure!(!earlier.contains(issuer), "service-account-issuer {issuer:?} is already specified");
        }
        Ok(())
    }

    fn authentication(&self) -> anyhow::Result<authn::Settings> {
        let oidc = self.oidc.flags()?;
        ensure!(
            oidc.is_none() || self.authentication_config.is_none(),
            "authentication-config file and oidc-* flags are mutually exclusive"
        );
        let webhook = |path: &PathBuf| webhook::Flags {
            config_file: path.clone(),
            version: match self.authentication_token_webhook_version.as_str() {
                "v1" => webhook::Version::V1,
                _ => webhook::Version::V1beta1,
            },
            cache_ttl: self.authentication_token_webhook_cache_ttl,
        };
        Ok(authn::Settings {
            file: self.authentication_config.clone(),
            oidc,
            webhook: self.authentication_token_webhook_config_file.as_ref().map(webhook),
            anonymous_given: self.anonymous_auth.is_some(),
        })
    }

    fn authorization(&self, defaults: Defaults) -> anyhow::Result<authz::Config> {
        let names_webhook = self.authorization_webhook_config_file.is_some();
        if self.authorization_config.is_some() {
            let older = !self.authorization_mode.is_empty()
                || names_webhook
                || self.authorization_webhook_version.is_some()
                || self.authorization_webhook_cache_authorized_ttl.is_some()
                || self.authorization_webhook_cache_unauthorized_ttl.is_some();
            ensure!(
                !older,
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
            );
            let (file, policy_file) = (self.authorization_config.clone(), self.authorization_policy_file.clone());
            return Ok(authz::Config { modes: Vec::new(), file, policy_file, webhook: None });
        }
        let modes =
            if self.authorization_mode.is_empty() { defaults.modes.to_vec() } else { self.authorization_mode.clone() };
        for (index, mode) in modes.iter().enumerate() {
            let name = mode.name();
            ensure!(!modes[..index].contains(mode), "authorization-mode has mode {name:?} specified more than once");
        }
        let has = |mode: Mode| modes.contains(&mode);
        ensure!(
            has(Mode::Abac) || self.authorization_policy_file.is_none(),
            "cannot specify --authorization-policy-file without mode ABAC"
        );
        ensure!(
            !has(Mode::Abac) || self.authorization_policy_file.is_some(),
            "authorization-mode ABAC's authorization policy file not passed"
        );
        ensure!(
            has(Mode::Webhook) || !names_webhook,
            "cannot specify --authorization-webhook-config-file without mode Webhook"
        );
        ensure!(
            !has(Mode::Webhook) || names_webhook,
            "authorization-mode Webhook's authorization config file not passed"
        );
        let seconds = |given: Option<Duration>, default: u64| given.unwrap_or(Duration::from_secs(default));
        let webhook = |path: &PathBuf| authz::WebhookFlags {
            config_file: path.clone(),
            version: match self.authorization_webhook_version.as_deref() {
                Some("v1") => ReviewVersion::V1,
                _ => ReviewVersion::V1beta1,
            },
            authorized_ttl: seconds(self.authorization_webhook_cache_authorized_ttl, 300),
            unauthorized_ttl: seconds(self.authorization_webhook_cache_unauthorized_ttl, 30),
        };
        Ok(authz::Config {
            modes,
            file: None,
            policy_file: self.authorization_policy_file.clone(),
            webhook: self.authorization_webhook_config_file.as_ref().map(webhook),
        })
    }
}

impl Oidc {
    fn is_given(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        texts.iter().any(|text| text.is_some())
            || self.oidc_ca_file.is_some()
            || !self.oidc_signing_algs.is_empty()
            || !self.oidc_required_claim.is_empty()
    }

    fn flags(&self) -> anyhow::Result<Option<oidc::Flags>> {
        if !self.is_given() {
            return Ok(None);
        }
        let text = |given: &Option<String>| given.clone().unwrap_or_default();
        let (issuer_url, client_id) = (text(&self.oidc_issuer_url), text(&self.oidc_client_id));
        ensure!(
            !issuer_url.is_empty() && !client_id.is_empty(),
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
        );
        let mut required_claims = BTreeMap::new();
        for pair in &self.oidc_required_claim {
            let Some((claim, value)) = pair.split_once('=') else {
                bail!("--oidc-required-claim: malformed pair, expect string=string");
            };
            required_claims.insert(claim.to_owned(), value.to_owned());
        }
        Ok(Some(oidc::Flags {
            issuer_url,
            client_id,
            ca_file: self.oidc_ca_file.clone(),
            username_claim: self.oidc_username_claim.clone().unwrap_or_else(|| "sub".into()),
            username_prefix: text(&self.oidc_username_prefix),
            groups_claim: text(&self.oidc_groups_claim),
            groups_prefix: text(&self.oidc_groups_prefix),
            algorithms: self.oidc_signing_algs.clone(),
            required_claims,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        flags: Flags,
    }

    fn options(line: &str) -> anyhow::Result<Options> {
        let words = std::iter::once("knarr").chain(line.split(' ').filter(|word| !word.is_empty()));
        let given = Given::try_parse_from(words)?;
        given.flags.options(Defaults { modes: &[Mode::Node, Mode::Rbac] }, Options::default())
    }

    #[test]
    fn what_does_not_go_together_is_refused_as_upstream_does() {
        let check = |line: &str, expected: &str| {
            let told = options(line).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains(expected), "{line}: {told}");
        };
        check("--authorization-mode=ABAC", "authorization policy file not passed");
        check("--authorization-mode=Webhook", "authorization config file not passed");
        check("--authorization-mode=RBAC,RBAC", "specified more than once");
        check("--authorization-mode=rbac", "is not a valid mode");
        check("--authorization-policy-file=a", "without mode ABAC");
        check("--authorization-webhook-config-file=a", "without mode Webhook");
        check("--authorization-config=a --authorization-mode=RBAC", "can not be specified when");
        check("--oidc-issuer-url=https://a", "must be specified together");
        check("--oidc-groups-claim=groups", "must be specified together");
        check("--oidc-issuer-url=https://a --oidc-client-id=b --authentication-config=c", "mutually exclusive");
        check("--oidc-signing-algs=ES512", "unsupported signing alg");
        check("--service-account-jwks-uri=http://a", "requires https scheme");
        check("--service-account-issuer=a --service-account-issuer=a", "already specified");
    }

    #[test]
    fn what_is_said_is_taken() {
        let line = "--oidc-issuer-url=https://sso --oidc-client-id=k --oidc-username-prefix=- \
            --oidc-required-claim=a=b --anonymous-auth=false --service-account-max-token-expiration=24h \
            --authorization-mode=Node,RBAC,Webhook --authorization-webhook-config-file=w";
        let options = options(line).unwrap();
        let oidc = options.authentication.oidc.unwrap();
        assert_eq!((oidc.username_claim.as_str(), oidc.username_prefix.as_str()), ("sub", "-"));
        assert_eq!(oidc.required_claims["a"], "b");
        assert!(!options.anonymous);
        assert_eq!(options.token_expiration_max, Some(Duration::from_secs(86_400)));
        assert_eq!(options.authorization.webhook.unwrap().authorized_ttl, Duration::from_secs(300));
    }
}

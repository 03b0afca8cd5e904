//! Reads `CredentialProviderConfig` files: which programs of the host give credentials for which images.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kubelet::images::providers::{CacheType, Provider, Settings, TokenAttributes};
use serde::Deserialize;
use serde_json::Value;

#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct Flags {
    /// CredentialProviderConfig file, or directory of such files: programs that give credentials for images.
    #[arg(long, env = "KNARR_IMAGE_CREDENTIAL_PROVIDER_CONFIG")]
    pub image_credential_provider_config: Option<PathBuf>,
    /// Directory of the programs of --image-credential-provider-config.
    #[arg(long, env = "KNARR_IMAGE_CREDENTIAL_PROVIDER_BIN_DIR")]
    pub image_credential_provider_bin_dir: Option<PathBuf>,
}

impl Flags {
    pub fn settings(&self) -> anyhow::Result<Option<Settings>> {
        match (&self.image_credential_provider_config, &self.image_credential_provider_bin_dir) {
            (None, None) => Ok(None),
            (Some(config), Some(bin_dir)) => {
                let settings = read(config, bin_dir).with_context(|| format!("use {}", config.display()))?;
                Ok(Some(settings))
            }
            _ => bail!("--image-credential-provider-config and --image-credential-provider-bin-dir belong together"),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: String,
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    token_attributes: Option<Token>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Token {
    service_account_token_audience: String,
    cache_type: CacheTypeName,
    require_service_account: bool,
    #[serde(default)]
    required_service_account_annotation_keys: Vec<String>,
    #[serde(default)]
    optional_service_account_annotation_keys: Vec<String>,
}

#[derive(Deserialize)]
enum CacheTypeName {
    ServiceAccount,
    Token,
}

const VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];

fn read(path: &Path, bin_dir: &Path) -> anyhow::Result<Settings> {
    ensure!(bin_dir.is_dir(), "plugin binary directory {} did not exist", bin_dir.display());
    let mut providers = Vec::new();
    for file in files(path)? {
        let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        providers.extend(parse(&bytes).with_context(|| format!("error decoding config {:?}", file.display()))?);
    }
    let settings = Settings { bin_dir: bin_dir.to_path_buf(), providers };
    settings.check().context("failed to validate credential provider config")?;
    for provider in &settings.providers {
        let program = bin_dir.join(&provider.name);
        ensure!(program.is_file(), "plugin binary executable {} did not exist", program.display());
    }
    Ok(settings)
}

/// The file, or those of the folder in the order of their names.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
    let is_config = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        path.is_file() && matches!(extension, Some("json" | "yaml" | "yml"))
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_config).collect();
    files.sort();
    ensure!(!files.is_empty(), "no configuration files found in directory {:?}", path.display());
    Ok(files)
}

fn parse(bytes: &[u8]) -> anyhow::Result<Vec<Provider>> {
    let decoded = machinery::codec::decode_yaml(bytes).map_err(|error| anyhow::anyhow!("{error}"))?;
    let value: Value = machinery::codec::without_nulls(decoded.value);
    let file: File = serde_json::from_value(value)?;
    ensure!(file.kind == "CredentialProviderConfig", "failed to decode {:?} (wrong Kind)", file.kind);
    ensure!(VERSIONS.contains(&file.api_version.as_str()), "no kind CredentialProviderConfig of {}", file.api_version);
    file.providers.into_iter().map(provider).collect()
}

fn provider(written: Written) -> anyhow::Result<Provider> {
    let duration: Duration = crate::leader::duration(&written.default_cache_duration)
        .map_err(|error| anyhow::anyhow!("defaultCacheDuration: {error}"))?;
    let token = |token: Token| TokenAttributes {
        audience: token.service_account_token_audience,
        cache_type: match token.cache_type {
            CacheTypeName::ServiceAccount => CacheType::ServiceAccount,
            CacheTypeName::Token => CacheType::Token,
        },
        require_service_account: token.require_service_account,
        required_annotations: token.required_service_account_annotation_keys,
        optional_annotations: token.optional_service_account_annotation_keys,
    };
    Ok(Provider {
        name: written.name,
        match_images: written.match_images,
        default_cache_duration: duration,
        api_version: written.api_version,
        args: written.args,
        env: written.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        token: written.token_attributes.map(token),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As upstream's documentation has it.
    const EXAMPLE: &str = r#"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: ecr-credential-provider
    matchImages: ["*.dkr.ecr.*.amazonaws.com"]
    defaultCacheDuration: "12h"
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    args: [get-credentials]
    env: [{name: AWS_PROFILE, value: example}]
    tokenAttributes:
      serviceAccountTokenAudience: my-audience
      cacheType: ServiceAccount
      requireServiceAccount: true
      requiredServiceAccountAnnotationKeys: [example.com/role]
"#;

    #[test]
    fn files_are_read_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let (config, bin) = (folder.path().join("config.yaml"), folder.path().join("bin"));
        std::fs::write(&config, EXAMPLE).unwrap();
        let outcome = |path: &Path| read(path, &bin).map_err(|error| format!("{error:#}"));
        assert!(outcome(&config).unwrap_err().contains("plugin binary directory"));
        std::fs::create_dir(&bin).unwrap();
        assert!(outcome(&config).unwrap_err().contains("plugin binary executable"));
        std::fs::write(bin.join("ecr-credential-provider"), "").unwrap();
        let settings = outcome(&config).unwrap();
        let provider = &settings.providers[0];
        assert_eq!((provider.default_cache_duration, provider.args.len()), (Duration::from_secs(12 * 3600), 1));
        assert_eq!(provider.token.as_ref().unwrap().required_annotations, ["example.com/role"]);
        let check = |text: &str, expected: &str| {
            std::fs::write(&config, text).unwrap();
            let error = outcome(&config).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(&EXAMPLE.replace("CredentialProviderConfig", "Other"), "wrong Kind");
        check(&EXAMPLE.replace("args:", "argv:"), "unknown field `argv`");
        check(&EXAMPLE.replace("[\"*.dkr.ecr.*.amazonaws.com\"]", "[]"), "at least 1 item in matchImages");
        check("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n", "at least 1 item in plugins");
        let empty = folder.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        assert!(outcome(&empty).unwrap_err().contains("no configuration files found"));
    }
}

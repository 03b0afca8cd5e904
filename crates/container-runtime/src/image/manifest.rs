//! Indexes, manifests and configurations, of OCI and of Docker: the same shapes under other media types.

use std::collections::HashMap;

use serde::Deserialize;
use sha2::Digest as _;

use super::ImageConfig;
use super::error::ImageError;
use super::reference::is_digest;

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Larger indexes, manifests and configurations are refused.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 8 << 20;
/// More layers than overlayfs can stack.
const LAYERS_MAX: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Descriptor {
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    pub platform: Option<DescriptorPlatform>,
    #[serde(deserialize_with = "machinery::codec::null_as_default")]
    pub annotations: HashMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct DescriptorPlatform {
    pub os: String,
    pub architecture: String,
    pub variant: Option<String>,
}

/// What a manifest's bytes turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Manifest {
    Index(Vec<Descriptor>),
    Image { config: Descriptor, layers: Vec<Descriptor> },
}

impl Manifest {
    /// The shape decides and not the media type, which may be missing; a document that is both is refused, for two readers
    /// could see two images in it.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ImageError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            #[serde(default)]
            schema_version: u32,
            manifests: Option<Vec<Descriptor>>,
            config: Option<Descriptor>,
            layers: Option<Vec<Descriptor>>,
        }
        let wire: Wire = serde_json::from_slice(bytes)
            .map_err(|error| ImageError::Invalid(format!("cannot decode manifest: {error}")))?;
        let descriptors = match wire {
            Wire { manifests: Some(_), config: Some(_), .. } | Wire { manifests: Some(_), layers: Some(_), .. } => {
                return Err(ImageError::Invalid("manifest is both an index and an image".to_owned()));
            }
            Wire { manifests: Some(manifests), .. } => Manifest::Index(manifests),
            Wire { config: Some(config), layers, .. } => Manifest::Image { config, layers: layers.unwrap_or_default() },
            Wire { schema_version: 1, .. } => {
                return Err(ImageError::Invalid(
                    "media type \"application/vnd.docker.distribution.manifest.v1+prettyjws\" is no longer supported"
                        .to_owned(),
                ));
            }
            _ => return Err(ImageError::Invalid("manifest is neither an index nor an image".to_owned())),
        };
        let all: Vec<&Descriptor> = match &descriptors {
            Manifest::Index(manifests) => manifests.iter().collect(),
            Manifest::Image { config, layers } if layers.len() <= LAYERS_MAX => {
                std::iter::once(config).chain(layers).collect()
            }
            Manifest::Image { layers, .. } => {
                return Err(ImageError::Invalid(format!("image has {} layers, more than {LAYERS_MAX}", layers.len())));
            }
        };
        match all.iter().find(|descriptor| !is_digest(&descriptor.digest)) {
            Some(bad) => Err(ImageError::Invalid(format!("manifest names the digest {:?}", bad.digest))),
            None => Ok(descriptors),
        }
    }
}

/// The part of an image's configuration that is used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configuration {
    pub config: ImageConfig,
    pub diff_ids: Vec<String>,
}

impl Configuration {
    pub fn parse(bytes: &[u8]) -> Result<Configuration, ImageError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Wire {
            architecture: Option<String>,
            os: Option<String>,
            config: Option<WireConfig>,
            rootfs: Option<RootFs>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct WireConfig {
            user: Option<String>,
            env: Option<Vec<String>>,
            entrypoint: Option<Vec<String>>,
            cmd: Option<Vec<String>>,
            working_dir: Option<String>,
            stop_signal: Option<String>,
            volumes: Option<std::collections::BTreeMap<String, serde_json::Value>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RootFs {
            diff_ids: Option<Vec<String>>,
        }
        let wire: Wire = serde_json::from_slice(bytes)
            .map_err(|error| ImageError::Invalid(format!("cannot decode image configuration: {error}")))?;
        let config = wire.config.unwrap_or_default();
        let diff_ids = wire.rootfs.unwrap_or_default().diff_ids.unwrap_or_default();
        if let Some(bad) = diff_ids.iter().find(|diff_id| !is_digest(diff_id)) {
            return Err(ImageError::Invalid(format!("image configuration names the layer {bad:?}")));
        }
        let config = ImageConfig {
            user: config.user.unwrap_or_default(),
            env: config.env.unwrap_or_default(),
            entrypoint: config.entrypoint.unwrap_or_default(),
            cmd: config.cmd.unwrap_or_default(),
            working_dir: config.working_dir.unwrap_or_default(),
            stop_signal: config.stop_signal.filter(|signal| !signal.is_empty()),
            volumes: config.volumes.unwrap_or_default().into_keys().collect(),
            architecture: wire.architecture.unwrap_or_default(),
            os: wire.os.unwrap_or_default(),
        };
        Ok(Configuration { config, diff_ids })
    }
}

/// `sha256:...` of some bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

/// The digits of a digest that was checked before.
pub(crate) fn digits(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_decide() {
        let digest = digest_of(b"");
        let image = format!(r#"{{"schemaVersion":2,"config":{{"digest":"{digest}","size":2}},"layers":[]}}"#);
        assert!(matches!(Manifest::parse(image.as_bytes()), Ok(Manifest::Image { .. })));
        let index =
            format!(r#"{{"manifests":[{{"digest":"{digest}","platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#);
        assert!(matches!(Manifest::parse(index.as_bytes()), Ok(Manifest::Index(list)) if list.len() == 1));
        for bad in [
            r#"{"manifests":[],"config":{}}"#,
            r#"{"manifests":[{"digest":"sha256:../../x"}]}"#,
            r#"{"schemaVersion":1,"fsLayers":[]}"#,
            "[]",
            "{}",
        ] {
            assert!(Manifest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn nulls_in_a_configuration_are_nothing() {
        let text = r#"{"architecture":"amd64","os":"linux","config":{"Env":null,"Cmd":["sh"],"Volumes":{"/data":{}},"User":"7"}}"#;
        let parsed = Configuration::parse(text.as_bytes()).unwrap().config;
        assert_eq!(
            (parsed.cmd, parsed.volumes, parsed.user.as_str()),
            (vec!["sh".to_owned()], vec!["/data".to_owned()], "7")
        );
        assert!(Configuration::parse(br#"{"rootfs":{"diff_ids":["../../etc"]}}"#).is_err());
    }
}

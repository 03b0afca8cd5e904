//! Kinds and versions that are served only where `--runtime-config` asks for them, as upstream has them: betas and alphas.
//! What is stored is a version that is always served, or the newest of these.

use machinery::kind::Kind;
use serde_json::Value;

use crate::{
    KINDS, admissionregistration, certificates, coordination, core, networking, resource, storage, storagemigration,
};

/// A kind that is off by default.
pub struct Optional {
    pub kind: &'static Kind,
    /// The feature gate without which upstream does not serve it either.
    pub gate: Option<&'static str>,
    /// The minor versions in which it is deprecated and removed, where the first has come.
    deprecated: Option<(u8, u8)>,
}

/// In discovery order within their groups.
pub static OPTIONAL: &[Optional] = &[
    since(&networking::v1beta1::IP_ADDRESS, 34),
    since(&networking::v1beta1::SERVICE_CIDR, 34),
    since(&storage::v1beta1::VOLUME_ATTRIBUTES_CLASS, 34),
    plain(&admissionregistration::older::POLICY_V1BETA1),
    plain(&admissionregistration::older::BINDING_V1BETA1),
    since(&admissionregistration::older::POLICY_V1ALPHA1, 35),
    since(&admissionregistration::older::BINDING_V1ALPHA1, 35),
    since(&coordination::leasecandidate::KIND, 36),
    since(&coordination::leasecandidate::V1ALPHA2, 35),
    Optional { gate: Some("ClusterTrustBundle"), ..plain(&certificates::clustertrustbundle::KIND) },
    Optional { gate: Some("ClusterTrustBundle"), ..since(&certificates::clustertrustbundle::V1ALPHA1, 34) },
    Optional { gate: Some("PodCertificateRequest"), ..plain(&certificates::podcertificaterequest::KIND) },
    since(&resource::v1beta2::DEVICE_CLASS, 36),
    since(&resource::v1beta2::RESOURCE_CLAIM, 36),
    since(&resource::v1beta2::RESOURCE_CLAIM_TEMPLATE, 36),
    since(&resource::v1beta2::RESOURCE_SLICE, 36),
    since(&resource::v1beta1::DEVICE_CLASS, 35),
    since(&resource::v1beta1::RESOURCE_CLAIM, 35),
    since(&resource::v1beta1::RESOURCE_CLAIM_TEMPLATE, 35),
    since(&resource::v1beta1::RESOURCE_SLICE, 35),
    Optional { gate: Some("StorageVersionMigrator"), ..plain(&storagemigration::storageversionmigration::KIND) },
];

/// Every kind there is, served by default or not.
pub fn every_kind() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().chain(OPTIONAL.iter().map(|optional| optional.kind))
}

const fn plain(kind: &'static Kind) -> Optional {
    Optional { kind, gate: None, deprecated: None }
}

/// Deprecated since that version, and removed three later.
const fn since(kind: &'static Kind, minor: u8) -> Optional {
    Optional { deprecated: Some((minor, minor + 3)), ..plain(kind) }
}

/// What upstream says of a deprecated version, and the release without it; empty where that is not known.
pub fn deprecation(kind: &Kind) -> Option<(String, String)> {
    if let Some(text) = core::deprecation(kind.group, kind.version, kind.kind) {
        return Some((text.to_owned(), String::new()));
    }
    let is_it = |optional: &&Optional| optional.kind.schema == kind.schema && optional.kind.group == kind.group;
    let (since, removed) = OPTIONAL.iter().find(is_it)?.deprecated?;
    let name = format!("{} {}", kind.api_version(), kind.kind);
    let mut text = format!("{name} is deprecated in v1.{since}+, unavailable in v1.{removed}+");
    // The only one of these whose type names what to use instead.
    if kind.kind == "VolumeAttributesClass" {
        text += "; use storage.k8s.io/v1 VolumeAttributesClass";
    }
    Some((text, format!("1.{removed}")))
}

/// The object under another apiVersion.
pub(crate) fn named(mut object: Value, api_version: &str) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
    }
    object
}

#[cfg(test)]
mod tests {
    use machinery::schema::conform::{Problems, conform};
    use serde_json::json;

    use super::*;
    use crate::schema::type_of;

    fn stored(kind: &Kind) -> &'static Kind {
        let convert = kind.convert.as_ref().expect("a version that is converted");
        let is_it =
            |other: &&Kind| (other.group, other.version, other.kind) == (convert.group, convert.version, kind.kind);
        every_kind().find(is_it).expect("the stored version is in the table")
    }

    #[test]
    fn another_version_is_the_same_resource() {
        for Optional { kind, .. } in OPTIONAL.iter().filter(|optional| optional.kind.convert.is_some()) {
            let stored = stored(kind);
            assert_eq!((kind.plural, kind.scope, kind.storage), (stored.plural, stored.scope, stored.storage));
            assert!(stored.convert.is_none(), "{} is stored as it is", stored.kind);
            assert_ne!(kind.schema, stored.schema);
        }
    }

    #[test]
    fn old_versions_are_told_as_upstream_tells_them() {
        let told = |kind: &Kind| deprecation(kind).map(|(text, _)| text);
        assert_eq!(
            told(&storage::v1beta1::VOLUME_ATTRIBUTES_CLASS).as_deref(),
            Some(
                "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use \
                 storage.k8s.io/v1 VolumeAttributesClass"
            )
        );
        let (text, removed) = deprecation(&resource::v1beta1::RESOURCE_SLICE).expect("it is deprecated");
        assert_eq!(text, "resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+");
        assert_eq!(removed, "1.38");
        assert_eq!(told(&admissionregistration::older::POLICY_V1BETA1), None);
        assert!(KINDS.iter().filter(|kind| deprecation(kind).is_some()).count() == 2, "Endpoints and ComponentStatus");
    }

    /// What a stored object says in an older version makes the way there and back.
    #[test]
    fn conversions_lose_nothing() {
        let metadata = json!({"name": "x", "creationTimestamp": null});
        let claim = json!({"devices": {
            "requests": [
                {"name": "a", "exactly": {
                    "deviceClassName": "c", "allocationMode": "ExactCount", "count": 2, "adminAccess": true,
                    "selectors": [{"cel": {"expression": "true"}}],
                    "tolerations": [{"key": "k", "operator": "Exists"}], "capacity": {"requests": {"memory": "1Gi"}},
                }},
                {"name": "b", "firstAvailable": [
                    {"name": "one", "deviceClassName": "c", "allocationMode": "All", "tolerations": [{"key": "k", "operator": "Equal"}]},
                ]},
            ],
            "constraints": [{"requests": ["a"], "matchAttribute": "d.io/x"}],
        }});
        let slice = json!({
            "driver": "d.io", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n",
            "devices": [
                {"name": "one", "attributes": {"a": {"int": 1}, "b": {"string": ""}}, "capacity": {"memory": {"value": "1Gi"}},
                 "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}], "bindsToNode": true},
                {"name": "two"},
            ],
        });
        for (kind, spec) in [
            ("ResourceClaim", claim.clone()),
            ("ResourceClaimTemplate", json!({"spec": claim, "metadata": {"labels": {"a": "b"}}})),
            ("ResourceSlice", slice),
            ("DeviceClass", json!({"selectors": [{"cel": {"expression": "true"}}]})),
        ] {
            for Optional { kind, .. } in OPTIONAL.iter().filter(|optional| optional.kind.kind == kind) {
                let object =
                    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind.kind, "metadata": metadata, "spec": spec});
                let conformed = |mut object: Value, kind: &Kind| {
                    let mut problems = Problems::default();
                    conform(&mut object, type_of(kind), &mut problems)
                        .unwrap_or_else(|error| panic!("{error}: {object}"));
                    assert_eq!(problems.unknown, Vec::<String>::new(), "{} {}", kind.version, kind.kind);
                    object
                };
                let object = conformed(object, stored(kind));
                let convert = kind.convert.as_ref().expect("it is converted");
                let shown = conformed((convert.from_storage)(object.clone()), kind);
                assert_eq!(shown["apiVersion"], kind.api_version());
                assert_eq!(
                    conformed((convert.to_storage)(shown), stored(kind)),
                    object,
                    "{} {}",
                    kind.version,
                    kind.kind
                );
            }
        }
    }
}

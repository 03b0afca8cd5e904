//! The volumes of a pod: exactly one source each, unique names.

use std::collections::BTreeSet;

use machinery::field::{Errors, Problem};
use machinery::names;
use machinery::node::Node;

use super::text::{dns_label, push};
use super::{Volumes, volume_sources};

/// Every kind of source in the order upstream looks at them.
const KINDS: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks the volumes, and answers with the good ones by name: a mount may only use those.
pub(super) fn volumes<'a>(errors: &mut Errors, list: &Node<'a>, pod_name: &str) -> Volumes<'a> {
    let mut good = Volumes::new();
    // The claims that are made for this pod alone. In a template their names are not known yet.
    let ephemeral = list.items().filter(|volume| !pod_name.is_empty() && volume.has("ephemeral"));
    let made: BTreeSet<String> = ephemeral.map(|volume| format!("{pod_name}-{}", volume.text("name"))).collect();
    for volume in list.items() {
        let (name, claim) = (volume.at("name"), volume.at("persistentVolumeClaim").at("claimName"));
        let before = errors.0.len();
        source(errors, &volume, pod_name);
        match name.str() {
            "" => errors.required(&name, ""),
            _ => dns_label(errors, &name),
        }
        if good.contains_key(name.str()) {
            errors.duplicate(&name);
        }
        if errors.0.len() == before {
            good.insert(name.str(), volume);
        }
        if made.contains(claim.str()) {
            errors.invalid(&claim, "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    good
}

fn source(errors: &mut Errors, volume: &Node, pod_name: &str) {
    let name = volume.at("name");
    let mut found = false;
    for kind in KINDS.iter().filter(|kind| volume.has(kind)) {
        let source = volume.at(kind);
        if found {
            // Two of upstream's paths differ from the field's name.
            let field = match *kind {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                kind => kind,
            };
            errors.forbidden(
                &Node::new(source.value, volume.path.child(field)),
                "may not specify more than 1 volume type",
            );
        } else {
            found = true;
            volume_sources::validate(errors, kind, &source);
            if *kind == "ephemeral" && !pod_name.is_empty() && !name.str().is_empty() {
                let claim = format!("{pod_name}-{}", name.str());
                for problem in names::dns_subdomain(&claim) {
                    errors.invalid(&name, format!("PVC name {claim:?}: {problem}"));
                }
            }
        }
        if *kind == "iscsi"
            && source.has("initiatorName")
            && name.str().len() + 1 + source.text("targetPortal").len() > 64
        {
            errors.invalid(
                &name,
                "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                 iscsi.initiatorName is specified.",
            );
        }
    }
    if !found {
        errors.required(volume, "must specify a volume type");
    }
}

/// The claims on devices that a pod makes: `spec.resourceClaims`.
pub(super) fn resource_claims(errors: &mut Errors, list: &Node) {
    let mut seen = BTreeSet::new();
    for claim in list.items() {
        let name = claim.at("name");
        if name.str().is_empty() {
            errors.required(&name, "");
        } else if !seen.insert(name.str()) {
            errors.duplicate(&name);
        } else {
            dns_label(errors, &name);
        }
        let (by_name, by_template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        let detail = match (by_name.exists(), by_template.exists()) {
            (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !detail.is_empty() {
            let value = super::text::go_struct(
                claim.value,
                &[
                    ("Name", "name"),
                    ("ResourceClaimName", "resourceClaimName"),
                    ("ResourceClaimTemplateName", "resourceClaimTemplateName"),
                ],
            );
            errors.push(machinery::field::FieldError::new(Problem::Invalid, &claim.path, value, detail));
        }
        for reference in [by_name, by_template] {
            if reference.exists() {
                for problem in names::dns_subdomain(reference.str()) {
                    push(errors, Problem::Invalid, &reference.path, reference.value, problem);
                }
            }
        }
    }
}

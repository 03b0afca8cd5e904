//! `persistentVolumeClaim` and `ephemeral`: the volume that a claim is bound to, when this node can reach it.

use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume as VolumeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Error, Problem, Request, Type, Volume, block, csi, expand, host_path, local, nfs, node_affinity, unsupported,
};

pub(super) static TYPE: Type = Type {
    is: |volume| volume.persistent_volume_claim.is_some(),
    mount: |request| {
        async move {
            let (name, read_only) = of(request.pod, request.volume).unwrap_or_default();
            mount(request, &name, read_only, |_, _| Ok(())).await
        }
        .boxed()
    },
};

/// A claim made for this pod alone, `<pod>-<volume>`.
pub(super) static EPHEMERAL: Type = Type {
    is: |volume| volume.ephemeral.is_some(),
    mount: |request| {
        async move {
            let (name, read_only) = of(request.pod, request.volume).unwrap_or_default();
            mount(request, &name, read_only, owned_by_pod).await
        }
        .boxed()
    },
};

/// The name of a volume's claim, and whether the pod may only read it.
pub(super) fn of(pod: &Pod, volume: &VolumeSpec) -> Option<(String, bool)> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some((source.claim_name.clone(), source.read_only.unwrap_or(false)));
    }
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    volume.ephemeral.as_ref().map(|_| (format!("{pod}-{}", volume.name), false))
}

async fn mount(
    request: Request<'_>,
    name: &str,
    read_only: bool,
    allowed: fn(&PersistentVolumeClaim, &Pod) -> Result<(), Error>,
) -> Result<Volume, Problem> {
    let namespace = request.namespace();
    let unprocessed = |error: Error| Problem::Unprocessed(format!("error processing PVC {namespace}/{name}: {error}"));
    let objects = request.objects;
    let claim = objects.claim(namespace, name).await;
    let claim = claim.map_err(|source| unprocessed(Error::FetchClaim { name: name.to_owned(), source }))?;
    allowed(&claim, request.pod).map_err(unprocessed)?;
    let bound = bound_volume(&claim).map_err(unprocessed)?;
    let volume = objects.persistent_volume(bound).await;
    let volume = volume.map_err(|source| unprocessed(Error::FetchVolume { name: bound.to_owned(), source }))?;
    for_claim(&volume, &claim).map_err(unprocessed)?;
    check_node(&request, &volume).await?;
    check_alone(&request, &volume)?;
    let place = place(request, &volume, &claim, read_only).await?;
    if !read_only {
        expand::expand(&request, &claim, &volume).await?;
    }
    Ok(place)
}

/// The name of the claim's volume, when claim and volume have found each other for good.
fn bound_volume(claim: &PersistentVolumeClaim) -> Result<&str, Error> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Error::ClaimDeleted);
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    match (phase, name) {
        (Some("Bound"), name) if !name.is_empty() => Ok(name),
        _ => Err(Error::ClaimUnbound),
    }
}

fn for_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Error> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match reference {
        None => Err(Error::NoClaimRef(name.to_owned())),
        Some(reference) if reference.uid != claim.metadata.uid => Err(Error::ClaimRef {
            volume: name.to_owned(),
            found: reference.uid.clone().unwrap_or_default(),
            expected: claim.metadata.uid.clone().unwrap_or_default(),
        }),
        Some(_) => Ok(()),
    }
}

/// A claim of that name that somebody else made must not be used: its data are not the pod's.
fn owned_by_pod(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), Error> {
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    if controllers.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()) {
        Ok(())
    } else {
        Err(Error::NotOwner { claim: full_name(&claim.metadata), pod: full_name(&pod.metadata) })
    }
}

fn full_name(metadata: &ObjectMeta) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}

async fn check_node(request: &Request<'_>, volume: &PersistentVolume) -> Result<(), Problem> {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return Ok(()) };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let failed =
        |error: Error| Problem::Message(format!("MountVolume.NodeAffinity check failed for volume {name:?} : {error}"));
    let node = request.objects.node(request.node_name).await;
    let node = node.map_err(|error| failed(error.into()))?;
    if node_affinity::matches(required, &node) { Ok(()) } else { Err(failed(Error::NodeAffinity)) }
}

/// Pods that name their node pass the scheduler by, which otherwise sees to it that a volume for one pod has one.
fn check_alone(request: &Request<'_>, volume: &PersistentVolume) -> Result<(), Problem> {
    let modes = volume.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let is_for_one = modes.into_iter().any(|mode| mode == "ReadWriteOncePod");
    if !is_for_one || !request.folders.is_used_by_another(request.uid(), name) {
        return Ok(());
    }
    let why = Error::InUse;
    if volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block") {
        return Err(Problem::Map(format!("MapVolume.SetUpDevice failed for volume {name:?} : {why}")));
    }
    Err(Problem::Message(format!("MountVolume.SetUp failed for volume {name:?} : {why}")))
}

async fn place(
    request: Request<'_>,
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    read_only: bool,
) -> Result<Volume, Problem> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let spec = volume.spec.clone().unwrap_or_default();
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    block::check_mode(request.pod, &request.volume.name, is_block)?;
    if spec.csi.is_some() {
        return csi::mount(request, volume, claim, read_only).await;
    }
    if is_block {
        return match spec.local {
            Some(source) => block::map(&request, name, &source.path, read_only).await,
            None => {
                let why = "no block volume plugin matched";
                Err(Problem::Map(format!("MapVolume.SetUpDevice failed for volume {name:?} : {why}")))
            }
        };
    }
    if let Some(source) = spec.host_path {
        return host_path::place(source, read_only).await.map_err(|problem| named(problem, name));
    }
    if let Some(source) = spec.local {
        let options = spec.mount_options.unwrap_or_default();
        let done = local::mount(&request, name, &source, read_only, &options).await;
        return done.map_err(|problem| named(problem, name));
    }
    if let Some(source) = spec.nfs {
        let options = spec.mount_options.unwrap_or_default();
        let done = nfs::mount(&request, name, &source, read_only, &options).await;
        return done.map_err(|problem| named(problem, name));
    }
    let name = &request.volume.name;
    Err(match (spec.iscsi, spec.fc) {
        (Some(_), _) => unsupported::disk(name, "iSCSI"),
        (None, Some(_)) => unsupported::disk(name, "Fibre Channel"),
        (None, None) => unsupported::no_plugin(name),
    })
}

/// Messages about what a claim stands for carry the name of the persistent volume.
fn named(problem: Problem, volume: &str) -> Problem {
    Problem::Message(problem.message(volume))
}

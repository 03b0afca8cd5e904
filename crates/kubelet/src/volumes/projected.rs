//! `projected`: ConfigMaps, Secrets, downward API, tokens, trust bundles and certificates in one folder. Also how every volume of files is shown.

use futures::FutureExt;
use k8s_openapi::api::core::v1::{PodCertificateProjection, ServiceAccountTokenProjection, VolumeProjection};
use reconcile::events::{EventType, reference};

use super::empty_dir::{self, Medium};
use super::payload::{DEFAULT_MODE, File, Payload};
use super::{
    Error, Problem, Request, Type, Volume, atomic_writer, blocking, config_map, downward_api, ownership, secret,
    trust_bundle,
};
use crate::pod_certificates::{Events, Key};

pub(super) static TYPE: Type =
    Type { is: |volume| volume.projected.is_some(), mount: |request| mount(request).boxed() };

const PLUGIN: &str = "kubernetes.io~projected";

/// What only the user of a pod may read, when that user is known.
const PRIVATE_MODE: u32 = 0o600;

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let source = request.volume.projected.clone().unwrap_or_default();
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
    let mut payload = Payload::new();
    let mut errors = Vec::new();
    for (index, source) in source.sources.iter().flatten().enumerate() {
        match files(&request, index, source, mode).await {
            Ok(files) => payload.extend(files),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(Error::Several(errors).into());
    }
    show(&request, PLUGIN, empty_dir::memory(&request, None).await, payload).await
}

async fn files(request: &Request<'_>, index: usize, source: &VolumeProjection, mode: i32) -> Result<Payload, Error> {
    if let Some(source) = &source.config_map {
        let optional = source.optional.unwrap_or(false);
        return config_map::files(request, &source.name, source.items.as_deref(), mode, optional).await;
    }
    if let Some(source) = &source.secret {
        let optional = source.optional.unwrap_or(false);
        return secret::files(request, &source.name, source.items.as_deref(), mode, optional).await;
    }
    if let Some(source) = &source.downward_api {
        return downward_api::files(request, source.items.as_deref().unwrap_or_default(), mode).await;
    }
    if let Some(source) = &source.service_account_token {
        return token(request, source, mode).await;
    }
    if let Some(source) = &source.cluster_trust_bundle {
        let data = trust_bundle::certificates(request.objects, source).await?;
        return Ok(Payload::from([(source.path.clone(), File { data, mode: mode as u32, user: None })]));
    }
    if let Some(source) = &source.pod_certificate {
        return certificate(request, index, source, mode).await;
    }
    Ok(Payload::new())
}

async fn token(request: &Request<'_>, source: &ServiceAccountTokenProjection, mode: i32) -> Result<Payload, Error> {
    let audience = source.audience.as_deref().unwrap_or_default();
    let token = request.tokens.get(request.pod, audience, source.expiration_seconds.unwrap_or(3600)).await?;
    let (mode, user) = private(request, mode);
    Ok(Payload::from([(source.path.clone(), File { data: token.into_bytes(), mode, user })]))
}

/// Mode and owner of what the pod alone may read. With an fsGroup the group is let in later, when the volume is given to it.
fn private(request: &Request<'_>, mode: i32) -> (u32, Option<u32>) {
    let (user, group) = (ownership::fs_user(request.pod), ownership::fs_group(request.pod));
    (if user.is_some() || group.is_some() { PRIVATE_MODE } else { mode as u32 }, user)
}

async fn certificate(
    request: &Request<'_>,
    index: usize,
    source: &PodCertificateProjection,
    mode: i32,
) -> Result<Payload, Error> {
    let key = Key { uid: request.uid().to_owned(), volume: request.volume.name.clone(), source: index };
    let mut events = Events::new();
    let outcome = request.certificates.get(request.pod, &key, source, &mut events).await;
    for (reason, message) in events {
        request.tell(&reference(request.pod), EventType::Warning, reason, message);
    }
    let credential = outcome?;
    let (mode, user) = private(request, mode);
    let bundle = format!("{}{}", credential.key, credential.chain);
    let files = [
        (&source.credential_bundle_path, bundle),
        (&source.key_path, credential.key),
        (&source.certificate_chain_path, credential.chain),
    ];
    let asked =
        files.into_iter().filter_map(|(path, text)| Some((path.clone().filter(|path| !path.is_empty())?, text)));
    Ok(asked.map(|(path, text)| (path, File { data: text.into_bytes(), mode, user })).collect())
}

/// Shows these files in the request's volume, all at once.
pub(super) async fn show(
    request: &Request<'_>,
    plugin: &str,
    medium: Medium,
    payload: Payload,
) -> Result<Volume, Problem> {
    let path = request.path(plugin);
    let group = ownership::fs_group(request.pod);
    let (folder, now) = (path.clone(), request.clock.now());
    blocking(move || {
        let fresh = !folder.join("..data").exists();
        empty_dir::make(&folder, medium)?;
        atomic_writer::write(&folder, &payload, now, |new| ownership::give(new, group, true))?;
        if fresh { ownership::give(&folder, group, true) } else { Ok(()) }
    })
    .await?;
    Ok(Volume::Path { path, read_only: true, relabel: true })
}

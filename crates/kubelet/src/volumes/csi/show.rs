//! Shows a volume to a pod: attached, staged, published, given to the pod's group.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi::v1::{NodePublishVolumeRequest, NodeStageVolumeRequest};
use csi::{Capabilities, Driver};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::CSIDriver;

use super::error::Published;
use super::place::{Mode, Place};
use super::record::{Record, Step, is_mounted};
use super::wanted::{Lifecycle, Wanted};
use super::{
    Error, Problem, REPUBLISH_EVERY, Request, Volume, attach, capability, context, expand, no_driver, selinux,
    take_down,
};
use crate::volumes::folders::make_folder;
use crate::volumes::{block, blocking, ownership};

/// A filesystem that does not even say what is at its root by then is taken to hang.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// Makes the volume ready, or does what has become due for one that is.
pub(super) async fn show(
    request: Request<'_>,
    wanted: &Wanted,
    claim: Option<&PersistentVolumeClaim>,
) -> Result<Volume, Problem> {
    let csi = request.csi;
    let Some(place) = csi.places.of(request.uid(), wanted) else {
        return Err(publish_failed(wanted, Error::InvalidName));
    };
    let object = driver_object(&request, wanted).await?;
    let wanted = &with_label(&request, wanted, object.as_deref())?;
    let republishes = object.as_ref().is_some_and(|driver| driver.spec.requires_republish == Some(true));
    let is_shown = record_of(&place, wanted)?.is_some_and(|record| record.is_done(&csi.boot_id, &place.target));
    let to_expand = claim.filter(|claim| expand::is_wanted(claim));
    if claim.is_some() {
        csi.look_again_in(request.uid(), expand::LOOK_EVERY);
    }
    if is_shown && !republishes && to_expand.is_none() {
        return Ok(shown(&request, wanted, &place));
    }
    let attaches = object.as_ref().is_none_or(|driver| driver.spec.attach_required != Some(false))
        && wanted.lifecycle == Lifecycle::Persistent;
    let publish_context = if attaches { attach::wait(&request, wanted).await? } else { Default::default() };
    let lock = csi.lock(&wanted.unique_name());
    let _one_at_a_time = tokio::select! {
        () = request.ending.cancelled() => return Err(Problem::GivenUp),
        lock = lock.lock() => lock,
    };
    let showing = Showing {
        driver: csi.drivers.get(&wanted.driver),
        object: object.as_deref(),
        publish_context: publish_context.into_iter().collect(),
        request,
        wanted,
        place: &place,
    };
    let mut done = if is_shown && !republishes { Ok(()) } else { showing.run(attaches, is_shown).await };
    if let Some(claim) = to_expand.filter(|_| done.is_ok()) {
        let failed = |error: Error| {
            Problem::Message(format!("MountVolume.NodeExpandVolume failed for volume {:?} : {error}", wanted.name))
        };
        done = expand::expand(&request, wanted, &place, claim).await.map_err(failed);
    }
    match done {
        // The pod has it already, and goes on with what it has.
        Err(problem) if is_shown => {
            tracing::warn!(
                error = ?problem,
                volume = wanted.name,
                driver = wanted.driver,
                "cannot republish CSI volume"
            );
        }
        done => done?,
    }
    if republishes {
        csi.look_again_in(request.uid(), REPUBLISH_EVERY.min(expand::LOOK_EVERY));
    }
    Ok(shown(&request, wanted, &place))
}

fn shown(request: &Request<'_>, wanted: &Wanted, place: &Place) -> Volume {
    request.csi.note_shown(request, wanted, place.target.clone());
    let (path, read_only) = (place.target.clone(), wanted.read_only);
    match place.mode {
        // Files of a volume that is mounted with a label have it.
        Mode::Filesystem => Volume::Path { path, read_only, relabel: !read_only && wanted.label.is_none() },
        Mode::Block => Volume::Device { path: node_of(&path).unwrap_or(path), read_only },
    }
}

/// The device in `/dev` that a driver has put elsewhere: runtimes know devices by their places there.
fn node_of(target: &Path) -> Option<PathBuf> {
    let number = std::fs::metadata(target).ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let node = Path::new("/dev").join(link.file_name()?);
    let is_same = std::fs::metadata(&node).is_ok_and(|found| found.rdev() == number);
    is_same.then_some(node)
}

fn record_of(place: &Place, wanted: &Wanted) -> Result<Option<Record>, Problem> {
    let record = Record::load(&place.record);
    record.map_err(|source| publish_failed(wanted, Error::ReadRecord { path: place.record.clone(), source }))
}

/// The driver's object; not every driver has one.
async fn driver_object(request: &Request<'_>, wanted: &Wanted) -> Result<Option<std::sync::Arc<CSIDriver>>, Problem> {
    let object = match request.objects.csi_driver(&wanted.driver).await {
        Ok(object) => Some(object),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(publish_failed(wanted, error)),
    };
    capability::check_lifecycle(wanted, object.as_deref()).map_err(|error| publish_failed(wanted, error))?;
    Ok(object)
}

fn with_label(request: &Request<'_>, wanted: &Wanted, driver: Option<&CSIDriver>) -> Result<Wanted, Problem> {
    let contexts = linux::selinux::contexts();
    let label = selinux::mount_label(contexts.as_ref(), request.pod, &request.volume.name, wanted, driver);
    let label = label.map_err(|error| Problem::Unprocessed(error.to_string()))?;
    Ok(Wanted { label, ..wanted.clone() })
}

struct Showing<'a> {
    request: Request<'a>,
    wanted: &'a Wanted,
    place: &'a Place,
    driver: Option<Driver>,
    object: Option<&'a CSIDriver>,
    publish_context: std::collections::HashMap<String, String>,
}

impl Showing<'_> {
    async fn run(&self, attaches: bool, is_shown: bool) -> Result<(), Problem> {
        let (wanted, place, csi) = (self.wanted, self.place, self.request.csi);
        let stages = wanted.lifecycle == Lifecycle::Persistent;
        let Some(driver) = &self.driver else { return Err(self.without_driver(stages)) };
        let failed = |error: csi::Error| {
            if stages { stage_failed(wanted, error) } else { publish_failed(wanted, error) }
        };
        let capabilities = driver.capabilities().await.map_err(failed)?;
        if !is_shown {
            // From here on the volume counts as used, whatever comes of it.
            let attachment = attach::name(wanted, self.request.node_name);
            let record = Record::of_pod(wanted, self.request.node_name, attachment, attaches);
            let record = record.labelled(wanted.label.as_deref());
            let before = record_of(place, wanted)?.map_or(Step::Noted, |record| record.step());
            let step = if before == Step::Begun { Step::Begun } else { Step::Noted };
            self.save(&place.record, record.at(step, &csi.boot_id))?;
        }
        if stages && capabilities.stages {
            self.stage(driver, capabilities).await?;
        }
        self.publish(driver, capabilities, is_shown).await?;
        if is_shown {
            return Ok(());
        }
        self.look().await?;
        self.give(capabilities).await?;
        let record = record_of(place, wanted)?.unwrap_or_default();
        self.save(&place.record, record.done(&csi.boot_id, &place.target))
    }

    fn without_driver(&self, stages: bool) -> Problem {
        let name = &self.wanted.driver;
        match (self.place.mode, stages) {
            (Mode::Block, _) => {
                stage_failed(self.wanted, no_driver("blockMapper.SetUpDevice failed to get CSI client", name))
            }
            (Mode::Filesystem, true) => {
                let step = "attacher.MountDevice failed to create newCsiDriverClient";
                stage_failed(self.wanted, no_driver(step, name))
            }
            (Mode::Filesystem, false) => {
                publish_failed(self.wanted, no_driver("mounter.SetUpAt failed to get CSI client", name))
            }
        }
    }

    async fn stage(&self, driver: &Driver, capabilities: Capabilities) -> Result<(), Problem> {
        let (wanted, place, csi) = (self.wanted, self.place, self.request.csi);
        let failed = |error: Error| stage_failed(wanted, error);
        let known = Record::load(&place.stage_record).map_err(|error| failed(error.into()))?;
        if let Some(record) = known.as_ref().filter(|record| record.is_done(&csi.boot_id, &place.staging)) {
            if record.label() == wanted.label.as_deref() {
                return Ok(());
            }
            // It is unstaged when its last pod is gone, and staged again with the other label.
            let text = |label: Option<&str>| label.unwrap_or_default().to_owned();
            let (old, new) = (text(record.label()), text(wanted.label.as_deref()));
            return Err(failed(Error::Labels { volume: wanted.name.clone(), old, new }));
        }
        let secrets = context::secret(&self.request, "NodeStageSecretRef", wanted.stage_secret.as_ref()).await;
        let secrets = secrets.map_err(failed)?;
        make_folder(&place.staging).map_err(|error| failed(error.into()))?;
        let record = Record::of_stage(&wanted.driver, &wanted.handle).labelled(wanted.label.as_deref());
        self.save(&place.stage_record, record.clone().at(Step::Begun, &csi.boot_id))?;
        let group = ownership::fs_group(self.request.pod);
        let asked = NodeStageVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: csi.places.for_driver(&place.staging),
            volume_capability: Some(capability::of(wanted, capabilities, group)),
            secrets,
            volume_context: wanted.attributes.clone().into_iter().collect(),
        };
        if let Err(error) = driver.stage(asked).await {
            // Whoever says for sure that nothing is there leaves nothing to take back.
            if error.is_final() && known.is_none() {
                take_down::forget_stage(place).map_err(|error| failed(error.into()))?;
            }
            return Err(failed(error.into()));
        }
        self.save(&place.stage_record, record.done(&csi.boot_id, &place.staging))
    }

    async fn publish(&self, driver: &Driver, capabilities: Capabilities, is_shown: bool) -> Result<(), Problem> {
        let (wanted, place, csi) = (self.wanted, self.place, self.request.csi);
        let failed = |error: Error| publish_failed(wanted, error);
        let context = context::for_publishing(&self.request, wanted, self.object).await;
        let (volume_context, secrets) = context.map_err(failed)?;
        let parent = place.target.parent().unwrap_or(&place.record);
        make_folder(parent).map_err(|error| failed(error.into()))?;
        let stages = wanted.lifecycle == Lifecycle::Persistent && capabilities.stages;
        let staging = (stages || place.mode == Mode::Block).then(|| csi.places.for_driver(&place.staging));
        let group = ownership::fs_group(self.request.pod);
        let asked = NodePublishVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: staging.unwrap_or_default(),
            target_path: csi.places.for_driver(&place.target),
            volume_capability: Some(capability::of(wanted, capabilities, group)),
            readonly: wanted.read_only,
            secrets,
            volume_context,
        };
        if !is_shown {
            self.note_pod(Step::Begun)?;
        }
        let Err(error) = driver.publish(asked).await else { return Ok(()) };
        if error.is_final() && !is_shown && !is_mounted(&place.target) {
            take_down::remove_target(place).map_err(|error| failed(error.into()))?;
            self.note_pod(Step::Noted)?;
        }
        Err(failed(error.into()))
    }

    /// Whether what the driver has put there is what it was asked for. A link would lead containers to wherever the driver likes.
    async fn look(&self) -> Result<(), Problem> {
        let (target, mode) = (self.place.target.clone(), self.place.mode);
        let looked = blocking(move || Ok(std::fs::symlink_metadata(target)?.file_type()));
        let looked = tokio::time::timeout(LOOK_WITHIN, looked).await;
        let failed = |what: Published| {
            let (driver, target) = (self.wanted.driver.clone(), self.place.target.clone());
            publish_failed(self.wanted, Error::Published { driver, what, target })
        };
        match (looked, mode) {
            (Ok(Ok(found)), Mode::Filesystem) if found.is_dir() => Ok(()),
            (Ok(Ok(found)), Mode::Block) if found.is_block_device() => self.link(),
            (Ok(Ok(_)), Mode::Filesystem) => Err(failed(Published::NoDirectory)),
            (Ok(Ok(_)), Mode::Block) => Err(failed(Published::NoBlockDevice)),
            (Ok(Err(error)), _) => Err(failed(Published::Nothing(error))),
            (Err(_), _) => Err(failed(Published::Silent)),
        }
    }

    fn link(&self) -> Result<(), Problem> {
        let Some(link) = &self.place.link else { return Ok(()) };
        block::point(link, &self.place.target).map_err(|error| publish_failed(self.wanted, error))
    }

    async fn give(&self, capabilities: Capabilities) -> Result<(), Problem> {
        let group = ownership::fs_group(self.request.pod);
        if group.is_none() || !capability::gives_to_group(self.wanted, self.object, capabilities) {
            return Ok(());
        }
        let (path, pod) = (self.place.target.clone(), self.request.pod.clone());
        let given = blocking(move || {
            if ownership::may_skip(&pod, &path, group, false)? { Ok(()) } else { ownership::give(&path, group, false) }
        });
        given
            .await
            .map_err(|source| publish_failed(self.wanted, Error::Group { handle: self.wanted.handle.clone(), source }))
    }

    fn note_pod(&self, step: Step) -> Result<(), Problem> {
        let record = record_of(self.place, self.wanted)?.unwrap_or_default();
        self.save(&self.place.record, record.at(step, &self.request.csi.boot_id))
    }

    fn save(&self, folder: &Path, record: Record) -> Result<(), Problem> {
        let saved = make_folder(folder).and_then(|()| record.save(folder));
        saved.map_err(|error| publish_failed(self.wanted, Error::Save(error)))
    }
}

fn stage_failed(wanted: &Wanted, error: impl Into<Error>) -> Problem {
    let error = error.into();
    if wanted.is_block {
        Problem::Map(format!("MapVolume.SetUpDevice failed for volume {:?} : {error}", wanted.name))
    } else {
        Problem::Message(format!("MountVolume.MountDevice failed for volume {:?} : {error}", wanted.name))
    }
}

fn publish_failed(wanted: &Wanted, error: impl Into<Error>) -> Problem {
    let error = error.into();
    if wanted.is_block {
        Problem::Map(format!("MapVolume.MapPodDevice failed for volume {:?} : {error}", wanted.name))
    } else {
        Problem::Message(format!("MountVolume.SetUp failed for volume {:?} : {error}", wanted.name))
    }
}

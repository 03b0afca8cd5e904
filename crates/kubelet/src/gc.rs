//! Image garbage collection: when the disk of images gets full, images that nobody has used for longest go.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use reconcile::events::EventType;
use tokio::time::{Instant, sleep};

use crate::eviction::rank::containers_of;
use crate::node::node_reference;
use crate::pods::Pods;
use crate::stats::disk;
use crate::stats::own::Counters;
use crate::{Error, Kubelet};

/// How often the disk is looked at, as upstream.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// Remembers when images were seen and used.
#[derive(Default)]
pub struct Images {
    pods: Arc<Pods>,
    counters: Arc<Counters>,
    records: Mutex<HashMap<String, Record>>,
}

#[derive(Clone, Copy)]
struct Record {
    first_seen: Instant,
    last_used: Option<Instant>,
}

/// What is known of an image when one must go.
#[derive(Clone, Debug)]
struct Candidate {
    id: String,
    size: u64,
    first_seen: Instant,
    last_used: Option<Instant>,
}

impl Images {
    pub fn new(pods: Arc<Pods>, counters: Arc<Counters>) -> Images {
        Images { pods, counters, records: Mutex::default() }
    }

    /// Looks every five minutes until shutdown, and tells users when it fails twice in a row.
    pub async fn run(&self, kubelet: &Kubelet) {
        let mut failed_before = false;
        loop {
            tokio::select! {
                () = kubelet.shutdown.cancelled() => return,
                () = sleep(LOOK_EVERY) => {}
            }
            match self.collect(kubelet).await {
                Ok(()) => failed_before = false,
                Err(error) => {
                    tracing::error!(%error, "image garbage collection failed");
                    if std::mem::replace(&mut failed_before, true) {
                        let node = node_reference(&kubelet.config.node_name);
                        kubelet.events.event(&node, EventType::Warning, "ImageGCFailed", error.to_string());
                    }
                }
            }
        }
    }

    /// Frees the disk down to the low mark when it is above the high one.
    pub async fn collect(&self, kubelet: &Kubelet) -> Result<(), Error> {
        let info = kubelet.runtime.image_fs_info().await.map_err(runtime("get image filesystem info"))?;
        let mountpoint = info.image_filesystems.first().and_then(|it| Some(it.fs_id.as_ref()?.mountpoint.clone()));
        let mountpoint =
            mountpoint.ok_or_else(|| Error::Other("container runtime reports no image filesystem".into()))?;
        let fs = disk::filesystem(Path::new(&mountpoint), "").unwrap_or_default();
        let (capacity, available) = (fs.capacity_bytes.unwrap_or(0), fs.available_bytes.unwrap_or(0));
        let node = node_reference(&kubelet.config.node_name);
        if capacity == 0 {
            let message = "invalid capacity 0 on image filesystem";
            kubelet.events.event(&node, EventType::Warning, "InvalidDiskCapacity", message);
            return Err(Error::Other(message.into()));
        }
        let config = &kubelet.config;
        // Seen at every look, so that ages and last uses are known when room is needed.
        self.detect(kubelet).await?;
        let (high, low) = (config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent);
        let Some(wanted) = to_free(capacity, available, high, low) else { return Ok(()) };
        tracing::info!(
            wanted,
            capacity,
            available,
            "image disk usage is above the high threshold; removing unused images"
        );
        let freed = self.free(kubelet, wanted, config.image_minimum_gc_age).await?;
        if freed < wanted {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found {freed} bytes eligible to free."
            );
            kubelet.events.event(&node, EventType::Warning, "FreeDiskSpaceFailed", message.clone());
            return Err(Error::Other(message));
        }
        Ok(())
    }

    /// Every image that nobody uses and that is not new, for a disk under pressure; answers the bytes it freed.
    pub(crate) async fn delete_unused(&self, kubelet: &Kubelet) -> Result<u64, Error> {
        self.free(kubelet, u64::MAX, kubelet.config.image_minimum_gc_age).await
    }

    async fn free(&self, kubelet: &Kubelet, wanted: u64, age_min: Duration) -> Result<u64, Error> {
        let candidates = self.detect(kubelet).await?;
        let mut freed = 0;
        let mut failures = Vec::new();
        for image in choose(candidates, wanted, age_min, Instant::now()) {
            match kubelet.runtime.remove_image(&image.id).await {
                Ok(()) => {
                    tracing::info!(image = image.id, bytes = image.size, "removed unused image");
                    self.records.lock().remove(&image.id);
                    self.counters.images_collected.fetch_add(1, Ordering::Relaxed);
                    freed += image.size;
                }
                Err(error) => failures.push(error.to_string()),
            }
        }
        if failures.is_empty() {
            Ok(freed)
        } else {
            Err(Error::Other(format!("remove images: {}", failures.join(", "))))
        }
    }

    /// Looks at all images and who uses them; answers those that could go.
    async fn detect(&self, kubelet: &Kubelet) -> Result<Vec<Candidate>, Error> {
        let asked_at = std::time::SystemTime::now();
        let images = kubelet.runtime.list_images().await.map_err(runtime("list images"))?;
        let containers = kubelet.runtime.list_containers(None).await.map_err(runtime("list containers"))?;
        let mut used = used_by_containers(&containers);
        // Pods that are about to start their containers have pulled images that no container holds yet.
        for state in self.pods.list().iter().filter(|state| !state.finished) {
            used.extend(used_by_pod(&state.pod));
        }
        let ids = images.iter().map(|image| image.id.as_str()).collect();
        crate::images::Pulled::new(&kubelet.config.root_dir).prune(&ids, asked_at);
        let now = Instant::now();
        let mut records = self.records.lock();
        records.retain(|id, _| images.iter().any(|image| image.id == *id));
        let mut candidates = Vec::new();
        for image in images {
            let record = records.entry(image.id.clone()).or_insert(Record { first_seen: now, last_used: None });
            let names = [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests);
            if names.into_iter().any(|name| used.contains(name)) {
                record.last_used = Some(now);
            } else if !image.pinned {
                let Record { first_seen, last_used } = *record;
                candidates.push(Candidate { id: image.id, size: image.size, first_seen, last_used });
            }
        }
        Ok(candidates)
    }
}

/// How many bytes must go so that usage falls from above the high mark to the low one.
fn to_free(capacity: u64, available: u64, high: u8, low: u8) -> Option<u64> {
    let available = available.min(capacity);
    let percent = |part: u64| u64::try_from(u128::from(part) * 100 / u128::from(capacity)).unwrap_or(100);
    if 100 - percent(available) < u64::from(high) {
        return None;
    }
    let kept_free = u128::from(capacity) * u128::from(100 - low.min(100)) / 100;
    Some(u64::try_from(kept_free).unwrap_or(u64::MAX).saturating_sub(available))
}

/// Those unused for longest first, and of those the ones seen first, until enough is found. What came just now stays: its pod
/// may be about to start.
fn choose(mut candidates: Vec<Candidate>, wanted: u64, age_min: Duration, now: Instant) -> Vec<Candidate> {
    candidates.sort_by_key(|image| (image.last_used, image.first_seen));
    let mut found = 0_u64;
    candidates
        .into_iter()
        .filter(|image| now.duration_since(image.first_seen) >= age_min)
        .take_while(|image| {
            let more = found < wanted;
            found = found.saturating_add(image.size);
            more
        })
        .collect()
}

fn used_by_containers(containers: &[v1::Container]) -> HashSet<String> {
    let names = |container: &v1::Container| {
        let spec = container.image.clone().unwrap_or_default();
        [container.image_ref.clone(), container.image_id.clone(), spec.image, spec.user_specified_image]
    };
    containers.iter().flat_map(names).filter(|name| !name.is_empty()).collect()
}

fn used_by_pod(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    let volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.clone());
    containers_of(pod).filter_map(|container| container.image.clone()).chain(volumes).collect()
}

fn runtime(step: &str) -> impl FnOnce(cri::Error) -> Error {
    let step = step.to_owned();
    move |source| Error::Runtime { step, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::Fixture;

    fn image(id: &str, size: u64) -> v1::Image {
        v1::Image { id: id.into(), repo_tags: vec![format!("{id}:1")], size, ..v1::Image::default() }
    }

    #[test]
    fn how_much_must_go() {
        assert_eq!(to_free(1000, 160, 85, 80), None);
        assert_eq!(to_free(1000, 159, 85, 80), Some(41), "free percents are rounded down");
        assert_eq!(to_free(1000, 150, 85, 80), Some(50));
        assert_eq!(to_free(1000, 0, 85, 80), Some(200));
        assert_eq!(to_free(1000, 5000, 85, 80), None);
        assert_eq!(to_free(u64::MAX, u64::MAX / 100, 85, 80).map(|bytes| bytes > u64::MAX / 10), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_unused_go_and_what_is_used_new_or_pinned_stays() {
        let fixture = Fixture::new(|_| {});
        let pinned = v1::Image { pinned: true, ..image("pinned", 9) };
        *fixture.runtime.images.lock() = vec![image("used", 10), image("once", 20), image("never", 30), pinned];
        let container = |image: &str| v1::Container { image_ref: image.into(), ..v1::Container::default() };
        *fixture.runtime.containers.lock() = vec![container("used"), container("once:1")];
        let images = Images::default();
        assert_eq!(images.delete_unused(&fixture.kubelet).await.unwrap(), 0, "everything is new");
        *fixture.runtime.containers.lock() = vec![container("used")];
        tokio::time::advance(Duration::from_secs(121)).await;
        fixture.runtime.images.lock().push(image("new", 40));
        assert_eq!(images.free(&fixture.kubelet, 30, Duration::from_secs(120)).await.unwrap(), 30);
        assert_eq!(*fixture.runtime.removed_images.lock(), ["never"]);
        assert_eq!(images.delete_unused(&fixture.kubelet).await.unwrap(), 20);
        assert_eq!(*fixture.runtime.removed_images.lock(), ["never", "once"]);
        assert_eq!(images.counters.images_collected.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_stays_full_is_told() {
        // Marks of nothing make every disk too full, and there are no images to remove.
        let fixture = Fixture::new(|config| {
            config.image_gc_high_threshold_percent = 0;
            config.image_gc_low_threshold_percent = 0;
        });
        let fs_id = Some(v1::FilesystemIdentifier { mountpoint: "/".into() });
        fixture.runtime.image_fs.lock().image_filesystems = vec![v1::FilesystemUsage { fs_id, ..Default::default() }];
        let kubelet = fixture.kubelet.clone();
        tokio::spawn(async move { Images::default().run(&kubelet).await });
        sleep(Duration::from_secs(301)).await;
        assert_eq!(fixture.event_reasons(), ["FreeDiskSpaceFailed"]);
        sleep(Duration::from_secs(301)).await;
        assert!(fixture.event_reasons().contains(&"ImageGCFailed".into()));
    }
}

//! The folder of manifests: what lies in `<data>/server/manifests` is in the cluster, and what leaves a file leaves the cluster.
//!
//! As with the AddOns of k3s: a file that is deleted leaves its objects alone, `NAME.yaml.skip` stops a file from being looked
//! at, `--disable NAME` takes its objects away. Every server applies its own folder. What a file has made is remembered in a
//! ConfigMap, and each object says whose it is, so that no server deletes what another one applied later.

mod folder;
mod read;
mod plan;
mod record;
mod apply;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use component_base::tasks;
use reconcile::Shutdown;
use reconcile::events::{EventType, Recorder};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use self::apply::Cluster;
use self::folder::{File, Watch};
use self::plan::Reference;
use self::record::Record;

/// Also the manager of the fields that files set.
pub const AGENT: &str = concat!("knarr-manifests/v", env!("CARGO_PKG_VERSION"));

/// Changes that come close together are looked at once.
const SETTLE: Duration = Duration::from_millis(100);
/// Who writes without end does not keep the others waiting.
const SETTLE_TRIES_MAX: usize = 20;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// What is missing for a moment only, because kinds and namespaces come one after the other, is worth no event.
const QUIET_ATTEMPTS: u32 = 3;

pub struct Config {
    pub folder: PathBuf,
    /// The name of this server, which no other has.
    pub server: String,
    /// Files and folders whose objects go.
    pub disabled: Vec<String>,
}

pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("server/manifests")
}

/// What `--disable` may name: files without their endings, and folders.
pub fn names(data_dir: &Path) -> Vec<String> {
    let files = folder::files(&folder(data_dir));
    let mut names: Vec<String> = files.iter().flat_map(|file| plan::names(&file.path)).collect();
    names.sort();
    names.dedup();
    names
}

/// Applies the folder from now on; the handle ends when it has stopped.
pub fn start(config: Config, client: kube::Client, shutdown: Shutdown) -> tokio::task::JoinHandle<()> {
    tasks::spawn(async move {
        let folder = config.folder.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            result = follow(config, client) => if let Err(error) = result {
                tracing::error!(folder = %folder.display(), error = format!("{error:#}"), "cannot watch manifests any more");
            }
        }
    })
}

async fn follow(config: Config, client: kube::Client) -> anyhow::Result<()> {
    linux::file::make_private_folder(&config.folder)?;
    let mut watch = Watch::open()?;
    let mut deployer = Deployer::open(config, client).await;
    loop {
        // Watching comes before reading, so that no change falls between the two.
        watch.add(&deployer.config.folder)?;
        let folder = deployer.config.folder.clone();
        let files = tokio::task::spawn_blocking(move || folder::files(&folder)).await?;
        deployer.deploy(files).await;
        tokio::select! {
            changed = watch.changed() => {
                changed?;
            }
            () = sleep_until(deployer.next_retry()) => {}
        }
        settle(&deployer.config.folder).await?;
    }
}

/// Until nobody writes any more: a file that is half written would seem to have lost objects.
async fn settle(folder: &Path) -> anyhow::Result<()> {
    for _ in 0..SETTLE_TRIES_MAX {
        tokio::time::sleep(SETTLE).await;
        let folder = folder.to_owned();
        if !tokio::task::spawn_blocking(move || folder::was_written_within(&folder, SETTLE)).await? {
            break;
        }
    }
    Ok(())
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

struct Deployer {
    config: Config,
    cluster: Cluster,
    events: Recorder,
    /// What files have made, by their paths below the folder.
    records: BTreeMap<String, Record>,
    /// The texts that are in the cluster as they are.
    done: BTreeMap<String, String>,
    failed: BTreeMap<String, Failure>,
}

/// When a file is tried again.
struct Failure {
    attempts: u32,
    at: Instant,
    text: String,
}

impl Deployer {
    async fn open(config: Config, client: kube::Client) -> Deployer {
        let events = Recorder::new(client.clone(), "knarr-manifests", &config.server);
        let cluster = Cluster::new(client);
        let mut pause = FIRST_PAUSE;
        let records = loop {
            match cluster.records(&config.server).await {
                Ok(records) => break records,
                Err(error) => tracing::warn!(%error, "cannot read records of applied manifests; retrying"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        };
        Deployer { config, cluster, events, records, done: BTreeMap::new(), failed: BTreeMap::new() }
    }

    fn next_retry(&self) -> Option<Instant> {
        self.failed.values().map(|failure| failure.at).min()
    }

    /// Brings the cluster to what the files say.
    async fn deploy(&mut self, files: Vec<File>) {
        let (disabled, active): (Vec<File>, Vec<File>) =
            files.into_iter().partition(|file| plan::is_disabled(&file.path, &self.config.disabled));
        self.failed.retain(|path, _| active.iter().chain(&disabled).any(|file| file.path == *path));
        self.done.retain(|path, _| active.iter().any(|file| file.path == *path));
        self.cluster.forget_kinds();
        let mut applied = Vec::new();
        for file in &active {
            if self.is_due(file) {
                applied.push((file, self.apply(file).await));
            }
        }
        // Everything is applied before anything goes: what moved from one file to another is not deleted in between.
        let wanted: Vec<Reference> = active.iter().flat_map(|file| file.references()).collect();
        for (file, outcome) in applied {
            let outcome = match outcome {
                Ok(made) => self.prune(&file.path, made, &wanted).await,
                Err(error) => Err(error),
            };
            self.settle(file, outcome).await;
        }
        for file in &disabled {
            if self.records.contains_key(&file.path) && self.failed.get(&file.path).is_none_or(Failure::is_due) {
                let outcome = self.withdraw(file, &wanted).await;
                self.settle(file, outcome).await;
            }
        }
    }

    fn is_due(&self, file: &File) -> bool {
        let text = file.digest();
        match self.failed.get(&file.path) {
            Some(failure) => failure.is_due() || failure.text != text,
            None => self.done.get(&file.path) != Some(&text),
        }
    }

    /// Applies every object of a file; an error is what went wrong with any of them.
    async fn apply(&mut self, file: &File) -> Result<Vec<Reference>, Trouble> {
        let objects = file.objects().map_err(|error| Trouble { message: error.to_string(), may_pass: false })?;
        let mut resolved = Vec::new();
        for object in objects {
            let found = self.cluster.resolve(&object).await;
            resolved.push((object, found));
        }
        // Remembered first: what is made and then forgotten would never be deleted.
        let references = resolved.iter().filter_map(|(_, found)| Some(&found.as_ref().ok()?.0));
        let record = self.records.entry(file.path.clone());
        let record = record.or_insert_with(|| Record::new(&self.config.server, &file.path));
        let mut is_new = false;
        for reference in references {
            is_new |= record.add(reference);
        }
        if is_new || (record.uid.is_none() && !record.objects.is_empty()) {
            self.cluster.write(record).await.map_err(|error| Trouble::of("save record of created objects", error))?;
        }
        let owner = owner(&self.config.server, &file.path);
        let (mut made, mut trouble) = (Vec::new(), None::<Trouble>);
        for (object, found) in resolved {
            let title = read::title(&object);
            let outcome = match found {
                Ok((reference, resource)) => {
                    let applied = self.cluster.apply(&resource, &reference, object, &owner).await;
                    applied.map(|()| made.push(reference))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                let next = Trouble::of(&title, error);
                trouble = Some(trouble.map_or_else(|| next.clone(), |first| first.and(&next)));
            }
        }
        trouble.map_or(Ok(made), Err)
    }

    /// Deletes what the file once made and no file has any more.
    async fn prune(&mut self, path: &str, made: Vec<Reference>, wanted: &[Reference]) -> Result<(), Trouble> {
        let Some(record) = self.records.get_mut(path) else { return Ok(()) };
        for gone in plan::gone(&record.objects, &made, wanted) {
            let removed = self.cluster.delete(&gone, &owner(&self.config.server, path)).await;
            removed.map_err(|error| Trouble::of(&gone.to_string(), error))?;
        }
        if record.objects != made {
            record.objects = made;
            self.cluster.write(record).await.map_err(|error| Trouble::of("save record of applied objects", error))?;
        }
        Ok(())
    }

    async fn withdraw(&mut self, file: &File, wanted: &[Reference]) -> Result<(), Trouble> {
        self.prune(&file.path, Vec::new(), wanted).await?;
        if let Some(record) = self.records.remove(&file.path) {
            self.events.event(
                &record.reference(),
                EventType::Normal,
                "DeletedManifest",
                format!("Deleted what {:?} had made, because it is disabled", file.path),
            );
            tracing::info!(file = file.path, "deleting objects of disabled manifest");
            self.cluster.forget(&record).await.map_err(|error| Trouble::of("delete record of the manifest", error))?;
        }
        Ok(())
    }

    /// Notes what came of a file, and says so.
    async fn settle(&mut self, file: &File, outcome: Result<(), Trouble>) {
        let text = file.digest();
        let Err(trouble) = outcome else {
            self.failed.remove(&file.path);
            self.done.insert(file.path.clone(), text.clone());
            if let Some(record) = self.records.get_mut(&file.path)
                && record.text != text
            {
                record.text = text;
                let message = format!("Applied manifest at {:?}", file.path);
                self.events.event(&record.reference(), EventType::Normal, "AppliedManifest", message);
                tracing::info!(file = file.path, "applied manifest");
                // Only the event would come again after a restart.
                if let Err(error) = self.cluster.write(record).await {
                    tracing::debug!(%error, "cannot update record of applied manifest");
                }
            }
            return;
        };
        let before = self.failed.get(&file.path).filter(|failure| failure.text == text);
        let attempts = before.map_or(0, |failure| failure.attempts) + 1;
        let pause = FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(10)).min(LAST_PAUSE);
        self.failed.insert(file.path.clone(), Failure { attempts, at: Instant::now() + pause, text });
        if trouble.may_pass && attempts < QUIET_ATTEMPTS {
            return;
        }
        tracing::error!(file = file.path, error = trouble.message, "cannot apply manifest");
        let record = self.records.entry(file.path.clone());
        let record = record.or_insert_with(|| Record::new(&self.config.server, &file.path));
        // An event is about an object; where nothing was made yet, that is the record.
        if record.uid.is_none()
            && let Err(error) = self.cluster.write(record).await
        {
            tracing::warn!(%error, "cannot create record of applied manifest");
        }
        let message = format!("Applying manifest at {:?} failed: {}", file.path, trouble.message);
        self.events.event(&record.reference(), EventType::Warning, "ApplyManifestFailed", message);
    }
}

impl Failure {
    fn is_due(&self) -> bool {
        Instant::now() >= self.at
    }
}

/// What is wrong with a file, and whether waiting may help.
#[derive(Clone)]
struct Trouble {
    message: String,
    may_pass: bool,
}

impl Trouble {
    fn of(what: &str, error: kube::Error) -> Trouble {
        let may_pass = apply::may_pass(&error);
        let why = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        Trouble { message: format!("{what}: {why}"), may_pass }
    }

    fn and(self, next: &Trouble) -> Trouble {
        Trouble { message: format!("{}; {}", self.message, next.message), may_pass: self.may_pass && next.may_pass }
    }
}

/// What objects carry, so that one knows whose they are.
fn owner(server: &str, path: &str) -> String {
    format!("{server}/{path}")
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

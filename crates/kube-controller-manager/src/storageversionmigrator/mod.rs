//! Writes every object of a resource once more where a StorageVersionMigration asks for it: in the stored version, form and
//! encryption of today. One migration of a resource runs at a time, the oldest first.

mod custom;
mod objects;
mod plan;

use futures::FutureExt;
use jiff::SignedDuration;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use reconcile::{Discovered, Error, Key, On, Plan, Resource, Rule, Work, discover};

use crate::{Context, Controller};
use plan::Step;

const NAME: &str = "storage-version-migrator-controller";
/// A custom resource that was just made may not be in discovery yet.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);
const VERBS: [&str; 3] = ["update", "patch", "list"];

pub(crate) static CONTROLLER: Controller = Controller {
    name: NAME,
    account: NAME,
    source: NAME,
    rules: &[
        Rule { groups: &["*"], resources: &["*"], verbs: &["list", "create", "patch"] },
        Rule { groups: &["apiextensions.k8s.io"], resources: &["customresourcedefinitions"], verbs: &["get"] },
        Rule { groups: &["apiextensions.k8s.io"], resources: &["customresourcedefinitions/status"], verbs: &["patch"] },
        Rule {
            groups: &["storagemigration.k8s.io"],
            resources: &["storageversionmigrations/status"],
            verbs: &["update"],
        },
    ],
    work: Work::Keys {
        // One that ends lets the next one of its resource begin.
        wakes: &[&On::every(|cx, migration: &StorageVersionMigration| {
            let next = plan::next(&cx.cache::<StorageVersionMigration>().list(), &migration.spec);
            let next = next.map(|next| Key::of(&next.metadata));
            next.into_iter().chain([Key::of(&migration.metadata)]).collect()
        })],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let cache = cx.cache::<StorageVersionMigration>();
    let Some(migration) = cache.get(key) else { return Ok(Plan::nothing()) };
    let spec = migration.spec.clone().unwrap_or_default();
    let name = format!("{}.{}", spec.resource.resource, spec.resource.group);
    match plan::step(&migration, &cache.list()) {
        Step::Nothing => Ok(Plan::nothing()),
        Step::Begin => {
            custom::begin(cx, &name, &key.name).await?;
            Ok(plan::begun(&migration, cx.now()))
        }
        Step::Finish { succeeded } => {
            custom::finish(cx, &name, succeeded).await?;
            Ok(plan::finished(&migration, cx.now()))
        }
        Step::Revision => {
            let found = discovered(cx).await?;
            let Some(resource) = named(&found, &spec.resource.group, &spec.resource.resource) else {
                return absent(cx, &migration, "resource does not exist in discovery");
            };
            if !resource.supports(&VERBS) {
                let shown = objects::shown(resource);
                let why = format!("resource {shown:?} does not support discovery operations: [{}]", VERBS.join(" "));
                return Ok(plan::failed(&migration, cx.now(), &why));
            }
            let revision = objects::revision(&cx.client, resource).await?;
            if !plan::is_revision(&revision) {
                let why = format!(
                    "latest resourceVersion for {} is not valid: resource version is not well formed: {revision}",
                    objects::shown(resource)
                );
                return Ok(plan::failed(&migration, cx.now(), &why));
            }
            Ok(plan::from_revision(&migration, revision))
        }
        Step::Rewrite { until } => {
            let found = discovered(cx).await?;
            let Some(resource) = named(&found, &spec.resource.group, &spec.resource.resource) else {
                return absent(cx, &migration, &unhandled("unable to obtain GVR from discovery"));
            };
            match objects::rewrite(&cx.client, resource, &until, NAME).await? {
                None => Ok(plan::succeeded(&migration, cx.now())),
                Some(why) => Ok(plan::failed(&migration, cx.now(), &unhandled(&why))),
            }
        }
    }
}

fn unhandled(why: &str) -> String {
    format!("migration encountered unhandled error: {why}")
}

async fn discovered(cx: &Context) -> Result<Discovered, Error> {
    discover(&cx.client).await.map_err(|error| Error::api("discover the resources of the server", error))
}

fn named<'a>(found: &'a Discovered, group: &str, plural: &str) -> Option<&'a Resource> {
    found.resources.iter().find(|resource| resource.group == group && resource.plural == plural)
}

/// A resource that is not there fails the migration once it is old enough.
fn absent(cx: &Context, migration: &StorageVersionMigration, why: &str) -> Result<Plan, Error> {
    let created = migration.metadata.creation_timestamp.as_ref().map(|time| time.0);
    if created.is_some_and(|created| cx.now() < created + PATIENCE) {
        return Err(Error::Other("resource does not exist in discovery yet".into()));
    }
    Ok(plan::failed(migration, cx.now(), why))
}

//! Counts what a namespace really holds: live objects, and what this server has on its way.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::Revision;

use super::super::pod_resources::{Amounts, add};
use super::ledger::Namespace;
use super::{devices, scopes, usage};
use crate::app::App;
use crate::conversion::decode_stored;
use crate::resources::Resource;
use crate::write::store_status;

/// Resources whose objects take more than their number, so that each must be looked at.
const WEIGHED: [(&str, &str); 4] =
    [("", "pods"), ("", "services"), ("", "persistentvolumeclaims"), ("resource.k8s.io", "resourceclaims")];

/// Usage of everything that the quota limits; none where nothing can have changed since the last count.
/// The caller has the namespace's turn, so nothing is reserved meanwhile.
pub(crate) async fn recount(
    app: &App,
    namespace: &Arc<Namespace>,
    namespace_name: &str,
    quota: &Value,
    always: bool,
) -> Result<Option<Amounts>, Status> {
    // Who is on the way is read before the objects: one who lands in between is in both, and counted once.
    let mut pending = namespace.on_the_way(quota.uid());
    let ended = namespace.ended();
    app.cache.fresh().await.map_err(store_status)?;
    let resources = resources(app, &quota["spec"]["hard"]);
    let changed =
        resources.iter().filter_map(|resource| resource.state.as_ref()).map(|state| state.last_changed()).max();
    let changed = changed.unwrap_or(Revision(0));
    if !always && !namespace.worth_recounting(quota.uid(), changed, ended) {
        return Ok(None);
    }
    let names = quota["spec"]["hard"].as_object().into_iter().flat_map(|hard| hard.keys());
    let mut total: Amounts = names.map(|name| (name.clone(), usage::number(0))).collect();
    // Who has landed by now is among the objects that are counted from here on; all others are added to them.
    pending.retain(|(wanted, _)| !wanted.landed());
    for resource in &resources {
        count(app, resource, namespace_name, quota, &mut total)?;
    }
    pending.iter().for_each(|(_, amounts)| add(&mut total, amounts));
    total.retain(|name, _| quota["spec"]["hard"].get(name).is_some());
    namespace.recounted(quota.uid(), changed, ended);
    Ok(Some(total))
}

/// The resources that the names are about.
fn resources(app: &App, hard: &Value) -> Vec<Arc<Resource>> {
    let table = app.table.load();
    let mut seen = BTreeSet::new();
    let stored = table.resources().iter().filter(|resource| resource.state.is_some() && resource.kind.namespaced());
    let counted = stored.filter(|resource| {
        let (group, plural) = (resource.kind.group, resource.kind.plural);
        // A resource that is served in several versions is stored once.
        let classes = devices::classes(app, group, plural);
        !usage::matching_names(group, plural, hard, &classes).is_empty()
            && seen.insert((group.to_string(), plural.to_string()))
    });
    counted.cloned().collect()
}

fn count(app: &App, resource: &Resource, namespace: &str, quota: &Value, total: &mut Amounts) -> Result<(), Status> {
    let (group, plural) = (resource.kind.group, resource.kind.plural);
    let prefix = resource.prefix(namespace);
    let snapshot = resource.state()?.snapshot();
    let from: Arc<str> = prefix.as_str().into();
    let items = snapshot.items.range(from..).take_while(|(key, _)| key.starts_with(&prefix));
    let classes = devices::classes(app, group, plural);
    if !WEIGHED.contains(&(group, plural)) {
        // One is as heavy as another; where the quota has scopes, none of them is in one.
        if scopes::matches(quota, group, plural, &Value::Null) {
            let number = usage::number(items.count() as i64);
            let names = usage::matching_names(group, plural, &quota["spec"]["hard"], &classes);
            names.into_iter().for_each(|name| add(total, &Amounts::from([(name, number)])));
        }
        return Ok(());
    }
    let now = app.clock.now();
    for (key, item) in items {
        let object = decode_stored(&item.value, item.revision.0).map_err(|why| crate::write::undecodable(key, &why))?;
        if scopes::matches(quota, group, plural, &object) {
            add(total, &devices::of_object(app, &classes, (group, plural), &object, now));
        }
    }
    Ok(())
}

//! Takes room in quotas before the object is written, for all who wait at once, and gives it back when it was not.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::{Map, Value};
use store::cache;
use store::{Change, Expect, Revision, Written};
use tokio::sync::oneshot;

use super::super::Request;
use super::super::pod_resources::{Amounts, add, amounts};
use super::ledger::{Ledger, Namespace, Pending};
use super::{recount, shown};
use crate::app::App;
use crate::conversion::decode_stored;
use crate::resources::Resource;
use crate::write::{encode, store_status, undecodable};

/// How often a quota's status is tried again when other servers write it first.
const TRIES_MAX: usize = 64;

/// What one request takes.
#[derive(Clone, Default)]
pub struct Wanted {
    pub more: Amounts,
    /// The uid and name of every quota that counts it.
    quotas: Vec<(String, String)>,
    state: Option<Arc<cache::Resource>>,
    key: String,
    uid: String,
    /// The revision that an update replaces; none for a create.
    replaces: Option<String>,
    dry_run: bool,
}

pub type Outcome = Result<Option<Pending>, Refused>;

#[derive(Clone, Debug)]
pub enum Refused {
    /// The quota is full; the sentence says of what.
    Exceeded(String),
    Failed(Status),
}

impl Wanted {
    pub fn new(request: &Request<'_>, object: &Value, more: Amounts, quotas: &[Arc<Value>]) -> Wanted {
        Wanted {
            more,
            quotas: quotas.iter().map(|quota| (quota.uid().into(), quota.name().into())).collect(),
            state: request.resource.state.clone(),
            key: request.resource.key(request.namespace, object.name()).unwrap_or_default(),
            uid: object.uid().into(),
            replaces: request.old.map(|old| old.resource_version().into()),
            dry_run: request.dry_run,
        }
    }

    /// Whether the write that this was reserved for has taken place.
    pub(crate) fn landed(&self) -> bool {
        let item = self.state.as_ref().and_then(|state| state.get(&self.key));
        let Some(object) = item.and_then(|item| decode_stored(&item.value, item.revision.0).ok()) else { return false };
        object.uid() == self.uid
            && self.replaces.as_deref().is_none_or(|replaced| replaced != object.resource_version())
    }
}

/// Waits for a turn, and reserves for all who wait by then.
pub async fn reserve(ledger: &Ledger, request: &Request<'_>, wanted: Wanted) -> Outcome {
    let namespace = ledger.namespace(request.namespace);
    let mut answer = namespace.enqueue(wanted.clone());
    loop {
        tokio::select! {
            biased;
            outcome = &mut answer => match outcome {
                Ok(outcome) => return outcome,
                // Whoever had taken this along was cancelled.
                Err(_) => answer = namespace.enqueue(wanted.clone()),
            },
            _turn = namespace.turn.lock() => process(request.app, &namespace, request.namespace).await,
        }
    }
}

/// Gives back what was reserved for a write that did not take place.
pub async fn give_back(ledger: &Ledger, request: &Request<'_>, pending: Pending) {
    let namespace = ledger.namespace(request.namespace);
    let _turn = namespace.turn.lock().await;
    release(request.app, &namespace, request.namespace, &[pending]).await;
}

struct Entry {
    wanted: Wanted,
    answer: oneshot::Sender<Outcome>,
    pending: Option<Pending>,
    refused: Option<Refused>,
}

/// Quota by quota, one write each. An entry that one quota refuses gives back what others had already granted.
async fn process(app: &App, namespace: &Arc<Namespace>, name: &str) {
    let queued = namespace.take_queue().into_iter().filter(|(_, answer)| !answer.is_closed());
    let mut entries: Vec<Entry> =
        queued.map(|(wanted, answer)| Entry { wanted, answer, pending: None, refused: None }).collect();
    let quotas: BTreeMap<String, String> =
        entries.iter().flat_map(|entry| &entry.wanted.quotas).map(|(uid, name)| (name.clone(), uid.clone())).collect();
    for (quota, uid) in &quotas {
        let mut alive: Vec<&mut Entry> = entries
            .iter_mut()
            .filter(|entry| entry.refused.is_none() && entry.wanted.quotas.iter().any(|(wanted, _)| wanted == uid))
            .collect();
        if alive.is_empty() {
            continue;
        }
        if let Err(status) = charge(app, namespace, name, quota, uid, &mut alive).await {
            alive.iter_mut().for_each(|entry| entry.refused = Some(Refused::Failed(status.clone())));
        }
    }
    let wasted: Vec<Pending> =
        entries.iter_mut().filter(|entry| entry.refused.is_some()).filter_map(|entry| entry.pending.take()).collect();
    release(app, namespace, name, &wasted).await;
    for entry in entries {
        let outcome = match entry.refused {
            Some(refused) => Err(refused),
            None => Ok(entry.pending),
        };
        // One who no longer waits drops the reservation with the answer; the next recount gives it back.
        let _ = entry.answer.send(outcome);
    }
}

/// Charges one quota for all entries that fit into it.
async fn charge(
    app: &App,
    namespace: &Arc<Namespace>,
    namespace_name: &str,
    name: &str,
    uid: &str,
    entries: &mut [&mut Entry],
) -> Result<(), Status> {
    let resource = quotas(app)?;
    let key = resource.key(namespace_name, name)?;
    let mut current = newest(&resource, namespace, &key, uid)?;
    let mut counted: Option<(Value, Amounts)> = None;
    let mut recounts_left = 1;
    for _ in 0..TRIES_MAX {
        // A quota that went, or was made anew, limits those who come later.
        let Some((revision, quota)) = current.take().filter(|(_, quota)| quota.uid() == uid) else { return Ok(()) };
        let hard = amounts(&quota["spec"]["hard"]);
        let seen = quota["status"]["used"].clone();
        let known = amounts(&seen);
        namespace.observe(uid, &seen);
        let may_lower = namespace.may_lower(uid, &known);
        let fresh_count = counted.as_ref().filter(|(at, _)| *at == seen).map(|(_, count)| count);
        let Some(mut used) = base(&hard, &known, fresh_count, may_lower) else {
            let count = recount::recount(app, namespace, namespace_name, &quota, true).await?;
            counted = count.map(|count| (seen, count));
            current = Some((revision, quota));
            continue;
        };
        let decisions: Vec<Result<Amounts, Exceeded>> =
            entries.iter().map(|entry| take(name, &hard, &mut used, &entry.wanted)).collect();
        let refuses = decisions.iter().any(Result::is_err);
        if refuses && fresh_count.is_none() && may_lower && recounts_left > 0 {
            recounts_left -= 1;
            let count = recount::recount(app, namespace, namespace_name, &quota, false).await?;
            counted = count.map(|count| (seen, count));
            current = Some((revision, quota));
            continue;
        }
        let next = with_status(&quota, &used);
        let dry = entries.iter().all(|entry| entry.wanted.dry_run);
        if !dry && next != *quota {
            let put = Change::Put { value: encode(&next), ttl: None };
            match app.cache.store().write_if(&key, Expect::At(revision), put).await.map_err(store_status)? {
                Written::Done(revision) => {
                    namespace.wrote(uid, &next["status"]["used"].clone(), revision, Arc::new(next))
                }
                Written::Conflict(entry) => {
                    current = match entry {
                        None => None,
                        Some(entry) => Some((entry.revision, Arc::new(decoded(&key, &entry.value, entry.revision)?))),
                    };
                    continue;
                }
            }
        }
        settle(namespace, uid, entries, decisions);
        return Ok(());
    }
    Err(Status::modified(resource.group_resource(), name))
}

/// Usage to start from: what the status says, or what was counted where the status may be lowered or says nothing.
/// None where a count is needed first.
fn base(hard: &Amounts, known: &Amounts, counted: Option<&Amounts>, may_lower: bool) -> Option<Amounts> {
    let mut used = Amounts::new();
    for name in hard.keys() {
        let amount = match (known.get(name), counted.and_then(|counted| counted.get(name))) {
            (_, Some(counted)) if may_lower => counted,
            (Some(known), _) => known,
            (None, Some(counted)) => counted,
            (None, None) => return None,
        };
        used.insert(name.clone(), *amount);
    }
    Some(used)
}

#[derive(Debug, thiserror::Error)]
#[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
struct Exceeded {
    quota: String,
    requested: String,
    used: String,
    limited: String,
}

/// Adds what is wanted where all of it fits; otherwise the sentence that says what does not.
fn take(quota: &str, hard: &Amounts, used: &mut Amounts, wanted: &Wanted) -> Result<Amounts, Exceeded> {
    let asked: Amounts = wanted
        .more
        .iter()
        .filter(|(name, _)| hard.contains_key(*name))
        .map(|(name, more)| (name.clone(), *more))
        .collect();
    let mut next = used.clone();
    add(&mut next, &asked);
    let over: Vec<&String> = asked.keys().filter(|name| next.get(*name) > hard.get(*name)).collect();
    if over.is_empty() {
        if !wanted.dry_run {
            *used = next;
        }
        return Ok(asked);
    }
    let only =
        |all: &Amounts| shown(&over.iter().filter_map(|name| Some(((*name).clone(), *all.get(*name)?))).collect());
    Err(Exceeded { quota: quota.to_string(), requested: only(&asked), used: only(used), limited: only(hard) })
}

fn settle(
    namespace: &Arc<Namespace>,
    quota: &str,
    entries: &mut [&mut Entry],
    decisions: Vec<Result<Amounts, Exceeded>>,
) {
    for (entry, decision) in entries.iter_mut().zip(decisions) {
        match decision {
            Err(why) => entry.refused = Some(Refused::Exceeded(why.to_string())),
            Ok(_) if entry.wanted.dry_run => {}
            Ok(amounts) => {
                let pending = entry.pending.get_or_insert_with(|| namespace.enter(entry.wanted.clone()));
                namespace.charge(pending, quota, amounts);
            }
        }
    }
}

/// Lowers the quotas by what was charged. Where others have written a status since, it stays for a recount to find:
/// too much is safe, too little is not.
async fn release(app: &App, namespace: &Arc<Namespace>, namespace_name: &str, wasted: &[Pending]) {
    let mut sums: HashMap<String, (Amounts, String)> = HashMap::new();
    let live = app.views.all("resourcequotas", namespace_name);
    for (uid, amounts) in wasted.iter().flat_map(|pending| pending.charges()) {
        let Some(quota) = live.iter().find(|quota| quota.uid() == uid) else { continue };
        add(&mut sums.entry(uid).or_insert_with(|| (Amounts::new(), quota.name().into())).0, &amounts);
    }
    for (uid, (amounts, name)) in sums {
        if let Err(status) = lower(app, namespace, namespace_name, &name, &uid, &amounts).await {
            tracing::debug!(
                namespace = namespace_name,
                quota = name,
                error = status.message,
                "cannot release reserved quota yet"
            );
        }
    }
}

async fn lower(
    app: &App,
    namespace: &Arc<Namespace>,
    namespace_name: &str,
    name: &str,
    uid: &str,
    by: &Amounts,
) -> Result<(), Status> {
    let resource = quotas(app)?;
    let key = resource.key(namespace_name, name)?;
    let Some((revision, quota)) = newest(&resource, namespace, &key, uid)? else { return Ok(()) };
    namespace.observe(uid, &quota["status"]["used"]);
    if !namespace.is_ours(uid) {
        return Ok(());
    }
    let mut used = amounts(&quota["status"]["used"]);
    for (name, amount) in by {
        if let Some(slot) = used.get_mut(name) {
            let rest = *slot - *amount;
            *slot = if rest.sign() < 0 { super::usage::number(0) } else { rest };
        }
    }
    let next = with_status(&quota, &used);
    let put = Change::Put { value: encode(&next), ttl: None };
    if let Written::Done(revision) =
        app.cache.store().write_if(&key, Expect::At(revision), put).await.map_err(store_status)?
    {
        namespace.wrote(uid, &next["status"]["used"].clone(), revision, Arc::new(next));
    }
    Ok(())
}

fn quotas(app: &App) -> Result<Arc<Resource>, Status> {
    app.table.load().get("", "v1", "resourcequotas").cloned().ok_or_else(Status::no_such_resource)
}

/// The quota as it is, as far as we know: our own write may be ahead of the cache.
fn newest(
    resource: &Resource,
    namespace: &Namespace,
    key: &str,
    uid: &str,
) -> Result<Option<(Revision, Arc<Value>)>, Status> {
    let Some(item) = resource.state()?.get(key) else { return Ok(None) };
    if let Some(newer) = namespace.newer(uid, item.revision) {
        return Ok(Some(newer));
    }
    Ok(Some((item.revision, Arc::new(decoded(key, &item.value, item.revision)?))))
}

fn decoded(key: &str, value: &bytes::Bytes, revision: Revision) -> Result<Value, Status> {
    decode_stored(value, revision.0).map_err(|why| undecodable(key, &why))
}

fn with_status(quota: &Value, used: &Amounts) -> Value {
    let mut next = quota.clone();
    let used: Map<String, Value> =
        used.iter().map(|(name, amount)| (name.clone(), amount.canonical().into())).collect();
    let hard = next["spec"]["hard"].clone();
    let status = child_mut(&mut next, "status");
    status.insert("hard".into(), hard);
    status.insert("used".into(), used.into());
    next
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(more: Value, dry_run: bool) -> Wanted {
        let more = amounts(&more);
        Wanted { more, quotas: vec![], state: None, key: String::new(), uid: String::new(), replaces: None, dry_run }
    }

    #[test]
    fn what_fits_is_taken_and_what_does_not_is_told() {
        let hard = amounts(&json!({"pods": "2", "requests.cpu": "1"}));
        let mut used = amounts(&json!({"pods": "1", "requests.cpu": "500m"}));
        let pod = json!({"pods": "1", "requests.cpu": "600m", "cpu": "600m"});
        assert_eq!(
            take("q", &hard, &mut used, &wanted(pod, false)).unwrap_err().to_string(),
            "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
        );
        assert!(take("q", &hard, &mut used, &wanted(json!({"pods": "1"}), true)).is_ok());
        assert_eq!(shown(&used), "pods=1,requests.cpu=500m");
        assert!(take("q", &hard, &mut used, &wanted(json!({"pods": "1"}), false)).is_ok());
        assert_eq!(
            take("q", &hard, &mut used, &wanted(json!({"pods": "1"}), false)).unwrap_err().to_string(),
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
        );
    }

    #[test]
    fn a_count_replaces_the_status_only_where_it_may() {
        let check = |known: Value, counted: Option<Value>, may_lower: bool, expected: Option<&str>| {
            let hard = amounts(&json!({"pods": "2"}));
            let counted = counted.map(|counted| amounts(&counted));
            let base = base(&hard, &amounts(&known), counted.as_ref(), may_lower);
            assert_eq!(base.map(|used| shown(&used)).as_deref(), expected);
        };
        check(json!({}), None, true, None);
        check(json!({}), Some(json!({"pods": "1"})), false, Some("pods=1"));
        check(json!({"pods": "2"}), Some(json!({"pods": "1"})), false, Some("pods=2"));
        check(json!({"pods": "2"}), Some(json!({"pods": "1"})), true, Some("pods=1"));
        check(json!({"pods": "2", "gone": "1"}), None, true, Some("pods=2"));
    }
}

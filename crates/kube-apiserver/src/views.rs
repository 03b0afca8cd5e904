//! Decoded objects of a few resources that the server itself reads on many requests: roles, namespaces, quotas.
//! A view is brought up to date when it is asked and something changed; unchanged objects are not decoded again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use machinery::kind::Kind;
use parking_lot::Mutex;
use serde_json::Value;
use store::Revision;
use store::cache;

use crate::authn::Objects;
use crate::conversion::decode_stored;

#[derive(Default)]
pub struct Views {
    views: HashMap<&'static str, View>,
}

struct View {
    resource: Arc<cache::Resource>,
    prefix: String,
    namespaced: bool,
    /// Where descriptions of its objects say which node they are on.
    node_field: Option<usize>,
    decoded: Mutex<Decoded>,
    /// Single objects that were asked for lately.
    often: Mutex<HashMap<Arc<str>, Revised>>,
}

/// An object and the revision it was decoded from.
type Revised = (Revision, Arc<Value>);

/// Every write looks at its namespace, every pod at its service account.
const OFTEN_READ: &[&str] = &["namespaces", "serviceaccounts"];
const OFTEN_READ_MAX: usize = 1024;
/// Very many that change all the time: kept decoded they would take most of the memory, and each look at a few of them would bring all
/// up to date. Who asks for these gets what it asked for decoded, and it is forgotten.
const NEVER_KEPT: &[&str] = &["pods"];

fn decoded(item: &cache::Item) -> Option<Arc<Value>> {
    decode_stored(&item.value, item.revision.0).ok().map(Arc::new)
}

#[derive(Default)]
struct Decoded {
    seen: Revision,
    objects: BTreeMap<Arc<str>, Revised>,
}

impl Views {
    pub fn add(&mut self, plural: &'static str, kind: &Kind, resource: Arc<cache::Resource>) {
        let view = View {
            resource,
            prefix: format!("/registry/{}/", kind.storage),
            namespaced: kind.namespaced(),
            node_field: kind.selectable.iter().position(|entry| entry.field == "spec.nodeName"),
            decoded: Mutex::default(),
            often: Mutex::default(),
        };
        self.views.insert(plural, view);
    }

    /// One object, decoded. Of the few resources that most writes look at, what was decoded is kept.
    pub fn one(&self, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let view = self.views.get(plural)?;
        let item = view.resource.get(&view.key(namespace, name))?;
        if !OFTEN_READ.contains(&plural) {
            return decoded(&item);
        }
        let mut often = view.often.lock();
        if let Some((_, object)) = often.get(&item.key).filter(|(revision, _)| *revision == item.revision) {
            return Some(object.clone());
        }
        let object = Arc::new(decode_stored(&item.value, item.revision.0).ok()?);
        if often.len() >= OFTEN_READ_MAX {
            often.clear();
        }
        often.insert(item.key.clone(), (item.revision, object.clone()));
        Some(object)
    }

    /// The labels of an object, without decoding it.
    pub(crate) fn labels(&self, plural: &str, namespace: &str, name: &str) -> Option<Vec<(Box<str>, Box<str>)>> {
        let view = self.views.get(plural)?;
        Some(view.resource.get(&view.key(namespace, name))?.description.labels.clone())
    }

    /// Whether an object is there, without decoding it.
    pub fn exists(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let Some(view) = self.views.get(plural) else { return false };
        view.resource.get(&view.key(namespace, name)).is_some()
    }

    /// All objects, or those of one namespace.
    pub fn all(&self, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some(view) = self.views.get(plural) else { return Vec::new() };
        let prefix = match namespace {
            "" => view.prefix.clone(),
            _ => format!("{}{namespace}/", view.prefix),
        };
        let from: Arc<str> = prefix.as_str().into();
        if NEVER_KEPT.contains(&plural) {
            let snapshot = view.resource.snapshot();
            let range = snapshot.items.range(from..).take_while(|(key, _)| key.starts_with(&prefix));
            return range.filter_map(|(_, item)| decoded(item)).collect();
        }
        let mut decoded = view.decoded.lock();
        view.refresh(&mut decoded);
        let range = decoded.objects.range(from..).take_while(|(key, _)| key.starts_with(&prefix));
        range.map(|(_, (_, object))| object.clone()).collect()
    }
}

impl View {
    fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{}{namespace}/{name}", self.prefix) } else { format!("{}{name}", self.prefix) }
    }

    fn refresh(&self, decoded: &mut Decoded) {
        let changed = self.resource.last_changed();
        if decoded.seen >= changed && decoded.seen != Revision(0) {
            return;
        }
        let snapshot = self.resource.snapshot();
        let mut old = std::mem::take(&mut decoded.objects);
        for (key, item) in snapshot.items.iter() {
            let kept = old.remove(key).filter(|(revision, _)| *revision == item.revision);
            let entry = kept.or_else(|| {
                let object = decode_stored(&item.value, item.revision.0).ok()?;
                Some((item.revision, Arc::new(object)))
            });
            decoded.objects.extend(entry.map(|entry| (key.clone(), entry)));
        }
        decoded.seen = snapshot.revision;
    }
}

impl Objects for Views {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.one(resource, namespace, name)
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.all(resource, namespace)
    }

    fn pods_on(&self, node: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some(view) = self.views.get("pods") else { return Vec::new() };
        let Some(at) = view.node_field else { return Vec::new() };
        let prefix = match namespace {
            "" => view.prefix.clone(),
            _ => format!("{}{namespace}/", view.prefix),
        };
        let (_, pods) = view.resource.having(at, node, &prefix);
        pods.iter().filter_map(|item| decoded(item)).collect()
    }

    fn last_changed(&self, resource: &str) -> u64 {
        self.views.get(resource).map_or(0, |view| view.resource.last_changed().0)
    }
}

//! The objects as requests need them: schemas in order, each with its level. Levels live on from one configuration to the
//! next, with whoever runs and waits in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use machinery::object::Meta;
use serde_json::Value;

use super::classify::{Asked, Schema};
use super::level::Level;
use super::metrics::Counts;
use super::shares::{Share, ranges};

pub struct Configuration {
    /// In the order in which they are asked.
    entries: Vec<Arc<Entry>>,
    /// For who matches nothing, which takes a user in no group at all.
    catch_all: Arc<Entry>,
    levels: BTreeMap<String, Arc<Level>>,
}

/// A schema whose level exists.
pub struct Entry {
    pub schema: Schema,
    pub level: Arc<Level>,
    pub schema_uid: HeaderValue,
    pub level_uid: HeaderValue,
    pub counts: Arc<Counts>,
}

const CATCH_ALL: &str = "catch-all";

impl Configuration {
    /// Before the objects are read.
    pub(crate) fn mandatory_alone(seats: u32) -> Configuration {
        Configuration::build(seats, &[], &[], None)
    }

    /// What is mandatory is there even where an object of that name is not.
    pub fn build(
        seats: u32,
        schemas: &[Arc<Value>],
        levels: &[Arc<Value>],
        before: Option<&Configuration>,
    ) -> Configuration {
        let schemas = with_mandatory(schemas, "FlowSchema");
        let specs = with_mandatory(levels, "PriorityLevelConfiguration");
        let shares: Vec<Share> = specs.iter().map(|level| Share::read(&level["spec"])).collect();
        let mut levels = BTreeMap::new();
        for (object, range) in specs.iter().zip(ranges(seats, &shares)) {
            let level = match before.and_then(|before| before.levels.get(object.name())) {
                Some(level) => {
                    level.change(&object["spec"], range);
                    level.clone()
                }
                None => Arc::new(Level::new(object.name(), &object["spec"], range)),
            };
            levels.insert(object.name().to_string(), (level, uid(object)));
        }
        let entry = |object: &Arc<Value>| {
            let schema = Schema::read(object);
            let (level, level_uid) = levels.get(&schema.level)?;
            let kept = before.and_then(|before| before.entries.iter().find(|entry| entry.schema.name == schema.name));
            let counts = kept.filter(|entry| entry.schema.level == schema.level).map(|entry| entry.counts.clone());
            Some(Arc::new(Entry {
                counts: counts.unwrap_or_default(),
                level: level.clone(),
                schema_uid: uid(object),
                level_uid: level_uid.clone(),
                schema,
            }))
        };
        let mut entries: Vec<Arc<Entry>> = schemas.iter().filter_map(entry).collect();
        entries.sort_by(|a, b| a.schema.order().cmp(&b.schema.order()));
        let catch_all = entries.iter().find(|entry| entry.schema.name == CATCH_ALL);
        let catch_all = catch_all.expect("the mandatory schema is there, and its level").clone();
        let levels = levels.into_iter().map(|(name, (level, _))| (name, level)).collect();
        Configuration { entries, catch_all, levels }
    }

    pub fn find(&self, asked: &Asked) -> &Arc<Entry> {
        self.entries.iter().find(|entry| entry.schema.matches(asked)).unwrap_or(&self.catch_all)
    }

    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    pub fn levels(&self) -> impl Iterator<Item = &Arc<Level>> {
        self.levels.values()
    }
}

fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(object.uid()).unwrap_or(HeaderValue::from_static(""))
}

/// `exempt` and `catch-all` cannot be changed, only be gone for a moment.
fn with_mandatory(objects: &[Arc<Value>], kind: &str) -> Vec<Arc<Value>> {
    let mut all = objects.to_vec();
    for wanted in super::maintain::mandatory().iter().filter(|object| object["kind"] == kind) {
        if !all.iter().any(|object| object.name() == wanted.name()) {
            all.push(Arc::new(wanted.clone()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::authn::fixtures::user;
    use crate::query::Query;
    use crate::target;

    fn found(configuration: &Configuration, name: &str, groups: &[&str]) -> String {
        let user = user(name, groups);
        let target = target::parse(&Method::GET, "/api/v1/pods", &Query::default()).unwrap();
        let entry = configuration.find(&Asked { user: &user, target: &target, path: "/api/v1/pods" });
        format!("{} in {} ({:?})", entry.schema.name, entry.level.name, entry.schema_uid)
    }

    fn schema(name: &str, level: &str, precedence: u32) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}")},
            "spec": {
                "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": "eve"}}],
                    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}],
                }],
            },
        }))
    }

    #[test]
    fn what_is_mandatory_is_always_there() {
        let configuration = Configuration::mandatory_alone(600);
        assert_eq!(found(&configuration, "root", &["system:masters"]), "exempt in exempt (\"\")");
        assert_eq!(found(&configuration, "eve", &["system:authenticated"]), "catch-all in catch-all (\"\")");
        assert_eq!(found(&configuration, "nobody", &[]), "catch-all in catch-all (\"\")");
    }

    #[test]
    fn a_schema_without_its_level_is_passed_over() {
        let level = Arc::new(json!({"metadata": {"name": "there"}, "spec": {"type": "Limited", "limited": {}}}));
        let schemas = [schema("a", "gone", 5), schema("c", "there", 7), schema("b", "there", 7)];
        let configuration = Configuration::build(600, &schemas, &[level], None);
        assert_eq!(found(&configuration, "eve", &["system:authenticated"]), "b in there (\"uid-of-b\")");
        let without = Configuration::build(600, &schemas, &[], Some(&configuration));
        assert_eq!(found(&without, "eve", &["system:authenticated"]), "catch-all in catch-all (\"\")");
    }

    #[test]
    fn levels_and_counts_live_on() {
        let level = |shares: u32| {
            let spec = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares}});
            [Arc::new(json!({"metadata": {"name": "there"}, "spec": spec}))]
        };
        let first = Configuration::build(100, &[schema("a", "there", 5)], &level(5), None);
        let second = Configuration::build(100, &[schema("a", "there", 6)], &level(15), Some(&first));
        let [before, after] = [&first, &second].map(|one| one.entries.iter().find(|e| e.schema.name == "a").unwrap());
        assert!(Arc::ptr_eq(&before.level, &after.level) && Arc::ptr_eq(&before.counts, &after.counts));
        assert_eq!(after.level.seen().limit, 75, "15 of 20 shares");
    }
}
